"""Smaller numbers, made from the fp32 ONNX file once and kept: fp16, bf16, int8.

Each conversion keeps the names and types of inputs and outputs, so whatever serves the fp32 file serves these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.artifacts import build_once, file_sha256
from workbook.errors import ModelError
from workbook.models.export import EXTERNAL_DATA_FROM_BYTES, MODEL_FILE, ExportedModel
from workbook.models.half_graph import ISLAND_OPERATORS, to_half
from workbook.models.processor import processor_flags
from workbook.models.quiet import quiet_libraries

if TYPE_CHECKING:
    from onnx import ModelProto

RECIPE = 1  # raise it when a conversion changes for a reason that no other part of the key shows
MANIFEST_FILE = "conversion.json"
VNNI_FLAGS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8", "asimddp"})


def convert_fp16(exported: ExportedModel) -> ExportedModel:
    """Weights and compute in fp16; softmax, layer norm and pooling in fp32.

    Runs on any CPU through onnxruntime, which computes in fp32 where the processor has no fp16 arithmetic.

    Raises:
        ModelError: the fp32 file is damaged or has a graph that cannot be converted.
    """
    return _convert(exported, {"to": "fp16"}, partial(_write_half, half="FLOAT16"))


def convert_bf16(exported: ExportedModel) -> ExportedModel:
    """Weights and compute in bf16, the same islands in fp32: for TensorRT 11, which takes the precision from the file.

    onnxruntime's CPU kernels have no bf16 (`NOT_IMPLEMENTED`): no session opens on it there.

    Raises:
        ModelError: the fp32 file is damaged or has a graph that cannot be converted.
    """
    return _convert(exported, {"to": "bf16"}, partial(_write_half, half="BFLOAT16"))


def quantise_int8(exported: ExportedModel, *, reduce_range: bool | None = None) -> ExportedModel:
    """Weights of matrix products in int8, a scale for each output column; activations in uint8, scaled as they come.

    The embedding table stays in fp32: it is read, not multiplied, and an int8 table was slower in both trials made.

    Args:
        exported: the fp32 file.
        reduce_range: weights in 7 bits, which an x86 processor without VNNI needs, because its product of uint8 and
            int8 saturates (onnxruntime's documentation of quantisation); None: where this processor needs it.

    Raises:
        ModelError: the fp32 file is damaged or cannot be quantised.
    """
    narrow = VNNI_FLAGS.isdisjoint(processor_flags()) if reduce_range is None else reduce_range
    return _convert(
        exported, {"to": "int8", "reduce_range": narrow}, lambda source, target: _write_int8(source, target, narrow)
    )


def check_onnx(path: Path) -> None:
    """Do nothing where the file is a sound ONNX model.

    Raises:
        ModelError: no such file, or `onnx.checker` finds it malformed.
    """
    import onnx

    if not path.is_file():
        raise ModelError(f"there is no ONNX file {path}: export it with export_onnx")
    try:
        onnx.checker.check_model(str(path))
    except Exception as error:  # a protobuf error where it is no protobuf, else the checker's own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{path} ({path.stat().st_size} bytes) is no valid ONNX model: {reason}\n"
            f"Delete the folder {path.parent} and export again."
        ) from error


def _convert(exported: ExportedModel, how: dict[str, Any], write: Callable[[Path, Path], None]) -> ExportedModel:
    """Run a conversion once for each fp32 file and setting, and describe what it wrote."""
    import onnx
    import onnxruntime

    key = {
        "source": exported.sha256,
        **how,
        "islands": sorted(ISLAND_OPERATORS),
        "recipe": RECIPE,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
    }

    def build(folder: Path) -> None:
        check_onnx(exported.path)
        try:
            write(exported.path, folder / MODEL_FILE)
        except ModelError:
            raise
        except Exception as error:  # the libraries' errors have many types and one meaning
            raise ModelError(
                f"cannot convert {exported.path} to {how['to']}: {type(error).__name__}: {error}"
            ) from error
        (folder / MANIFEST_FILE).write_text(json.dumps(_describe(folder)) + "\n")

    folder = build_once("onnx-converted", key, build)
    return replace(exported, path=folder / MODEL_FILE, **json.loads((folder / MANIFEST_FILE).read_text()))


def _describe(folder: Path) -> dict[str, Any]:
    """Digest and size of the model's files, as an ExportedModel has them."""
    files = sorted(folder.glob(f"{MODEL_FILE}*"))
    digests = [file_sha256(path) for path in files]
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return {"sha256": digest, "bytes": sum(path.stat().st_size for path in files)}


def _write_half(source: Path, target: Path, half: str) -> None:
    import onnx

    model = to_half(onnx.load(source), onnx.TensorProto.DataType.Value(half))
    _save(model, target)
    onnx.checker.check_model(str(target), full_check=True)


def _save(model: ModelProto, target: Path) -> None:
    """One file, or graph and weights apart where a protobuf could not hold them."""
    import onnx

    weights_bytes = sum(len(weight.raw_data) for weight in model.graph.initializer)
    apart = weights_bytes >= EXTERNAL_DATA_FROM_BYTES
    onnx.save_model(model, target, save_as_external_data=apart, location=f"{target.name}.data" if apart else None)


def _write_int8(source: Path, target: Path, reduce_range: bool) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    external = len(list(source.parent.glob(f"{source.name}*"))) > 1
    with quiet_libraries():  # it advises to preprocess, which changes nothing for this graph
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=external,
        )
