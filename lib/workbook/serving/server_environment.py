"""The small Python environment that holds the embedded Triton server, beside the workbook's own.

The wheel nvidia-pytriton brings the server; its Python stub needs NumPy 1.26 while the workbook needs NumPy 2. So the
server has an environment of its own with the old NumPy, and a `.pth` file that appends the workbook's packages behind
it: a model's `import numpy` finds 1.26.4, its `import onnxruntime` the workbook's. (The stub does not read PYTHONPATH.)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SetupError

SERVER_WHEEL_VERSION = "0.7.0"
TRITON_VERSION = "2.51.0"
NUMPY_VERSION = "1.26.4"
_PTH_NAME = "workbook-packages.pth"
_STUB_NAME = "triton_python_backend_stub"
_PROBE = """
import importlib.metadata as m, json, sys, sysconfig
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
variables = sysconfig.get_config_vars()
print(json.dumps({
    "minor": sys.version_info[:2], "site_packages": sysconfig.get_path("purelib"), "base_prefix": sys.base_prefix,
    "libpython": variables.get("INSTSONAME"), "shared": variables.get("Py_ENABLE_SHARED"),
    "libdir": variables.get("LIBDIR"), "multiarch": variables.get("MULTIARCH"),
    "numpy": version("numpy"), "wheel": version("nvidia-pytriton"),
}))
"""


@dataclass(frozen=True)
class ServerEnvironment:
    """Where the parts of the embedded server lie."""

    folder: Path
    site_packages: Path

    @property
    def executable(self) -> Path:
        """The tritonserver binary."""
        return self.site_packages / "pytriton" / "tritonserver" / "bin" / "tritonserver"

    @property
    def backend_dir(self) -> Path:
        """Our own backend folder, where the stub of this Python lies beside the backend's library."""
        return self.folder / "triton-backends"

    @property
    def library_dir(self) -> Path:
        """A folder that holds libpython and nothing else, so that no other library of that Python slips in."""
        return self.folder / "triton-libpython"

    def process_environment(self) -> dict[str, str]:
        """Environment variables for tritonserver: this environment's Python first, its libraries found."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        libraries = [str(self.site_packages / "nvidia_pytriton.libs"), str(self.library_dir)]
        if inherited := kept.get("LD_LIBRARY_PATH"):
            libraries.append(inherited)
        search_path = [str(self.folder / "bin"), kept.get("PATH", os.defpath)]
        return {**kept, "PATH": os.pathsep.join(search_path), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def server_environment_dir() -> Path:
    """Folder of the server's environment: `$WORKBOOK_SERVER_ENV`, else `.venv-server/` of the project."""
    return Path(os.environ.get("WORKBOOK_SERVER_ENV") or PROJECT_DIR / ".venv-server").absolute()


def prepare() -> ServerEnvironment:
    """Check the server's environment and complete it; does nothing where all is in place.

    Returns:
        The environment, ready to start a server from.

    Raises:
        SetupError: a part is missing or of another version; the message names the command that mends it.
    """
    folder = server_environment_dir()
    facts = _probe(folder)
    _check_versions(folder, facts)
    environment = ServerEnvironment(folder=folder, site_packages=Path(facts["site_packages"]))
    _link_library(find_libpython(facts), environment.library_dir)
    _copy_backend(environment)
    _write_pth(environment.site_packages / _PTH_NAME)
    return environment


def find_libpython(facts: dict[str, Any]) -> Path:
    """The shared library of the Python that the stub will host.

    Raises:
        SetupError: that Python has none.
    """
    name = _library_name(facts)
    folders = [facts["libdir"], f"{facts['base_prefix']}/lib"]
    if facts["multiarch"]:
        folders += [f"/usr/lib/{facts['multiarch']}", f"{facts['base_prefix']}/lib/{facts['multiarch']}"]
    for folder in filter(None, folders):
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise SetupError(_no_libpython(name, facts))


def _library_name(facts: dict[str, Any]) -> str:
    # a Python linked statically against libpython names the archive here, though Debian ships the shared one apart
    major, minor = facts["minor"]
    return f"libpython{major}.{minor}.so.1.0"


def _no_libpython(name: str, facts: dict[str, Any]) -> str:
    version = ".".join(map(str, facts["minor"]))
    if facts["base_prefix"] in ("/usr", "/usr/local"):
        fix = f"apt-get install libpython{version}"
    elif "pyenv" in facts["base_prefix"]:
        fix = f"PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force {version}, then make clean setup"
    else:
        fix = (
            "use a Python built with --enable-shared (Debian's with libpython, conda's, or uv's), then make clean setup"
        )
    return f"The embedded server needs {name}, which the Python in {facts['base_prefix']} lacks. To mend it: {fix}"


def _probe(folder: Path) -> dict[str, Any]:
    python = folder / "bin" / "python3"
    if not python.exists():
        raise SetupError(f"There is no server environment in {folder}. Run: make setup")
    try:
        answer = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(
            f"The server environment's Python {python} does not run ({error}). Run: make clean setup"
        ) from error
    facts: dict[str, Any] = json.loads(answer.stdout)
    return facts


def _check_versions(folder: Path, facts: dict[str, Any]) -> None:
    ours = list(sys.version_info[:2])
    if facts["minor"] != ours:
        raise SetupError(
            f"The server environment in {folder} has Python {_dotted(facts['minor'])}, the workbook {_dotted(ours)}; "
            "its models could not import the workbook's packages. Run: make clean setup"
        )
    for package, found, needed in (
        ("nvidia-pytriton", facts["wheel"], SERVER_WHEEL_VERSION),
        ("numpy", facts["numpy"], NUMPY_VERSION),
    ):
        if found != needed:
            raise SetupError(
                f"The server environment in {folder} has {package} {found or 'not at all'}, not {needed}. "
                "Run: make setup"
            )


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))


def _link_library(library: Path, folder: Path) -> None:
    link = folder / library.name
    if link.is_symlink() and link.readlink() == library:
        return
    folder.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(library)


def _copy_backend(environment: ServerEnvironment) -> None:
    parts = environment.executable.parents[1]
    stub = parts / "python_backend_stubs" / _dotted(list(sys.version_info[:2])) / _STUB_NAME
    if not stub.is_file():
        raise SetupError(
            f"The server wheel has no stub for Python {_dotted(list(sys.version_info[:2]))}: use 3.10 to 3.13."
        )
    folder = environment.backend_dir / "python"
    folder.mkdir(parents=True, exist_ok=True)
    for source in (*(parts / "backends" / "python").glob("*.*"), stub):
        _copy_if_changed(source, folder / source.name)


def _copy_if_changed(source: Path, target: Path) -> None:
    if target.exists() and _looks(target) == _looks(source):
        return
    # written beside and renamed: a server that runs from the old file keeps it
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(source, unfinished)
    unfinished.replace(target)


def _looks(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, int(status.st_mtime)


def _write_pth(file: Path) -> None:
    folders = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    text = "".join(f"{folder}\n" for folder in folders)
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def main() -> None:
    """What `make setup` runs: prepare, and say in one line what there is or what is missing."""
    try:
        environment = prepare()
    except SetupError as error:
        raise SystemExit(f"set-up: {error}") from None
    print(f"Triton {TRITON_VERSION} is ready in {environment.folder}")


if __name__ == "__main__":
    main()
