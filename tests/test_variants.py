"""The list of variants, which of them a machine can run, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiny_encoder import save_tiny
from workbook.errors import ModelError, SettingError, SetupError
from workbook.models import variant_sessions
from workbook.models.e5 import Encoder, embed, load_encoder
from workbook.models.export import OUTPUTS, export_onnx
from workbook.models.machine import LIBRARIES, Machine, describe_machine
from workbook.models.torch_program import export_program
from workbook.models.trtexec import Trtexec
from workbook.models.variant_sessions import open_variant
from workbook.models.variants import (
    VARIANTS,
    Ingredients,
    VariantModel,
    choose_variants,
    find_variant,
    how_to_get,
    make_variant,
)

ON_CPU = ("onnx_fp32", "onnx_fp16", "onnx_int8", "openvino_fp32", "torch_fp32", "torch_bf16")
ON_GPU = ("tensorrt_fp32", "tensorrt_fp16", "tensorrt_bf16", "tensorrt_best")
PLAIN = Machine(libraries=dict.fromkeys(LIBRARIES, "1"), bf16_instructions=True)
TEN = Trtexec("trtexec", (10, 5, 0))
ELEVEN = Trtexec("trtexec", (11, 1, 0))
BIG = replace(PLAIN, server="container", gpus=("GPU",), trtexec=TEN)


def chosen(names: str | list[str], machine: Machine) -> tuple[list[str], dict[str, str]]:
    runnable, not_run = choose_variants(names, machine)
    return [variant.name for variant in runnable], {variant.name: sentence for variant, sentence in not_run}


def test_the_list():
    assert tuple(variant.name for variant in VARIANTS) == ON_CPU + ON_GPU
    for variant in VARIANTS:
        assert variant.name.endswith(f"_{variant.precision}")
        assert variant.container_backend or variant.embedded_engine


def test_how_each_is_served():
    served = {v.name: (v.file, v.container_backend, v.container_platform, v.embedded_engine) for v in VARIANTS}
    assert served["onnx_fp16"] == ("model.onnx", "onnxruntime", "onnxruntime_onnx", "onnxruntime")
    assert served["openvino_fp32"] == ("model.onnx", "openvino", "", "openvino")
    assert served["torch_bf16"] == ("model.pt2", None, "", "torch")
    assert served["tensorrt_best"] == ("model.plan", "tensorrt", "tensorrt_plan", None)


def test_a_plain_machine_runs_what_needs_no_gpu():
    runnable, not_run = chosen("auto", PLAIN)
    assert tuple(runnable) == ON_CPU
    assert tuple(not_run) == ON_GPU
    for sentence in not_run.values():
        assert sentence.startswith("not run on this machine: needs ")
        for need in ("tensorrt backend", "an NVIDIA GPU", "docker pull nvcr.io/nvidia/tensorrt:24.10-py3"):
            assert need in sentence


def test_a_machine_with_everything_runs_all_but_python_torch():
    runnable, not_run = chosen("auto", BIG)
    assert set(runnable) == {v.name for v in VARIANTS if v.engine != "torch"}
    assert all('server = "embedded"' in sentence for sentence in not_run.values())


@pytest.mark.parametrize(
    ("machine", "name", "need"),
    [
        (replace(BIG, gpus=()), "tensorrt_fp32", "needs an NVIDIA GPU"),
        (replace(BIG, trtexec=None), "tensorrt_fp32", "needs trtexec of TensorRT 10.5.0"),
        (replace(BIG, trtexec=ELEVEN), "tensorrt_best", "needs trtexec of TensorRT 10 "),
        (replace(PLAIN, libraries={}), "openvino_fp32", "needs the library openvino (pip install openvino=="),
    ],
)
def test_what_is_missing_is_named(machine: Machine, name: str, need: str):
    runnable, not_run = chosen([name], machine)
    assert runnable == []
    assert need in not_run[name]


def test_eleven_builds_all_but_best():
    runnable, _ = chosen(list(ON_GPU), replace(BIG, trtexec=ELEVEN))
    assert runnable == ["tensorrt_fp32", "tensorrt_fp16", "tensorrt_bf16"]


def test_bf16_without_instructions_is_left_to_those_who_ask():
    slow = replace(PLAIN, bf16_instructions=False)
    runnable, not_run = chosen("auto", slow)
    assert "torch_bf16" not in runnable
    assert 'variants = ["torch_bf16"]' in not_run["torch_bf16"]
    assert chosen(["torch_bf16"], slow) == (["torch_bf16"], {})
    assert "torch_bf16" in chosen("auto", replace(slow, gpus=("GPU",)))[0]


def test_names_keep_their_order_and_count_once():
    assert chosen(["torch_fp32", "onnx_fp32", "torch_fp32"], PLAIN)[0] == ["torch_fp32", "onnx_fp32"]
    assert chosen("onnx_int8", PLAIN)[0] == ["onnx_int8"]


@pytest.mark.parametrize(
    ("names", "message"),
    [(["onnx_fp61"], "'onnx_fp61'. Did you mean onnx_fp16"), (["zzz"], 'Known: "auto", onnx_fp32'), ([], "is empty")],
)
def test_unknown_names(names: list[str], message: str):
    with pytest.raises(SettingError, match=message):
        choose_variants(names, PLAIN)


def test_this_machine():
    machine = describe_machine()
    assert set(machine.libraries) == set(LIBRARIES)
    assert how_to_get("openvino") == f"pip install openvino=={machine.libraries['openvino'].split('-')[0]}"


# ---- made and run, on an encoder of a few thousand weights ----------------------------------------------------------


@pytest.fixture(scope="module")
def ingredients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingredients]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path_factory.mktemp("artifacts")))
        encoder = load_encoder(f"path:{save_tiny(tmp_path_factory.mktemp('models') / 'tiny-e5')}")
        yield Ingredients(encoder, export_onnx(encoder), PLAIN)


@pytest.fixture(scope="module")
def encoder(ingredients: Ingredients) -> Encoder:
    return ingredients.encoder


TEXTS = ["storm", "flood fire calm a b", "calm calm b"]


@pytest.mark.parametrize("name", ON_CPU)
def test_every_library_gives_the_same_arrays(ingredients: Ingredients, encoder: Encoder, name: str):
    model = make_variant(find_variant(name), ingredients)
    tokens = encoder.tokenize(TEXTS)
    found = open_variant(model, 1)(tokens.input_ids, tokens.attention_mask, OUTPUTS)
    rows, length = tokens.input_ids.shape
    assert [found[output].shape for output in OUTPUTS] == [(rows, length, 8), (rows, 8), (rows, 8)]
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    cosines = (found["sentence_embedding"] * embed(encoder, TEXTS)).sum(axis=1)
    assert cosines.min() > model.variant.min_cosine
    np.testing.assert_array_equal(found["cls_embedding"], found["last_hidden_state"][:, 0])
    assert model.files == {model.variant.file: model.path}
    assert model.bytes == model.path.stat().st_size


@pytest.mark.parametrize("name", ["onnx_fp32", "openvino_fp32", "torch_bf16"])
def test_one_session_takes_batches_of_every_shape(ingredients: Ingredients, encoder: Encoder, name: str):
    session = open_variant(make_variant(find_variant(name), ingredients), 1)
    for texts in (["a"], ["a b", "storm"], TEXTS * 3):
        tokens = encoder.tokenize(texts)
        (only,) = session(tokens.input_ids, tokens.attention_mask).items()
        assert only[0] == "sentence_embedding"
        assert (only[1] * embed(encoder, texts)).sum(axis=1).min() > 0.999


def test_answers_stay_when_the_next_batch_is_computed(ingredients: Ingredients, encoder: Encoder):
    first, second = encoder.tokenize(["storm"]), encoder.tokenize(["calm"])
    for name in ON_CPU:
        session = open_variant(make_variant(find_variant(name), ingredients), 1)
        kept = session(first.input_ids, first.attention_mask)["sentence_embedding"]
        before = kept.copy()
        session(second.input_ids, second.attention_mask)
        np.testing.assert_array_equal(kept, before)


@pytest.fixture
def onnx_model(ingredients: Ingredients) -> VariantModel:
    return make_variant(find_variant("onnx_fp32"), ingredients)


@pytest.mark.parametrize(
    ("ids", "mask", "outputs", "message"),
    [
        ((1, 513), (1, 513), ["sentence_embedding"], "rows of 513 tokens: onnx_fp32 takes 1 to 512"),
        ((1, 0), (1, 0), ["sentence_embedding"], "rows of 0 tokens"),
        ((2, 4), (2, 5), ["sentence_embedding"], r"input_ids \(2, 4\) and attention_mask \(2, 5\)"),
        ((4,), (4,), ["sentence_embedding"], "batch sequence"),
        ((1, 4), (1, 4), ["pooler"], "'pooler'; it must be one of last_hidden_state"),
    ],
)
def test_inputs_no_variant_takes(onnx_model: VariantModel, ids, mask, outputs: list[str], message: str):
    session = open_variant(onnx_model, 1)
    with pytest.raises(SettingError, match=message):
        session(np.ones(ids, np.int64), np.ones(mask, np.int64), outputs)


def test_threads_from_one(onnx_model: VariantModel):
    with pytest.raises(SettingError, match="threads=0"):
        open_variant(onnx_model, 0)


@pytest.mark.parametrize("name", ["onnx_fp32", "openvino_fp32", "torch_fp32"])
@pytest.mark.parametrize("content", [None, b"", b"not a model"])
def test_malformed_files_are_named(ingredients: Ingredients, tmp_path: Path, name: str, content: bytes | None):
    path = tmp_path / find_variant(name).file
    if content is not None:
        path.write_bytes(content)
    model = replace(make_variant(find_variant(name), ingredients), path=path)
    problem = "there is no file" if content is None else f"cannot load {path} .{len(content)} bytes.: "
    with pytest.raises(ModelError, match=problem):
        open_variant(model, 1)


def test_a_library_that_does_not_import(ingredients: Ingredients, monkeypatch: pytest.MonkeyPatch):
    model = make_variant(find_variant("openvino_fp32"), ingredients)
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(SetupError, match="openvino_fp32 needs the library openvino: pip install openvino=="):
        open_variant(model, 1)


def test_an_engine_is_not_made_or_run_here(ingredients: Ingredients, tmp_path: Path):
    variant = find_variant("tensorrt_fp32")
    with pytest.raises(SetupError, match="cannot be made on this machine: it needs an NVIDIA GPU and trtexec"):
        make_variant(variant, ingredients)
    assert not variant.in_process
    with pytest.raises(SetupError, match="does not run in this process: serve it"):
        open_variant(VariantModel(variant, tmp_path, "", 0, 8, 512), 1)


def test_a_program_in_no_such_precision(encoder: Encoder):
    with pytest.raises(ModelError, match="'int8' is not made; give one of fp32, bf16"):
        export_program(encoder, "int8")


def test_every_engine_but_tensorrt_has_an_opener():
    assert set(variant_sessions._OPENERS) == {variant.engine for variant in VARIANTS if variant.in_process}


def test_the_settings_way_of_saying_auto_is_understood() -> None:
    assert choose_variants(("auto",), PLAIN) == choose_variants("auto", PLAIN)
    with pytest.raises(SettingError, match="beside names"):
        choose_variants(("auto", "onnx_fp32"), PLAIN)
