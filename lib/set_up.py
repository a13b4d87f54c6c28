"""Makes the two virtual environments, with nothing but a bare Python: `python3 lib/set_up.py`.

`.venv` holds the workbook, `.venv-server` the Triton server with the older numpy it needs. Both are made once: a stamp
of the pins and the Python version lets a second call end at once. With `--browser` it looks after the Chromium that the
tests drive JupyterLab with instead.
"""

from __future__ import annotations

import argparse
import ctypes.util
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parents[1]
WORKBOOK_ENV = PROJECT_DIR / ".venv"
SERVER_ENV = PROJECT_DIR / ".venv-server"
SERVER_PINS = PROJECT_DIR / "lib" / "workbook" / "serving" / "requirements.txt"
OLDEST, NEWEST = (3, 10), (3, 13)
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LOG_DIR = PROJECT_DIR / "artifacts" / "set_up"
PACKAGES, EXPECTED_S = 170, 120
"""Packages of the workbook's environment, and seconds they take on two processors with a fast network."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = (
    "There is no Chromium, so the tests that open the notebooks in JupyterLab are skipped. "
    "Debian: sudo apt-get install chromium; elsewhere put a chromium or google-chrome on PATH."
)


class MissingError(Exception):
    """Something this machine lacks, with the Debian packages that bring it."""

    def __init__(self, what: str, packages: str) -> None:
        super().__init__(what)
        self.packages = packages


def main() -> int:
    """Make what is missing; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--into-this-python", action="store_true", help="install the workbook here (a conda environment)"
    )
    parser.add_argument("--browser", action="store_true", help="install the browser of the tests, if we may")
    chosen = parser.parse_args()
    if chosen.browser:
        install_browser()
        return 0
    into_this_python = chosen.into_this_python
    try:
        _with_system_packages(_check_system)
    except MissingError as missing:
        print(f"set-up: {missing} Run: {_apt(missing.packages)}", file=sys.stderr)
        return 1
    workbook_python = Path(sys.executable) if into_this_python else WORKBOOK_ENV / "bin" / "python"
    tasks = {
        "server (Triton, 55 MB to download)": lambda: _make_server_env(workbook_python),
        "workbook (PyTorch, JupyterLab and friends)": lambda: _make_workbook_env(workbook_python, into_this_python),
    }
    try:
        with _one_at_a_time():
            return _side_by_side(tasks)
    except KeyboardInterrupt:
        print("\nset-up: stopped. Run it again to go on.", file=sys.stderr)
        return 130


def find_browser() -> str | None:
    """Path of a Chromium; None where there is none.

    A snap (what Ubuntu's package brings) is passed over: it is shut in and cannot be driven from outside.
    """
    found = (shutil.which(name) for name in BROWSERS)
    return next((path for path in found if path and not _is_snap(path)), None)


def _is_snap(program: str) -> bool:
    if "/snap/" in program:
        return True
    with Path(program).open("rb") as file:  # or a script that starts one
        return b"/snap/bin/" in file.read(4096)


def install_browser() -> None:
    """Install Debian's Chromium where there is none and we may; otherwise say in one line how to get it."""
    if find_browser():
        return
    if shutil.which("apt-get") and _as_root() is not None:
        print("set-up: installing Chromium for the tests in JupyterLab (apt-get install chromium)", flush=True)
        if _apt_install("chromium") and find_browser():
            return
    print(f"set-up: {NO_BROWSER}", flush=True)


def _as_root() -> list[str] | None:
    """What to put before a command that root has to run: nothing, sudo where it asks for no password; None: neither."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "--non-interactive"]
    may = shutil.which("sudo") and subprocess.run([*sudo, "true"], check=False, capture_output=True).returncode == 0
    return sudo if may else None


def _apt_install(package: str) -> bool:
    """Install it; where that fails read the package lists anew, which a fresh machine has none of, and try again."""
    apt = [*(_as_root() or []), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    install = [*apt, "install", "--yes", "--no-install-recommends", package]
    LOG_DIR.mkdir(parents=True, exist_ok=True)
    with (LOG_DIR / "browser.log").open("w") as log:
        for command in (install, [*apt, "update"], install):
            code = subprocess.run(command, check=False, stdout=log, stderr=subprocess.STDOUT).returncode
            if command is install and code == 0:
                return True
    return False


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keep two set-ups of this folder from writing into the same environments."""
    LOG_DIR.mkdir(parents=True, exist_ok=True)
    with (LOG_DIR / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("set-up: waiting for another set-up of this folder", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_system() -> None:
    """Raise MissingError for the first thing the environments need and this machine lacks."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise MissingError(f"Python {VERSION} is not supported, 3.10 to 3.13 are (make setup PYTHON=...).", "python3")
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        raise MissingError(
            f"Python {VERSION} at {sys.executable} cannot make virtual environments.", f"python{VERSION}-venv"
        ) from None
    if not _has_shared_libpython():
        raise MissingError(
            f"there is no shared libpython{VERSION}, which Triton loads (pyenv: build with --enable-shared).",
            f"libpython{VERSION}",
        )
    if sys.version_info[:2] == NEWEST and not shutil.which("cc"):
        raise MissingError(
            f"numpy 1.26 has no wheel for Python {VERSION} and building it needs a C compiler.", "build-essential"
        )


def _has_shared_libpython() -> bool:
    names = [f"libpython{VERSION}.so.1.0", f"libpython{VERSION}.so"]
    folders = [sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix) / "lib")]
    here = any((Path(folder) / name).exists() for folder in folders if folder for name in names)
    return here or bool(ctypes.util.find_library(f"python{VERSION}"))


def _with_system_packages(check: Callable[[], None]) -> None:
    """Run the check; as root on Debian or Ubuntu, install what it misses and run it again."""
    for _ in range(4):
        try:
            return check()
        except MissingError as missing:
            if os.geteuid() != 0 or not shutil.which("apt-get"):
                raise
            print(f"set-up: {missing} Running: {_apt(missing.packages)}", flush=True)
            subprocess.run(["apt-get", "-qq", "update"], check=False)
            install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *missing.packages.split()]
            if subprocess.run(install, check=False, stdout=subprocess.DEVNULL).returncode:
                raise
            sys.path_importer_cache.clear()
    return check()


def _apt(packages: str) -> str:
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install {packages}"


def _make_workbook_env(python: Path, into_this_python: bool) -> None:
    stamp = python.parents[1] / ".workbook-stamp"
    wanted = _digest(PROJECT_DIR / "pyproject.toml")
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not into_this_python:
        _make_environment(WORKBOOK_ENV)
    _pip(python, "workbook", "install", "--editable", f"{PROJECT_DIR}[test]")
    stamp.write_text(wanted)


def _make_server_env(workbook_python: Path) -> None:
    stamp = SERVER_ENV / ".workbook-stamp"
    wanted = _digest(SERVER_PINS, str(workbook_python))
    if stamp.exists() and stamp.read_text() == wanted:
        return
    _make_environment(SERVER_ENV)
    _pip(SERVER_ENV / "bin" / "python", "server", "install", "--no-deps", "--requirement", str(SERVER_PINS))
    stamp.write_text(wanted)


def _make_environment(environment: Path) -> None:
    """Make the environment, or make it anew where it is of another Python version or was left half made.

    A sound one stays as it is: its interpreter may be running, and cannot be written over then.
    """
    if not all((environment / "bin" / program).exists() for program in (f"python{VERSION}", "pip")):
        venv.create(environment, with_pip=True, clear=True)


def _pip(python: Path, name: str, *arguments: str) -> None:
    LOG_DIR.mkdir(parents=True, exist_ok=True)
    log = LOG_DIR / f"{name}.log"
    with log.open("w") as file:
        command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=PROJECT_DIR).returncode
    if code:
        errors = [line for line in log.read_text().splitlines() if line.startswith("ERROR")]
        raise RuntimeError(f"{errors[0] if errors else 'pip failed'} (everything pip said: {log})")


def _digest(file: Path, *more: str) -> str:
    parts = [file.read_text(), sys.version, str(PROJECT_DIR), *more]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _estimate(elapsed_s: float) -> str:
    """How far pip is with the workbook, the longer of the two, and from that about how long it still takes.

    It says nothing of its own progress when it writes to a log: its lines there are counted, then, while it unpacks,
    which is about half of the time, the packages that have come to lie in the environment.
    """
    log = LOG_DIR / "workbook.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    announced = [line for line in text.splitlines() if line.startswith("Installing collected packages: ")]
    if not announced:
        found = text.count("\nCollecting ") + text.startswith("Collecting ")
        return f"{found} of about {PACKAGES} packages found, about {max(10, EXPECTED_S - int(elapsed_s))} s left"
    packages = announced[-1].count(",") + 1
    there = len(list(WORKBOOK_ENV.glob("lib/python*/site-packages/*.dist-info")))
    done = min(1.0, there / packages)
    left = elapsed_s * (1 - done) / (1 + done)
    return f"{min(there, packages)} of {packages} packages installed, about {max(5, round(left, -1)):.0f} s left"


def _side_by_side(tasks: dict[str, Callable[[], None]]) -> int:
    """Run the tasks at the same time, saying every few seconds what is still going on."""
    failures: list[str] = []

    def run(name: str, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # a thread's error would otherwise be lost
            failures.append(f"{name}: {error}")

    started = time.monotonic()
    threads = {name: threading.Thread(target=run, args=(name, task), daemon=True) for name, task in tasks.items()}
    for thread in threads.values():
        thread.start()
    said = 0
    while any(thread.is_alive() for thread in threads.values()):
        time.sleep(0.1)
        elapsed = int(time.monotonic() - started)
        if elapsed >= said + 10:
            said = elapsed
            busy = " and ".join(name for name, thread in threads.items() if thread.is_alive())
            print(f"set-up: {elapsed} s, {_estimate(elapsed)}: installing the {busy}", flush=True)
    for failure in failures:
        print(f"set-up: could not install the {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
