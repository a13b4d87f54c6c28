"""Waiting for a started server: ready, dead, or too late."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from workbook.errors import ServerError
from workbook.serving import control
from workbook.serving.handle import tail_of

_POLL_S = 0.05
_LINES_SHOWN = 40
_MESSAGE = re.compile(r"^E\d{4} [\d:.]+ \d+ \S+\] ?(.*)$")
_PORT_TAKEN = re.compile(
    r"address already in use|socket .* already in use|port is already allocated|failed to start .* (service|server)",
    re.I,
)
_NORMAL_WITHOUT_GPU = ("CudaDriverHelper", "unable to create stream")


class PortTakenError(ServerError):
    """Another program took a port between our choice and Triton's bind."""


def wait_until_ready(
    http_url: str,
    models: Sequence[str],
    *,
    expected_name: str | None,
    is_alive: Callable[[], bool],
    log: Callable[[], str],
    timeout_s: float,
) -> None:
    """Return when the server and every model answer "ready".

    Args:
        http_url: `host:port` of the HTTP endpoint.
        models: names to wait for.
        expected_name: the `--id` the server was given: another server on our port is not taken for ours. None: any.
        is_alive: whether the server's process runs.
        log: the end of its log.
        timeout_s: how long to wait.

    Raises:
        PortTakenError: it ended because a port was taken.
        ServerError: it ended, or was not ready in time; the message holds Triton's own error and the end of its log.
    """
    deadline_ns = time.perf_counter_ns() + round(timeout_s * 1e9)
    while not _ready(http_url, models, expected_name):
        if not is_alive():
            raise _ended(log())
        if time.perf_counter_ns() > deadline_ns:
            raise ServerError(
                f"Triton was not ready after {timeout_s:g} s (startup_timeout_s; give more where a model loads slowly)."
                f"{_first_error(log())}",
                tail_of(log(), _LINES_SHOWN),
            )
        time.sleep(_POLL_S)


def _ready(http_url: str, models: Sequence[str], expected_name: str | None) -> bool:
    if not control.is_ready(http_url):
        return False
    if expected_name is not None and control.get_json(http_url, "/v2")["name"] != expected_name:
        return False
    return all(control.is_ready(http_url, model) for model in models)


def _ended(log: str) -> ServerError:
    if _PORT_TAKEN.search(log):
        return PortTakenError(f"Triton could not take its port.{_first_error(log)}", tail_of(log, _LINES_SHOWN))
    return ServerError(f"Triton ended while it started.{_first_error(log)}", tail_of(log, _LINES_SHOWN))


def _first_error(log: str) -> str:
    errors = [match.group(1).strip() for line in log.splitlines() if (match := _MESSAGE.match(line))]
    telling = [error for error in errors if not any(sign in error for sign in _NORMAL_WITHOUT_GPU)]
    # Triton goes on to name the model; what it printed before may be about a folder it could do without
    telling.sort(key=lambda error: "failed to load" not in error)
    return f" Its first error: {telling[0]}" if telling else ""
