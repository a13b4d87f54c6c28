"""One handle for every kind of server: where it listens, what it counted, what it logged, how it ends."""

from __future__ import annotations

import abc
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from workbook.errors import ServerError, WorkbookError
from workbook.serving import control
from workbook.serving.ports import LOOPBACK, Ports
from workbook.serving.statistics import ModelStatistics

_S = TypeVar("_S", bound="Server")
ServerKind = Literal["embedded", "container", "remote"]
_POLL_S = 0.05
_SETTLE_S = 0.02


@dataclass(frozen=True)
class ServerInfo:
    """What the server says of itself."""

    name: str
    version: str
    extensions: tuple[str, ...] = field(default=(), repr=False)


class Server(abc.ABC):
    """A running Triton server. Use it in a `with` statement: leaving it stops what was started.

    Attributes:
        kind: how it was started.
        http_url, grpc_url, metrics_url: `host:port`, as Triton's clients take it.
        models: the models it was started with, all ready.
        log_file: where its log goes; None where only someone else sees it.
    """

    kind: ServerKind

    def __init__(self, ports: Ports, models: tuple[str, ...], log_file: Path | None, host: str = LOOPBACK) -> None:
        self.http_url = f"{host}:{ports.http}"
        self.grpc_url = f"{host}:{ports.grpc}"
        self.metrics_url = f"{host}:{ports.metrics}"
        self.models = models
        self.log_file = log_file

    @property
    @abc.abstractmethod
    def pid(self) -> int | None:
        """Process id of the server on this machine; None where it has none we may look at."""

    @abc.abstractmethod
    def is_alive(self) -> bool:
        """Whether the server still runs."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End what was started and remove all that is left of it; a second call does nothing."""

    @abc.abstractmethod
    def log_tail(self, lines: int = 40) -> str:
        """The last lines of its log, oldest first; also after its end."""

    def cpu_seconds(self) -> float | None:
        """CPU time used so far by the server's process and all below it, s; None where it cannot be known."""
        return None

    @property
    def server_info(self) -> ServerInfo:
        """Name, version and extensions; raises ServerError where it does not answer."""
        answer = control.get_json(self.http_url, "/v2")
        return ServerInfo(answer["name"], answer["version"], tuple(answer.get("extensions", ())))

    def statistics(self, model: str, *, settled: bool = False) -> ModelStatistics:
        """The model's counters since it was loaded; subtract two readings to get what lies between.

        Triton books a request a moment after it has answered it: a reading right behind the last answer can miss that
        one.

        Args:
            model: its name.
            settled: read until two readings 20 ms apart agree, at most for a second. For readings while no request
            runs.

        Raises:
            ServerError: the server is gone or does not know the model.
        """
        reading = self._read_statistics(model)
        deadline_ns = time.perf_counter_ns() + 1_000_000_000
        while settled and time.perf_counter_ns() < deadline_ns:
            time.sleep(_SETTLE_S)
            earlier, reading = reading, self._read_statistics(model)
            if earlier == reading:
                break
        return reading

    def _read_statistics(self, model: str) -> ModelStatistics:
        self.check_alive()
        answer = control.get_json(self.http_url, f"/v2/models/{model}/stats")
        return ModelStatistics.from_triton(max(answer["model_stats"], key=lambda stats: int(stats["version"])))

    def model_config(self, model: str) -> dict[str, Any]:
        """The configuration the server really uses, as JSON, its own completions included."""
        config: dict[str, Any] = control.get_json(self.http_url, f"/v2/models/{model}/config")
        return config

    def load_model(self, model: str, timeout_s: float = 300.0) -> None:
        """Load, or load anew, a model of the repository; needs `model_control_mode="explicit"`."""
        path = f"/v2/repository/models/{model}/load"
        control.get_json(self.http_url, path, method="POST", body={}, timeout_s=timeout_s)

    def unload_model(self, model: str) -> None:
        """Unload a model; needs `model_control_mode="explicit"`."""
        control.get_json(self.http_url, f"/v2/repository/models/{model}/unload", method="POST", body={})

    def check_alive(self) -> None:
        """Do nothing while the server runs.

        Raises:
            ServerError: it ended; the message holds the end of its log.
        """
        if not self.is_alive():
            raise ServerError(f"The Triton server ended{self._how_it_ended()}.", self.log_tail())

    def explain_failure(self, error: BaseException) -> WorkbookError:
        """The error to raise in place of a client's: a broken connection becomes "the server died", with its log.

        A server that dies breaks its connections a moment before it can be seen to be dead; hence the short wait.
        """
        if isinstance(error, WorkbookError):
            return error
        deadline_ns = time.perf_counter_ns() + 500_000_000
        while self.is_alive() and time.perf_counter_ns() < deadline_ns and _is_broken_connection(error):
            time.sleep(_POLL_S)
        if not self.is_alive():
            return ServerError(
                f"The Triton server ended{self._how_it_ended()} while a request ran ({error}).", self.log_tail()
            )
        return ServerError(f"Triton refused a request: {error}", self.log_tail(10))

    def _how_it_ended(self) -> str:
        return ""

    def __enter__(self: _S) -> _S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} grpc={self.grpc_url} http={self.http_url} models={','.join(self.models)}>"


def _is_broken_connection(error: BaseException) -> bool:
    text = str(error).lower()
    signs = ("unavailable", "connection", "socket", "reset", "closed", "broken pipe", "timeout", "deadline")
    return isinstance(error, OSError) or any(sign in text for sign in signs)


def tail_of(text: str, lines: int) -> str:
    """The last lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-lines:]) if lines > 0 else ""


def read_tail(file: Path | None, lines: int, *, from_byte: int = 0) -> str:
    """The last lines of a log file, of its last 256 KiB at most and none before `from_byte`; empty without a file."""
    try:
        with file.open("rb") if file else io.BytesIO() as log:
            log.seek(max(from_byte, log.seek(0, io.SEEK_END) - (256 << 10)))
            return tail_of(log.read().decode(errors="replace"), lines)
    except FileNotFoundError:
        return ""


def model_names(repository: Path, models: Sequence[str] | None) -> tuple[str, ...]:
    """The models asked for, or all of a repository.

    Raises:
        ServerError: the repository or one of the models is not there.
    """
    there = sorted(folder.name for folder in repository.iterdir() if folder.is_dir()) if repository.is_dir() else []
    if not there:
        raise ServerError(
            f"There is no model in the repository {repository}; assemble one first (assemble_repository)."
        )
    missing = sorted(set(models or ()) - set(there))
    if missing:
        raise ServerError(f"The repository {repository} has no model {', '.join(missing)}; it has {', '.join(there)}.")
    return tuple(models) if models is not None else tuple(there)
