"""Conversions of a tiny encoder's ONNX file: types, names and answers; malformed files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tiny_encoder import save_tiny
from workbook.errors import ModelError
from workbook.models import precision
from workbook.models.e5 import Encoder, load_encoder
from workbook.models.export import OUTPUTS, ExportedModel, export_onnx
from workbook.models.half_graph import to_half
from workbook.models.parity import cosine, random_tokens
from workbook.models.precision import check_onnx, convert_bf16, convert_fp16, quantise_int8
from workbook.models.processor import has_bf16_instructions, processor_flags
from workbook.models.sessions import open_session


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoder]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path_factory.mktemp("artifacts")))
        yield load_encoder(f"path:{save_tiny(tmp_path_factory.mktemp('models') / 'tiny-e5')}")


@pytest.fixture(scope="module")
def exported(encoder: Encoder) -> ExportedModel:
    return export_onnx(encoder)


@pytest.fixture(scope="module")
def feed(encoder: Encoder) -> dict[str, np.ndarray]:
    tokens = random_tokens(encoder, 8, 9, np.random.default_rng(3))
    return {"input_ids": tokens.input_ids, "attention_mask": tokens.attention_mask}


def answers(model: ExportedModel, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(OUTPUTS, open_session(model.path, 1).run(list(OUTPUTS), feed), strict=True))


def interface(path: Path) -> list[tuple[str, int, int]]:
    graph = onnx.load(path).graph
    return [
        (tensor.name, tensor.type.tensor_type.elem_type, len(tensor.type.tensor_type.shape.dim))
        for tensor in (*graph.input, *graph.output)
    ]


def weight_bytes(path: Path, *types: int) -> int:
    return sum(len(w.raw_data) for w in onnx.load(path).graph.initializer if w.data_type in types)


@pytest.mark.parametrize("convert", [convert_fp16, convert_bf16, quantise_int8])
def test_inputs_and_outputs_keep_names_and_types(exported: ExportedModel, convert):
    assert interface(convert(exported).path) == interface(exported.path)


@pytest.mark.parametrize(("convert", "least"), [(convert_fp16, 0.99999), (quantise_int8, 0.99)])
def test_answers_stay_close_to_fp32(exported: ExportedModel, feed, convert, least: float):
    expected, got = answers(exported, feed), answers(convert(exported), feed)
    real = feed["attention_mask"] == 1
    assert cosine(got["sentence_embedding"], expected["sentence_embedding"]).min() > least
    assert cosine(got["last_hidden_state"][real], expected["last_hidden_state"][real]).min() > least
    assert all(got[name].dtype == np.float32 for name in OUTPUTS)
    # it is another computation, not the fp32 file under another name
    assert np.abs(got["sentence_embedding"] - expected["sentence_embedding"]).max() > 1e-6


def test_bf16_answers_by_the_reference_evaluator(exported: ExportedModel, feed):
    """No CPU engine here runs bf16, so ONNX's own evaluator in NumPy does."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class GatherElements(OpRun):  # the evaluator's own fails on a table of one row
        def _run(self, data, indices, axis=0):
            return (np.take_along_axis(data, indices, axis),)

    evaluator = ReferenceEvaluator(str(convert_bf16(exported).path), new_ops=[GatherElements])
    got = dict(zip(OUTPUTS, evaluator.run(None, feed), strict=True))
    expected = answers(exported, feed)
    least = cosine(got["sentence_embedding"], expected["sentence_embedding"]).min()
    assert 0.999 < least < 0.9999999


@pytest.mark.parametrize(
    ("convert", "half"), [(convert_fp16, TensorProto.FLOAT16), (convert_bf16, TensorProto.BFLOAT16)]
)
def test_half_precision_halves_the_weights_and_keeps_islands(exported: ExportedModel, convert, half: int):
    model = convert(exported)
    before = weight_bytes(exported.path, TensorProto.FLOAT)
    layer_norms = 2 * 8 * 4  # 8 ones and 8 zeros: untrained norms are all alike and in the file once
    kept = weight_bytes(model.path, TensorProto.FLOAT)
    assert layer_norms <= kept < layer_norms + 32  # and a few scalars of the pooling
    assert before - kept <= 2 * weight_bytes(model.path, half) <= before
    types = inferred_types(model.path)
    graph = onnx.load(model.path).graph
    for node in graph.node:
        if node.op_type in ("Softmax", "LayerNormalization", "ReduceL2", "ReduceSum"):
            assert types[node.output[0]] == TensorProto.FLOAT, node.name
        if node.op_type in ("MatMul", "Gelu"):
            assert {types[name] for name in (*node.input, *node.output)} == {half}, node.name


def inferred_types(path: Path) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, check_type=True).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)}
    return types | {weight.name: weight.data_type for weight in graph.initializer}


def test_conversion_is_kept_and_keyed_by_source_and_setting(exported: ExportedModel):
    first = convert_fp16(exported)
    stamp = first.path.stat().st_mtime_ns
    assert convert_fp16(exported) == first
    assert first.path.stat().st_mtime_ns == stamp
    wide, narrow = quantise_int8(exported, reduce_range=False), quantise_int8(exported, reduce_range=True)
    assert len({first.path, wide.path, narrow.path, convert_fp16(replace(exported, sha256="other")).path}) == 4


def test_int8_weights_are_whole_numbers_with_a_scale_a_column(exported: ExportedModel):
    graph = onnx.load(quantise_int8(exported, reduce_range=True).path).graph
    weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    columns = [
        (weights[node.input[1]], weights[f"{node.input[1].removesuffix('_quantized')}_scale"])
        for node in graph.node
        if node.op_type == "MatMulInteger"
    ]
    assert len(columns) == 2 * 6  # two layers of query, key, value, attention output, feed-forward in and out
    for weight, scale in columns:
        assert weight.dtype == np.int8
        assert scale.shape == weight.shape[1:]
        assert np.abs(weight).max() <= 64  # 7 bits


def test_reduced_range_follows_the_processor(exported: ExportedModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(precision, "processor_flags", lambda: frozenset({"avx2", "fma"}))
    assert quantise_int8(exported).path == quantise_int8(exported, reduce_range=True).path
    monkeypatch.setattr(precision, "processor_flags", lambda: frozenset({"avx2", "avx512_vnni"}))
    assert quantise_int8(exported).path == quantise_int8(exported, reduce_range=False).path


def small_graph(*, typed: bool = True) -> onnx.ModelProto:
    """y = x @ w, hidden state x @ w + mask; w and mask beyond fp16's range."""
    values = [np.array([[1e-3, 1e6], [1.0, 2.0]], np.float32), np.array([-3e38, 0.0], np.float32)]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
        helper.make_node("Add", ["y", "mask"], ["last_hidden_state"], name="sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(value, name) for value, name in zip(values, ("w", "mask"), strict=True)],
        value_info=[helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])] if typed else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_numbers_beyond_fp16_become_its_largest():
    graph = to_half(small_graph(), TensorProto.FLOAT16).graph
    weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    np.testing.assert_array_equal(weights["w_half"][0], np.array([1e-3, 65504], np.float16))
    np.testing.assert_array_equal(weights["mask_half"], np.array([-65504, 0], np.float16))
    assert [node.op_type for node in graph.node] == ["Cast", "MatMul", "Add", "Cast"]
    assert graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_an_untyped_graph_is_refused():
    with pytest.raises(ModelError, match=r"'product' \(MatMul\).*\['y'\]"):
        to_half(small_graph(typed=False), TensorProto.FLOAT16)


@pytest.mark.parametrize("convert", [convert_fp16, convert_bf16, quantise_int8])
@pytest.mark.parametrize("content", [b"", b"not a model", "cut"])
def test_malformed_files_are_named_before_conversion(exported: ExportedModel, tmp_path: Path, convert, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(exported.path.read_bytes()[:999] if content == "cut" else content)
    with pytest.raises(ModelError, match=rf"{path} \(\d+ bytes\) is no valid ONNX model: .+\n.*export again"):
        convert(replace(exported, path=path, sha256=f"{content!r}"))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ModelError, match=r"there is no ONNX file .*nothing\.onnx"):
        check_onnx(tmp_path / "nothing.onnx")


@pytest.mark.parametrize(
    ("text", "bf16"),
    [
        ("model name\t: A\nflags\t\t: fpu avx2 avx512_bf16\n", True),
        ("flags : fpu amx_bf16\n", True),
        ("Features : fp asimd bf16\n", True),
        ("flags : fpu avx2 avx512f\n", False),
        ("model name : bf16\n", False),
    ],
)
def test_bf16_instructions_are_read_from_cpuinfo(tmp_path: Path, text: str, bf16: bool):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert has_bf16_instructions(processor_flags(path)) is bf16
    assert processor_flags(tmp_path / "none") == frozenset()
