from pathlib import Path

import pytest

from workbook.errors import SettingError
from workbook.runner import RunRequest, choose_notebooks, gather_parameters


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
    with pytest.raises(SettingError, match="no notebook 99"):
        choose_notebooks(("99",))
