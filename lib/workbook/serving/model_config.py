"""ModelSpec <-> config.pbtxt, through Triton's own protobuf: what that does not know cannot be written or read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workbook.errors import SettingError
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

HEADER = "# Generated from its spec in lib/workbook/serving; change it there.\n"


def to_config_pbtxt(spec: ModelSpec) -> str:
    """The model's config.pbtxt."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(_to_message(spec))
    return HEADER + text


def read_config_pbtxt(text: str) -> ModelSpec:
    """Read a config.pbtxt.

    Raises:
        SettingError: it is not one, or holds something a ModelSpec cannot express (nothing is dropped silently).
    """
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    try:
        message = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        raise SettingError(f"This is no config.pbtxt that Triton can read: {error} (line:column first).") from error
    spec = _from_message(message)
    back = _to_message(spec)
    if back != message:
        lost = [line for line in str(message).splitlines() if line not in str(back).splitlines()]
        raise SettingError(
            f"config.pbtxt of {message.name!r} holds what a ModelSpec does not express: {'; '.join(lost) or message}. "
            "Remove it, or add it to workbook.serving.model_spec."
        )
    return spec


def _to_message(spec: ModelSpec) -> Any:
    from tritonclient.grpc import model_config_pb2

    message = model_config_pb2.ModelConfig(name=spec.name, backend=spec.backend, max_batch_size=spec.max_batch_size)
    message.platform, message.default_model_filename = spec.platform, spec.default_model_filename
    for tensors, target in ((spec.inputs, message.input), (spec.outputs, message.output)):
        for tensor in tensors:
            entry = target.add(name=tensor.name, data_type=f"TYPE_{tensor.dtype}", dims=tensor.dims)
            if tensor.ragged:
                entry.allow_ragged_batch = True
    for group in spec.instances:
        message.instance_group.add(count=group.count, kind=f"KIND_{group.kind.upper()}", gpus=group.gpus)
    for key, value in spec.parameters.items():
        message.parameters[key].string_value = value
    if spec.dynamic_batching is not None:
        _write_batching(spec.dynamic_batching, message.dynamic_batching)
    if spec.optimization is not None:
        _write_optimization(spec.optimization, message.optimization)
    if spec.steps:
        message.platform = "ensemble"
        for step in spec.steps:
            message.ensemble_scheduling.step.add(
                model_name=step.model, model_version=-1, input_map=dict(step.inputs), output_map=dict(step.outputs)
            )
    return message


def _write_batching(batching: DynamicBatching, target: Any) -> None:
    target.SetInParent()  # `dynamic_batching { }` switches it on even where all is default
    target.preferred_batch_size.extend(batching.preferred_batch_sizes)
    target.max_queue_delay_microseconds = batching.max_queue_delay_microseconds
    target.preserve_ordering = batching.preserve_ordering
    if (policy := batching.queue_policy) is not None:
        written = target.default_queue_policy
        written.SetInParent()
        written.max_queue_size = policy.max_queue_size
        written.default_timeout_microseconds = policy.timeout_microseconds
        written.timeout_action = policy.timeout_action
        written.allow_timeout_override = policy.allow_timeout_override


def _write_optimization(optimization: Optimization, target: Any) -> None:
    target.SetInParent()
    if optimization.cuda_graphs:
        target.cuda.graphs = True
    target.eager_batching = optimization.eager_batching
    for name in ("input_pinned_memory", "output_pinned_memory"):
        if (wanted := getattr(optimization, name)) is not None:
            getattr(target, name).enable = wanted
            getattr(target, name).SetInParent()
    for kind in ("gpu", "cpu"):
        for accelerator in getattr(optimization, f"{kind}_accelerators"):
            entries = getattr(target.execution_accelerators, f"{kind}_execution_accelerator")
            entries.add(name=accelerator.name, parameters=dict(accelerator.parameters))


def _from_message(message: Any) -> ModelSpec:
    return ModelSpec(
        name=message.name,
        backend=message.backend,
        max_batch_size=message.max_batch_size,
        inputs=_read_tensors(message.input),
        outputs=_read_tensors(message.output),
        instances=tuple(_read_instance(group) for group in message.instance_group),
        dynamic_batching=_read_batching(message.dynamic_batching) if message.HasField("dynamic_batching") else None,
        parameters={key: message.parameters[key].string_value for key in sorted(message.parameters)},
        optimization=_read_optimization(message.optimization) if message.HasField("optimization") else None,
        platform="" if message.HasField("ensemble_scheduling") else message.platform,
        default_model_filename=message.default_model_filename,
        steps=tuple(
            EnsembleStep(step.model_name, dict(step.input_map), dict(step.output_map))
            for step in message.ensemble_scheduling.step
        ),
    )


def _read_tensors(tensors: Iterable[Any]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name=tensor.name,
            dtype=_enum_name(tensor, "data_type").removeprefix("TYPE_"),
            dims=tuple(tensor.dims),
            ragged=bool(getattr(tensor, "allow_ragged_batch", False)),
        )
        for tensor in tensors
    )


def _read_instance(group: Any) -> InstanceSpec:
    kind = _enum_name(group, "kind").removeprefix("KIND_").lower()
    return InstanceSpec(count=group.count, kind=kind, gpus=tuple(group.gpus))


def _read_batching(batching: Any) -> DynamicBatching:
    policy = batching.default_queue_policy if batching.HasField("default_queue_policy") else None
    return DynamicBatching(
        max_queue_delay_microseconds=batching.max_queue_delay_microseconds,
        preferred_batch_sizes=tuple(batching.preferred_batch_size),
        preserve_ordering=batching.preserve_ordering,
        queue_policy=None
        if policy is None
        else QueuePolicy(
            max_queue_size=policy.max_queue_size,
            timeout_microseconds=policy.default_timeout_microseconds,
            timeout_action=_enum_name(policy, "timeout_action"),  # type: ignore[arg-type]
            allow_timeout_override=policy.allow_timeout_override,
        ),
    )


def _read_optimization(optimization: Any) -> Optimization:
    accelerators = optimization.execution_accelerators
    return Optimization(
        cuda_graphs=optimization.cuda.graphs,
        eager_batching=optimization.eager_batching,
        input_pinned_memory=_read_switch(optimization, "input_pinned_memory"),
        output_pinned_memory=_read_switch(optimization, "output_pinned_memory"),
        gpu_accelerators=_read_accelerators(accelerators.gpu_execution_accelerator),
        cpu_accelerators=_read_accelerators(accelerators.cpu_execution_accelerator),
    )


def _read_switch(optimization: Any, name: str) -> bool | None:
    return bool(getattr(optimization, name).enable) if optimization.HasField(name) else None


def _read_accelerators(entries: Iterable[Any]) -> tuple[Accelerator, ...]:
    return tuple(Accelerator(entry.name, dict(entry.parameters)) for entry in entries)


def _enum_name(message: Any, field_name: str) -> str:
    field = message.DESCRIPTOR.fields_by_name[field_name]
    name: str = field.enum_type.values_by_number[getattr(message, field_name)].name
    return name
