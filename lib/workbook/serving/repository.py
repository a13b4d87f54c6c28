"""The model repository: the specs of our models, and servable copies with weights."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from workbook.artifacts import PROJECT_DIR
from workbook.errors import ModelError, SettingError
from workbook.serving.model_config import read_config_pbtxt, to_config_pbtxt
from workbook.serving.model_spec import (
    Accelerator,
    DynamicBatching,
    EnsembleStep,
    InstanceSpec,
    ModelSpec,
    Optimization,
    QueuePolicy,
    TensorSpec,
)

__all__ = [
    "BUNDLED_HIDDEN_SIZE",
    "Accelerator",
    "Backend",
    "DynamicBatching",
    "EnsembleStep",
    "InstanceSpec",
    "ModelSpec",
    "Optimization",
    "QueuePolicy",
    "TensorSpec",
    "assemble_repository",
    "committed_repository",
    "e5_onnx_spec",
    "null_spec",
    "read_config_pbtxt",
    "to_config_pbtxt",
]

Backend = Literal["container", "embedded"]
BUNDLED_HIDDEN_SIZE = 384
"""Of multilingual-e5-small, the bundled model: what the committed configurations are written for."""
_VERSION = "1"
_CODE_FILE = "model.py"
_WEIGHTS = {"e5_onnx": ("model.onnx",)}
_HOW_TO_BUILD = "run notebook 01_export_models, or workbook.models.export.export_onnx(load_encoder(model))"


def committed_repository() -> Path:
    """Folder of the committed configurations and Python models; it holds no weights."""
    return PROJECT_DIR / "model_repository"


def e5_onnx_spec(
    hidden_size: int = BUNDLED_HIDDEN_SIZE,
    *,
    backend: Backend,
    threads: int = 0,
    instances: int = 1,
    dynamic_batching: DynamicBatching | None = DynamicBatching(),  # noqa: B008 - frozen
    max_batch_size: int = 32,
    max_tokens: int = 512,
    vocabulary_size: int | None = None,
) -> ModelSpec:
    """The e5 encoder as an ONNX model.

    Inputs `input_ids`, `attention_mask`, INT64 `batch sequence`; outputs, FP32: `last_hidden_state` `batch sequence
    hidden`, `cls_embedding` and `sentence_embedding` `batch hidden`. Only what a request asks for is computed and sent.

    The two servers differ in one point beside the backend: the embedded one batches requests of different lengths
    (its model pads them), the container's onnxruntime backend only requests of equal length.

    Args:
        hidden_size: width of the encoder.
        backend: `container` (Triton's onnxruntime backend) or `embedded` (onnxruntime inside the Python backend).
        threads: onnxruntime's threads within an operator, for each instance; 0: one for each physical core.
        instances: copies that run at the same time.
        dynamic_batching: None: every request runs alone.
        max_batch_size: most rows in one execution.
        max_tokens: longest row, checked before it runs (embedded).
        vocabulary_size: token ids from this on are refused before they run (embedded); None leaves it to onnxruntime,
            which refuses them too, with a less plain message.

    Raises:
        SettingError: a value is out of bounds.
    """
    _check_backend(backend)
    for name, value, least in (
        ("hidden_size", hidden_size, 1),
        ("threads", threads, 0),
        ("max_tokens", max_tokens, 1),
        ("vocabulary_size", vocabulary_size if vocabulary_size is not None else 1, 1),
    ):
        if value < least:
            raise SettingError(f"e5_onnx: {name} is {value}; give {least} or more.")
    embedded = backend == "embedded"
    # the names of onnxruntime's Triton backend; our Python model reads the same
    parameters = {"intra_op_thread_count": str(threads), "inter_op_thread_count": "1"}
    if embedded:
        parameters["max_tokens"] = str(max_tokens)
        if vocabulary_size is not None:
            parameters["vocabulary_size"] = str(vocabulary_size)
    return ModelSpec(
        name="e5_onnx",
        backend="python" if embedded else "onnxruntime",
        max_batch_size=max_batch_size,
        inputs=_e5_inputs(ragged=embedded and dynamic_batching is not None and max_batch_size > 0),
        outputs=(
            TensorSpec("last_hidden_state", "FP32", (-1, hidden_size)),
            TensorSpec("cls_embedding", "FP32", (hidden_size,)),
            TensorSpec("sentence_embedding", "FP32", (hidden_size,)),
        ),
        instances=(InstanceSpec(instances, "cpu" if embedded else "auto"),),
        dynamic_batching=dynamic_batching,
        parameters=parameters,
    )


def null_spec(hidden_size: int = BUNDLED_HIDDEN_SIZE, *, instances: int = 1) -> ModelSpec:
    """A model that takes e5's inputs and answers at once with a constant embedding: what is left is client and server.

    It is a Python model in both servers, and takes any number of waiting requests in one execution.
    """
    return ModelSpec(
        name="null",
        backend="python",
        max_batch_size=4096,
        inputs=_e5_inputs(ragged=True),
        outputs=(TensorSpec("sentence_embedding", "FP32", (hidden_size,)),),
        instances=(InstanceSpec(instances, "cpu"),),
        dynamic_batching=DynamicBatching(),
    )


def _e5_inputs(*, ragged: bool) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, "INT64", (-1,), ragged) for name in ("input_ids", "attention_mask"))


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
    _check_backend(backend)
    for spec, files in models:
        _check_files(spec, files)
    for spec, files in models:
        _write_model(destination / spec.name, spec, files)
    return destination


def _check_backend(backend: str) -> None:
    if backend not in ("container", "embedded"):
        raise SettingError(f"backend is {backend!r}; give container or embedded.")


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
