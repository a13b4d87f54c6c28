"""Run a variant in this process, whichever library computes it: the same call, the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workbook.errors import ModelError, SettingError, SetupError
from workbook.models.export import OUTPUTS
from workbook.models.sessions import open_session
from workbook.models.variants import VariantModel, how_to_get

EMBEDDING = "sentence_embedding"
Ids = NDArray[np.int64]
Run = Callable[[Ids, Ids, Sequence[str]], dict[str, NDArray[np.float32]]]
"""Ids, mask, names of outputs -> outputs by name."""


class VariantSession(Protocol):
    """An open variant."""

    def __call__(
        self,
        input_ids: Ids,
        attention_mask: Ids,
        outputs: Sequence[str] = (EMBEDDING,),
    ) -> dict[str, NDArray[np.float32]]:
        """Compute outputs of one batch.

        Args:
            input_ids: int64, `batch sequence`.
            attention_mask: int64, `batch sequence`, 1 on real tokens.
            outputs: any of last_hidden_state, cls_embedding, sentence_embedding.

        Returns:
            float32 arrays by name, `batch sequence hidden` or `batch hidden`.

        Raises:
            SettingError: no such output, or a row is longer than the model takes.
        """


def open_variant(model: VariantModel, threads: int) -> VariantSession:
    """Open a made variant in this process.

    Args:
        model: from `make_variant`.
        threads: to compute with. PyTorch's are those of the whole process: the variant opened last sets them.

    Raises:
        SettingError: `threads` is below 1.
        SetupError: its library is not installed, or it is an engine, which Triton runs.
        ModelError: the file is missing or malformed.
    """
    if threads < 1:
        raise SettingError(f"threads={threads} must be at least 1")
    name = model.variant.engine
    if name not in _OPENERS:
        raise SetupError(
            f'{model.variant.name} does not run in this process: serve it (server = "container") and ask the server'
        )
    if not model.path.is_file():
        raise ModelError(f"{model.variant.name}: there is no file {model.path}: make it again with make_variant")
    try:
        run = _OPENERS[name](model.path, threads)
    except ImportError as error:
        raise SetupError(f"{model.variant.name} needs the library {name}: {how_to_get(name)}") from error
    return _Checked(run, model)


class _Checked:
    """Refuses what the model cannot take, in the same words for every library."""

    def __init__(self, run: Run, model: VariantModel) -> None:
        self._run, self._model = run, model

    def __call__(
        self,
        input_ids: Ids,
        attention_mask: Ids,
        outputs: Sequence[str] = (EMBEDDING,),
    ) -> dict[str, NDArray[np.float32]]:
        if unknown := [name for name in outputs if name not in OUTPUTS]:
            raise SettingError(f"there is no output {unknown[0]!r}; it must be one of {', '.join(OUTPUTS)}")
        if input_ids.ndim != 2 or input_ids.shape != attention_mask.shape:
            raise SettingError(
                f"input_ids {input_ids.shape} and attention_mask {attention_mask.shape}: give both as `batch sequence`"
            )
        if not 1 <= input_ids.shape[1] <= self._model.max_length:
            raise SettingError(
                f"rows of {input_ids.shape[1]} tokens: {self._model.variant.name} takes 1 to {self._model.max_length}; "
                "truncate them when tokenising"
            )
        return self._run(input_ids, attention_mask, outputs)


def _open_onnxruntime(path: Path, threads: int) -> Run:
    session = open_session(path, threads)

    def run(ids: Ids, mask: Ids, outputs: Sequence[str]) -> dict[str, Any]:
        return dict(zip(outputs, session.run(list(outputs), {"input_ids": ids, "attention_mask": mask}), strict=True))

    return run


def _open_openvino(path: Path, threads: int) -> Run:
    import openvino

    # Left to itself it computes in bf16 where the processor can, which would no longer be fp32.
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    try:
        compiled = openvino.Core().compile_model(path, "CPU", settings)
    except RuntimeError as error:
        raise _malformed("openvino", path, error) from error
    request = compiled.create_infer_request()

    def run(ids: Ids, mask: Ids, outputs: Sequence[str]) -> dict[str, Any]:
        results = request.infer({"input_ids": ids, "attention_mask": mask}, share_inputs=True)
        return {name: np.array(results[name]) for name in outputs}

    return run


def _open_torch(path: Path, threads: int) -> Run:
    import torch

    try:
        module = torch.export.load(path).module()
    except Exception as error:  # a zip, pickle or schema error, each of its own type
        raise _malformed("torch", path, error) from error
    torch.set_num_threads(threads)

    def run(ids: Ids, mask: Ids, outputs: Sequence[str]) -> dict[str, Any]:
        with torch.inference_mode():
            results = dict(zip(OUTPUTS, module(torch.from_numpy(ids), torch.from_numpy(mask)), strict=True))
        return {name: results[name].float().numpy() for name in outputs}

    return run


def _malformed(library: str, path: Path, error: Exception) -> ModelError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return ModelError(
        f"{library} cannot load {path} ({path.stat().st_size} bytes): {reason}\n"
        f"Delete the folder {path.parent} and make the variant again."
    )


_OPENERS = {"onnxruntime": _open_onnxruntime, "openvino": _open_openvino, "torch": _open_torch}
