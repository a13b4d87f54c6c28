"""kill -9 of the server while notebook 05 measures: a message with the server's last words, and the records so far."""

import os
import signal
import threading
import time
from pathlib import Path

import papermill
import psutil
import pytest
from papermill.exceptions import PapermillExecutionError

from workbook.artifacts import PROJECT_DIR
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.settings import PARAMETERS_DIR, read_parameter_file

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
NOTEBOOK = PROJECT_DIR / "notebooks" / "05_batch_versus_online.ipynb"
PATIENCE_S = 180


def online_records(runs: Path) -> set[Path]:
    """Request records with more than a few answers in them."""
    found = {path.resolve() for path in runs.glob("*/records/05_batch_versus_online/*.csv")}
    return {path for path in found if "intended_ns" in (text := path.read_text()) and len(text.splitlines()) > 3}


def server_of(runs: Path) -> int | None:
    """The tritonserver that serves a repository below this folder: never somebody else's."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "tritonserver" and any(str(runs) in part for part in process.info["cmdline"] or ()):
            return process.pid
    return None


def kill_once_it_answers(runs: Path, killed: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pid = server_of(runs)
        if pid and online_records(runs):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.02)


def test_a_killed_server_ends_the_notebook_with_its_last_log_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    monkeypatch.delenv("WORKBOOK_RUN", raising=False)
    before = set(Path("/dev/shm").glob("*"))
    killed: list[int] = []
    killer = threading.Thread(target=kill_once_it_answers, args=(tmp_path, killed), daemon=True)
    killer.start()
    parameters = {**read_parameter_file(PARAMETERS_DIR / "smoke.yaml"), "rows": 512}
    with pytest.raises(PapermillExecutionError) as caught:
        papermill.execute_notebook(
            NOTEBOOK, tmp_path / "out.ipynb", parameters, kernel_name="python3", progress_bar=False, cwd=NOTEBOOK.parent
        )
    killer.join()
    assert killed, "the server was never seen answering"
    assert caught.value.ename == "ServerError"
    assert "signal 9" in caught.value.evalue or "SIGKILL" in caught.value.evalue
    assert "last log lines" in caught.value.evalue and "Started" in caught.value.evalue
    answered = [(read_records(path, REQUEST_COLUMNS)["error"] == "").sum() for path in online_records(tmp_path)]
    assert sum(answered) >= 3
    time.sleep(2)
    assert not psutil.pid_exists(killed[0])
    assert {path for path in set(Path("/dev/shm").glob("*")) - before if str(killed[0]) in path.name} == set()
