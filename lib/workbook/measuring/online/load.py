"""The online arm: concurrent clients in a closed loop against a real server, one record a request.

The timed region of a request goes from handing its bytes to the transport until its outputs are NumPy arrays. Making
the request (tokenise, serialise) lies before it: every arm gets the same tokens, cut once by `batches.make_batches`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.measuring.online.clients import Clients, Ticket
from workbook.measuring.online.journal import Journal
from workbook.measuring.online.measured import measured_records
from workbook.measuring.online.requests import ModelInputs
from workbook.measuring.online.scenario import Load, LoadResult, ToTheEnd
from workbook.measuring.online.session import TICK_S, Reading, connected, cpu_share, never, prepare, wait_until
from workbook.measuring.online.windows import STABLE_WINDOWS, Window, WindowClock, is_stable
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

__all__ = ["Load", "LoadResult", "measure_load", "send_all"]
_TOO_SHORT = "Not one ended: a window (window_s) must hold several requests."


def measure_load(
    server: Server,
    load: Load,
    batches: Sequence[ModelInputs],
    records_path: Path,
    *,
    arm: str = "online",
    run: int = 0,
    progress: bool = True,
    cancelled: Callable[[], bool] = never,
) -> LoadResult:
    """Keep `load.concurrency` requests in flight, cycling through the batches, until three windows agree.

    Args:
        server: running server.
        load: what is sent.
        batches: sent in turn, again and again.
        records_path: CSV file of REQUEST_COLUMNS that the records are appended to.
        arm: written into the records.
        run: written into the records.
        progress: show a progress bar.
        cancelled: asked several times a second; the load ends soon after it says so.

    Raises:
        LoadError: the model would refuse the batches, or no request of the measured windows was answered.
        CancelledError: `cancelled` said so; the records so far are on disk.
        ServerError: the server is gone; the message holds the end of its log.
    """
    requests = prepare(server, load, batches)
    numbers = itertools.count()

    def take() -> Ticket:
        number = next(numbers)
        return Ticket(number, number % len(requests))

    with RecordWriter(records_path, REQUEST_COLUMNS) as writer:
        journal = Journal(writer, arm, run, load.concurrency)
        with connected(server, load, requests, journal, take) as clients:
            readings = _run_windows(server, load, clients, journal, progress, cancelled)
    windows = [journal.window(number) for number in range(len(readings) - 1)]
    measured = range(len(windows))[-STABLE_WINDOWS:]
    return LoadResult(
        load=load,
        arm=arm,
        run=run,
        records=measured_records(journal, measured, _TOO_SHORT),
        records_path=records_path,
        windows=_windows_table(windows, measured),
        stable=is_stable(windows, load.stability_percent),
        duration_s=len(measured) * load.window_s,
        statistics=readings[-1].statistics - readings[measured[0]].statistics,
        client_cpu_share=cpu_share(readings[measured[0]], readings[-1]),
        to_the_end=ToTheEnd(journal.answered_after_warm_up(), readings[0].statistics),
    )


def send_all(
    server: Server,
    load: Load,
    batches: Sequence[ModelInputs],
    records_path: Path,
    *,
    arm: str = "online",
    run: int = 0,
    keep_outputs: bool = False,
    progress: bool = True,
) -> LoadResult:
    """Send every batch exactly once, in order, with `load.concurrency` clients: no warm-up, one window.

    Args:
        server: running server.
        load: what is sent; its warm-up and windows do not apply.
        batches: the requests, one each.
        records_path: CSV file of REQUEST_COLUMNS that the records are appended to.
        arm: written into the records.
        run: written into the records.
        keep_outputs: keep the decoded outputs, for checking the answers.
        progress: show a progress bar.

    Raises:
        LoadError: the model would refuse the batches, or every request failed.
        ServerError: the server is gone; the message holds the end of its log.
    """
    requests = prepare(server, load, batches)
    numbers = iter(range(len(requests)))

    def take() -> Ticket | None:
        number = next(numbers, None)
        return None if number is None else Ticket(number, number)

    with RecordWriter(records_path, REQUEST_COLUMNS) as writer:
        journal = Journal(writer, arm, run, load.concurrency, keep_outputs=keep_outputs)
        with connected(server, load, requests, journal, take) as clients:
            readings = _run_to_the_end(server, load, clients, journal, sum(r.rows for r in requests), progress)
    records = measured_records(journal, range(1), _TOO_SHORT)
    duration_ns = int(records["decoded_ns"].max() - records["sent_ns"].min())
    return LoadResult(
        load=load,
        arm=arm,
        run=run,
        records=records,
        records_path=records_path,
        windows=_windows_table([replace(journal.window(0), duration_ns=duration_ns)], range(1)),
        stable=True,
        duration_s=duration_ns / 1e9,
        statistics=readings[1].statistics - readings[0].statistics,
        client_cpu_share=cpu_share(*readings),
        outputs=[journal.outputs.get(number, {}) for number in range(len(requests))] if keep_outputs else None,
    )


def _run_windows(
    server: Server, load: Load, clients: Clients, journal: Journal, progress: bool, cancelled: Callable[[], bool]
) -> list[Reading]:
    """Warm up, then measure window after window until three agree; a reading before the first and after each."""
    from tqdm.auto import tqdm

    clock = WindowClock(time.perf_counter_ns() + round(load.warmup_s * 1e9), round(load.window_s * 1e9))
    journal.start(clock)
    clients.go()
    wait_until(clock.start_ns, server, clients, journal, cancelled)
    readings = [Reading.take(server, load.model)]
    windows: list[Window] = []
    with tqdm(total=load.max_windows, unit="window", desc=_title(load), leave=False, disable=not progress) as bar:
        while _goes_on(windows, load):
            number = len(windows)
            journal.open_window(number)
            wait_until(clock.end_ns(number), server, clients, journal, cancelled)
            readings.append(Reading.take(server, load.model))
            windows.append(journal.window(number))
            bar.set_postfix_str(f"{windows[-1].throughput_rows_per_s:.1f} rows/s", refresh=False)
            bar.update()
    return readings


def _goes_on(windows: Sequence[Window], load: Load) -> bool:
    """Whether another window follows: until three agree or there are enough, and never while the last three are empty.

    A request longer than the windows so makes the measurement longer, by `timeout_s` at most, and not fail.
    """
    last = windows[-STABLE_WINDOWS:]
    if len(last) == STABLE_WINDOWS and not any(window.requests or window.failed for window in last):
        return True
    return len(windows) < load.max_windows and not is_stable(windows, load.stability_percent)


def _run_to_the_end(
    server: Server, load: Load, clients: Clients, journal: Journal, rows: int, progress: bool
) -> tuple[Reading, Reading]:
    """Wait until every request was sent and ended; a reading before and after."""
    from tqdm.auto import tqdm

    journal.open_window(0)
    before = Reading.take(server, load.model, settled=True)
    clients.go()
    with tqdm(total=rows, unit="row", desc=_title(load), leave=False, disable=not progress) as bar:
        while not clients.wait(TICK_S):
            journal.raise_if_hopeless(server)
            bar.update(journal.rows_ended() - bar.n)
    journal.raise_if_hopeless(server)
    return before, Reading.take(server, load.model, settled=True)


def _title(load: Load) -> str:
    return f"{load.model} {load.transport} x{load.concurrency}"


def _windows_table(windows: Sequence[Window], measured: range) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {
            "window": window.number,
            "requests": window.requests,
            "failed": window.failed,
            "rows": window.rows,
            "throughput_rows_per_s": window.throughput_rows_per_s,
            "latency_mean_ms": window.latency_mean_ms,
            "measured": window.number in measured,
        }
        for window in windows
    )
