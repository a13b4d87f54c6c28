"""Every notebook, alone, from a clean kernel, with smoke parameters."""

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from papermill.exceptions import PapermillExecutionError

from workbook.artifacts import PROJECT_DIR
from workbook.display.report import build_report
from workbook.settings import PARAMETERS_DIR, read_parameter_file

NOTEBOOKS = sorted((PROJECT_DIR / "notebooks").glob("*.ipynb"))
TWICE = ("05_batch_versus_online",)
"""Executed by test_study.py, which measures it and then draws it again from its records."""
RESULT_FIELDS = {
    "01_export_models": {"parity_min_cosine", "parity_max_abs_error", "ranks_right"},
    "02_build_engines": set(),
    "03_serve_with_triton": {"min_cosine", "capacity", "closed_loop"},
    "04_online_benchmark": {"rows", "not_run", "quality", "ranking"},
    "05_batch_versus_online": {
        *("batch_rows_per_s", "online_rows_per_s", "ratio", "ratio_ci95", "min_cosine"),
        *("article_protocol", "fair", "tuned", "waterfall", "unexplained_share", "break_even_rows_per_s"),
    },
    "06_ensemble_throughput": {
        *("member_a_per_s", "member_b_per_s", "ensemble_per_s", "bound_per_s", "ratio_as_reported", "ratio_tuned"),
        *("predicted_per_s", "prediction_error", "bottleneck", "ablations", "loss_causes"),
    },
    "07_copies_between_models": {"arrangements", "cost_per_hop_ms", "cost_per_mb_ms"},
}
"""The fields others rely on, by notebook."""
pytestmark = [pytest.mark.notebook, pytest.mark.timeout(600)]


def execute(notebook: Path, output: Path, **parameters: Any) -> None:
    smoke = read_parameter_file(PARAMETERS_DIR / "smoke.yaml")
    papermill.execute_notebook(
        notebook, output, {**smoke, **parameters}, kernel_name="python3", progress_bar=False, cwd=notebook.parent
    )


@pytest.fixture(autouse=True)
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    monkeypatch.delenv("WORKBOOK_RUN", raising=False)
    return tmp_path


def check_results(executed: Path, notebook: Path) -> None:
    """The newest run beside the executed notebook holds the fields others rely on, and makes a report."""
    latest = executed.parent / "latest"
    results = json.loads((latest / "results" / f"{notebook.stem}.json").read_text())
    assert RESULT_FIELDS[notebook.stem] <= results.keys()
    assert {"question", "answer", "numbers"} <= results["headline"].keys()
    assert results["environment"]["processors_usable"] >= 1
    assert results.get("min_cosine", 1.0) > 0.99999  # 03 and 05: Triton answers what PyTorch answers
    shutil.copy(executed, latest / "notebooks" / notebook.name)
    assert results["headline"]["question"] in build_report(latest).read_text()


@pytest.mark.parametrize("notebook", [path for path in NOTEBOOKS if path.stem not in TWICE], ids=lambda path: path.stem)
def test_a_notebook_runs_alone_and_leaves_results(notebook: Path, tmp_path: Path) -> None:
    execute(notebook, tmp_path / "out.ipynb")
    check_results(tmp_path / "out.ipynb", notebook)


@pytest.mark.parametrize(("name", "value", "message"), [("rowz", 3, "Did you mean rows"), ("rows", 0, "between 1 and")])
def test_a_wrong_parameter_stops_a_notebook_before_any_work(
    tmp_path: Path, name: str, value: int, message: str
) -> None:
    with pytest.raises(PapermillExecutionError, match=message):
        execute(PROJECT_DIR / "notebooks" / "01_export_models.ipynb", tmp_path / "out.ipynb", **{name: value})
    executed = nbformat.read(tmp_path / "out.ipynb", 4)
    assert sum(bool(cell.get("execution_count")) for cell in executed.cells) <= 4


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_holds_no_output(notebook: Path) -> None:
    cells = [cell for cell in nbformat.read(notebook, 4).cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
