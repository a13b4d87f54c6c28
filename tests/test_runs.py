from pathlib import Path

import pytest

from workbook.artifacts import PROJECT_DIR, artifacts_dir
from workbook.errors import SettingError, SetupError
from workbook.runs import RUN_VARIABLE, create_run, open_run, read_json, runs_dir, write_json
from workbook.settings import Settings


@pytest.fixture(autouse=True)
def runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    monkeypatch.delenv(RUN_VARIABLE, raising=False)


def test_latest_points_to_the_newest_run(tmp_path: Path) -> None:
    create_run("one")
    second = create_run("two")
    assert (tmp_path / "latest").resolve() == second


def test_notebooks_of_one_make_run_share_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = create_run("cpu")
    monkeypatch.setenv(RUN_VARIABLE, str(directory))
    assert open_run("01_a", Settings()).directory == open_run("02_b", Settings()).directory == directory


def test_a_notebook_alone_opens_its_own_run() -> None:
    run = open_run("05_batch", Settings(rows=9))
    assert read_json(run.directory / "parameters" / "05_batch.json")["rows"] == 9


def test_results_carry_the_environment() -> None:
    run = open_run("05_batch", Settings())
    run.write_results({"ratio": 1.5})
    assert run.read_results()["ratio"] == 1.5
    assert run.read_results()["environment"]["processors_usable"] >= 1


def test_a_vanished_run_directory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(SettingError, match="gone"):
        open_run("01_a", Settings())


def test_json_refuses_nan_rather_than_write_what_others_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})


def test_a_relative_folder_lies_in_the_project_wherever_a_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBOOK_RUNS", "my runs")
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", "built")
    monkeypatch.chdir(tmp_path)
    assert (runs_dir(), artifacts_dir()) == (PROJECT_DIR / "my runs", PROJECT_DIR / "built")


def test_a_label_that_is_no_file_name_is_made_one() -> None:
    name = create_run("mine / & more " + "x" * 300).name
    assert "mine_more_x" in name and len(name) < 80


def test_a_folder_that_cannot_be_written_is_a_set_up_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="set WORKBOOK_RUNS to another folder"):
        create_run("cpu")
