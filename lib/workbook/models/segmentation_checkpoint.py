"""A segmentation model as a file: weights as float16, with the recipe, a digest and the quality in its metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.errors import ModelError
from workbook.models.segmentation_images import Iou
from workbook.models.segmentation_model import SegmentationModel
from workbook.models.semantic_fpn import build_network

if TYPE_CHECKING:
    from torch import Tensor, nn

METADATA_KEY = "workbook"


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
