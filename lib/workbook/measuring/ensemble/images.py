"""Images as requests to a segmentation model, to the post-processing behind it, or to their ensemble."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError, SettingError
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B, EnsembleVariant

if TYPE_CHECKING:
    from workbook.models.segmentation_model import SegmentationModel

OUTPUTS = {MEMBER_A: "OUTPUT__0", MEMBER_B: "OUTPUT", ENSEMBLE: "OUTPUT"}


@dataclass(frozen=True, eq=False)
class ImageRequest:
    """What one request carries: an image, or what a member made of it.

    Attributes:
        inputs: tensors by name.
        first_row: number of the image.
        rows: images in the request.
        real_tokens, padded_tokens: none, an image has no tokens; the columns of the records ask for them.
    """

    inputs: Mapping[str, NDArray[Any]]
    first_row: int
    rows: int = 1
    real_tokens: int = 0
    padded_tokens: int = 0


@dataclass(frozen=True, eq=False)
class Images:
    """Road scenes as the models take and give them.

    Attributes:
        tensor: float16, `image 3 256 448`, 0..1: what A and the ensemble get.
        logits: float16, `image 2 256 448`: what A gives in this process.
        masks: uint8, `image 256 448`: the class of each pixel, 1 the road.
    """

    tensor: NDArray[np.float16]
    logits: NDArray[np.float16] = field(repr=False)
    masks: NDArray[np.uint8] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tensor)


def make_images(model: SegmentationModel, count: int, seed: int = 0) -> Images:
    """Seeded road scenes, with what the model makes of them in this process (PyTorch, float32).

    Raises:
        SettingError: `count` is below 1.
    """
    from workbook.models.road_scenes import road_scenes
    from workbook.models.segmentation_images import images_to_tensor, logits_to_masks
    from workbook.models.segmentation_model import segment

    if count < 1:
        raise SettingError(f"count is {count}: at least 1 image is needed.")
    tensor = images_to_tensor(road_scenes(seed, count)[0])
    logits = segment(model, tensor)
    return Images(tensor, logits.astype(np.float16), logits_to_masks(logits))


def requests_for(model: str, images: Images, variant: EnsembleVariant, *, raw_to_b: bool = False) -> list[ImageRequest]:
    """One request an image, as the model takes it in this configuration.

    Args:
        model: MEMBER_A, MEMBER_B or ENSEMBLE.
        images: what is asked about.
        variant: the configuration that is served.
        raw_to_b: send B the raw image in place of A's logits, as the reporter did.

    Raises:
        SettingError: no such model.
    """
    if model == ENSEMBLE:
        tensors, name, batched = images.tensor, "INPUT", False
    elif model == MEMBER_A:
        tensors, name, batched = images.tensor, "INPUT__0", True
    elif model == MEMBER_B:
        tensors, name, batched = _for_b(images, variant, raw_to_b), "INPUT", variant.b_max_batch > 0
    else:
        raise SettingError(f"model is {model!r}: it must be {MEMBER_A}, {MEMBER_B} or {ENSEMBLE}.")
    return [ImageRequest({name: one[None] if batched else one}, number) for number, one in enumerate(tensors)]


def _for_b(images: Images, variant: EnsembleVariant, raw: bool) -> NDArray[Any]:
    if raw:
        return images.tensor
    return images.masks if variant.hop == "mask" else images.logits


def decode_mask(jpeg: bytes) -> NDArray[np.uint8]:
    """The mask in a JPEG: 1 where it is brighter than middle grey, `height width`.

    Raises:
        LoadError: it is no picture.
    """
    from PIL import Image

    try:
        picture = np.asarray(Image.open(io.BytesIO(jpeg)).convert("L"))
    except OSError as error:
        raise LoadError(f"an answer of {len(jpeg)} bytes is no picture: {error}.") from error
    return (picture > 127).astype(np.uint8)


def mask_agreement(answers: Sequence[Mapping[str, NDArray[Any]]], images: Images, output: str = "OUTPUT") -> Any:
    """How well the masks that came back match those made in this process, and whether each is nearest to its own.

    Args:
        answers: outputs by name, one for each image, in their order; an empty one was not answered.
        images: the images that were sent, one a request.
        output: name of the JPEG output.

    Returns:
        A DataFrame, a row an image: `image`, `answered`, `pixel_agreement` (share of equal pixels, 0..1; NaN where it
        was not answered), `nearest_image` (the image whose mask agrees best; another than `image` would be a swap).
    """
    import pandas as pd

    rows = []
    for number, answer in enumerate(answers):
        if output not in answer:
            rows.append((number, False, np.nan, -1))
            continue
        mask = decode_mask(answer[output].ravel()[0])
        agreement = (images.masks == mask).mean(axis=(1, 2))
        rows.append((number, True, float(agreement[number]), int(agreement.argmax())))
    return pd.DataFrame(rows, columns=["image", "answered", "pixel_agreement", "nearest_image"])
