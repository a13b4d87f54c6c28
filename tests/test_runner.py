from pathlib import Path

import pytest

from workbook.errors import SettingError
from workbook.runner import RunRequest, choose_notebooks, execute, gather_parameters


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
