"""From images to tensors, from logits to masks, and how well two masks agree: NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbook.errors import ModelError, SettingError
from workbook.models.road_geometry import HEIGHT, WIDTH
from workbook.models.road_scenes import CLASSES

TENSOR_SHAPE = (3, HEIGHT, WIDTH)
LOGITS_SHAPE = (len(CLASSES), HEIGHT, WIDTH)
OVERLAY_COLOUR = (46, 204, 113)


@dataclass(frozen=True)
class Iou:
    """Intersection over union of each class, 0..1, over all pixels of all images together (as PASCAL VOC counts it).

    Attributes:
        road: of the road.
        background: of everything else.
    """

    road: float
    background: float

    @property
    def mean(self) -> float:
        """Mean over both classes."""
        return (self.road + self.background) / 2


def intersection_over_union(predicted: NDArray[np.uint8], truth: NDArray[np.uint8]) -> Iou:
    """Compare masks of the same shape; a class that is in neither counts as 1.

    Raises:
        SettingError: the shapes differ.
    """
    if predicted.shape != truth.shape:
        raise SettingError(f"masks of shape {predicted.shape} and {truth.shape} cannot be compared pixel by pixel")
    shares = []
    for label in (1, 0):
        found, wanted = predicted == label, truth == label
        union = int((found | wanted).sum())
        shares.append(int((found & wanted).sum()) / union if union else 1.0)
    return Iou(road=shares[0], background=shares[1])


def images_to_tensor(images: NDArray[np.uint8]) -> NDArray[np.float16]:
    """What the model takes: float16, `batch 3 height width`, 0..1.

    Args:
        images: uint8, `batch height width 3` or one image `height width 3`, RGB, 256 by 448 pixels.

    Raises:
        ModelError: another shape or type.
    """
    batch = images[None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or batch.ndim != 4 or batch.shape[1:] != (HEIGHT, WIDTH, 3):
        raise ModelError(
            f"images are {images.dtype} {list(images.shape)}: the model takes uint8 [batch, {HEIGHT}, {WIDTH}, 3]. "
            "With Pillow: image.convert('RGB').resize((448, 256))"
        )
    return np.ascontiguousarray((batch.astype(np.float32) / 255).astype(np.float16).transpose(0, 3, 1, 2))


def require_tensor(tensor: NDArray[np.float16]) -> None:
    """Refuse what is no float16 `batch 3 height width`, naming what differs.

    Raises:
        ModelError: wrong type, number of dimensions, channels, height or width, or an empty batch.
    """
    if tensor.dtype != np.float16:
        raise ModelError(f"the tensor is {tensor.dtype}: the model takes float16; use images_to_tensor or astype")
    if tensor.ndim != 4 or tensor.shape[1:] != TENSOR_SHAPE or not len(tensor):
        channels_last = tensor.ndim == 4 and tensor.shape[-1] == 3
        hint = "; its channels stand last: transpose(0, 3, 1, 2)" if channels_last else ""
        raise ModelError(
            f"the tensor has shape {list(tensor.shape)}: the model takes [batch, {', '.join(map(str, TENSOR_SHAPE))}] "
            f"with at least one image{hint}"
        )


def logits_to_masks(logits: NDArray[np.floating]) -> NDArray[np.uint8]:
    """The class with the larger logit: `batch 2 height width` -> uint8 `batch height width`; a tie is no road."""
    return (logits[:, 1] > logits[:, 0]).astype(np.uint8)


def overlay(
    image: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    *,
    colour: tuple[int, int, int] = OVERLAY_COLOUR,
    opacity: float = 0.45,
) -> NDArray[np.uint8]:
    """The image with the road tinted.

    Args:
        image: uint8, `height width 3`.
        mask: `height width`, not 0 on road.
        colour: of the tint, RGB.
        opacity: of the tint, 0..1.

    Returns:
        uint8, `height width 3`, a new array.

    Raises:
        SettingError: the shapes do not belong together, or `opacity` is outside 0..1.
    """
    if image.shape != (*mask.shape, 3):
        raise SettingError(f"an image {list(image.shape)} and a mask {list(mask.shape)} do not belong together")
    if not 0 <= opacity <= 1:
        raise SettingError(f"opacity={opacity} is outside 0..1")
    tinted = image * (1 - opacity) + np.array(colour) * opacity
    return np.where(mask[..., None] != 0, np.rint(tinted).astype(np.uint8), image)
