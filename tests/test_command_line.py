"""`make run` and `python -m workbook run` as a shell calls them."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from busy_machine import wait_for
from workbook.artifacts import PROJECT_DIR

SHOW_ARGUMENTS = """#!/bin/sh
for word in "$@"; do echo "<$word>"; done
"""


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workbook", "run", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240, check=False
    )


def make(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`make run`, set-up left out, with a stand-in for Python that shows its arguments."""
    (tmp_path / "python").write_text(SHOW_ARGUMENTS)
    (tmp_path / "python").chmod(0o755)
    command = ["make", "-o", "setup", "run", f"BIN={tmp_path}", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=PROJECT_DIR, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [("--profile", "nope"), ("--profile", "smoke", "--set", "rows=[1"), ("--profile", "smoke", "--notebooks", "99")],
)
def test_a_mistake_is_one_line_on_stderr(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("SettingError: ")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call("--profile", "smoke", WORKBOOK_RUNS=str(tmp_path / "file" / "runs"))
    assert done.returncode == 2 and "set WORKBOOK_RUNS to another folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_values_reach_the_command_as_they_were_given(tmp_path: Path) -> None:
    corpus = 'my "corpus" it\'s `ü`.csv'
    done = make(tmp_path, f"CORPUS={corpus}", "NOTEBOOKS=01 05", "SET=concurrency=[1, 2] model=path:/a b")
    words = ["--notebooks", "01 05", "--corpus", corpus, "--set", "concurrency=[1, 2] model=path:/a b"]
    assert done.stdout.splitlines() == [f"<{word}>" for word in ["-m", "workbook", "run", *words]], done.stderr


def test_a_misspelt_name_is_refused(tmp_path: Path) -> None:
    done = make(tmp_path, "ROWS=64")
    assert done.returncode == 2 and "make takes no ROWS=" in done.stderr


@pytest.mark.integration
def test_a_closed_pipe_and_an_ascii_terminal_end_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "workbook", "run", "--profile", "smoke", "--notebooks", "01"]
    environment = {**os.environ, "WORKBOOK_RUNS": str(tmp_path / "ü"), "PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        assert "\\xfc" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_leaves_one_line_and_no_process(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "workbook", "run", "--profile", "smoke", "--notebooks", "05", "--set", "rows=512"]
    kernels: list[psutil.Process] = []
    with subprocess.Popen(
        command, env={**os.environ, "WORKBOOK_RUNS": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(lambda: kernels.extend(_kernels(process.pid)) or kernels, within_s=120)
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    directory = next(tmp_path.glob("2*"))
    kept = f"Stopped. What was measured so far is kept in {directory}. To go on: make run RESUME={directory.name}"
    assert said.strip() == kept
    assert not psutil.wait_procs(kernels, timeout=60)[1]


def _kernels(pid: int) -> list[psutil.Process]:
    """Those that somebody has connected to, so that whoever started them knows of them."""
    found = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # one that has just ended
            connected = any(each.status == psutil.CONN_ESTABLISHED for each in child.net_connections("tcp"))
            found += [child] if connected and "ipykernel_launcher" in child.cmdline() else []
    return found
