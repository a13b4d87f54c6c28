"""The segmentation model as files a server loads: ONNX and TorchScript, written once and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbook.artifacts import build_once, file_sha256
from workbook.errors import ModelError, SettingError
from workbook.models.quiet import quiet_libraries
from workbook.models.segmentation_images import TENSOR_SHAPE, require_tensor
from workbook.models.segmentation_model import OUTPUTS, SegmentationModel, with_boundary
from workbook.models.sessions import open_session

if TYPE_CHECKING:
    from torch import nn

INPUT_NAME, OUTPUT_NAME = "INPUT__0", "OUTPUT__0"
OPSET = 20
RECIPE = 1  # raise it when the exported graph changes for a reason that no other part of the key shows
MANIFEST_FILE = "export.json"
Run = Callable[[NDArray[np.float16]], NDArray[np.generic]]


class Variant(NamedTuple):
    """How an export is written and what it computes in."""

    file: str
    compute: str


VARIANTS = {
    "onnx_float32": Variant("model.onnx", "float32"),
    "onnx_float16": Variant("model.onnx", "float16"),
    "torchscript_float32": Variant("model.pt", "float32"),
    "torchscript_float16": Variant("model.pt", "float16"),
}


@dataclass(frozen=True)
class ExportedSegmentation:
    """A model file and what it was made from.

    Whatever the variant, it takes `input_name`, float16 `batch 3 256 448` in 0..1, and gives `output_name`: float16
    logits `batch 2 256 448`, or the uint8 mask `batch 256 448`.

    Attributes:
        path: `model.onnx` or `model.pt`.
        variant: a key of VARIANTS.
        output: `logits` or `mask`.
        sha256: of the file.
        bytes: its size.
        source: the model setting it came from.
        input_name: of the tensor that goes in; TorchScript knows no names, a Triton configuration gives it this one.
        output_name: of the tensor that comes out, likewise.
    """

    path: Path
    variant: str
    output: str
    sha256: str
    bytes: int
    source: str
    input_name: str = INPUT_NAME
    output_name: str = OUTPUT_NAME


def export_segmentation(
    model: SegmentationModel, variant: str = "onnx_float32", output: str = "logits"
) -> ExportedSegmentation:
    """Export once, with a free batch; later calls return what is there.

    Args:
        model: the network.
        variant: `onnx_float32` (float32 inside, for a CPU), `onnx_float16` (float16 weights and arithmetic, for a GPU),
            `torchscript_float32` or `torchscript_float16` (for Triton's libtorch backend).
        output: `logits`, or `mask` for the class of each pixel.

    Raises:
        SettingError: no such variant or output.
        ModelError: the exporter failed, or the kept file has lost its size.
    """
    if variant not in VARIANTS or output not in OUTPUTS:
        raise SettingError(f"variant={variant!r}, output={output!r}: use one of {', '.join(VARIANTS)}; {OUTPUTS}")
    import onnxscript
    import torch

    file, _ = VARIANTS[variant]
    key = {
        "fingerprint": model.fingerprint,
        "backbone": model.backbone,
        "variant": variant,
        "output": output,
        "names": [INPUT_NAME, OUTPUT_NAME],
        "opset": OPSET,
        "recipe": RECIPE,
        "torch": torch.__version__,
        "onnxscript": onnxscript.__version__,
    }
    folder = build_once("segmentation_export", key, lambda unfinished: _write(model, variant, output, unfinished))
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    size = (folder / file).stat().st_size
    if size != manifest["bytes"]:
        raise ModelError(f"{folder / file} has {size} bytes, {manifest['bytes']} were written: delete {folder}")
    return ExportedSegmentation(folder / file, variant, output, manifest["sha256"], size, model.source)


def _write(model: SegmentationModel, variant: str, output: str, folder: Path) -> None:
    file, compute = VARIANTS[variant]
    path, module = folder / file, with_boundary(model, output=output, compute=compute)
    try:
        with quiet_libraries():
            (_write_onnx if path.suffix == ".onnx" else _write_torchscript)(module, path)
    except Exception as error:  # the exporters' errors have many types and one meaning
        raise ModelError(f"cannot export {model.source} as {variant}: {type(error).__name__}: {error}") from error
    manifest = {"sha256": file_sha256(path), "bytes": path.stat().st_size}
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest) + "\n")


def _write_onnx(module: nn.Module, path: Path) -> None:
    import torch

    torch.onnx.export(
        module,
        (torch.zeros((2, *TENSOR_SHAPE), dtype=torch.float16),),  # 2: the exporter takes a batch of 1 for a constant
        path,
        input_names=[INPUT_NAME],
        output_names=[OUTPUT_NAME],
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def _write_torchscript(module: nn.Module, path: Path) -> None:
    import torch

    jit: Any = torch.jit  # its functions carry no annotations
    with torch.inference_mode():
        traced = jit.trace(module, torch.zeros((2, *TENSOR_SHAPE), dtype=torch.float16), check_trace=False)
    jit.save(traced, path)


def open_segmentation(exported: ExportedSegmentation, threads: int = 1) -> Run:
    """A function that runs the file on the CPU: float16 `batch 3 height width` -> logits or masks.

    The function refuses another shape or type with ModelError.

    Args:
        exported: ONNX runs in onnxruntime, TorchScript in PyTorch.
        threads: of onnxruntime; PyTorch has one setting for the whole process (`torch.set_num_threads`).

    Raises:
        SettingError: `threads` is below 1.
        ModelError: the file is gone or cannot be loaded.
    """
    run = _run_onnx(exported, threads) if exported.path.suffix == ".onnx" else _run_torchscript(exported)

    def checked(tensor: NDArray[np.float16]) -> NDArray[np.generic]:
        require_tensor(tensor)
        return run(tensor)

    return checked


def _run_onnx(exported: ExportedSegmentation, threads: int) -> Run:
    session = open_session(exported.path, threads)

    def run(tensor: NDArray[np.float16]) -> NDArray[np.generic]:
        (result,) = session.run([exported.output_name], {exported.input_name: tensor})
        return np.asarray(result)

    return run


def _run_torchscript(exported: ExportedSegmentation) -> Run:
    import torch

    jit: Any = torch.jit
    try:
        with quiet_libraries():
            module = jit.load(exported.path)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"PyTorch cannot load {exported.path}: {str(error).splitlines()[0]}; export again") from error

    def run(tensor: NDArray[np.float16]) -> NDArray[np.generic]:
        with torch.inference_mode():
            return np.asarray(module(torch.from_numpy(tensor)).numpy())

    return run
