"""What Triton has to know of a model, as plain frozen values; `model_config` writes and reads them as config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from workbook.errors import SettingError

DTYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "STRING", "BF16",
)  # fmt: skip
Backend = Literal["container", "embedded"]
INSTANCE_KINDS = ("auto", "cpu", "gpu", "model")
_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def backend_of(kind: str) -> Backend:
    """Which server a configuration is for, from the kind of server that `resolve_kind` gives."""
    return "container" if kind == "container" else "embedded"


def check_backend(backend: str) -> None:
    """Refuse what is no server that a configuration can be for."""
    if backend not in get_args(Backend):
        raise SettingError(f"backend is {backend!r}; give {' or '.join(get_args(Backend))}.")


@dataclass(frozen=True)
class TensorSpec:
    """An input or output, without the batch dimension.

    Attributes:
        name: as the model calls it.
        dtype: Triton's name without `TYPE_`, for example FP32.
        dims: sizes; -1 where it varies from request to request.
        ragged: an input whose requests may be batched although their shapes differ; the backend gets them one by one.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    ragged: bool = False

    def __post_init__(self) -> None:
        _refuse_unless(bool(self.name), "a tensor's name is empty", "name it as the model does")
        _refuse_unless(
            self.dtype in DTYPES, f"tensor {self.name}: dtype is {self.dtype!r}", f"give one of {', '.join(DTYPES)}"
        )
        _refuse_unless(
            bool(self.dims) and all(size == -1 or size >= 1 for size in self.dims),
            f"tensor {self.name}: dims are {list(self.dims)}",
            "give at least one size, each 1 or more, or -1 where it varies",
        )


@dataclass(frozen=True)
class InstanceSpec:
    """Copies of a model that run at the same time.

    Attributes:
        count: how many (on each GPU, where the kind is gpu).
        kind: `cpu`, `gpu`, `auto` (GPU where there is one), `model` (the model decides).
        gpus: device numbers; empty: all.
    """

    count: int = 1
    kind: str = "auto"
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _refuse_unless(self.count >= 1, f"instances.count is {self.count}", "give 1 or more")
        _refuse_unless(
            self.kind in INSTANCE_KINDS, f"instances.kind is {self.kind!r}", f"give one of {', '.join(INSTANCE_KINDS)}"
        )
        _refuse_unless(
            not self.gpus or self.kind in ("gpu", "auto"),
            f"instances.gpus is {list(self.gpus)} for kind {self.kind}",
            "leave it out, or give kind gpu",
        )


@dataclass(frozen=True)
class QueuePolicy:
    """Bounds of the batcher's queue; 0 is no bound.

    Attributes:
        max_queue_size: requests that may wait; one more is refused.
        timeout_microseconds: longest wait.
        timeout_action: what happens then: `REJECT` the request, or `DELAY` it behind the others.
        allow_timeout_override: whether a request may bring a shorter timeout of its own.
    """

    max_queue_size: int = 0
    timeout_microseconds: int = 0
    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    allow_timeout_override: bool = False

    def __post_init__(self) -> None:
        for name in ("max_queue_size", "timeout_microseconds"):
            value = getattr(self, name)
            _refuse_unless(value >= 0, f"queue_policy.{name} is {value}", "give 0 (no bound) or more")
        _refuse_unless(
            self.timeout_action in ("REJECT", "DELAY"),
            f"queue_policy.timeout_action is {self.timeout_action!r}",
            "give REJECT or DELAY",
        )


@dataclass(frozen=True)
class DynamicBatching:
    """How Triton puts requests together.

    Attributes:
        max_queue_delay_microseconds: longest wait for a fuller batch; 0 takes what is there when an instance is free.
        preferred_batch_sizes: sizes sent at once when reached.
        preserve_ordering: answers leave in the order their requests came.
        queue_policy: bounds of the queue; None: none.
    """

    max_queue_delay_microseconds: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()
    preserve_ordering: bool = False
    queue_policy: QueuePolicy | None = None

    def __post_init__(self) -> None:
        delay = self.max_queue_delay_microseconds
        _refuse_unless(delay >= 0, f"max_queue_delay_microseconds is {delay}", "give 0 or more")


@dataclass(frozen=True)
class Accelerator:
    """An execution accelerator of a backend, for example `tensorrt` inside onnxruntime."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Optimization:
    """Triton's optimisation settings; None leaves its default.

    Attributes:
        cuda_graphs: capture CUDA graphs (TensorRT backend).
        eager_batching: gather the next batch while the model runs.
        input_pinned_memory, output_pinned_memory: pinned staging buffers for GPU copies.
        gpu_accelerators, cpu_accelerators: execution accelerators, first choice first.
    """

    cuda_graphs: bool = False
    eager_batching: bool = False
    input_pinned_memory: bool | None = None
    output_pinned_memory: bool | None = None
    gpu_accelerators: tuple[Accelerator, ...] = ()
    cpu_accelerators: tuple[Accelerator, ...] = ()


@dataclass(frozen=True)
class EnsembleStep:
    """One member's call in an ensemble.

    Attributes:
        model: the member.
        inputs: member's input name -> tensor of the ensemble.
        outputs: member's output name -> tensor of the ensemble.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class ModelSpec:
    """One model, or one ensemble (`steps` given) as Triton serves it.

    Attributes:
        name: folder in the repository.
        inputs, outputs: tensors, without the batch dimension where max_batch_size is above 0.
        backend: for example onnxruntime, python, tensorrt; empty for an ensemble, or where `platform` stands for it.
        platform: Triton's older word for backend and file format together, for example pytorch_libtorch.
        default_model_filename: the weights' file in the version's folder; empty leaves the backend's own name.
        max_batch_size: most batch elements in one execution; 0: the model has no batch dimension of Triton's.
        instances: groups of copies; empty leaves Triton's default.
        dynamic_batching: None: every request runs alone.
        parameters: text settings for the backend.
        optimization: None leaves Triton's defaults.
        steps: members' calls, for an ensemble.

    Raises:
        SettingError: a value is out of bounds or two contradict each other.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    backend: str = ""
    max_batch_size: int = 0
    instances: tuple[InstanceSpec, ...] = ()
    dynamic_batching: DynamicBatching | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    optimization: Optimization | None = None
    steps: tuple[EnsembleStep, ...] = ()
    platform: str = ""
    default_model_filename: str = ""

    def __post_init__(self) -> None:
        _refuse_unless(
            _MODEL_NAME.fullmatch(self.name) is not None,
            f"a model's name is {self.name!r}",
            "use letters, digits, _ . and -, a letter, digit or _ first",
        )
        _refuse_unless(
            self.max_batch_size >= 0, f"{self.name}: max_batch_size is {self.max_batch_size}", "give 0 or more"
        )
        for kind, tensors in (("inputs", self.inputs), ("outputs", self.outputs)):
            _check_names(f"{self.name}: {kind}", [tensor.name for tensor in tensors])
        for key, value in self.parameters.items():
            _refuse_unless(
                isinstance(value, str),
                f"{self.name}: parameters[{key!r}] is {value!r}",
                "give text, Triton knows nothing else",
            )
        self._check_batching()
        if self.steps:
            self._check_ensemble()
        else:
            _refuse_unless(
                bool(self.backend) != bool(self.platform),
                f"{self.name}: backend is {self.backend!r}, platform {self.platform!r}, and there are no steps",
                "give exactly one of the three",
            )

    def _check_batching(self) -> None:
        batching, most = self.dynamic_batching, self.max_batch_size
        ragged = [tensor.name for tensor in self.inputs if tensor.ragged]
        _refuse_unless(
            not (ragged and most == 0),
            f"{self.name}: ragged inputs {ragged} with max_batch_size 0",
            "give max_batch_size 1 or more",
        )
        if batching is None:
            return
        _refuse_unless(
            most >= 1, f"{self.name}: dynamic batching with max_batch_size {most}", "give max_batch_size 1 or more"
        )
        outside = [size for size in batching.preferred_batch_sizes if not 1 <= size <= most]
        _refuse_unless(
            not outside,
            f"{self.name}: preferred_batch_sizes {outside} are outside 1..{most}",
            "raise max_batch_size or drop them",
        )

    def _check_ensemble(self) -> None:
        _refuse_unless(
            not (self.backend or self.platform or self.instances or self.dynamic_batching),
            f"{self.name}: an ensemble with backend, platform, instances or dynamic_batching",
            "set them on its members, an ensemble only routes tensors",
        )
        made = [tensor for step in self.steps for tensor in step.outputs.values()]
        known = {tensor.name for tensor in self.inputs} | set(made)
        unknown = sorted({tensor for step in self.steps for tensor in step.inputs.values()} - known)
        _refuse_unless(
            not unknown, f"{self.name}: no step makes {unknown}", "add the step or take an input of the ensemble"
        )
        unmade = sorted({tensor.name for tensor in self.outputs} - set(made))
        _refuse_unless(not unmade, f"{self.name}: no step makes the outputs {unmade}", "map a member's output to each")
        _check_names(f"{self.name}: tensors made by steps", made)


def _check_names(what: str, names: Sequence[str]) -> None:
    _refuse_unless(bool(names), f"{what} are empty", "give at least one")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    _refuse_unless(not twice, f"{what} hold {twice} more than once", "use each name once")


def _refuse_unless(good: bool, problem: str, fix: str) -> None:
    if not good:
        raise SettingError(f"{problem}; {fix}.")
