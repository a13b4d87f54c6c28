"""An image, the road that the model sees in it, and both together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbook.display.drawing import new_figure
from workbook.display.theme import INK

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from workbook.measuring.ensemble.images import Images
    from workbook.models.segmentation_model import SegmentationModel


def picture_of_masks(images: Images, count: int = 2, title: str = "") -> go.Figure:
    """A row an image: as it is, the mask, the mask laid over it.

    Args:
        images: with the masks of the model.
        count: how many of the first ones.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from workbook.models.segmentation_images import overlay

    count = min(count, len(images))
    names = ["image", "mask", "overlay"]
    panels = make_subplots(count, 3, subplot_titles=names, horizontal_spacing=0.02, vertical_spacing=0.03)
    share = float(images.masks[:count].mean())
    figure = new_figure(
        title or "What does the model take for road?",
        "White in the mask and tinted in the overlay: road.",
        f"{count} synthetic road scenes with the model's masks; {share:.0%} of their pixels are taken for road.",
        height=110 + 190 * count,
        figure=panels,
    )
    for row in range(count):
        image = np.rint(images.tensor[row].astype(np.float32).transpose(1, 2, 0) * 255).astype(np.uint8)
        mask = images.masks[row]
        for column, picture in enumerate((image, _grey(mask), overlay(image, mask)), start=1):
            figure.add_trace(go.Image(source=_data_url(picture), hoverinfo="skip"), row=row + 1, col=column)
    figure.update_annotations(font={"size": 14, "color": INK})
    figure.update_xaxes(visible=False)
    return figure.update_yaxes(visible=False)


def reading_of_quality(model: SegmentationModel) -> str:
    """How well it was found to tell road from the rest when it was trained."""
    from workbook.models.segmentation_model import HELD_OUT_SCENES

    steps, iou = model.recipe["half_steps"] + model.recipe["full_steps"], model.iou
    return (
        f"Trained in {steps:,} steps; on {HELD_OUT_SCENES} scenes that no training sees, intersection over union is "
        f"{iou.road:.3f} for the road and {iou.background:.3f} for the rest, {iou.mean:.3f} on average."
    )


def _grey(mask: np.ndarray) -> np.ndarray:
    return np.repeat((mask * np.uint8(255))[..., None], 3, axis=2)


def _data_url(picture: np.ndarray) -> str:
    """A JPEG as a data URL: a figure of raw pixels would be megabytes of JSON."""
    import base64
    import io

    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(picture).save(written, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode()
