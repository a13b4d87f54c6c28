"""The journal of one load: every request becomes a record, is counted by window, and failures in a row are noticed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError
from workbook.measuring.online.clients import Sample
from workbook.measuring.online.windows import WARM_UP, Window, WindowClock
from workbook.measuring.records import RecordWriter

if TYPE_CHECKING:
    from workbook.serving.handle import Server

_FAILURES_AT_FIRST = 20
_UNREACHABLE_NS = 10_000_000_000
_QUEUE_IS_FULL = "Exceeds maximum queue size"
"""Triton's words for a request that it refuses because too many wait: the server is busy, not broken."""


class Journal:
    """Takes the samples of all clients, from any thread.

    Args:
        writer: where records go.
        arm, run, concurrency: written into every record.
        keep_outputs: keep the decoded outputs by number of the request.
        by_intended: a request belongs to the window in which it should have been sent, as in an open loop; else to the
            one it ended in.

    Attributes:
        records: what was written so far.
        outputs: decoded outputs by number of the request.
        first_error: text of the first failure; empty while there is none.
    """

    def __init__(
        self,
        writer: RecordWriter,
        arm: str,
        run: int,
        concurrency: int,
        *,
        keep_outputs: bool = False,
        by_intended: bool = False,
    ) -> None:
        self.records: list[dict[str, Any]] = []
        self.outputs: dict[int, dict[str, NDArray[Any]]] = {}
        self.first_error = ""
        self._same = {"arm": arm, "run": run, "concurrency": concurrency}
        self._writer = writer
        self._keep_outputs = keep_outputs
        self._by_intended = by_intended
        self._lock = threading.Lock()
        self._clock = WindowClock(0, 1 << 62)
        self._windows: dict[int, Window] = {}
        self._open_window = WARM_UP
        self._early: list[dict[str, Any]] = []  # ended in a window that may never be opened
        self._answered = 0
        self._last_answer_ns = time.perf_counter_ns()
        self._failures: list[Sample] = []  # since the last answer

    def start(self, clock: WindowClock) -> None:
        """Set when the windows are; before that, everything falls into window 0 once it is open."""
        self._clock = clock

    def open_window(self, number: int) -> None:
        """Let requests that end in this window count."""
        with self._lock:
            self._open_window = number
            early, self._early = self._early, []
            for record in early:
                self._write(record)

    def close(self) -> None:
        """Write what ended after the last window, as not measured."""
        with self._lock:
            for record in self._early:
                self._write({**record, "window": WARM_UP})
            self._early = []

    def finish(self, sample: Sample) -> None:
        """Take a request that ended."""
        record = self._record(sample)
        with self._lock:
            if record["window"] > self._open_window:
                self._early.append(record)
            else:
                self._write(record)
            self._watch(sample)
            if self._keep_outputs and sample.outputs is not None:
                self.outputs[sample.number] = sample.outputs

    def window(self, number: int) -> Window:
        """What ended inside a window so far."""
        return self._windows.get(number, Window(number, self._clock.length_ns))

    def answered_after_warm_up(self) -> NDArray[np.int64]:
        """When each answer since the warm-up came, those after the last window included; in order."""
        with self._lock:
            ended = [record["decoded_ns"] for record in self.records if not record["error"]]
        return np.array(sorted(moment for moment in ended if moment >= self._clock.start_ns), np.int64)

    def rows_ended(self) -> int:
        """Rows of all requests that ended so far."""
        return sum(window.rows for window in self._windows.values())

    def raise_if_hopeless(self, server: Server) -> None:
        """Do nothing while requests are answered, or fail for a reason of their own.

        Raises:
            ServerError: connections fail and the server has ended.
            LoadError: no request ever succeeded, or the server could not be reached for 10 s.
        """
        with self._lock:
            failures, answered = list(self._failures), self._answered
        if any(sample.is_broken for sample in failures):
            server.check_alive()
            silent_ns = time.perf_counter_ns() - self._last_answer_ns
            if all(sample.is_broken for sample in failures) and answered and silent_ns > _UNREACHABLE_NS:
                raise LoadError(f"the server runs, but gave no answer for {silent_ns / 1e9:.0f} s: {self.first_error}")
        failures = [sample for sample in failures if _QUEUE_IS_FULL not in sample.error]
        if not answered and len(failures) >= _FAILURES_AT_FIRST:
            raise LoadError(f"the first {len(failures)} requests all failed. The first of them: {self.first_error}")

    def _watch(self, sample: Sample) -> None:
        if sample.error:
            self.first_error = self.first_error or sample.error
            self._failures.append(replace(sample, outputs=None))
        else:
            self._answered += 1
            self._last_answer_ns = sample.decoded_ns
            self._failures.clear()

    def _write(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self._writer.append(record)
        number, failed = record["window"], bool(record["error"])
        window = self._windows.get(number, Window(number, self._clock.length_ns))
        self._windows[number] = replace(
            window,
            requests=window.requests + (not failed),
            failed=window.failed + failed,
            rows=window.rows + (0 if failed else record["rows"]),
            latency_sum_ns=window.latency_sum_ns + (0 if failed else record["decoded_ns"] - record["sent_ns"]),
        )

    def _record(self, sample: Sample) -> dict[str, Any]:
        request = sample.request
        return {
            **self._same,
            "client": sample.client,
            "request": sample.number,
            "window": self._clock.number_at(sample.intended_ns if self._by_intended else sample.decoded_ns),
            "first_row": request.first_row,
            "intended_ns": sample.intended_ns,
            "sent_ns": sample.sent_ns,
            "received_ns": sample.received_ns,
            "decoded_ns": sample.decoded_ns,
            "rows": request.rows,
            "real_tokens": request.real_tokens,
            "padded_tokens": request.padded_tokens,
            "bytes_in": request.body_bytes,
            "bytes_out": sample.bytes_out,
            "error": sample.error,
        }
