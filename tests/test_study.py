"""Notebook 05 measured once with smoke parameters, then drawn again from its records without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import papermill
import pytest

from test_notebooks import check_results
from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.measuring.comparison.study import find_replayed, open_study
from workbook.runs import Run, open_run, write_json
from workbook.settings import PARAMETERS_DIR, Settings, read_parameter_file

NOTEBOOK = PROJECT_DIR / "notebooks" / "05_batch_versus_online.ipynb"
pytestmark = pytest.mark.timeout(600)


def execute(output: Path, **parameters: Any) -> dict[str, Any]:
    smoke = read_parameter_file(PARAMETERS_DIR / "smoke.yaml")
    papermill.execute_notebook(
        NOTEBOOK, output, {**smoke, **parameters}, kernel_name="python3", progress_bar=False, cwd=NOTEBOOK.parent
    )
    latest = output.parent / "latest"
    return dict(json.loads((latest / "results" / f"{NOTEBOOK.stem}.json").read_text()))


@pytest.mark.notebook
def test_a_run_is_drawn_again_from_its_records_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    monkeypatch.delenv("WORKBOOK_RUN", raising=False)
    measured = execute(tmp_path / "measured.ipynb", rows=64)
    check_results(tmp_path / "measured.ipynb", NOTEBOOK)
    fields = {"article_protocol", "fair", "tuned", "waterfall", "unexplained_share", "break_even_rows_per_s"}
    assert fields <= measured.keys()
    assert {"batch_mean_ms", "online_mean_ms", "ratio", "t", "p"} <= measured["article_protocol"].keys()
    assert {"batch_rows_per_s", "online_rows_per_s", "ratio", "ratio_ci95"} <= measured["tuned"].keys()
    assert all({"switch", "before_ms", "after_ms", "ci95"} <= step.keys() for step in measured["waterfall"])
    assert min(measured["cosines"].values()) > 0.9999
    source = (tmp_path / "latest").resolve()
    # a server cannot start: what is drawn comes from the records
    monkeypatch.setattr("workbook.serving.server.start_server", None)
    again = execute(tmp_path / "again.ipynb", replay="latest", server="remote:127.0.0.1:1:2")
    assert again["replayed_from"] == source.name
    assert measured["replayed_from"] == ""
    for name in sorted(fields - {"break_even_rows_per_s"}):
        assert again[name] == measured[name], name
    assert (tmp_path / "latest").resolve() != source


@pytest.mark.parametrize("replay", ["latest", "no-such-run"])
def test_a_run_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replay: str) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    settings = Settings(replay=replay)
    with pytest.raises(SettingError, match=replay):
        open_study(settings, open_run("05_batch_versus_online", settings))


def test_a_run_without_records_of_this_notebook_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    other = open_run("01_export_models", Settings())
    settings = Settings(replay=other.directory.name)
    with pytest.raises(SettingError, match="no complete records"):
        open_study(settings, open_run("05_batch_versus_online", settings))


def test_latest_and_previous_count_the_runs_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    first, second, stopped, now = (Run(tmp_path / f"2026010{day}-000000-cpu", NOTEBOOK.stem) for day in range(1, 5))
    for each in (first, second, stopped, now):
        write_json(each.records_path("study").with_name("study.json"), {"fair_split": {}})
    for each in (first, second, now):
        write_json(each.directory / "results" / f"{NOTEBOOK.stem}.json", {})
    assert find_replayed("latest", now) == second.directory
    assert find_replayed("previous", now) == first.directory
    assert find_replayed("20260103", now) == stopped.directory


def test_records_of_another_version_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    older = open_run("05_batch_versus_online", Settings())
    path = older.records_path("study").with_name("study.json")
    path.write_text('{"plan": {}, "fair_split": {}}')
    settings = Settings(replay=older.directory.name)
    with pytest.raises(SettingError, match=r"another version .* lack .*corpus_measures"):
        open_study(settings, open_run("05_batch_versus_online", settings))
