"""The workbook's side of the supervisor: start it, ask after its server, have it stop."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from workbook.errors import ServerError
from workbook.serving import supervisor


@dataclass(frozen=True)
class Job:
    """What a supervisor runs.

    `{identity}` in `command` and `cleanup_command` is replaced by the supervisor's identity.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    grace_s: float
    cleanup_command: Sequence[str] = ()
    """Run once the server has ended, whatever the reason; its result is ignored."""
    remove_when_orphaned: Sequence[Path] = field(default=())
    """Files nobody will read once this process is gone."""

    def to_json(self) -> str:
        """One line for the supervisor, with the process it has to outlive and clean up after."""
        return json.dumps(
            {
                "command": list(self.command),
                "environment": dict(self.environment),
                "log_file": str(self.log_file),
                "grace_s": self.grace_s,
                "cleanup_command": list(self.cleanup_command),
                "remove_when_orphaned": [str(path) for path in self.remove_when_orphaned],
                "parent_pid": os.getpid(),
            }
        )


class SupervisedProcess:
    """A server process under a supervisor, both started by this object."""

    def __init__(self, job: Job) -> None:
        """Start both.

        Raises:
            ServerError: the server's program could not be started at all.
        """
        with job.log_file.open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        # runs at stop(), when the object is collected, or when this process ends, whichever is first
        identities: list[str] = []
        self._stopper = weakref.finalize(self, _stop, self._supervisor, job.grace_s, os.getpid(), identities)
        try:
            started = self._exchange(job)
        except BaseException:
            self._stopper()
            raise
        self.pid: int = started["server_pid"]
        self.identity: str = started["identity"]
        identities.append(self.identity)
        self._process = _process(self.pid)
        self._last_word: dict[str, Any] | None = None

    def _exchange(self, job: Job) -> dict[str, Any]:
        control, answers = _pipes(self._supervisor)
        with contextlib.suppress(BrokenPipeError):
            control.write(job.to_json().encode() + b"\n")
            control.flush()
        line = answers.readline()
        started: dict[str, Any] = json.loads(line) if line else {"error": "its supervisor ended at once"}
        if "error" in started:
            raise ServerError(f"{job.command[0]} could not be started: {started['error']}.")
        return started

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor."""
        return self._supervisor.pid

    def is_alive(self) -> bool:
        """Whether the server's process runs; false the moment it ends."""
        if self._process is None:
            return False
        try:
            return bool(self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def cpu_seconds(self) -> float:
        """CPU time, user and system, that the server and the processes below it have used so far, in s."""
        if self._process is None:
            return 0.0
        total = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            own = self._process.cpu_times()
            total += own.user + own.system + own.children_user + own.children_system
            for child in self._process.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = child.cpu_times()
                    total += times.user + times.system
        return total

    def exit_code(self) -> int | None:
        """How the server ended (negative: the signal that killed it); None while it runs or where nobody knows."""
        if self.is_alive():
            return None
        _, answers = _pipes(self._supervisor)
        if self._last_word is None and not answers.closed:
            line = answers.readline()  # its last report; at the latest its own end closes the pipe
            self._last_word = json.loads(line) if line else {}
        return (self._last_word or {}).get("exit_code")

    def stop(self) -> None:
        """End the server and everything of it. Returns when nothing is left; calling it again does nothing."""
        self._stopper()


def _stop(process: subprocess.Popen[bytes], grace_s: float, owner_pid: int, identities: list[str]) -> None:
    if os.getpid() != owner_pid:
        return  # a forked child holds a copy of the object, not the server
    control, answers = _pipes(process)
    with contextlib.suppress(OSError, ValueError):
        control.write(b"stop\n")  # closing alone would not do: a forked child may hold the pipe open too
        control.close()
    try:
        process.wait(grace_s + 40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    answers.close()
    for identity in identities:
        supervisor.remove_traces(identity)  # does nothing unless the supervisor was killed


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
