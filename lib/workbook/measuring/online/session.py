"""What a closed and an open loop share: connected clients, counters read before and after, waiting with open eyes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbook.errors import CancelledError, LoadError
from workbook.measuring.online.clients import Clients, Ticket
from workbook.measuring.online.journal import Journal
from workbook.measuring.online.requests import ModelInputs, PreparedRequest, check_requests, prepare_requests
from workbook.measuring.online.scenario import Load
from workbook.measuring.online.transports import RequestError, open_transport

if TYPE_CHECKING:
    from workbook.serving.handle import Server
    from workbook.serving.statistics import ModelStatistics

TICK_S = 0.25


@dataclass(frozen=True)
class Reading:
    """Counters at one moment: between two of them lies what was measured.

    Attributes:
        time_ns: of `time.perf_counter_ns`.
        process_ns: processor time of this process.
        statistics: of the model, as Triton counts.
    """

    time_ns: int
    process_ns: int
    statistics: ModelStatistics

    @classmethod
    def take(cls, server: Server, model: str, *, settled: bool = False) -> Reading:
        """Read all of them; see `Server.statistics` for `settled`."""
        time_ns, process_ns = time.perf_counter_ns(), time.process_time_ns()
        return cls(time_ns, process_ns, server.statistics(model, settled=settled))


def prepare(server: Server, load: Load, batches: Sequence[ModelInputs]) -> list[PreparedRequest]:
    """Requests ready to be sent; LoadError where the model would refuse them."""
    check_requests(server, load.model, batches, load.outputs)
    return prepare_requests(load.model, batches, load.outputs, load.transport)


@contextmanager
def connected(
    server: Server,
    load: Load,
    requests: Sequence[PreparedRequest],
    journal: Journal,
    take: Callable[[], Ticket | None],
) -> Iterator[Clients]:
    """Connected clients that wait for `go`; leaving ends them, whatever happened, and completes the journal."""
    url = server.grpc_url if load.transport == "grpc" else server.http_url
    transports = [open_transport(load.transport, url, load.timeout_s) for _ in range(load.concurrency)]
    try:
        with _COLLECTOR.quiet(), Clients(transports, requests, take, journal.finish) as clients:
            yield clients
    except RequestError as error:  # no connection; failures later on are records
        server.check_alive()
        raise LoadError(f"{error}. The server itself runs: check the address and the transport.") from None
    finally:
        journal.close()


class _Collector:
    """Keeps Python's collector from walking through what was loaded before (PyTorch: 0.1 s) between two requests.

    With every library loaded a whole collection takes 0.3 s, longer than many a load: one in a while will do.
    """

    EVERY_NS = 10_000_000_000
    _YOUNG, _ALL = 1, 2

    def __init__(self) -> None:
        self._last_ns: int | None = None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        now_ns = time.perf_counter_ns()
        is_due = self._last_ns is None or now_ns - self._last_ns > self.EVERY_NS
        if is_due:
            self._last_ns = now_ns
        gc.collect(self._ALL if is_due else self._YOUNG)
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()


_COLLECTOR = _Collector()


def never() -> bool:
    """Nobody cancels."""
    return False


def wait_until(
    time_ns: int, server: Server, clients: Clients, journal: Journal, cancelled: Callable[[], bool] = never
) -> None:
    """Wait; LoadError or ServerError as soon as waiting is hopeless, CancelledError within TICK_S of `cancelled`."""
    while (left_ns := time_ns - time.perf_counter_ns()) > 0:
        if cancelled():
            raise CancelledError("the measurement was cancelled; the records so far are kept.")
        clients.wait(min(TICK_S, left_ns / 1e9))
        journal.raise_if_hopeless(server)


def cpu_share(before: Reading, after: Reading) -> float:
    """Processor time of this process over the time between two readings; 1 is one processor."""
    return (after.process_ns - before.process_ns) / (after.time_ns - before.time_ns)
