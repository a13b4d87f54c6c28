"""The script that makes the environments; nothing is installed here."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from workbook.artifacts import PROJECT_DIR


@pytest.fixture
def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("set_up", PROJECT_DIR / "lib" / "set_up.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOG_DIR", tmp_path)
    return module


def test_a_sound_environment_is_kept_and_a_half_made_one_is_not(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    monkeypatch.setattr(set_up.venv, "create", lambda *_, clear, **__: made.append(clear))
    programs = tmp_path / "env" / "bin"
    set_up._make_environment(tmp_path / "env")
    programs.mkdir(parents=True)
    (programs / f"python{set_up.VERSION}").symlink_to(sys.executable)
    set_up._make_environment(tmp_path / "env")  # killed before pip was there
    (programs / "pip").write_text("")
    set_up._make_environment(tmp_path / "env")
    assert made == [True, True]


def test_a_second_set_up_waits_for_the_first(set_up: ModuleType, tmp_path: Path) -> None:
    program = (
        "import pathlib, runpy, sys\n"
        f"module = runpy.run_path({str(PROJECT_DIR / 'lib' / 'set_up.py')!r})\n"
        f"module['_one_at_a_time'].__wrapped__.__globals__['LOG_DIR'] = pathlib.Path({str(tmp_path)!r})\n"
        "with module['_one_at_a_time'](): print('in')\n"
    )
    with set_up._one_at_a_time():
        second = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert second.stdout and "waiting for another" in second.stdout.readline()
    assert second.communicate(timeout=30)[0] == "in\n"


def test_ctrl_c_is_one_line(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(set_up, "_side_by_side", interrupted)
    monkeypatch.setattr(set_up, "_with_system_packages", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["set_up.py"])
    assert set_up.main() == 130
    assert capsys.readouterr().err.strip() == "set-up: stopped. Run it again to go on."
