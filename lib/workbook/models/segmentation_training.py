"""The recipe of the segmentation model: ten minutes of a CPU on synthetic road scenes, the same weights each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.artifacts import build_once
from workbook.errors import SettingError
from workbook.models import road_scenes as scenes_module
from workbook.models.road_geometry import HEIGHT, WIDTH
from workbook.models.road_scenes import road_scenes
from workbook.models.segmentation_checkpoint import read_checkpoint, write_checkpoint
from workbook.models.segmentation_images import Iou
from workbook.models.segmentation_model import HELD_OUT_SCENES, HELD_OUT_SEED, held_out_iou
from workbook.models.semantic_fpn import DEFAULT_WIDTH, build_network

if TYPE_CHECKING:
    import torch
    from torch import nn

CHECKPOINT_FILE = "segmentation_fpn.safetensors"
HUB_RATE = 0.1  # a pretrained backbone learns so much slower than the new pyramid above it
Batch = tuple[NDArray[np.uint8], NDArray[np.uint8]]


@dataclass(frozen=True)
class Recipe:
    """All that the weights depend on, besides the machine and PyTorch's version.

    Most steps see scenes at half size, which cost a quarter; the last ones see full size, where the model is used.
    Every scene is seen twice: as it is, and mirrored one step later, so that the images of a step all differ.

    Attributes:
        seed: of weights and scenes.
        width: channels of the finest map.
        backbone: `residual`, `hub:ORG/NAME` or `path:DIR`.
        half_steps: optimiser steps at half size.
        half_batch: images in each of them, even.
        full_steps: optimiser steps at full size, after the others.
        full_batch: images in each of them, even.
        learning_rate: the peak of one cosine cycle of AdamW.
        weight_decay: of AdamW.
        threads: of PyTorch; another number adds in another order and gives slightly other weights.
    """

    seed: int = 0
    width: int = DEFAULT_WIDTH
    backbone: str = "residual"
    half_steps: int = 2600
    half_batch: int = 8
    full_steps: int = 700
    full_batch: int = 8
    learning_rate: float = 4e-3
    weight_decay: float = 1e-2
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be trained, naming value and bound."""
        if self.seed < 0 or self.seed == HELD_OUT_SEED:
            raise SettingError(f"seed={self.seed} must be 0 or more, and not {HELD_OUT_SEED}, the held-out scenes")
        for name, lowest in (
            ("half_steps", 0),
            ("full_steps", 1),
            ("half_batch", 1),
            ("full_batch", 1),
            ("threads", 1),
        ):
            if getattr(self, name) < lowest:
                raise SettingError(f"{name}={getattr(self, name)} must be at least {lowest}")
        if self.half_batch % 2 or self.full_batch % 2:
            raise SettingError(
                f"half_batch={self.half_batch}, full_batch={self.full_batch}: both must be even, "
                "because each scene comes again as its mirror image"
            )
        if not 0 < self.learning_rate < 1 or not 0 <= self.weight_decay < 1:
            raise SettingError(
                f"learning_rate={self.learning_rate}, weight_decay={self.weight_decay}: both lie between 0 and 1"
            )

    @property
    def scenes(self) -> int:
        """Scenes the training sees."""
        return (self.half_steps * self.half_batch + self.full_steps * self.full_batch) // 2


def train_segmentation(recipe: Recipe = Recipe(), *, progress: bool = True) -> Path:
    """Train once for a recipe, note the held-out IoU, and return the checkpoint; later calls return what is there.

    Raises:
        SettingError: the recipe's width or backbone names nothing that can be built.
        ModelError: the backbone cannot be read.
    """
    import torch

    key = {**asdict(recipe), "scenes": scenes_module.RECIPE, "torch": torch.__version__}
    return build_once("segmentation", key, lambda folder: _write(recipe, folder, progress)) / CHECKPOINT_FILE


def _write(recipe: Recipe, folder: Path, progress: bool) -> None:
    with _torch_state(recipe):
        module = _train(build_network(recipe.width, recipe.backbone), recipe, progress)
        draft = folder / "draft.safetensors"
        write_checkpoint(draft, module, asdict(recipe), Iou(0.0, 0.0))
        # of the rounded weights, which are the ones that are used
        iou = held_out_iou(read_checkpoint(draft), HELD_OUT_SCENES)
        write_checkpoint(folder / CHECKPOINT_FILE, module, asdict(recipe), iou)
        draft.unlink()


@contextmanager
def _torch_state(recipe: Recipe) -> Iterator[None]:
    """Seed and thread count for the training, given back afterwards."""
    import torch

    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        torch.set_num_threads(recipe.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _train(module: nn.Module, recipe: Recipe, progress: bool) -> nn.Module:
    """Pixel-wise cross-entropy, AdamW, one cosine cycle of the learning rate."""
    import torch
    from torch.nn.functional import cross_entropy
    from tqdm.auto import tqdm

    optimiser, schedule = _optimiser(module, recipe)
    module.train()
    # A scene at half size is a quarter of the work: in these units the bar's estimate of the time left holds.
    total = recipe.half_steps * recipe.half_batch / 4 + recipe.full_steps * recipe.full_batch
    shown = "training {desc} {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}"
    with tqdm(total=total, bar_format=shown, smoothing=0, disable=not progress) as bar:
        for images, masks in _batches(recipe):
            # Contiguous: with the channels last, oneDNN's backward pass of a stem of few channels ends the process.
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float() / 255
            loss = cross_entropy(module(pixels), torch.from_numpy(masks).long())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
            bar.update(masks.size / (HEIGHT * WIDTH))
    return module.eval()


def _optimiser(module: nn.Module, recipe: Recipe) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    import torch

    backbone_rate = recipe.learning_rate * (1.0 if recipe.backbone == "residual" else HUB_RATE)
    backbone = {name: tensor for name, tensor in module.named_parameters() if name.startswith("backbone.")}
    above = [tensor for name, tensor in module.named_parameters() if name not in backbone]
    groups = [{"params": list(backbone.values())}, {"params": above}]
    optimiser = torch.optim.AdamW(groups, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=[backbone_rate, recipe.learning_rate],
        total_steps=recipe.half_steps + recipe.full_steps,
        pct_start=0.1,
    )
    return optimiser, schedule


def _batches(recipe: Recipe) -> Iterator[Batch]:
    """Images `batch height width 3` and masks `batch height width`: new scenes, then the last step's mirrored.

    The next batch is drawn while one is learnt. The first step of each size has new scenes only, half a batch.
    """
    plan = [(recipe.half_batch, True)] * recipe.half_steps + [(recipe.full_batch, False)] * recipe.full_steps
    starts = [0, *accumulate(size // 2 for size, _ in plan)]
    last: Batch | None = None
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scenes") as painter:
        waiting: deque[Future[Batch]] = deque()
        for start, (size, halved) in zip(starts, [*plan, (0, False)], strict=True):
            if size:
                waiting.append(painter.submit(_draw, recipe.seed, start, size // 2, halved))
            if len(waiting) > 1 or not size:
                new = waiting.popleft().result()
                yield _with_mirrored(new, last)
                last = new


def _draw(seed: int, start: int, size: int, halved: bool) -> Batch:
    images, masks = road_scenes(seed, size, start)
    return _halve(images, masks) if halved else (images, masks)


def _with_mirrored(new: Batch, last: Batch | None) -> Batch:
    if last is None or last[1].shape[1:] != new[1].shape[1:]:
        return new
    images, masks = (np.concatenate([now, before[:, :, ::-1]]) for now, before in zip(new, last, strict=True))
    return images, masks


def _halve(images: NDArray[np.uint8], masks: NDArray[np.uint8]) -> Batch:
    """Blocks of 2x2 pixels become one: the mean colour, and road where at least two of the four are."""
    batch, height, width = masks.shape
    blocks = images.reshape(batch, height // 2, 2, width // 2, 2, 3).astype(np.uint16).sum(axis=(2, 4))
    road = masks.reshape(batch, height // 2, 2, width // 2, 2).sum(axis=(2, 4))
    return (blocks // 4).astype(np.uint8), (road >= 2).astype(np.uint8)
