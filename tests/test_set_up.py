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
    assert second.communicate(timeout=120)[0] == "in\n"


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


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is on PATH; what its programs were called with is in `calls`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def add_program(folder: Path, name: str, script: str = "") -> None:
    program = folder / name
    program.write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)


def calls(folder: Path) -> list[str]:
    log = folder / "calls"
    return log.read_text().splitlines() if log.exists() else []


def test_a_browser_that_is_there_is_left_alone_and_a_snap_is_none(
    set_up: ModuleType, system: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_program(system, "chromium-browser", "exec /snap/bin/chromium")
    assert set_up.find_browser() is None
    add_program(system, "chromium")
    assert set_up.find_browser() == str(system / "chromium")
    set_up.install_browser()
    assert (capsys.readouterr().out, calls(system)) == ("", [])


def test_root_installs_the_browser_and_reads_the_package_lists_where_there_are_none(
    set_up: ModuleType, system: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(set_up.os, "geteuid", lambda: 0)
    add_program(system, "env", 'shift; exec "$@"')
    browser = system / "chromium"
    install = f"[ -e {system}/lists ] && : > {browser} && /bin/chmod +x {browser}"
    add_program(system, "apt-get", f'[ "$2" = update ] && exec /usr/bin/touch {system}/lists\n{install}')
    set_up.install_browser()
    asked = [line for line in calls(system) if line.startswith("apt-get")]
    assert [line.split()[2] for line in asked] == ["install", "update", "install"]
    assert asked[0].endswith("--no-install-recommends chromium")
    assert capsys.readouterr().out.splitlines() == [
        "set-up: installing Chromium for the tests in JupyterLab (apt-get install chromium)"
    ]


def test_who_may_not_install_is_told_how_to_and_goes_on(
    set_up: ModuleType, system: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(set_up.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["set_up.py", "--browser"])
    add_program(system, "apt-get")
    add_program(system, "sudo", "exit 1")  # asks for a password
    assert set_up.main() == 0
    assert calls(system) == ["sudo --non-interactive true"]
    assert capsys.readouterr().out == f"set-up: {set_up.NO_BROWSER}\n"


def test_sudo_without_a_password_installs_the_browser(
    set_up: ModuleType, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up.os, "geteuid", lambda: 1000)
    add_program(system, "apt-get")
    add_program(system, "sudo")
    set_up.install_browser()
    wanted = "sudo --non-interactive env DEBIAN_FRONTEND=noninteractive apt-get -qq install"
    assert calls(system)[-1].startswith(wanted)


def test_the_estimate_follows_what_pip_has_done(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up, "LOG_DIR", tmp_path)
    monkeypatch.setattr(set_up, "WORKBOOK_ENV", tmp_path)
    assert set_up._estimate(20) == "0 of about 170 packages found, about 100 s left"
    (tmp_path / "workbook.log").write_text("Collecting a\nCollecting b\n  Downloading b\n")
    assert set_up._estimate(500) == "2 of about 170 packages found, about 10 s left"
    (tmp_path / "workbook.log").write_text("Collecting a\nInstalling collected packages: a, b, c, d\n")
    for name in ("a", "b"):
        (tmp_path / "lib" / "python3.11" / "site-packages" / f"{name}-1.dist-info").mkdir(parents=True)
    # half of the unpacking is done: a quarter of the whole is left, a third of what has passed
    assert set_up._estimate(60) == "2 of 4 packages installed, about 20 s left"
