"""Windows long enough for the machine at hand: a slow one takes longer, and fails no measurement.

A window in which no request ends measures nothing. So before a load is measured a few requests go out alone; what they
take says how long a window has to be.
"""

from __future__ import annotations

from dataclasses import replace

from workbook.measuring.online.scenario import Load, LoadResult

LEAST_REQUESTS = 4
"""A window lasts at least as long as so many lone requests, and as two turns of all clients."""


def lone_request_s(result: LoadResult) -> float:
    """Seconds a request took on its own: the median of what `send_all` sent one at a time.

    With three or more the first, which may pay for the warm-up of its shape, does not count for much.
    """
    answered = result.records[result.records["error"] == ""]
    return float((answered["decoded_ns"] - answered["sent_ns"]).median()) / 1e9


def patient(load: Load, lone_s: float) -> Load:
    """The load with windows, and a warm-up, that hold several of its requests where those asked for would not.

    Args:
        load: as asked for.
        lone_s: from `lone_request_s`.
    """
    least_s = max(LEAST_REQUESTS, 2 * load.concurrency) * lone_s
    if load.window_s >= least_s:
        return load
    return replace(load, window_s=least_s, warmup_s=max(load.warmup_s, load.concurrency * lone_s))
