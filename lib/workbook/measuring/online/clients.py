"""N concurrent clients: threads that send prepared requests and keep a record of each.

Threads of this process are enough. A client waits for its answer without Python's global lock, and holds that lock for
about 0.1 ms a request; what N of them can send is measured, not assumed, in `capacity.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from workbook.errors import LoadError
from workbook.measuring.online.requests import PreparedRequest
from workbook.measuring.online.transports import Answer, RequestError, Transport

_PAUSE_AFTER_FAILURE_S = 0.05
_JOIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to send one request.

    Attributes:
        number: order of sending within the run, from 0.
        request: index of the prepared request.
        intended_ns: when it should be sent; None: now, as in a closed loop.
    """

    number: int
    request: int
    intended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that ended, well or not; the times as in REQUEST_COLUMNS."""

    number: int
    client: int
    request: PreparedRequest
    intended_ns: int
    sent_ns: int
    received_ns: int
    decoded_ns: int
    bytes_out: int = 0
    error: str = ""
    is_broken: bool = False
    outputs: dict[str, NDArray[Any]] | None = None


class Clients:
    """The clients of one run, as a context manager: leaving it ends all their threads.

    Args:
        transports: one per client.
        requests: what tickets point to.
        take: gives a client its next ticket, or None when there is nothing more to send; called by all threads.
        finish: takes every sample; called by all threads.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        requests: Sequence[PreparedRequest],
        take: Callable[[], Ticket | None],
        finish: Callable[[Sample], None],
    ) -> None:
        self._transports = transports
        self._requests = requests
        self._take = take
        self._finish = finish
        self._stopping = threading.Event()
        self._cancelled = False
        self._go = threading.Event()
        self._news = threading.Event()
        self._ended = 0  # written by each thread once, under the lock
        self._lock = threading.Lock()
        self._crash: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(client,), name=f"load-client-{client}", daemon=True)
            for client in range(len(transports))
        ]

    def __enter__(self) -> Clients:
        """Connect all clients, then start their threads, which wait for `go`."""
        try:
            for transport in self._transports:
                transport.connect()
        except BaseException:
            self._close()
            raise
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads: after an error at once, else when the requests in flight have ended."""
        self._stopping.set()
        self._go.set()
        try:
            if error is None:
                self._join(None)
        finally:
            self._cancelled = True
            self._close()
            self._join(_JOIN_S)

    def go(self) -> None:
        """Let all clients send."""
        self._go.set()

    def wait(self, seconds: float) -> bool:
        """Wait, no longer than until a request fails or all clients are done; say whether all are done.

        Raises:
            Exception: what a client's thread died of: a mistake in this program, not a failed request.
        """
        self._news.wait(max(0.0, seconds))
        self._news.clear()
        if self._crash is not None:
            raise self._crash
        return self._ended == len(self._threads)

    def _run(self, client: int) -> None:
        self._go.wait()
        try:
            free_ns = time.perf_counter_ns()
            while not self._stopping.is_set() and (ticket := self._take()) is not None:
                sample = self._send(client, ticket, free_ns)
                free_ns = sample.decoded_ns
                if self._cancelled:
                    return
                self._finish(sample)
                if sample.error:
                    self._news.set()
                    self._stopping.wait(_PAUSE_AFTER_FAILURE_S)
                    free_ns = time.perf_counter_ns()
        except BaseException as error:
            self._crash = error
        finally:
            with self._lock:
                self._ended += 1
            self._news.set()

    def _send(self, client: int, ticket: Ticket, free_ns: int) -> Sample:
        request = self._requests[ticket.request]
        intended_ns = free_ns if ticket.intended_ns is None else ticket.intended_ns
        sent_ns = time.perf_counter_ns()
        try:
            answer = self._transports[client].send(request.message)
        except RequestError as error:
            end_ns = time.perf_counter_ns()
            times = (intended_ns, sent_ns, end_ns, end_ns)
            return Sample(ticket.number, client, request, *times, error=str(error), is_broken=error.is_broken)
        received_ns = time.perf_counter_ns()
        outputs, error_text = _decode(answer)
        times = (intended_ns, sent_ns, received_ns, time.perf_counter_ns())
        return Sample(ticket.number, client, request, *times, answer.bytes, error_text, outputs=outputs)

    def _close(self) -> None:
        for transport in self._transports:
            transport.close()

    def _join(self, timeout_s: float | None) -> None:
        for thread in self._threads:
            if thread.ident is None:
                continue
            thread.join(timeout_s)
            if thread.is_alive():
                raise LoadError(f"{thread.name} did not end within {timeout_s} s of the end of the load.")


def _decode(answer: Answer) -> tuple[dict[str, NDArray[Any]] | None, str]:
    """The outputs, or why there are none."""
    try:
        return answer.decode(), ""
    except (KeyError, TypeError, ValueError) as error:
        return None, f"the answer cannot be decoded: {type(error).__name__}: {error}"
