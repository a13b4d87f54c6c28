"""The segmentation model: run it, score it, give it the float16 boundary of a server's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.models.road_scenes import road_scenes
from workbook.models.segmentation_images import (
    LOGITS_SHAPE,
    Iou,
    images_to_tensor,
    intersection_over_union,
    logits_to_masks,
    require_tensor,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

OUTPUTS = ("logits", "mask")
COMPUTE_TYPES = ("float32", "float16")
HELD_OUT_SEED = 1_000_003  # no recipe may train on this series of scenes
HELD_OUT_SCENES = 200


@dataclass(frozen=True, eq=False)
class SegmentationModel:
    """A network that tells road from the rest, ready to run.

    Attributes:
        source: the setting it was loaded from.
        fingerprint: 16 hex digits over the weights.
        module: float32 on the CPU, evaluation mode; float `batch 3 height width` in 0..1 -> logits
            `batch 2 height width`, class 1 the road.
        width: channels of the finest map.
        backbone: `residual`, `hub:ORG/NAME` or `path:DIR`.
        parameters: number of trained weights.
        iou: on held-out scenes, as noted when it was trained.
        recipe: how it was trained, JSON values.
    """

    source: str
    fingerprint: str
    module: nn.Module = field(repr=False)
    width: int
    backbone: str
    parameters: int
    iou: Iou
    recipe: Mapping[str, Any] = field(repr=False)


def with_boundary(model: SegmentationModel, *, output: str = "logits", compute: str = "float32") -> nn.Module:
    """A copy of the network with a server's tensors at its boundary.

    Takes float16 `batch 3 height width` in 0..1. Gives float16 logits `batch 2 height width`, or with `output="mask"`
    the uint8 class `batch height width`: a quarter of the bytes. Between them it computes in `compute`.

    Args:
        model: whose weights.
        output: `logits` or `mask`.
        compute: `float32` (CPU) or `float16` (GPU).

    Raises:
        SettingError: `output` or `compute` is something else.
    """
    if output not in OUTPUTS or compute not in COMPUTE_TYPES:
        raise SettingError(f"output={output!r}, compute={compute!r}: use one of {OUTPUTS} and one of {COMPUTE_TYPES}")
    import copy

    import torch

    dtype = torch.float16 if compute == "float16" else torch.float32

    class WithBoundary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = copy.deepcopy(model.module).to(dtype)

        def forward(self, tensor: Tensor) -> Tensor:
            logits: Tensor = self.network(tensor)
            return logits.argmax(dim=1).to(torch.uint8) if output == "mask" else logits.to(torch.float16)

    return WithBoundary().eval()


def segment(model: SegmentationModel, tensor: NDArray[np.float16], batch_size: int = 8) -> NDArray[np.float32]:
    """Logits with PyTorch in float32, in batches: the reference for every other way.

    Args:
        model: the network.
        tensor: float16, `batch 3 height width`, 0..1.
        batch_size: images at a time, 1 or more.

    Returns:
        float32, `batch 2 height width`.

    Raises:
        ModelError: `tensor` has another shape or type.
        SettingError: `batch_size` is below 1.
    """
    import torch

    if batch_size < 1:
        raise SettingError(f"batch_size={batch_size} must be at least 1")
    require_tensor(tensor)
    logits = np.empty((len(tensor), *LOGITS_SHAPE), np.float32)
    with torch.inference_mode():
        for start in range(0, len(tensor), batch_size):
            images = torch.from_numpy(tensor[start : start + batch_size]).float()
            logits[start : start + batch_size] = model.module(images).numpy()
    return logits


def held_out_iou(model: SegmentationModel, scenes: int = HELD_OUT_SCENES, seed: int = HELD_OUT_SEED) -> Iou:
    """Quality on scenes no recipe trains on, at full size."""
    images, truth = road_scenes(seed, scenes)
    return intersection_over_union(logits_to_masks(segment(model, images_to_tensor(images))), truth)
