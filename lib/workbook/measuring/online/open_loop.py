"""The open loop: requests leave at a given rate, whatever became of those before.

A closed loop slows down with the server and so never asks for more than it gets; users do not wait for each other. The
latency here counts from the moment a request should have been sent, so that a stall is paid by every request it delays
(the mistake of counting from the actual send is known as coordinated omission).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.measuring.online.clients import Clients, Ticket
from workbook.measuring.online.journal import Journal
from workbook.measuring.online.measured import measured_records
from workbook.measuring.online.requests import ModelInputs
from workbook.measuring.online.scenario import Load
from workbook.measuring.online.session import TICK_S, Reading, connected, cpu_share, prepare, wait_until
from workbook.measuring.online.windows import WindowClock
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server
    from workbook.serving.statistics import ModelStatistics

Arrivals = Literal["constant", "poisson"]
_HEAD_START_S = 0.1
MOST_CLIENTS = 64


@dataclass(frozen=True)
class OpenLoop:
    """Requests at a rate. Making one touches nothing.

    Attributes:
        load: model, transport, outputs, time limit; its concurrency is the most requests in flight (one client each),
            its windows do not apply. Where all clients wait, a request leaves late, and its latency says so.
        rate_per_s: requests per second.
        arrivals: `constant` (equal gaps) or `poisson` (independent users: exponential gaps).
        duration_s: measured time, s.
        warmup_s: time before it, s, at the same rate.
        drain_s: time after it in which requests may still be sent and answered, s; what has not left by then counts as
            never answered.
        seed: of the gaps.
    """

    load: Load
    rate_per_s: float
    arrivals: Arrivals = "poisson"
    duration_s: float = 5.0
    warmup_s: float = 0.5
    drain_s: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.arrivals not in get_args(Arrivals):
            raise SettingError(f"arrivals is {self.arrivals!r}: it must be one of {', '.join(get_args(Arrivals))}.")
        bounds = {
            "rate_per_s": (1e-3, 1e5),
            "duration_s": (0.05, 36_000),
            "warmup_s": (0, 3600),
            "drain_s": (0, 3600),
        }
        for name, (lowest, highest) in bounds.items():
            if not lowest <= getattr(self, name) <= highest:  # also refuses NaN
                raise SettingError(f"{name} is {getattr(self, name)}: it must lie between {lowest:g} and {highest:g}.")


@dataclass(frozen=True, eq=False)
class OpenLoopResult:
    """A finished open loop.

    Attributes:
        open_loop: what was asked for.
        scheduled: requests that should have been sent in the measured time.
        records: those that were, REQUEST_COLUMNS, in order of sending.
        records_path: file with all requests, warm-up included.
        statistics: Triton's counters from the end of the warm-up until all was answered.
        client_cpu_share: processor time of this process over the measured time.
    """

    open_loop: OpenLoop
    scheduled: int
    records: pd.DataFrame = field(repr=False)
    records_path: Path
    statistics: ModelStatistics = field(repr=False)
    client_cpu_share: float


def arrival_times_s(rate_per_s: float, duration_s: float, arrivals: Arrivals, seed: int = 0) -> NDArray[np.float64]:
    """When requests should be sent, seconds from the start, ascending, all below the duration.

    Constant: k / rate. Poisson: sums of exponential gaps of mean 1 / rate, so that the number in any second is Poisson.
    """
    if arrivals == "constant":
        return np.arange(0, duration_s, 1 / rate_per_s)
    random = np.random.default_rng(seed)
    likely = rate_per_s * duration_s
    times = np.cumsum(random.exponential(1 / rate_per_s, int(likely + 10 * likely**0.5 + 10)))
    return times[times < duration_s]


def measure_open_loop(
    server: Server,
    open_loop: OpenLoop,
    batches: Sequence[ModelInputs],
    records_path: Path,
    *,
    arm: str = "open loop",
    run: int = 0,
    progress: bool = True,
) -> OpenLoopResult:
    """Send the batches in turn at the given rate and wait for the answers.

    Args:
        server: running server.
        open_loop: what is sent, and when.
        batches: sent in turn, again and again.
        records_path: CSV file of REQUEST_COLUMNS that the records are appended to.
        arm: written into the records.
        run: written into the records.
        progress: show a progress bar.

    Raises:
        LoadError: the model would refuse the batches, or no measured request was answered.
        ServerError: the server is gone; the message holds the end of its log.
    """
    load = open_loop.load
    requests = prepare(server, load, batches)
    whole_s = open_loop.warmup_s + open_loop.duration_s
    times_s = arrival_times_s(open_loop.rate_per_s, whole_s, open_loop.arrivals, open_loop.seed)
    schedule = _Schedule(times_s, len(requests), whole_s + open_loop.drain_s)
    with RecordWriter(records_path, REQUEST_COLUMNS) as writer:
        journal = Journal(writer, arm, run, load.concurrency, by_intended=True)
        with connected(server, load, requests, journal, schedule.take) as clients:
            before, after = _run(server, open_loop, clients, journal, schedule, progress)
    return OpenLoopResult(
        open_loop=open_loop,
        scheduled=int((times_s >= open_loop.warmup_s).sum()),
        records=measured_records(journal, (0,), "Raise duration_s: it must hold some."),
        records_path=records_path,
        statistics=after.statistics - before.statistics,
        client_cpu_share=cpu_share(before, after),
    )


class _Schedule:
    """Hands each client its next request at the moment it should leave."""

    def __init__(self, times_s: NDArray[np.float64], requests: int, latest_s: float) -> None:
        self._times_ns = np.rint(times_s * 1e9).astype(np.int64)
        self._requests = requests
        self._latest_ns = round(latest_s * 1e9)
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self.start_ns = 0

    def begin(self) -> None:
        self.start_ns = time.perf_counter_ns() + round(_HEAD_START_S * 1e9)

    def end(self) -> None:
        """Wake all clients that wait for their moment, for good."""
        self._ended.set()

    def take(self) -> Ticket | None:
        number = next(self._numbers)
        if number >= len(self._times_ns):
            return None
        intended_ns = self.start_ns + int(self._times_ns[number])
        wait_ns = intended_ns - time.perf_counter_ns()
        if wait_ns > 0 and self._ended.wait(wait_ns / 1e9):
            return None
        if self._ended.is_set() or time.perf_counter_ns() > self.start_ns + self._latest_ns:
            return None
        return Ticket(number, number % self._requests, intended_ns)


def _run(
    server: Server, open_loop: OpenLoop, clients: Clients, journal: Journal, schedule: _Schedule, progress: bool
) -> tuple[Reading, Reading]:
    """Let the schedule run, then wait until every request that was sent has ended."""
    from tqdm.auto import tqdm

    title = f"{open_loop.load.model} {open_loop.rate_per_s:.3g}/s {open_loop.arrivals}"
    try:
        schedule.begin()
        measured_from_ns = schedule.start_ns + round(open_loop.warmup_s * 1e9)
        journal.start(WindowClock(measured_from_ns, 1 << 62))
        journal.open_window(0)
        clients.go()
        wait_until(measured_from_ns, server, clients, journal)
        before = Reading.take(server, open_loop.load.model)
        with tqdm(total=round(open_loop.duration_s, 1), unit="s", desc=title, leave=False, disable=not progress) as bar:
            while not clients.wait(TICK_S):
                journal.raise_if_hopeless(server)
                passed_s = (time.perf_counter_ns() - measured_from_ns) / 1e9
                bar.update(round(min(passed_s, open_loop.duration_s), 1) - bar.n)
        return before, Reading.take(server, open_loop.load.model, settled=True)
    finally:
        schedule.end()
