"""A look inside a TensorRT engine, where the `tensorrt` package is installed."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbook.errors import ModelError


@dataclass(frozen=True)
class EngineInspection:
    """What an engine says of itself.

    Attributes:
        available: whether the package was there to ask; where not, everything below is empty and `reason` says why.
        reason: why it is not available, and what would make it so.
        layers: number of layers after fusion.
        precisions: data type of a layer's first output -> number of layers; "unknown" where the engine was not built
            with `--profilingVerbosity=detailed`.
        profiles: for each optimisation profile, input name -> (min, opt, max) shapes.
    """

    available: bool
    reason: str = ""
    layers: int = 0
    precisions: Mapping[str, int] = field(default_factory=dict)
    profiles: tuple[Mapping[str, tuple[tuple[int, ...], ...]], ...] = ()


def inspect_engine(plan: Path) -> EngineInspection:
    """Layers, their precisions and the optimisation profiles of an engine.

    Raises:
        ModelError: no such file, or this TensorRT cannot load it.
    """
    if not plan.is_file():
        raise ModelError(f"there is no engine {plan}: build it with build_engine")
    try:
        tensorrt: Any = importlib.import_module("tensorrt")
    except (ImportError, OSError) as error:  # OSError: the package is there, a library of the driver is not
        return EngineInspection(
            available=False,
            reason=f"not available: the package tensorrt does not import here ({error}). It needs an NVIDIA GPU and "
            "NVIDIA's package index: pip install --extra-index-url https://pypi.nvidia.com '.[gpu]'",
        )
    engine = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR)).deserialize_cuda_engine(plan.read_bytes())
    if engine is None:
        raise ModelError(f"TensorRT {tensorrt.__version__} cannot load {plan}: it was built by another version or GPU")
    report = engine.create_engine_inspector().get_engine_information(tensorrt.LayerInformationFormat.JSON)
    layers = json.loads(report)["Layers"]
    return EngineInspection(
        available=True,
        layers=len(layers),
        precisions=dict(Counter(layer_precision(layer) for layer in layers)),
        profiles=tuple(_profile(engine, tensorrt, index) for index in range(engine.num_optimization_profiles)),
    )


def layer_precision(layer: str | Mapping[str, Any]) -> str:
    """Data type of a layer's first output as the inspector's JSON tells it; a bare name tells none.

    TensorRT 10 writes it as the last word of `Format/Datatype`, 11 in a field of its own (its migration guide).
    """
    outputs = [] if isinstance(layer, str) else layer.get("Outputs", [])
    if not outputs:
        return "unknown"
    output = outputs[0]
    return str(output.get("DataType") or str(output.get("Format/Datatype", "unknown")).split()[-1])


def _profile(engine: Any, tensorrt: Any, index: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT]
    return {name: tuple(tuple(shape) for shape in engine.get_tensor_profile_shape(name, index)) for name in inputs}
