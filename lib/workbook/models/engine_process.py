"""A trtexec process from start to end: its log read as it comes, its whole process group ended with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from workbook.errors import SetupError

GRACE_S = 5.0


def run_logged(
    command: Sequence[str],
    log_file: Path,
    on_line: Callable[[str], None],
    *,
    after_kill: Sequence[str] = (),
) -> tuple[int, str]:
    """Run a command to its end and hand each line of its output on, as it is printed.

    Whatever ends the waiting, Ctrl-C too, ends the command and all it started.

    Args:
        command: program and arguments.
        log_file: where everything printed is kept, whatever happens.
        on_line: called with each line.
        after_kill: a command to run where this one had to be ended early, such as the removal of its container.

    Returns:
        Exit code (negative: the signal that ended it) and all that it printed, both streams together.

    Raises:
        SetupError: the program cannot be started.
    """
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise SetupError(f"{command[0]} cannot be started: {error}") from error
    lines: list[str] = []
    with log_file.open("w") as log, process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                lines.append(line)
                on_line(line.rstrip("\n"))
            return process.wait(), "".join(lines)
        except BaseException:
            _end_group(process)  # before the with statement waits for its end
            if after_kill:
                subprocess.run(after_kill, capture_output=True, timeout=60, check=False)
            raise


def _end_group(process: subprocess.Popen[str]) -> None:
    """SIGTERM to the process group, SIGKILL to what is left of it after a grace."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
