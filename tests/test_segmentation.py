"""The segmentation model: images, masks, network, checkpoint, recipe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbook.errors import ModelError, SettingError
from workbook.models import segmentation_training
from workbook.models.road_scenes import road_scenes
from workbook.models.segmentation import load_segmentation
from workbook.models.segmentation_checkpoint import read_checkpoint
from workbook.models.segmentation_export import export_segmentation
from workbook.models.segmentation_images import (
    Iou,
    images_to_tensor,
    intersection_over_union,
    logits_to_masks,
    overlay,
    require_tensor,
)
from workbook.models.segmentation_model import HELD_OUT_SEED, held_out_iou, segment, with_boundary
from workbook.models.segmentation_training import Recipe, train_segmentation
from workbook.models.semantic_fpn import build_network

TINY: dict[str, Any] = {"width": 8, "half_steps": 2, "half_batch": 2, "full_steps": 1, "full_batch": 2}


@pytest.fixture(scope="module")
def quick() -> Iterator[pytest.MonkeyPatch]:
    """Two held-out scenes instead of 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmentation_training, "HELD_OUT_SCENES", 2)
        yield patch


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, quick: pytest.MonkeyPatch) -> Path:
    quick.setenv("WORKBOOK_ARTIFACTS", str(tmp_path_factory.mktemp("artifacts")))
    return train_segmentation(Recipe(**TINY), progress=False)


def test_intersection_over_union():
    predicted, truth = np.array([[1, 1], [0, 0]], np.uint8), np.array([[1, 0], [0, 0]], np.uint8)
    iou = intersection_over_union(predicted, truth)
    assert iou == Iou(road=1 / 2, background=2 / 3)
    assert iou.mean == pytest.approx(7 / 12)


def test_a_class_in_neither_mask_counts_as_one():
    empty = np.zeros((2, 2), np.uint8)
    assert intersection_over_union(empty, empty) == Iou(road=1.0, background=1.0)


def test_masks_of_two_shapes_are_refused():
    with pytest.raises(SettingError, match="cannot be compared"):
        intersection_over_union(np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8))


def test_images_become_a_tensor():
    images = np.zeros((2, 256, 448, 3), np.uint8)
    images[1, 10, 20] = (255, 51, 0)
    tensor = images_to_tensor(images)
    assert tensor.shape == (2, 3, 256, 448)
    assert tensor.dtype == np.float16
    assert tensor[1, :, 10, 20].tolist() == [1.0, np.float16(0.2), 0.0]
    assert np.count_nonzero(tensor) == 2
    np.testing.assert_array_equal(images_to_tensor(images[1]), tensor[1:])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((256, 448), np.uint8), ((256, 448, 4), np.uint8), ((448, 256, 3), np.uint8), ((256, 448, 3), np.float32)],
)
def test_other_images_are_refused(shape: tuple[int, ...], dtype: type):
    with pytest.raises(ModelError, match=r"takes uint8 \[batch, 256, 448, 3\]"):
        images_to_tensor(np.zeros(shape, dtype))


@pytest.mark.parametrize(
    ("shape", "dtype", "named"),
    [
        ((1, 3, 256, 448), np.float32, "float32"),
        ((3, 256, 448), np.float16, r"\[3, 256, 448\]"),
        ((1, 4, 256, 448), np.float16, r"\[1, 4, 256, 448\]"),
        ((1, 3, 448, 256), np.float16, r"\[1, 3, 448, 256\]"),
        ((0, 3, 256, 448), np.float16, "at least one image"),
        ((1, 256, 448, 3), np.float16, r"transpose\(0, 3, 1, 2\)"),
    ],
)
def test_other_tensors_are_refused(shape: tuple[int, ...], dtype: type, named: str, tiny: Path):
    tensor = np.zeros(shape, dtype)
    with pytest.raises(ModelError, match=named):
        require_tensor(tensor)
    with pytest.raises(ModelError, match=named):
        segment(read_checkpoint(tiny), tensor)


def test_logits_become_masks_and_a_tie_is_no_road():
    logits = np.array([[[[1.0, 2.0, 3.0]], [[2.0, 2.0, 1.0]]]])
    np.testing.assert_array_equal(logits_to_masks(logits), [[[1, 0, 0]]])


def test_overlay_tints_the_road_only():
    image = np.full((1, 2, 3), 100, np.uint8)
    tinted = overlay(image, np.array([[1, 0]]), colour=(200, 0, 100), opacity=0.5)
    assert tinted.tolist() == [[[150, 50, 100], [100, 100, 100]]]
    assert image.max() == 100


def test_overlay_refuses_what_does_not_fit():
    image = np.zeros((2, 2, 3), np.uint8)
    with pytest.raises(SettingError, match="do not belong together"):
        overlay(image, np.zeros((2, 3), np.uint8))
    with pytest.raises(SettingError, match="opacity=2"):
        overlay(image, np.zeros((2, 2), np.uint8), opacity=2)


def test_network_has_the_size_that_its_layers_add_up_to():
    """Counted by hand for width w: k x k convolutions without bias, two numbers a channel for BatchNorm."""

    def conv(inputs: int, outputs: int, size: int = 3) -> int:
        return inputs * outputs * size * size + 2 * outputs

    def block(inputs: int, outputs: int) -> int:
        return conv(inputs, outputs) + conv(outputs, outputs) + (conv(inputs, outputs, 1) if inputs != outputs else 0)

    w = 16
    backbone = conv(3, 8) + conv(8, w) + block(w, w) + block(w, 2 * w) + block(2 * w, 3 * w) + block(3 * w, 4 * w)
    lateral = sum(c * 2 * w + 2 * w for c in (w, 2 * w, 3 * w, 4 * w))
    smooth = 4 * (9 * 2 * w * 2 * w + 2 * w)
    head = 4 * conv(2 * w, w) + 3 * conv(w, w)  # stride 4 and 8: one stage; 16: two; 32: three
    assert sum(p.numel() for p in build_network(w).parameters()) == backbone + lateral + smooth + head + 2 * w + 2


def test_network_keeps_the_size_of_the_image():
    import torch

    with torch.inference_mode():
        logits = build_network(8).eval()(torch.zeros(2, 3, 64, 96))
    assert logits.shape == (2, 2, 64, 96)


def test_images_are_standardised_by_their_own_light():
    import torch

    normalise: Any = build_network(8).normalise
    image = torch.tensor([0.2, 0.6]).view(1, 1, 1, 2).repeat(1, 3, 1, 1)
    expected = [-0.2 / 0.22, 0.2 / 0.22]  # deviation 0.2, and 0.02 on top
    assert normalise(image)[0, 2, 0].tolist() == pytest.approx(expected)


def test_coarsest_level_reaches_every_pixel():
    """The top-down path is there: a change of the last stage moves logits that the finer levels alone would fix."""
    import torch

    network: Any = build_network(8).eval()
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = network(image)
        network.lateral[3].bias += 1.0
        network.head[3].requires_grad_(False)
        network.head[3][0][0].weight.zero_()  # cut the coarsest level's own branch: only the top-down path is left
        cut = network(image)
        network.lateral[3].bias += 1.0
        after = network(image)
    assert (before != cut).any()
    assert ((after - cut).abs() > 0).float().mean() > 0.99


@pytest.mark.parametrize("width", [0, 7, 257])
def test_width_out_of_bounds_is_refused(width: int):
    with pytest.raises(SettingError, match=r"8\.\.256"):
        build_network(width)


def test_training_again_gives_the_same_weights(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path))
    again = train_segmentation(Recipe(**TINY), progress=False)
    assert again != tiny
    assert again.read_bytes() == tiny.read_bytes()
    other = train_segmentation(Recipe(**TINY, seed=1), progress=False)
    assert read_checkpoint(other).fingerprint != read_checkpoint(tiny).fingerprint


def test_training_is_done_once_and_leaves_torch_as_it_was(tiny: Path):
    import torch

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    assert train_segmentation(Recipe(**TINY), progress=False) == tiny
    assert torch.rand(1) == expected


def test_checkpoint_knows_its_recipe_and_quality(tiny: Path):
    model = load_segmentation(f"checkpoint:{tiny}")
    assert model.recipe == {**Recipe(**TINY).__dict__}
    assert model.width == 8
    assert model.iou == held_out_iou(model, scenes=2)
    assert not model.module.training


def test_scenes_come_in_order_and_again_mirrored_one_step_later():
    recipe = Recipe(**{**TINY, "full_steps": 2})
    batches = list(segmentation_training._batches(recipe))
    assert [masks.shape for _, masks in batches] == [(1, 128, 224), (2, 128, 224), (1, 256, 448), (2, 256, 448)]
    assert recipe.scenes == 4
    images, masks = road_scenes(recipe.seed, 4)
    np.testing.assert_array_equal(batches[2][0], images[2:3])
    np.testing.assert_array_equal(batches[3][0], [images[3], images[2][:, ::-1]])
    np.testing.assert_array_equal(batches[3][1], [masks[3], masks[2][:, ::-1]])
    mean = images[1, :2, :2].astype(float).mean(axis=(0, 1))
    np.testing.assert_array_equal(batches[1][0][0, 0, 0], np.floor(mean))
    np.testing.assert_array_equal(batches[1][1][1], batches[0][1][0][:, ::-1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": HELD_OUT_SEED},
        {"full_steps": 0},
        {"half_batch": 0},
        {"threads": 0},
        {"learning_rate": 0.0},
    ],
)
def test_recipes_that_cannot_be_trained_are_refused(wrong: dict[str, Any]):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_damaged_checkpoints_are_refused(tiny: Path, tmp_path: Path):
    damaged = Path(shutil.copy(tiny, tmp_path / "damaged.safetensors"))
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(ModelError, match="digest differs"):
        read_checkpoint(damaged)
    damaged.write_bytes(content[:1000])
    with pytest.raises(ModelError, match="cannot read the checkpoint"):
        read_checkpoint(damaged)
    with pytest.raises(ModelError, match=r"no checkpoint .*absent"):
        load_segmentation(f"checkpoint:{tmp_path / 'absent'}")


def test_foreign_safetensors_are_refused(tmp_path: Path):
    import torch
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ModelError, match="without the recipe"):
        read_checkpoint(tmp_path / "foreign.safetensors")


@pytest.mark.parametrize("model", ["", "train", "bundled", "checkpoint:", "hub:"])
def test_unknown_sources_are_refused(model: str):
    with pytest.raises(SettingError, match="names no source"):
        load_segmentation(model)


def test_unreachable_hub_names_the_bundled_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path))
    with pytest.raises(ModelError, match=r'(?s)nobody/nothing.*"trained", the checkpoint bundled'):
        load_segmentation("hub:nobody/nothing", progress=False)
    assert not list(tmp_path.rglob("*.safetensors"))


def save_classifier(folder: Path, depths: list[int]) -> str:
    """A small image classifier, as the hub holds them: its weights carry the prefix of the model inside."""
    from transformers import ResNetConfig, ResNetForImageClassification

    widths = [8, 16, 24, 32][: len(depths)]
    config = ResNetConfig(embedding_size=8, hidden_sizes=widths, depths=depths, layer_type="basic", num_labels=3)
    ResNetForImageClassification(config).save_pretrained(folder)
    return f"path:{folder}"


def test_backbone_from_a_folder(tmp_path: Path):
    import torch
    from safetensors.torch import load_file

    network: Any = build_network(8, save_classifier(tmp_path, [1, 1, 1, 1]))
    assert [lateral.in_channels for lateral in network.lateral] == [8, 16, 24, 32]
    with torch.inference_mode():
        assert network.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 2, 64, 64)
    name = "embedder.embedder.convolution.weight"
    saved = load_file(tmp_path / "model.safetensors")[f"resnet.{name}"]
    assert torch.equal(network.state_dict()[f"backbone.backbone.{name}"], saved)


def test_model_on_a_backbone_from_a_folder(tmp_path: Path, quick: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path / "artifacts"))
    recipe = Recipe(**{**TINY, "backbone": save_classifier(tmp_path / "backbone", [1, 1, 1, 1])})
    model = read_checkpoint(train_segmentation(recipe, progress=False))
    assert model.backbone == recipe.backbone
    assert held_out_iou(model, scenes=2) == model.iou


def test_backbone_without_four_stages_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match="stage4"):
        build_network(8, save_classifier(tmp_path, [1, 1, 1]))


def test_boundary_is_float16_or_uint8(tiny: Path):
    import torch

    model = read_checkpoint(tiny)
    tensor = images_to_tensor(road_scenes(2, 2)[0])
    reference = segment(model, tensor, batch_size=1)
    with torch.inference_mode():
        logits = with_boundary(model)(torch.from_numpy(tensor)).numpy()
        mask = with_boundary(model, output="mask")(torch.from_numpy(tensor)).numpy()
    assert (logits.dtype, logits.shape) == (np.float16, (2, 2, 256, 448))
    assert (mask.dtype, mask.shape) == (np.uint8, (2, 256, 448))
    assert 4 * mask.nbytes == logits.nbytes
    np.testing.assert_allclose(logits, reference, atol=2e-3)
    np.testing.assert_array_equal(mask, logits_to_masks(reference))


def test_unknown_exports_are_refused(tiny: Path):
    model = read_checkpoint(tiny)
    with pytest.raises(SettingError, match="onnx_int8"):
        export_segmentation(model, "onnx_int8")
    with pytest.raises(SettingError, match="masks"):
        export_segmentation(model, output="masks")
    with pytest.raises(SettingError, match="bfloat16"):
        with_boundary(model, compute="bfloat16")
    with pytest.raises(SettingError, match="batch_size=0"):
        segment(model, np.zeros((1, 3, 256, 448), np.float16), batch_size=0)
