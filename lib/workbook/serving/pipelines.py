"""Pipelines of three stages: what goes in and out of each, and the tensors between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbook.errors import SettingError
from workbook.serving.model_spec import TensorSpec


@dataclass(frozen=True)
class Stage:
    """One step: what goes in and what comes out, by the tensors' names.

    Attributes:
        name: as `stages.py` beside the models' code calls it.
        inputs, outputs: tensors, in the order the model's configuration lists them.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Pipeline:
    """Stages in order, and every tensor between them.

    Attributes:
        name: part of the models' names.
        stages: in the order they run.
        tensors: all of them, without the batch dimension.
        big: tensors between stages that the `handle` arrangement passes by handle.
        files: weights, name in the version's folder -> where they lie.
        own_arrays: arrays that take turns as a stage's output memory, see `model_repository/copies_stages`.
    """

    name: str
    stages: tuple[Stage, ...]
    tensors: tuple[TensorSpec, ...]
    big: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    own_arrays: int = 1

    def __post_init__(self) -> None:
        """Refuse a pipeline whose tensors do not connect."""
        known = {tensor.name for tensor in self.tensors}
        for stage in self.stages:
            for name in (*stage.inputs, *stage.outputs):
                if name not in known:
                    raise SettingError(
                        f"stage {stage.name} names the tensor {name!r}, the pipeline has no such tensor."
                    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that the client sends."""
        made = {name for stage in self.stages for name in stage.outputs}
        return once(name for stage in self.stages for name in stage.inputs if name not in made)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Tensors that the client gets."""
        return self.stages[-1].outputs

    def specs(self, names: Iterable[str]) -> tuple[TensorSpec, ...]:
        """The named tensors' specs."""
        by_name = {tensor.name: tensor for tensor in self.tensors}
        return tuple(by_name[name] for name in names)


def relay_pipeline() -> Pipeline:
    """Make a tensor of any size, add one to each byte, add it all up: copies, and little else.

    `request` INT64 `2` (bytes, seed) -> `payload` -> `shifted` -> `total` INT64 `2` (sum of the 64-bit words, bytes).
    """
    return Pipeline(
        "relay",
        (
            Stage("make", ("request",), ("payload",)),
            Stage("shift", ("payload",), ("shifted",)),
            Stage("total", ("shifted",), ("total",)),
        ),
        (
            TensorSpec("request", "INT64", (2,)),
            TensorSpec("payload", "UINT8", (-1,)),
            TensorSpec("shifted", "UINT8", (-1,)),
            TensorSpec("total", "INT64", (2,)),
        ),
        big=("payload", "shifted"),
        own_arrays=8,
    )


def road_pipeline(segmentation: Path, *, height: int = 256, width: int = 448) -> Pipeline:
    """Normalise an image, segment it, compress the mask: one image a request.

    Args:
        segmentation: ONNX file, FP16 `batch 3 height width` -> FP16 logits `batch 2 height width`.
        height: of the images, pixels.
        width: likewise.
    """
    return Pipeline(
        "road",
        (
            Stage("normalise", ("image",), ("tensor",)),
            Stage("segment", ("tensor",), ("logits",)),
            Stage("compress", ("logits",), ("jpeg",)),
        ),
        (
            TensorSpec("image", "UINT8", (height, width, 3)),
            TensorSpec("tensor", "FP16", (3, height, width)),
            TensorSpec("logits", "FP16", (2, height, width)),
            TensorSpec("jpeg", "UINT8", (-1,)),
        ),
        big=("tensor", "logits"),
        files={"segmentation.onnx": segmentation},
    )


def passage_pipeline(encoder: Path, hidden_size: int) -> Pipeline:
    """Hidden states of e5, their mean, its direction: the tensor between is hundreds of times the answer's size.

    Args:
        encoder: ONNX file that gives `last_hidden_state`.
        hidden_size: width of the encoder.
    """
    return Pipeline(
        "passage",
        (
            Stage("encode", ("input_ids", "attention_mask"), ("hidden",)),
            Stage("pool", ("hidden", "attention_mask"), ("pooled",)),
            Stage("unit", ("pooled",), ("embedding",)),
        ),
        (
            TensorSpec("input_ids", "INT64", (-1,)),
            TensorSpec("attention_mask", "INT64", (-1,)),
            TensorSpec("hidden", "FP32", (-1, hidden_size)),
            TensorSpec("pooled", "FP32", (hidden_size,)),
            TensorSpec("embedding", "FP32", (hidden_size,)),
        ),
        big=("hidden",),
        files={"encoder.onnx": encoder},
    )


def once(names: Iterable[str]) -> tuple[str, ...]:
    """Names in order, each once."""
    return tuple(dict.fromkeys(names))
