"""Measurement windows: when a closed loop has settled, by the rule perf_analyzer uses.

Its own help text: a measurement is stable if max / min over the last three windows is within the stability percentage,
for inferences per second and for latency. Only requests that end inside a window count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STABLE_WINDOWS = 3
WARM_UP = -1
"""Window of a request that is not measured: it ended during warm-up, or after the last window."""


@dataclass(frozen=True)
class Window:
    """What ended inside one window.

    Attributes:
        number: from 0.
        duration_ns: length of the window.
        requests: answered requests.
        failed: requests that ended in an error.
        rows: batch elements of the answered requests.
        latency_sum_ns: from sending to decoded outputs, added up over the answered requests.
    """

    number: int
    duration_ns: int
    requests: int = 0
    failed: int = 0
    rows: int = 0
    latency_sum_ns: int = 0

    @property
    def throughput_rows_per_s(self) -> float:
        """Answered rows per second."""
        return self.rows / self.duration_ns * 1e9

    @property
    def latency_mean_ms(self) -> float:
        """Mean latency of the answered requests; NaN where there is none."""
        return self.latency_sum_ns / self.requests / 1e6 if self.requests else float("nan")


@dataclass(frozen=True)
class WindowClock:
    """Windows of equal length, back to back.

    Attributes:
        start_ns: when warm-up ends and window 0 begins.
        length_ns: length of every window.
    """

    start_ns: int
    length_ns: int

    def number_at(self, time_ns: int) -> int:
        """The window a request belongs to that ended at this time; WARM_UP before the first."""
        return (time_ns - self.start_ns) // self.length_ns if time_ns >= self.start_ns else WARM_UP

    def end_ns(self, number: int) -> int:
        """When a window ends, which is when the next one begins."""
        return self.start_ns + (number + 1) * self.length_ns


def is_stable(windows: Sequence[Window], stability_percent: float) -> bool:
    """Whether the last three windows agree, in throughput and in mean latency: max / min <= 1 + percent / 100."""
    last = windows[-STABLE_WINDOWS:]
    if len(last) < STABLE_WINDOWS or any(window.requests == 0 for window in last):
        return False
    bound = 1 + stability_percent / 100
    return all(
        max(values) <= bound * min(values)
        for values in ([w.throughput_rows_per_s for w in last], [w.latency_mean_ms for w in last])
    )
