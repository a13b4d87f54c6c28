"""The process between the workbook and Triton: whatever happens to either, nothing is left behind.

Run by file path in isolated mode (`python -I -S supervisor.py`), so it imports the standard library only and starts in
a few hundredths of a second. It lives in a session of its own, out of reach of the terminal's Ctrl-C and of a kernel
manager that kills its kernel's process group. It reads one job from its standard input (a line of JSON), starts the
server, reports on its standard output and waits for the first of:

- the parent asks for a stop (any further byte), closes the pipe, or is gone (a new parent process id);
- SIGTERM or SIGHUP;
- the server's own end.

Then it terminates the server, kills what the server started, and removes its shared-memory files and folders. Should
the supervisor itself be killed, the kernel kills the server with it (PR_SET_PDEATHSIG); what is then left is cleared by
the next start.

Everything a server owns carries an identity `<supervisor pid>-<its start, clock ticks since boot>-<pid namespace>`:
in the name of its shared-memory files and so on the command line of its Python stubs. A process id alone would be
reused one day.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

SHARED_MEMORY_DIR = Path("/dev/shm")
NAME_STEM = "workbook-triton"
IDENTITY_PLACEHOLDER = "{identity}"
SERVER_PROGRAM = "tritonserver"
STUB_FOLDERS = Path("/tmp"), "python_env_*"
"""Triton's Python backend makes such a folder at its start, wherever TMPDIR points, and leaves it when it is killed."""
_OWNED_NAME = re.compile(rf"{NAME_STEM}-(\d+)-(\d+)-(\d+)-")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PARENT_CHECK_S = 0.5
_KILL_PATIENCE_S = 10.0
_KILL_POLL_S = 0.01
_CLOCK_SLACK_S = 1.0


def shared_memory_prefix(identity: str) -> str:
    """First part of the names of a server's shared-memory files; tells them from every other program's."""
    return f"{NAME_STEM}-{identity}-"


def process_start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (/proc/PID/stat); None if it has ended or never was."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the command name, in parentheses, may hold blanks: count from the last one; fields 3 (state) and 22 (start)
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def own_identity() -> str:
    """The identity of the process that calls it."""
    pid = os.getpid()
    return f"{pid}-{process_start_ticks(pid)}-{_pid_namespace()}"


def is_stale(identity: str) -> bool:
    """Whether the supervisor of that identity is gone.

    Process ids of another pid namespace (a container that shares /dev/shm) mean nothing here: never called stale.
    """
    pid, start_ticks, namespace = (int(part) for part in identity.split("-"))
    return namespace == _pid_namespace() and process_start_ticks(pid) != start_ticks


def processes_of(identity: str) -> list[int]:
    """Process ids whose command line names the identity, this user's, not the caller's own: server and stubs."""
    token = identity.encode()
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            other = folder.name.isdigit() and int(folder.name) != os.getpid()
            if other and folder.stat().st_uid == os.getuid() and token in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def remove_traces(identity: str) -> None:
    """Kill what still runs under the identity, see it gone and remove its shared-memory files; twice does no harm."""
    deadline = time.monotonic() + _KILL_PATIENCE_S
    while (alive := processes_of(identity)) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_KILL_POLL_S)
    for file in SHARED_MEMORY_DIR.glob(f"{shared_memory_prefix(identity)}*"):
        with contextlib.suppress(OSError):
            file.unlink()


def clear_leftovers() -> list[str]:
    """Remove the traces of earlier servers of this user whose supervisor was killed; returns their identities."""
    stale = sorted({identity for identity in _identities_in_shared_memory() if is_stale(identity)})
    for identity in stale:
        remove_traces(identity)
    remove_stub_folders()
    return stale


def remove_stub_folders() -> None:
    """Remove this user's empty STUB_FOLDERS, but for those that a server still running may have made."""
    started = (process_start_ticks(pid) for pid in _processes_called(SERVER_PROGRAM))
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    ages_s = (up_s - ticks / os.sysconf("SC_CLK_TCK") for ticks in started if ticks is not None)
    first_start_s = time.time() - max(ages_s, default=-math.inf) - _CLOCK_SLACK_S
    place, pattern = STUB_FOLDERS
    for folder in place.glob(pattern):
        with contextlib.suppress(OSError):  # not empty, or somebody else was faster
            made = folder.stat()
            if made.st_uid == os.getuid() and made.st_mtime < first_start_s:
                folder.rmdir()


def _processes_called(program: str) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (folder / "comm").read_text().strip() == program:
                yield int(folder.name)


def _identities_in_shared_memory() -> Iterator[str]:
    for file in SHARED_MEMORY_DIR.glob(f"{NAME_STEM}-*"):
        match = _OWNED_NAME.match(file.name)
        with contextlib.suppress(OSError):
            if match and file.stat().st_uid == os.getuid():
                yield "-".join(match.groups())


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class _Supervisor:
    """One server from start to end."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.identity = own_identity()
        self.signalled = False
        self.deserted = False
        self.server: subprocess.Popen[bytes] | None = None
        self.wakeup_read, self.wakeup_write = os.pipe()

    def run(self) -> None:
        self._prepare_signals()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        clear_leftovers()
        try:
            self._start()
            self._wait_for_an_end()
        finally:
            exit_code = self._stop()
            self._remove_everything()
            self._report({"exit_code": exit_code})

    def _prepare_signals(self) -> None:
        os.set_blocking(self.wakeup_write, False)
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note_signal)

    def _note_signal(self, *_: object) -> None:
        self.signalled = True

    def _start(self) -> None:
        command = [part.replace(IDENTITY_PLACEHOLDER, self.identity) for part in self.job["command"]]
        with Path(self.job["log_file"]).open("ab") as log:
            try:
                self.server = subprocess.Popen(
                    command,
                    env=self.job["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                self._report({"error": str(error)})
                raise SystemExit(1) from error
        self._report({"server_pid": self.server.pid, "identity": self.identity})

    def _wait_for_an_end(self) -> None:
        assert self.server is not None
        control = sys.stdin.fileno()
        while self.server.poll() is None and not self.signalled and not self._orphaned():
            ready, _, _ = select.select([control, self.wakeup_read], [], [], _PARENT_CHECK_S)
            if control in ready:
                # a parent that dies closes the pipe a moment before it is seen to be gone
                self.deserted = not os.read(control, 1)
                return
            if self.wakeup_read in ready:
                os.read(self.wakeup_read, 4096)

    def _orphaned(self) -> bool:
        return self.deserted or bool(os.getppid() != self.job["parent_pid"])

    def _stop(self) -> int | None:
        if self.server is None:
            return None
        if self.server.poll() is None:
            try:
                self._end_gently()
            except subprocess.TimeoutExpired:
                self.server.kill()
        return self.server.wait()

    def _end_gently(self) -> None:
        assert self.server is not None
        # with the parent gone nobody waits for what a gentle end writes, and a new kernel may want the memory
        grace_s = 0 if self._orphaned() else self.job["grace_s"]
        self.server.terminate()
        self.server.wait(grace_s)

    def _remove_everything(self) -> None:
        if self.server is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.server.pid, signal.SIGKILL)
        remove_traces(self.identity)
        if self.job["cleanup_command"]:
            command = [part.replace(IDENTITY_PLACEHOLDER, self.identity) for part in self.job["cleanup_command"]]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, env=self.job["environment"], capture_output=True, timeout=30, check=False)
        self._reap()
        remove_traces(self.identity)  # a dying stub may have made one more file
        remove_stub_folders()
        if self._orphaned():
            for name in self.job["remove_when_orphaned"]:
                with contextlib.suppress(OSError):
                    Path(name).unlink()

    def _reap(self) -> None:
        deadline_ns = time.perf_counter_ns() + 2_000_000_000
        with contextlib.suppress(ChildProcessError):
            while time.perf_counter_ns() < deadline_ns:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.01)

    def _report(self, message: dict[str, Any]) -> None:
        # a parent that is gone cannot read; that must not keep us from cleaning up
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _die_with_parent() -> None:
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_job() -> dict[str, Any]:
    # byte by byte, so that what follows the line stays in the pipe, where select sees it
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            raise SystemExit("the workbook ended before it said what to start")
        line += byte
    job: dict[str, Any] = json.loads(line)
    return job


def main() -> NoReturn:
    """Run one job; exit code 0 once nothing is left of it."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _Supervisor(_read_job()).run()
    raise SystemExit(0)


if __name__ == "__main__":
    main()
