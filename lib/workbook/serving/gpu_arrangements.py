"""The relay on a GPU: configurations and server arguments. Written for a GPU machine, of no use on another.

Without the parameter `FORCE_CPU_ONLY_INPUT_TENSORS: no` the Python backend moves every input to the CPU (its README).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workbook.errors import SettingError
from workbook.serving.arrangements import arrange
from workbook.serving.model_spec import InstanceSpec, ModelSpec
from workbook.serving.options import ServerOptions
from workbook.serving.pipelines import Pipeline, relay_pipeline
from workbook.serving.repository import committed_repository

GPU_ARRANGEMENTS = ("monolith", "ensemble", "bls")
FORCE_CPU = "FORCE_CPU_ONLY_INPUT_TENSORS"
DEFAULT_POOL_BYTES = 64 << 20


def gpu_pipeline() -> Pipeline:
    """The relay under a name of its own: `copies_gpu_ensemble` and so on."""
    return replace(relay_pipeline(), name="gpu")


def gpu_arrange(*, stay_on_gpu: bool) -> list[tuple[ModelSpec, Mapping[str, Path]]]:
    """Monolith, ensemble and BLS of the relay with their stages on the GPU, for `assemble_repository`.

    Args:
        stay_on_gpu: inputs may stay on the GPU (`FORCE_CPU_ONLY_INPUT_TENSORS: no`), and a BLS caller asks for its
            outputs there (`preferred_memory`); else Triton's default, the CPU.
    """
    code = committed_repository() / "copies_gpu" / "1" / "model.py"
    made: list[tuple[ModelSpec, Mapping[str, Path]]] = []
    for spec, files in arrange(gpu_pipeline(), only=GPU_ARRANGEMENTS):
        if spec.steps:
            made.append((spec, files))
            continue
        parameters = {**spec.parameters, FORCE_CPU: "no" if stay_on_gpu else "yes"}
        is_caller = "calls" in parameters
        if is_caller:
            parameters["preferred_memory"] = "gpu" if stay_on_gpu else "cpu"
        placed = replace(spec, instances=(InstanceSpec(1, "gpu", (0,)),), parameters=parameters)
        made.append((placed, files if is_caller else {"model.py": code}))
    return made


def committed_gpu_spec() -> ModelSpec:
    """The configuration beside the committed code: the relay as a monolith whose input may stay on the GPU."""
    monolith = next(spec for spec, _ in gpu_arrange(stay_on_gpu=True) if spec.name == "copies_gpu_monolith")
    return replace(monolith, name="copies_gpu")


def gpu_options(pool_bytes: int, options: ServerOptions | None = None, gpu: int = 0) -> ServerOptions:
    """Server options with a CUDA pool of that size.

    Args:
        pool_bytes: of the pool on the GPU; Triton's default is 64 MiB. 0 has none.
        options: what else is set; None: nothing.
        gpu: number of the device.

    Raises:
        SettingError: a negative size.
    """
    if pool_bytes < 0:
        raise SettingError(f"pool_bytes is {pool_bytes}: give 0 (no pool) or more.")
    argument = f"--cuda-memory-pool-byte-size={gpu}:{pool_bytes}"
    options = options or ServerOptions()
    return replace(options, extra_arguments=(*options.extra_arguments, argument))
