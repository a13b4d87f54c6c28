"""What each variant costs to make: seconds and bytes, and what TensorRT says of its engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.artifacts import build_seconds
from workbook.models.engine_inspection import inspect_engine
from workbook.models.engine_log import dotted
from workbook.models.engines import PLAN_FILE
from workbook.models.export import MODEL_FILE
from workbook.models.trtexec import EngineShapes, trtexec_command
from workbook.models.variants import Variant, VariantModel

if TYPE_CHECKING:
    import pandas as pd

GENERATIONS = (10, 11)


def variants_table(runnable: Sequence[Variant], not_run: Iterable[tuple[Variant, str]]) -> pd.DataFrame:
    """Every variant asked for: `variant`, `engine`, `precision`, `file`, `runs_here`, `note`."""
    import pandas as pd

    asked = [(variant, "") for variant in runnable] + list(not_run)
    columns = ["variant", "engine", "precision", "file", "runs_here", "note"]
    rows = [(v.name, v.engine, v.precision, v.file, not note, note) for v, note in asked]
    return pd.DataFrame(rows, columns=columns)


def cost_table(models: Sequence[VariantModel]) -> pd.DataFrame:
    """What making each took.

    Returns:
        `variant`, `precision`, `build_s` (its own step, once; the fp32 ONNX file that most are made from is built
        before; NaN where a build of long ago was not timed), `bytes`, `times_fp32_onnx` (bytes over those of onnx_fp32;
        NaN without it).
    """
    import pandas as pd

    fp32 = {model.variant.name: model.bytes for model in models}.get("onnx_fp32", float("nan"))
    rows = [
        {
            "variant": model.variant.name,
            "precision": model.variant.precision,
            "build_s": float("nan") if (seconds := build_seconds(model.path)) is None else seconds,
            "bytes": model.bytes,
            "times_fp32_onnx": model.bytes / fp32,
        }
        for model in models
    ]
    return pd.DataFrame(rows)


def engine_table(models: Sequence[VariantModel]) -> pd.DataFrame:
    """TensorRT's own figures of each engine; no rows where none was built.

    Returns:
        `variant`, `tensorrt`, `gpu`, `build_s`, `bytes`, `gpu_latency_median_ms` and `gpu_latency_p99_ms` of one
        execution of the largest shape without copies, `layers` (inspected; 0 without the package `tensorrt`),
        `precisions` (outputs of layers, counted), `note`.
    """
    import pandas as pd

    rows = []
    for model in models:
        if model.engine is None:
            continue
        build, inspected = model.engine.build, inspect_engine(model.path)
        rows.append(
            {
                "variant": model.variant.name,
                "tensorrt": dotted(build.tensorrt_version),
                "gpu": model.engine.gpu,
                "build_s": build.build_s,
                "bytes": build.engine_bytes,
                "gpu_latency_median_ms": build.gpu_latency_median_ms,
                "gpu_latency_p99_ms": build.gpu_latency_p99_ms,
                "layers": inspected.layers,
                "precisions": ", ".join(f"{count} {name}" for name, count in inspected.precisions.items()),
                "note": inspected.reason,
            }
        )
    return pd.DataFrame(rows)


def trtexec_lines(precisions: Sequence[str] = ("fp32", "fp16", "bf16", "best")) -> pd.DataFrame:
    """The command that builds each engine, for either generation of trtexec: `precision`, `generation`, `command`.

    In TensorRT 11 a precision is that of the ONNX file, so its command names another file and has no flag; "best" is
    gone with the flags.
    """
    import pandas as pd

    rows = []
    for precision in precisions:
        for generation in GENERATIONS:
            if precision == "best" and generation == 11:
                continue
            onnx = Path(MODEL_FILE if generation == 10 or precision == "fp32" else f"model-{precision}.onnx")
            words = trtexec_command(onnx, Path(PLAN_FILE), EngineShapes(), precision, generation, verbose=False)
            rows.append((precision, f"TensorRT {generation}", " ".join(words)))
    return pd.DataFrame(rows, columns=["precision", "generation", "command"])
