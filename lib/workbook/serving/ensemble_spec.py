"""The ensemble of Triton issue 2760: A segments, B makes a JPEG of the mask, C is A then B; and its variants.

One value, `EnsembleVariant`, stands for every configuration that is served; its defaults are the reported one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workbook.errors import SettingError
from workbook.serving.model_spec import (
    Backend,
    DynamicBatching,
    EnsembleStep,
    InstanceSpec,
    ModelSpec,
    Optimization,
    QueuePolicy,
    TensorSpec,
    check_backend,
)

MEMBER_A, MEMBER_B, ENSEMBLE = "sfpn16", "pypost16", "sfpn16_pypost16"
NULL_MEMBER, NULL_A, NULL_B, NULL_ENSEMBLE = "null_member", "null_a", "null_b", "null_ensemble"
IMAGE_DIMS = (3, 256, 448)
MASK_DIMS = (256, 448)
OPERATIONS = ("jpeg", "identity")
HOPS = ("logits", "mask")
_TEXT = TensorSpec("OUTPUT", "STRING", (1,))


@dataclass(frozen=True)
class EnsembleVariant:
    """One configuration of members and ensemble; the defaults are those of the issue.

    Attributes:
        a_max_batch: most images in one execution of A, 1 or more.
        a_delay_us: longest wait of A's batcher for a fuller batch, microseconds.
        a_instances: copies of A that run at the same time.
        a_threads: threads of each copy (embedded server).
        a_processors: processors A's copies may run on; empty: all (embedded server).
        b_operation: `jpeg`, or `identity` (B hands its input back), the reporter's ablation.
        b_max_batch: most masks in one execution of B; 0: one at a time, without a batch dimension, as reported.
        b_delay_us: longest wait of B's batcher, microseconds; only where b_max_batch is above 0.
        b_instances: copies of B, a process each.
        b_processors: processors B's copies may run on; empty: all.
        b_stall_us: a wait in front of each of B's answers, microseconds; it stands in for a move from GPU to host
            memory on a machine without a GPU, and is never part of a case that is called as reported.
        hop: what A hands to B: `logits` (float16, 458,752 bytes) or `mask` (uint8 classes, a quarter of that).
        max_queue_size: requests that may wait for a member with a batcher, one more is refused; 0: any number.
        pinned_memory: pinned staging buffers for copies between GPU and host; None leaves Triton's default. Without a
            GPU it changes nothing.

    Raises:
        SettingError: a value is out of bounds or contradicts another.
    """

    a_max_batch: int = 32
    a_delay_us: int = 150_000
    a_instances: int = 2
    a_threads: int = 1
    a_processors: tuple[int, ...] = ()
    b_operation: str = "jpeg"
    b_max_batch: int = 0
    b_delay_us: int = 0
    b_instances: int = 1
    b_processors: tuple[int, ...] = ()
    b_stall_us: int = 0
    hop: str = "logits"
    max_queue_size: int = 0
    pinned_memory: bool | None = None

    def __post_init__(self) -> None:
        for name in ("a_max_batch", "a_instances", "a_threads", "b_instances"):
            self._require_at_least(name, 1)
        for name in ("a_delay_us", "b_max_batch", "b_delay_us", "b_stall_us", "max_queue_size"):
            self._require_at_least(name, 0)
        for name, known in (("b_operation", OPERATIONS), ("hop", HOPS)):
            if getattr(self, name) not in known:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give {' or '.join(known)}.")
        if self.b_delay_us and not self.b_max_batch:
            raise SettingError(f"b_delay_us is {self.b_delay_us} with b_max_batch 0; give b_max_batch 1 or more.")
        for name in ("a_processors", "b_processors"):
            if any(processor < 0 for processor in getattr(self, name)):
                raise SettingError(f"{name} is {list(getattr(self, name))}; processors count from 0.")

    def _require_at_least(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise SettingError(f"{name} is {getattr(self, name)}; give {least} or more.")


def pin_apart(variant: EnsembleVariant, processors: tuple[int, ...]) -> EnsembleVariant:
    """The variant with B on the last of these processors and A on the others, so that neither takes the other's time.

    Raises:
        SettingError: fewer than two processors.
    """
    if len(processors) < 2:
        raise SettingError(f"members cannot be pinned apart on {len(processors)} processor: at least 2 are needed.")
    return replace(variant, a_processors=processors[:-1], b_processors=processors[-1:])


def apart_if_possible(variant: EnsembleVariant, processors: tuple[int, ...]) -> EnsembleVariant:
    """As `pin_apart`; the variant as it is on a machine with a single processor."""
    return pin_apart(variant, processors) if len(processors) > 1 else variant


def member_a_spec(variant: EnsembleVariant, backend: Backend) -> ModelSpec:
    """A: float16 image `3 256 448` -> float16 logits `2 256 448`, or uint8 classes `256 448`.

    The container runs TorchScript in libtorch, as reported; the embedded server has no such backend and runs the same
    weights in onnxruntime inside a Python model.
    """
    check_backend(backend)
    embedded = backend == "embedded"
    return ModelSpec(
        name=MEMBER_A,
        backend="python" if embedded else "",
        platform="" if embedded else "pytorch_libtorch",
        default_model_filename="" if embedded else "model.pt",
        max_batch_size=variant.a_max_batch,
        inputs=(TensorSpec("INPUT__0", "FP16", IMAGE_DIMS),),
        outputs=(_between("OUTPUT__0", variant, channels=2),),
        instances=(InstanceSpec(variant.a_instances, "cpu" if embedded else "auto"),),
        dynamic_batching=_batching(variant.a_delay_us, variant.max_queue_size),
        parameters=_parameters({"intra_op_thread_count": str(variant.a_threads)}, variant.a_processors)
        if embedded
        else {},
        optimization=_pinned(variant),
    )


def member_b_spec(variant: EnsembleVariant) -> ModelSpec:
    """B: what A hands over -> one JPEG as text, `1`; the same Python model in both servers.

    As reported its number of channels is free, so that it also takes a raw image.
    """
    given = _between("INPUT", variant, channels=-1)
    settings = {} if variant.b_operation == "jpeg" else {"operation": variant.b_operation}
    if variant.b_stall_us:
        settings["stall_us"] = str(variant.b_stall_us)
    return ModelSpec(
        name=MEMBER_B,
        backend="python",
        max_batch_size=variant.b_max_batch,
        inputs=(given,),
        outputs=(_answer(variant),),
        instances=(InstanceSpec(variant.b_instances, "cpu"),),
        dynamic_batching=_batching(variant.b_delay_us, variant.max_queue_size) if variant.b_max_batch else None,
        parameters=_parameters(settings, variant.b_processors),
        optimization=_pinned(variant),
    )


def ensemble_spec(variant: EnsembleVariant) -> ModelSpec:
    """C: A, then B on what A made."""
    return ModelSpec(
        name=ENSEMBLE,
        inputs=(TensorSpec("INPUT", "FP16", IMAGE_DIMS),),
        outputs=(_answer(variant),),
        steps=(
            EnsembleStep(MEMBER_A, {"INPUT__0": "INPUT"}, {"OUTPUT__0": "raw_mask"}),
            EnsembleStep(MEMBER_B, {"INPUT": "raw_mask"}, {"OUTPUT": "OUTPUT"}),
        ),
    )


def null_member_spec(name: str = NULL_MEMBER) -> ModelSpec:
    """A Python model that hands its float16 input back: what a hop costs when a member costs nothing."""
    return ModelSpec(
        name=name,
        backend="python",
        inputs=(TensorSpec("INPUT", "FP16", (-1,)),),
        outputs=(TensorSpec("OUTPUT", "FP16", (-1,)),),
        instances=(InstanceSpec(1, "cpu"),),
    )


def null_ensemble_spec() -> ModelSpec:
    """Two null members in a row."""
    return ModelSpec(
        name=NULL_ENSEMBLE,
        inputs=(TensorSpec("INPUT", "FP16", (-1,)),),
        outputs=(TensorSpec("OUTPUT", "FP16", (-1,)),),
        steps=(
            EnsembleStep(NULL_A, {"INPUT": "INPUT"}, {"OUTPUT": "between"}),
            EnsembleStep(NULL_B, {"INPUT": "between"}, {"OUTPUT": "OUTPUT"}),
        ),
    )


def hop_bytes(variant: EnsembleVariant) -> int:
    """Size of what A hands to B for one image."""
    pixels = MASK_DIMS[0] * MASK_DIMS[1]
    return pixels if variant.hop == "mask" else 2 * 2 * pixels


def _between(name: str, variant: EnsembleVariant, channels: int) -> TensorSpec:
    if variant.hop == "mask":
        return TensorSpec(name, "UINT8", MASK_DIMS)
    return TensorSpec(name, "FP16", (channels, *MASK_DIMS))


def _answer(variant: EnsembleVariant) -> TensorSpec:
    return _TEXT if variant.b_operation == "jpeg" else _between("OUTPUT", variant, channels=-1)


def _batching(delay_us: int, max_queue_size: int) -> DynamicBatching:
    policy = QueuePolicy(max_queue_size=max_queue_size) if max_queue_size else None
    return DynamicBatching(max_queue_delay_microseconds=delay_us, queue_policy=policy)


def _pinned(variant: EnsembleVariant) -> Optimization | None:
    pinned = variant.pinned_memory
    return None if pinned is None else Optimization(input_pinned_memory=pinned, output_pinned_memory=pinned)


def _parameters(others: dict[str, str], processors: tuple[int, ...]) -> dict[str, str]:
    pinned = {"processors": ",".join(map(str, processors))} if processors else {}
    return dict(sorted({**others, **pinned}.items()))
