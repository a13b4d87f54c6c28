"""One pipeline of three stages, arranged in six ways: the same work, other copies.

`monolith` runs all stages in one Python model, `monolith_x2` in two instances of it. `ensemble` lets Triton hand
tensors from stage to stage. `bls` and `bls_async` are a Python model that calls the stages. `handle` is an ensemble in
which the big tensors stay in shared memory and only handles travel (`workbook.serving.handles`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbook.errors import SettingError
from workbook.serving import handles
from workbook.serving.model_spec import DynamicBatching, EnsembleStep, InstanceSpec, ModelSpec, TensorSpec
from workbook.serving.pipelines import Pipeline, Stage, once, relay_pipeline
from workbook.serving.repository import committed_repository

PREFIX = "copies"
ARRANGEMENTS = ("monolith", "monolith_x", "ensemble", "bls", "bls_async", "handle")
"""`monolith_x` is the monolith in several instances; its name ends in their number."""
MAX_BATCH_SIZE = 32
HANDLE = "_handle"
SOURCE_MODEL = f"{PREFIX}_source"


@dataclass(frozen=True)
class HandleOptions:
    """Slots of a stage that hands its output on by handle.

    Attributes:
        slots: tensors on their way at the same time, for each instance.
        slot_bytes: the largest tensor.
        ttl_ms: how long a lease lasts that nobody takes up.
    """

    slots: int = 8
    slot_bytes: int = 64 << 20
    ttl_ms: int = 30_000

    def __post_init__(self) -> None:
        """Refuse what could hold nothing."""
        for name in ("slots", "slot_bytes", "ttl_ms"):
            if getattr(self, name) < 1:
                raise SettingError(f"HandleOptions.{name} is {getattr(self, name)}: give 1 or more.")


def source_model() -> tuple[ModelSpec, Mapping[str, Path]]:
    """A Python model that answers at once with as many bytes as asked for, for `assemble_repository`.

    `request` INT64 `2` (bytes, seed) -> `values` FP32 `elements`.
    """
    tensors = (TensorSpec("request", "INT64", (2,)), TensorSpec("values", "FP32", (-1,)))
    pipeline = Pipeline("source", (Stage("serve", ("request",), ("values",)),), tensors, big=())
    spec = stages_spec(SOURCE_MODEL, pipeline, pipeline.stages)
    return spec, _files(spec, pipeline)


def committed_specs() -> tuple[ModelSpec, ...]:
    """The configurations that lie beside the committed code, each a model that can be served as it stands.

    `copies_stages` is the relay as a monolith; `copies_bls` calls it, with one call in place of three.
    """
    pipeline = relay_pipeline()
    stages = stages_spec("copies_stages", pipeline, pipeline.stages)
    calls = json.dumps([["copies_stages", list(pipeline.inputs), list(pipeline.outputs)]])
    caller = replace(
        _bls(pipeline, asynchronous=False), name="copies_bls", parameters={"calls": calls, "asynchronous": "no"}
    )
    return stages, caller


def arrangement_names(instances: int = 2) -> tuple[str, ...]:
    """The arrangements, the monolith's instances written out: `monolith_x2`."""
    return tuple(f"{name}{instances}" if name == "monolith_x" else name for name in ARRANGEMENTS)


def entry_model(pipeline: Pipeline, arrangement: str) -> str:
    """The model a client asks."""
    return f"{PREFIX}_{pipeline.name}_{arrangement}"


def member_models(pipeline: Pipeline, arrangement: str) -> tuple[str, ...]:
    """The Python models that do the work, stage by stage; the BLS caller stands first."""
    stages = tuple(_stage_model(pipeline, stage, arrangement == "handle") for stage in pipeline.stages)
    entry = entry_model(pipeline, arrangement)
    if arrangement.startswith("monolith"):
        return (entry,)
    return (entry, *stages) if arrangement.startswith("bls") else stages


def arrange(
    pipeline: Pipeline,
    *,
    instances: int = 2,
    threads: int = 1,
    handle_options: HandleOptions = HandleOptions(),
    batching_delay_us: int = 0,
    only: Sequence[str] = (),
) -> list[tuple[ModelSpec, Mapping[str, Path]]]:
    """All models of all arrangements of a pipeline, or of some of them, for `assemble_repository`.

    Args:
        pipeline: what is arranged.
        instances: of `monolith_x`.
        threads: a stage with a network computes with, in each instance.
        handle_options: slots of the `handle` arrangement.
        batching_delay_us: how long `bls_async` waits for further requests, microseconds.
        only: names from `arrangement_names()`; empty for all.
    """
    made = [
        _whole(pipeline, "monolith", 1, threads),
        _whole(pipeline, f"monolith_x{instances}", instances, threads),
        _ensemble(pipeline, by_handle=False),
        _bls(pipeline, asynchronous=False),
        _bls(pipeline, asynchronous=True, delay_us=batching_delay_us),
        _ensemble(pipeline, by_handle=True),
        *(_member(pipeline, stage, threads) for stage in pipeline.stages),
        *(_member(pipeline, stage, threads, handle_options) for stage in pipeline.stages),
    ]
    names = only or arrangement_names(instances)
    wanted = {model for name in names for model in (entry_model(pipeline, name), *member_models(pipeline, name))}
    return [(spec, _files(spec, pipeline)) for spec in made if spec.name in wanted]


def stages_spec(
    name: str,
    pipeline: Pipeline,
    stages: Sequence[Stage],
    *,
    instances: int = 1,
    threads: int = 1,
    parameters: Mapping[str, str] | None = None,
) -> ModelSpec:
    """A Python model that runs these stages in order."""
    made = {name for stage in stages for name in stage.outputs}
    inputs = once(name for stage in stages for name in stage.inputs if name not in made)
    return ModelSpec(
        name=name,
        backend="python",
        max_batch_size=MAX_BATCH_SIZE,
        inputs=pipeline.specs(inputs),
        outputs=pipeline.specs(stages[-1].outputs),
        instances=(InstanceSpec(instances, "cpu"),),
        parameters={
            "stages": ",".join(stage.name for stage in stages),
            "threads": str(threads),
            "own_arrays": str(pipeline.own_arrays),
            **(parameters or {}),
        },
    )


def _whole(pipeline: Pipeline, arrangement: str, instances: int, threads: int) -> ModelSpec:
    name = entry_model(pipeline, arrangement)
    return stages_spec(name, pipeline, pipeline.stages, instances=instances, threads=threads)


def _member(pipeline: Pipeline, stage: Stage, threads: int, handle_options: HandleOptions | None = None) -> ModelSpec:
    name = _stage_model(pipeline, stage, handle_options is not None)
    if handle_options is None:
        return stages_spec(name, pipeline, [stage], threads=threads)
    parameters = {
        "handles_in": ",".join(name for name in stage.inputs if name in pipeline.big),
        "handles_out": ",".join(name for name in stage.outputs if name in pipeline.big),
        "handle_slots": str(handle_options.slots),
        "handle_slot_bytes": str(handle_options.slot_bytes),
        "handle_ttl_ms": str(handle_options.ttl_ms),
    }
    spec = stages_spec(name, pipeline, [stage], threads=threads, parameters=parameters)
    return replace(
        spec,
        inputs=tuple(_as_handle(tensor, pipeline) for tensor in spec.inputs),
        outputs=tuple(_as_handle(tensor, pipeline) for tensor in spec.outputs),
    )


def _as_handle(tensor: TensorSpec, pipeline: Pipeline) -> TensorSpec:
    return TensorSpec(tensor.name + HANDLE, "UINT8", (-1,)) if tensor.name in pipeline.big else tensor


def _ensemble(pipeline: Pipeline, *, by_handle: bool) -> ModelSpec:
    def names(tensors: Iterable[str]) -> dict[str, str]:
        travelling = (name + HANDLE if by_handle and name in pipeline.big else name for name in tensors)
        return {name: name for name in travelling}

    return ModelSpec(
        name=entry_model(pipeline, "handle" if by_handle else "ensemble"),
        max_batch_size=MAX_BATCH_SIZE,
        inputs=pipeline.specs(pipeline.inputs),
        outputs=pipeline.specs(pipeline.outputs),
        steps=tuple(
            EnsembleStep(_stage_model(pipeline, stage, by_handle), names(stage.inputs), names(stage.outputs))
            for stage in pipeline.stages
        ),
    )


def _bls(pipeline: Pipeline, *, asynchronous: bool, delay_us: int = 0) -> ModelSpec:
    calls = [
        [_stage_model(pipeline, stage, False), list(stage.inputs), list(stage.outputs)] for stage in pipeline.stages
    ]
    return ModelSpec(
        name=entry_model(pipeline, "bls_async" if asynchronous else "bls"),
        backend="python",
        max_batch_size=MAX_BATCH_SIZE,
        inputs=pipeline.specs(pipeline.inputs),
        outputs=pipeline.specs(pipeline.outputs),
        instances=(InstanceSpec(1, "cpu"),),
        dynamic_batching=DynamicBatching(max_queue_delay_microseconds=delay_us) if asynchronous else None,
        parameters={"calls": json.dumps(calls), "asynchronous": "yes" if asynchronous else "no"},
    )


def _stage_model(pipeline: Pipeline, stage: Stage, by_handle: bool) -> str:
    return f"{PREFIX}_{pipeline.name}_{stage.name}" + (HANDLE if by_handle else "")


def _files(spec: ModelSpec, pipeline: Pipeline) -> dict[str, Path]:
    if spec.steps:
        return {}
    code = committed_repository()
    if "calls" in spec.parameters:
        return {"model.py": code / "copies_bls" / "1" / "model.py"}
    here = code / "copies_stages" / "1"
    shared = {name: here / name for name in ("model.py", "stages.py")}
    shared |= {f"handles/{file.name}": file for file in sorted(Path(handles.__file__).parent.glob("*.py"))}
    network = {"segment": "segmentation.onnx", "encode": "encoder.onnx"}
    weights = {network[name] for name in spec.parameters["stages"].split(",") if name in network}
    return {**shared, **{name: pipeline.files[name] for name in sorted(weights)}}
