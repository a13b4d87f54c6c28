"""Proof that the exported segmentation models still see the same road."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.models.road_scenes import road_scenes
from workbook.models.segmentation_export import ExportedSegmentation, open_segmentation
from workbook.models.segmentation_images import images_to_tensor, intersection_over_union, logits_to_masks
from workbook.models.segmentation_model import HELD_OUT_SEED, SegmentationModel, segment

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("variant", "output", "bytes", "max_abs_error", "pixel_agreement", "road_iou", "mean_iou")


def segmentation_parity(
    model: SegmentationModel,
    exports: Sequence[ExportedSegmentation],
    scenes: int = 16,
    *,
    batch_size: int = 4,
    threads: int = 1,
    seed: int = HELD_OUT_SEED,
) -> pd.DataFrame:
    """How far each export is from PyTorch in float32, and how good its masks are, on held-out scenes.

    Args:
        model: the reference.
        exports: what to compare with it.
        scenes: how many scenes.
        batch_size: images in a call.
        threads: of onnxruntime.
        seed: the series of scenes.

    Returns:
        One row for the reference and one for each export: variant, output, bytes (of the file; NaN for the
        reference), max_abs_error (largest difference of a logit; NaN for masks, which have none), pixel_agreement
        (share of pixels of the same class as the reference's), road_iou and mean_iou (against the ground truth).

    Raises:
        SettingError: `scenes` or `batch_size` is below 1.
        ModelError: a file cannot be loaded.
    """
    import pandas as pd

    images, truth = road_scenes(seed, scenes)
    tensor = images_to_tensor(images)
    reference = segment(model, tensor, batch_size)
    wanted = logits_to_masks(reference)
    rows = [("pytorch_float32", "logits", np.nan, 0.0, *_quality(wanted, wanted, truth))]
    for exported in exports:
        run = open_segmentation(exported, threads)
        got = np.concatenate([run(tensor[start : start + batch_size]) for start in range(0, scenes, batch_size)])
        masks, error = (got, np.nan) if exported.output == "mask" else _compare(got, reference)
        quality = _quality(masks.astype(np.uint8), wanted, truth)
        rows.append((exported.variant, exported.output, exported.bytes, error, *quality))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _compare(logits: NDArray[np.generic], reference: NDArray[np.float32]) -> tuple[NDArray[np.uint8], float]:
    exact = logits.astype(np.float32)
    return logits_to_masks(exact), float(np.abs(exact - reference).max())


def _quality(
    masks: NDArray[np.uint8], reference: NDArray[np.uint8], truth: NDArray[np.uint8]
) -> tuple[float, float, float]:
    iou = intersection_over_union(masks, truth)
    return float((masks == reference).mean()), iou.road, iou.mean
