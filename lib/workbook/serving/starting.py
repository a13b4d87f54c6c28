"""What every server of ours goes through at its start: ports, supervisor, wait; with new ports where one was taken."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from workbook.serving.handle import Server, read_tail
from workbook.serving.options import ServerOptions
from workbook.serving.ports import Ports, choose_ports
from workbook.serving.readiness import PortTakenError, wait_until_ready
from workbook.serving.supervised import Job, SupervisedProcess

_PORT_ATTEMPTS = 5
_LOG_LINES_SEARCHED = 400
_S = TypeVar("_S", bound=Server, covariant=True)


class _ServerClass(Protocol[_S]):
    def __call__(self, process: SupervisedProcess, ports: Ports, models: tuple[str, ...], log_file: Path) -> _S: ...


def start_supervised(
    server_class: _ServerClass[_S],
    job: Callable[[Ports, Path], Job],
    names: tuple[str, ...],
    models: Sequence[str] | None,
    options: ServerOptions,
    log_file: Path | None,
) -> _S:
    """Start a server under a supervisor and wait until it is ready.

    Args:
        server_class: makes the handle.
        job: what the supervisor shall run for these ports, with this log file.
        names: models that the handle shall show.
        models: models that were asked for; None: all of the repository.
        options: of the server.
        log_file: of the server; None: a temporary one.

    Raises:
        ServerError: it did not come up; nothing is left of it.
    """
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
    awaited = () if models is None and options.model_control_mode == "explicit" else names
    for attempts_left in reversed(range(_PORT_ATTEMPTS)):
        ports = choose_ports(options)
        log = log_file if log_file is not None else _temporary_log()
        work = job(ports, log)
        log_start = log.stat().st_size if log.exists() else 0
        process = SupervisedProcess(work if log_file else replace(work, remove_when_orphaned=[log]))
        try:
            server = server_class(process, ports, names, log)
            if log_file is None:
                weakref.finalize(server, log.unlink, missing_ok=True)
            wait_until_ready(
                server.http_url,
                awaited,
                expected_name=process.identity,
                is_alive=process.is_alive,
                log=partial(read_tail, log, _LOG_LINES_SEARCHED, from_byte=log_start),
                timeout_s=options.startup_timeout_s,
            )
            return server
        except BaseException as error:
            process.stop()
            if not isinstance(error, PortTakenError) or not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises")


def _temporary_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="workbook-triton-", suffix=".log")
    os.close(descriptor)
    return Path(name)
