"""The segmentation model that a setting names: from a file, or a backbone whose pyramid is trained on the spot."""

from __future__ import annotations

from pathlib import Path

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.models.segmentation_checkpoint import read_checkpoint
from workbook.models.segmentation_model import SegmentationModel
from workbook.models.segmentation_training import Recipe, train_segmentation

TRAINED_CHECKPOINT = PROJECT_DIR / "data" / "models" / "segmentation_fpn.safetensors"
SOURCES = '"trained", "checkpoint:FILE", "hub:ORG/NAME" or "path:DIR"'


def load_segmentation(model: str = "trained", *, progress: bool = True) -> SegmentationModel:
    """Load a segmentation model in float32 on the CPU.

    Args:
        model: `trained` (the small checkpoint kept with the workbook), `checkpoint:FILE` (what `train_segmentation`
            wrote), or a backbone, `hub:ORG/NAME` or `path:DIR`, whose pyramid is trained on the spot, once.
        progress: show a bar where training is needed.

    Raises:
        SettingError: `model` names no known source.
        ModelError: the checkpoint or backbone cannot be found or read.
    """
    kind, _, place = model.partition(":")
    if model == "trained":
        return read_checkpoint(TRAINED_CHECKPOINT, source=model)
    if kind == "checkpoint" and place:
        return read_checkpoint(Path(place).expanduser(), source=model)
    if kind in ("hub", "path") and place:
        return read_checkpoint(train_segmentation(Recipe(backbone=model), progress=progress), source=model)
    raise SettingError(f"model={model!r} names no source of a segmentation model: use {SOURCES}")
