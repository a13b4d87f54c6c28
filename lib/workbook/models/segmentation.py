"""The segmentation model: load one, run it, give it the float16 boundary of a server's tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.artifacts import PROJECT_DIR
from workbook.errors import ModelError, SettingError
from workbook.models.road_scenes import road_scenes
from workbook.models.segmentation_images import (
    LOGITS_SHAPE,
    Iou,
    images_to_tensor,
    intersection_over_union,
    logits_to_masks,
    require_tensor,
)
from workbook.models.semantic_fpn import build_network

if TYPE_CHECKING:
    from torch import Tensor, nn

TRAINED_CHECKPOINT = PROJECT_DIR / "data" / "models" / "segmentation_fpn.safetensors"
SOURCES = '"trained", "checkpoint:FILE", "hub:ORG/NAME" or "path:DIR"'
OUTPUTS = ("logits", "mask")
COMPUTE_TYPES = ("float32", "float16")
HELD_OUT_SEED = 1_000_003  # no recipe may train on this series of scenes
HELD_OUT_SCENES = 200
METADATA_KEY = "workbook"


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
        from workbook.models.segmentation_training import Recipe, train_segmentation

        return read_checkpoint(train_segmentation(Recipe(backbone=model), progress=progress), source=model)
    raise SettingError(f"model={model!r} names no source of a segmentation model: use {SOURCES}")


def write_checkpoint(path: Path, module: nn.Module, recipe: Mapping[str, Any], iou: Iou) -> None:
    """Keep a network: weights as float16, recipe, digest and quality in the file's metadata."""
    from safetensors.torch import save_file

    weights = half_weights(module)
    metadata = {"recipe": dict(recipe), "iou": asdict(iou), "fingerprint": _fingerprint(weights)}
    # One entry only: the order of several is not fixed, and the same training should give the same file.
    save_file(weights, path, metadata={METADATA_KEY: json.dumps(metadata, sort_keys=True)})


def read_checkpoint(path: Path, source: str | None = None) -> SegmentationModel:
    """Load what `write_checkpoint` kept.

    Raises:
        ModelError: no such file, not one of ours, damaged, or its weights do not fit its recipe.
    """
    metadata, weights = _read_file(path)
    recipe = metadata["recipe"]
    module = build_network(recipe["width"], recipe["backbone"], pretrained=False)
    missing, unexpected = module.load_state_dict(weights, strict=False)
    wrong = [name for name in missing if not name.endswith("num_batches_tracked")] + unexpected
    if wrong:
        raise ModelError(f"{path} does not fit its own recipe: {len(wrong)} tensors differ, such as {wrong[0]}")
    return SegmentationModel(
        source=source or f"checkpoint:{path}",
        fingerprint=metadata["fingerprint"],
        module=module.float().eval().requires_grad_(False),
        width=recipe["width"],
        backbone=recipe["backbone"],
        parameters=sum(tensor.numel() for tensor in module.parameters()),
        iou=Iou(**metadata["iou"]),
        recipe=recipe,
    )


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import safe_open

    mend = 'take model = "trained", or write one with train_segmentation'
    if not path.is_file():
        raise ModelError(f"there is no checkpoint {path}: {mend}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except Exception as error:  # SafetensorError and whatever else a damaged header gives
        raise ModelError(f"cannot read the checkpoint {path}: {type(error).__name__}: {error}; {mend}") from error
    if metadata is None:
        raise ModelError(f"{path} is a safetensors file without the recipe of a segmentation model: {mend}")
    if _fingerprint(weights) != metadata["fingerprint"]:
        raise ModelError(f"the weights in {path} are not those that were written (digest differs): {mend}")
    return metadata, weights


def half_weights(module: nn.Module) -> dict[str, Tensor]:
    """Weights and running statistics as float16, what a checkpoint holds; counters are left out."""
    return {name: tensor.half() for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


def _fingerprint(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


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
