"""The model repository: where the committed one lies, and how a servable copy with weights is written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbook.artifacts import PROJECT_DIR
from workbook.errors import ModelError
from workbook.serving.model_config import to_config_pbtxt
from workbook.serving.model_spec import Backend, ModelSpec, check_backend

_VERSION = "1"
_CODE_FILE = "model.py"
_WEIGHTS = {"e5_onnx": ("model.onnx",)}
_HOW_TO_BUILD = "run notebook 01_export_models, or workbook.models.export.export_onnx(load_encoder(model))"


def committed_repository() -> Path:
    """Folder of the committed configurations and Python models; it holds no weights."""
    return PROJECT_DIR / "model_repository"


def assemble_repository(
    destination: Path, models: Sequence[tuple[ModelSpec, Mapping[str, Path]]], backend: Backend
) -> Path:
    """Write a repository that can be served: configurations, Python code, weights.

    Weights are hard links where the disk allows it, else copies (never symbolic links: a container sees the folder
    alone). A model's folder is written anew if it was there; other models in `destination` stay.

    Args:
        destination: the repository's folder.
        models: for each model its spec, and its files: name in the version's folder -> where it lies now, for example
            `{"model.onnx": exported.path}`.
        backend: which server it is for; the configuration is `config.pbtxt` for both.

    Returns:
        `destination`.

    Raises:
        ModelError: a file, or a Python model's code, is not there.
        SettingError: no such backend.
    """
    check_backend(backend)
    for spec, files in models:
        _check_files(spec, files)
    for spec, files in models:
        _write_model(destination / spec.name, spec, files)
    return destination


def _check_files(spec: ModelSpec, files: Mapping[str, Path]) -> None:
    for name in _WEIGHTS.get(spec.name, ()):
        if name not in files:
            raise ModelError(f"{spec.name} needs {name}: give {{{name!r}: path}}; {_HOW_TO_BUILD}.")
    for name, source in files.items():
        if not source.is_file():
            raise ModelError(f"{spec.name}: {name} should be {source}, but there is no such file; {_HOW_TO_BUILD}.")
    if spec.backend == "python" and _CODE_FILE not in files and not _code_of(spec).is_file():
        raise ModelError(
            f"{spec.name} is a Python model without code: put it in {_code_of(spec)}, or give {_CODE_FILE!r}."
        )


def _code_of(spec: ModelSpec) -> Path:
    return committed_repository() / spec.name / _VERSION / _CODE_FILE


def _write_model(folder: Path, spec: ModelSpec, files: Mapping[str, Path]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    version = folder / _VERSION
    version.mkdir(parents=True)
    if not spec.steps:
        if spec.backend == "python" and _CODE_FILE not in files:
            shutil.copyfile(_code_of(spec), version / _CODE_FILE)
        for name, source in files.items():
            (version / name).parent.mkdir(exist_ok=True)
            _link_or_copy(source, version / name)
    (folder / "config.pbtxt").write_text(to_config_pbtxt(spec))


def _link_or_copy(source: Path, target: Path) -> None:
    # code is copied: an editor may write through a link into the committed file
    if source.suffix != ".py":
        with contextlib.suppress(OSError):
            os.link(source.resolve(), target)
            return
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ModelError(
                f"No room for {target} ({source.stat().st_size} bytes): free some, then run again."
            ) from error
        raise
