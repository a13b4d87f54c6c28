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
from serving_helpers import assert_gone

from workbook.artifacts import PROJECT_DIR
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.settings import PARAMETERS_DIR, read_parameter_file

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
NOTEBOOK = PROJECT_DIR / "notebooks" / "05_batch_versus_online.ipynb"
PATIENCE_S = 400


def online_records(runs: Path) -> set[Path]:
    """Request records with more than a few answers in them."""
    found = {path.resolve() for path in runs.glob("*/records/05_batch_versus_online/*.csv")}
    return {path for path in found if "intended_ns" in (text := path.read_text()) and len(text.splitlines()) > 3}


def server_of(runs: Path) -> tuple[int, str] | None:
    """Process id and identity of the tritonserver that serves a repository below this folder: never somebody else's."""
    for process in psutil.process_iter(["name", "cmdline"]):
        command = process.info["cmdline"] or ()
        if process.info["name"] == "tritonserver" and any(str(runs) in part for part in command):
            return process.pid, next(part for part in command if part.startswith("--id=")).removeprefix("--id=")
    return None


def kill_once_it_answers(runs: Path, killed: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if online_records(runs) and (found := server_of(runs)):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[1])
            return
        time.sleep(0.02)


def test_a_killed_server_ends_the_notebook_with_its_last_log_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    monkeypatch.delenv("WORKBOOK_RUN", raising=False)
    killed: list[str] = []
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
    assert_gone(killed[0], [])
