"""Names of the slots' files: whose they are can be read off them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

SHARED_MEMORY_DIR = Path("/dev/shm")
DEFAULT_PREFIX = "workbook-"
_SERVER_PREFIX = re.compile(rb"workbook-triton-\d+-\d+-\d+-")
_PRODUCER = re.compile(r"handle-(\d+)-(\d+)-(\d+)-")


def server_prefix() -> str:
    """First part of the names of this server's shared-memory files, read off the stub's own command line."""
    found = _SERVER_PREFIX.search(Path("/proc/self/cmdline").read_bytes())
    return found.group().decode() if found else DEFAULT_PREFIX


def clear_dead(prefix: str) -> list[str]:
    """Remove the slots of producers that are gone; returns their names.

    A process id alone would be reused one day: the start time goes with it. Process ids of another pid namespace mean
    nothing here, so such files are left alone.
    """
    removed = []
    for file in SHARED_MEMORY_DIR.glob(f"{prefix}handle-*"):
        match = _PRODUCER.match(file.name[len(prefix) :])
        if match is None:
            continue
        pid, start_ticks, namespace = (int(part) for part in match.groups())
        if namespace == _pid_namespace() and _start_ticks(pid) != start_ticks:
            with contextlib.suppress(OSError):
                file.unlink()
                removed.append(file.name)
    return removed


def producer_stem(prefix: str) -> str:
    """First part of the names of this process's slots: process id, start time and pid namespace stand in it."""
    pid = os.getpid()
    return f"{prefix}handle-{pid}-{_start_ticks(pid)}-{_pid_namespace()}-{secrets.token_hex(4)}"


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it has ended or never was."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command name, in parentheses, may hold blanks
    return None if fields[0] in "ZX" else int(fields[19])


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
