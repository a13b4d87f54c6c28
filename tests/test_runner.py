import re
from pathlib import Path

import pytest

from workbook import runner
from workbook.errors import SettingError
from workbook.run_request import RunRequest, choose_notebooks, gather_parameters
from workbook.runner import execute, run_workbook
from workbook.runs import write_json


def test_the_command_line_stands_above_the_profile() -> None:
    parameters = gather_parameters("smoke", RunRequest(overrides=("rows=64", "concurrency=[3]")))
    assert (parameters["rows"], parameters["concurrency"], parameters["layers"]) == (64, [3], 2)


def test_a_corpus_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.csv").write_text("text\nhello\n")
    monkeypatch.chdir(tmp_path)
    assert gather_parameters("smoke", RunRequest(corpus="mine.csv"))["corpus"] == str(tmp_path / "mine.csv")


@pytest.mark.parametrize("override", ["rows", "rowz=3"])
def test_a_bad_override_is_refused(override: str) -> None:
    with pytest.raises(SettingError):
        gather_parameters("smoke", RunRequest(overrides=(override,)))


def test_an_unknown_profile_lists_those_there_are() -> None:
    with pytest.raises(SettingError, match="cpu, full, gpu, smoke"):
        gather_parameters("tpu", RunRequest())


def test_notebooks_are_chosen_by_number_in_reading_order() -> None:
    assert [path.name[:2] for path in choose_notebooks(("05", "1"))] == ["01", "05"]
    with pytest.raises(SettingError, match="no notebook '99'"):
        choose_notebooks(("99",))


@pytest.mark.parametrize(
    "word",
    [
        "5",
        "05",
        "005",
        "05_batch_versus_online",
        "05_batch_versus_online.ipynb",
        "notebooks/05_batch_versus_online.ipynb",
    ],
)
def test_a_notebook_is_called_by_number_or_name(word: str) -> None:
    assert [path.name[:2] for path in choose_notebooks((word, word))] == ["05"]


@pytest.mark.parametrize("word", ["5_x", "01-05", "0512", "-1", "٥", "0", "x"])
def test_a_notebook_is_not_guessed(word: str) -> None:
    with pytest.raises(SettingError, match="no notebook"):
        choose_notebooks((word,))


def test_a_profile_may_be_named_as_its_file() -> None:
    assert gather_parameters("smoke.yaml", RunRequest()) == gather_parameters("smoke", RunRequest())


def test_a_killed_kernel_is_a_failed_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError

    def die(*_: object, **__: object) -> None:
        raise DeadKernelError("Kernel died")

    monkeypatch.setattr(papermill, "execute_notebook", die)
    assert not execute(Path("05_x.ipynb"), Path("run"), {})
    assert "its Python process was killed" in capsys.readouterr().err


@pytest.fixture
def stopped_after_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`execute` that finishes one notebook and is interrupted in the second, then finishes all; what it was given."""
    given: list[str] = []

    def finish(notebook: Path, directory: Path, parameters: dict[str, object]) -> bool:
        given.append(f"{notebook.stem} {parameters['rows']}")
        if len(given) == 2:
            raise KeyboardInterrupt
        write_json(directory / "results" / f"{notebook.stem}.json", {})
        return True

    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    monkeypatch.setattr(runner, "execute", finish)
    return given


def test_a_stopped_run_says_how_to_go_on_and_goes_on(
    stopped_after_one: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_workbook(RunRequest("smoke", ("01", "02", "04"), overrides=("rows=64",))) == 130
    (directory,) = tmp_path.glob("2*")
    assert f"To go on: make run RESUME={directory.name}" in capsys.readouterr().err
    assert run_workbook(RunRequest(resume="latest")) == 0
    done = ["01_export_models 64", "02_build_engines 64", "02_build_engines 64", "04_online_benchmark 64"]
    assert stopped_after_one == done
    assert list(tmp_path.glob("2*")) == [directory]
    assert "make run PROFILE=smoke NOTEBOOKS=&#39;01 02 04&#39; SET=rows=64" in (directory / "report.html").read_text()


def test_what_a_run_goes_on_with_is_not_asked_for_twice(stopped_after_one: list[str]) -> None:
    with pytest.raises(SettingError, match="leave out PROFILE"):
        run_workbook(RunRequest("smoke", resume="latest"))
    with pytest.raises(SettingError, match="there is no run 'nowhere'"):
        run_workbook(RunRequest(resume="nowhere"))


def test_a_notebook_says_how_long_it_took_last_time(
    stopped_after_one: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_workbook(RunRequest("smoke", ("01",)))
    stopped_after_one.clear()
    assert "01_export_models\n" in capsys.readouterr().out
    run_workbook(RunRequest("smoke", ("01",)))
    assert re.search(r"^01_export_models \(took \d+ s last time\)$", capsys.readouterr().out, re.M)


def test_the_command_of_a_request_is_what_make_understands() -> None:
    asked = RunRequest("cpu", ("01", "05"), "my $file.csv", ("rows=64",))
    assert asked.command() == "make run PROFILE=cpu NOTEBOOKS='01 05' CORPUS='my $$file.csv' SET=rows=64"
