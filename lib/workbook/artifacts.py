"""Things built once and kept: exports, engines, samples, keyed by what they were made from."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbook.errors import SetupError

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
PROJECT_DIR = Path(__file__).resolve().parents[2]
BUILT_FILE = "built.json"


def artifacts_dir() -> Path:
    """Folder of everything built: `$WORKBOOK_ARTIFACTS`, from the project's folder on, else its `artifacts/`."""
    return PROJECT_DIR / Path(os.environ.get("WORKBOOK_ARTIFACTS") or "artifacts").expanduser()


def cannot_write(folder: Path, variable: str, error: OSError) -> SetupError:
    """The error to raise in place of one that says no more than "No space left on device"."""
    return SetupError(
        f"{folder} cannot be written to: {error.strerror or error}. Make room or rights there, "
        f"or set {variable} to another folder."
    )


def key_digest(key: Mapping[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 of the key written as canonical JSON."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
        return digest.hexdigest()


def build_once(kind: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
    """Return the folder that `build` filled for this key, calling `build` only where it is not there yet.

    The folder appears whole or not at all: an interrupted build leaves nothing a later call could take for finished.
    Two processes that want the same thing wait for each other; the second finds it built.

    Args:
        kind: what is built, the first folder level: "onnx", "engine", "corpus".
        key: all that the result depends on, JSON values only; kept beside the result as `key.json`.
        build: fills the empty folder it is given.

    Returns:
        The folder of the finished artifact.

    Raises:
        SetupError: the disk is full, or the folder is not ours to write to.
    """
    try:
        return _build_once(kind, key, build)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise cannot_write(artifacts_dir(), "WORKBOOK_ARTIFACTS", error) from error


def _build_once(kind: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
    parent = artifacts_dir() / kind
    finished = parent / key_digest(key)
    if finished.is_dir():
        return finished
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / f".{finished.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if finished.is_dir():
            return finished
        for left in parent.glob(f".{finished.name}.*/"):  # of a build that was killed: whoever builds holds the lock
            shutil.rmtree(left, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{finished.name}.", dir=parent))
        try:
            started_ns = time.perf_counter_ns()
            build(unfinished)
            built = {"build_s": (time.perf_counter_ns() - started_ns) / 1e9}
            (unfinished / BUILT_FILE).write_text(json.dumps(built) + "\n")
            (unfinished / "key.json").write_text(json.dumps(key, indent=2, sort_keys=True) + "\n")
            unfinished.chmod(0o755)  # a container reads it as another user
            unfinished.rename(finished)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return finished


def build_seconds(path: Path) -> float | None:
    """How long the artifact took to build that holds this file, or is this folder; None where nobody noted it."""
    folder = path if path.is_dir() else path.parent
    try:
        return float(json.loads((folder / BUILT_FILE).read_text())["build_s"])
    except (OSError, ValueError, KeyError):
        return None
