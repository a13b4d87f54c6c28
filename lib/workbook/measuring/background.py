"""One piece of work at a time, beside the kernel: started by a button, watched, cancelled, never two at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from workbook.errors import CancelledError, WorkbookError

State = Literal["idle", "running", "done", "cancelled", "failed"]


class BackgroundJob:
    """Work that runs in a thread of its own, so that a notebook's other cells go on.

    Attributes:
        state: of the work last started; `idle` before the first.
        result: what the work returned; None until it is done.
        error: why it failed, one sentence; empty where it did not.
        note: what it does at the moment, a few words, set by the work.
    """

    def __init__(self) -> None:
        self.state: State = "idle"
        self.result: Any = None
        self.error = ""
        self.note = ""
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._share = 0.0
        self._started_s = self._ended_s = 0.0
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[BackgroundJob], Any]) -> bool:
        """Start the work; False, and nothing happens, where other work still runs.

        Args:
            work: called with this job; it calls `report` and `raise_if_cancelled` from time to time.
        """
        with self._lock:
            if self.is_running:
                return False
            self.state, self.result, self.error, self.note, self._share = "running", None, "", "", 0.0
            self._cancel = threading.Event()
            self._started_s = time.monotonic()
            self._thread = threading.Thread(target=self._run, args=(work,), name="workbook-job", daemon=True)
            self._thread.start()
            return True

    @property
    def is_running(self) -> bool:
        """Whether work is under way, or about to end after `cancel`."""
        return self.state == "running"

    @property
    def cancelled(self) -> bool:
        """Whether the work shall end."""
        return self._cancel.is_set()

    def cancel(self) -> None:
        """Ask the work to end; it keeps what it has measured."""
        self._cancel.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_running

    # --- called by the work ----------------------------------------------------------------------------------------

    def report(self, share: float, note: str = "") -> None:
        """Say how far the work has come: a share from 0 to 1, and what it does now."""
        self._share = min(1.0, max(self._share, share))
        self.note = note or self.note

    def raise_if_cancelled(self) -> None:
        """Do nothing until somebody cancels.

        Raises:
            CancelledError: somebody did.
        """
        if self.cancelled:
            raise CancelledError("Cancelled.")

    # --- shown -----------------------------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """How far it has come, from 0 to 1."""
        return 1.0 if self.state == "done" else self._share

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, until the end."""
        return (time.monotonic() if self.is_running else self._ended_s) - self._started_s

    @property
    def left_s(self) -> float | None:
        """Seconds left if it goes on as so far; None while too little is done to say."""
        if not self.is_running or self._share < 0.05:
            return None
        return self.elapsed_s * (1 - self._share) / self._share

    @property
    def sentence(self) -> str:
        """The state in words."""
        if self.is_running:
            left = "" if self.left_s is None else f", about {max(1, round(self.left_s))} s left"
            doing = "stopping" if self.cancelled else self.note or "working"
            return f"{doing[:1].upper()}{doing[1:]}: {self.share:.0%}{'' if self.cancelled else left}."
        return {
            "idle": "",
            "done": f"Done in {self.elapsed_s:.1f} s.",
            "cancelled": f"Cancelled after {self.elapsed_s:.1f} s; what was measured so far is kept.",
            "failed": "Stopped by an error.",
        }[self.state]

    def _run(self, work: Callable[[BackgroundJob], Any]) -> None:
        state: State = "failed"
        try:
            self.result = work(self)
            state = "done"
        except CancelledError:
            state = "cancelled"
        except WorkbookError as error:
            self.error = first_line(error)
        except Exception as error:  # a thread's traceback goes to a log that nobody reads
            self.error = f"The measurement stopped: {type(error).__name__}: {first_line(error)}"
        finally:
            self._ended_s = time.monotonic()
            self.state = state


def first_line(error: BaseException) -> str:
    """What an error says, without the log lines that follow it."""
    return (str(error).splitlines() or [type(error).__name__])[0]
