"""The checkpoint that is kept with the workbook: its quality, and its exports against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from workbook.errors import ModelError
from workbook.models.road_scenes import road_scenes
from workbook.models.segmentation import TRAINED_CHECKPOINT, load_segmentation
from workbook.models.segmentation_export import ExportedSegmentation, export_segmentation, open_segmentation
from workbook.models.segmentation_images import images_to_tensor, logits_to_masks
from workbook.models.segmentation_model import HELD_OUT_SEED, SegmentationModel, held_out_iou, segment
from workbook.models.segmentation_parity import segmentation_parity
from workbook.models.segmentation_training import Recipe

pytestmark = pytest.mark.integration

QUICK = [
    ("onnx_float32", "logits"),
    ("onnx_float32", "mask"),
    ("onnx_float16", "logits"),
    ("torchscript_float32", "logits"),
    ("torchscript_float32", "mask"),
]


@pytest.fixture(scope="module")
def model() -> SegmentationModel:
    return load_segmentation("trained")


@pytest.fixture(scope="module")
def exports(model: SegmentationModel) -> list[ExportedSegmentation]:
    return [export_segmentation(model, variant, output) for variant, output in QUICK]


def test_checkpoint_is_small_and_of_the_default_recipe(model: SegmentationModel):
    assert TRAINED_CHECKPOINT.stat().st_size < 1_000_000
    assert model.recipe == {**Recipe().__dict__}
    assert model.recipe["seed"] != HELD_OUT_SEED


def test_held_out_iou(model: SegmentationModel):
    iou = held_out_iou(model, scenes=40)
    print(iou, iou.mean)
    assert iou.mean >= 0.90
    assert iou.road >= 0.87
    assert iou.mean == pytest.approx(model.iou.mean, abs=0.03)


def test_iou_holds_on_another_series(model: SegmentationModel):
    assert held_out_iou(model, scenes=16, seed=77).mean >= 0.90


def test_parity(model: SegmentationModel, exports: list[ExportedSegmentation]):
    table = segmentation_parity(model, exports, scenes=8).set_index(["variant", "output"])
    print(table.to_string())
    assert len(table) == 1 + len(QUICK)
    reference = table.loc[("pytorch_float32", "logits")]
    assert table.pixel_agreement.min() >= 0.998
    assert (table.mean_iou - reference.mean_iou).abs().max() < 0.002
    # A float16 logit near 16 is rounded by up to 2^-7; the float16 model rounds on its way, too.
    assert table.max_abs_error.dropna().drop(("onnx_float16", "logits")).max() <= 2**-6
    assert table.max_abs_error[("onnx_float16", "logits")] < 0.5
    assert table.pixel_agreement[("onnx_float32", "mask")] > 0.99999


@pytest.mark.parametrize("batch", [1, 3])
def test_batch_is_free_and_rows_do_not_mix(model: SegmentationModel, exports: list[ExportedSegmentation], batch: int):
    tensor = images_to_tensor(road_scenes(3, 3)[0])[:batch]
    expected = logits_to_masks(segment(model, tensor))
    for exported in exports:
        got = open_segmentation(exported)(tensor)
        masks = got if exported.output == "mask" else logits_to_masks(got.astype(np.float32))
        assert got.dtype == (np.uint8 if exported.output == "mask" else np.float16)
        assert masks.shape == expected.shape
        assert (masks == expected).mean() > 0.998, exported.variant


def test_float16_torchscript_of_one_scene(model: SegmentationModel):
    exported = export_segmentation(model, "torchscript_float16")
    table = segmentation_parity(model, [exported], scenes=1)
    assert table.pixel_agreement.min() >= 0.998


def test_float16_halves_the_file(exports: list[ExportedSegmentation]):
    size = {exported.variant: exported.bytes for exported in exports if exported.output == "logits"}
    assert size["onnx_float16"] < 0.6 * size["onnx_float32"]


def test_names_are_in_the_graph(exports: list[ExportedSegmentation]):
    import onnx

    graph = onnx.load(exports[0].path).graph
    assert [tensor.name for tensor in graph.input] == [exports[0].input_name] == ["INPUT__0"]
    assert [tensor.name for tensor in graph.output] == [exports[0].output_name] == ["OUTPUT__0"]
    assert graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param  # the batch has a name, not a number


def test_export_is_done_once(model: SegmentationModel, exports: list[ExportedSegmentation]):
    assert export_segmentation(model, *QUICK[0]) == exports[0]


def test_wrong_input_is_refused_before_the_engine_sees_it(exports: list[ExportedSegmentation]):
    for exported in exports:
        run = open_segmentation(exported)
        with pytest.raises(ModelError, match="takes float16"):
            run(np.zeros((1, 3, 256, 448), np.float32))  # type: ignore[arg-type]
        with pytest.raises(ModelError, match="channels stand last"):
            run(np.zeros((1, 256, 448, 3), np.float16))


def test_truncated_files_are_named(model: SegmentationModel, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path))
    exported = export_segmentation(model, "torchscript_float32")
    exported.path.write_bytes(exported.path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot load"):
        open_segmentation(exported)
    with pytest.raises(ModelError, match="delete"):
        export_segmentation(model, "torchscript_float32")
