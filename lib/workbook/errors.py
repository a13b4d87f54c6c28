"""Every error the workbook raises on purpose.

WorkbookError
├── SettingError           a parameter has a value it cannot have
├── SetupError             something is missing from this machine
├── CorpusError            the text cannot be read
├── ModelError             a model cannot be found, loaded, exported or converted
├── ServerError            Triton did not start, died or refused; carries the end of its log
├── LoadError              a measurement could not be carried to its end; records so far are kept
│   └── CancelledError     because somebody cancelled it
└── NotComparableError     two arms differ in a field that was not declared as the difference

A message names the value, the bound it broke and the way to mend it.
"""

from __future__ import annotations


class WorkbookError(Exception):
    """Base of the tree: a mistake or a mishap that has a plain explanation.

    A notebook shows the message without a traceback: its reader needs the sentence, not our call stack.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class SettingError(WorkbookError, ValueError):
    """A parameter has a value it cannot have."""


class SetupError(WorkbookError):
    """Something the workbook needs is missing from this machine."""


class CorpusError(WorkbookError):
    """The corpus cannot be read."""


class ModelError(WorkbookError):
    """A model cannot be found, loaded, exported or converted."""


class ServerError(WorkbookError):
    """Triton did not start, died, or refused a request.

    Attributes:
        log_tail: the last lines of the server's log, oldest first; empty where there is none.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(f"{message}\nThe server's last log lines:\n{log_tail}" if log_tail else message)
        self.log_tail = log_tail


class LoadError(WorkbookError):
    """A measurement could not be carried to its end; the records taken so far are kept."""


class CancelledError(LoadError):
    """Somebody cancelled the measurement; the records taken so far are kept."""


class NotComparableError(WorkbookError):
    """Two arms differ in a field that was not declared as the difference."""
