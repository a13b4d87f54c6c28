import errno
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.artifacts import artifacts_dir, build_once
from workbook.errors import SetupError

KILLED_BUILD = """
import os, signal
from workbook.artifacts import build_once
def build(folder):
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
build_once("thing", {"a": 1}, build)
"""


@pytest.fixture(autouse=True)
def artifacts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path))


def write(folder: Path) -> None:
    (folder / "whole").write_text("x")


def test_a_thing_is_built_once_for_each_key() -> None:
    built: list[Path] = []
    folders = [build_once("thing", {"a": value}, built.append) for value in (1, 1, 2)]
    assert len(built) == 2 and folders[0] == folders[1] != folders[2]


def test_a_killed_build_leaves_nothing_behind_once_it_is_built_again() -> None:
    assert subprocess.run([sys.executable, "-c", KILLED_BUILD], check=False).returncode == -9
    assert list(artifacts_dir().glob("thing/.*/half"))
    folder = build_once("thing", {"a": 1}, write)
    assert (folder / "whole").exists() and not (folder / "half").exists()
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


def test_a_failed_build_leaves_nothing() -> None:
    def fail(_: Path) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        build_once("thing", {"a": 1}, fail)
    assert not [path for path in (artifacts_dir() / "thing").iterdir() if path.is_dir()]


def test_a_full_disk_is_named_with_the_folder_and_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SetupError, match=r"No space left on device\. Make room .* set WORKBOOK_ARTIFACTS"):
        build_once("thing", {"a": 1}, fill)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="cannot be written to"):
        build_once("thing", {"a": 1}, write)
