"""Every variant this machine runs, served by the real Triton and asked the same as its session in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from serving_helpers import infer
from tritonclient.utils import InferenceServerException

from busy_machine import in_one_of
from workbook.errors import LoadError, ServerError, SettingError
from workbook.measuring.corpus.batches import Batch, make_batches
from workbook.measuring.corpus.sample import sample_rows
from workbook.measuring.online.load import Load, LoadResult, send_all
from workbook.models.e5 import Encoder
from workbook.models.variant_sessions import open_variant
from workbook.models.variants import VariantModel
from workbook.runs import Run
from workbook.serving.server import Server
from workbook.serving.variant_server import load_variant, start_variant_server, unload_variant
from workbook.serving.variant_spec import served_name
from workbook.settings import Settings

pytestmark = pytest.mark.integration

NAMES = ("onnx_fp32", "onnx_fp16", "onnx_int8", "openvino_fp32", "torch_fp32", "torch_bf16")
SETTINGS = Settings(layers=2, threads=2, server="embedded")


@pytest.fixture(scope="module")
def encoder(short_encoder: Encoder) -> Encoder:
    return short_encoder


@pytest.fixture(scope="module")
def models(short_variants: dict[str, VariantModel]) -> dict[str, VariantModel]:
    return {name: short_variants[name] for name in NAMES}


@pytest.fixture(scope="module")
def batches(encoder: Encoder) -> list[Batch]:
    return make_batches(encoder, [row.text for row in sample_rows(rows=24)], 8)


@pytest.fixture(scope="module")
def server(encoder: Encoder, models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    run = Run(tmp_path_factory.mktemp("variants"), "04")
    with start_variant_server(encoder, list(models.values()), SETTINGS, run) as started:
        yield started


@pytest.mark.parametrize("name", NAMES)
def test_a_served_variant_answers_as_its_session_does(server: Server, models, batches, tmp_path: Path, name: str):
    session = open_variant(models[name], 2)
    model = load_variant(server, models[name])
    outputs = ("sentence_embedding", "cls_embedding", "last_hidden_state")
    load = Load(model, concurrency=1, outputs=outputs)
    answers = send_all(server, load, batches, tmp_path / "r.csv", keep_outputs=True, progress=False).outputs
    with pytest.raises(InferenceServerException, match="513 tokens, this model takes 1 to 512: truncate it"):
        infer(server.grpc_url, model, np.ones((1, 513), np.int64), ["sentence_embedding"])
    unload_variant(server, models[name])
    assert answers is not None
    for batch, answer in zip(batches, answers, strict=True):
        expected = session(batch.input_ids, batch.attention_mask, outputs)
        for output in outputs:
            assert answer[output].dtype == np.float32
            np.testing.assert_allclose(answer[output], expected[output], atol=1e-5 if "32" in name else 0.02)


def test_rows_batched_by_triton_answer_as_alone(server: Server, models, batches, tmp_path: Path):
    singles = [
        Batch(b.input_ids[i : i + 1], b.attention_mask[i : i + 1], b.row_index[i : i + 1], b.texts[i : i + 1])
        for b in batches
        for i in range(b.rows)
    ]
    model = load_variant(server, models["openvino_fp32"])

    def send(clients: int) -> LoadResult:
        path = tmp_path / "r.csv"
        return send_all(server, Load(model, concurrency=clients), singles, path, keep_outputs=True, progress=False)

    def send_together(_: int) -> LoadResult:
        result = send(8)
        assert result.statistics.execution_count < len(singles)  # some of them really ran together
        return result

    answered = [send(1), in_one_of(send_together)]
    unload_variant(server, models["openvino_fp32"])
    alone, together = ([answer["sentence_embedding"] for answer in result.outputs or []] for result in answered)
    np.testing.assert_allclose(np.concatenate(together), np.concatenate(alone), atol=1e-5)


def test_a_batch_above_the_limit_is_refused_before_it_is_sent(server: Server, models, batches, tmp_path: Path):
    model = load_variant(server, models["onnx_fp32"])
    rows = Batch(np.ones((33, 4), np.int64), np.ones((33, 4), np.int64), np.arange(33), ("",) * 33)
    with pytest.raises(
        LoadError, match=r"33 rows and model e5_onnx_fp32 takes at most 32 \(its max_batch_size\): send"
    ):
        send_all(server, Load(model), [rows], tmp_path / "r.csv", progress=False)
    unload_variant(server, models["onnx_fp32"])


@pytest.mark.parametrize("name", ["onnx_fp32", "openvino_fp32", "torch_fp32"])
def test_a_malformed_file_is_named_with_the_fix(encoder: Encoder, models, tmp_path: Path, name: str):
    broken = tmp_path / models[name].path.name
    broken.write_bytes(b"no model at all")
    model = replace(models[name], path=broken)
    server = start_variant_server(encoder, [model], SETTINGS, Run(tmp_path, "04"))
    with server, pytest.raises(ServerError) as caught:
        load_variant(server, model)
    headline = str(caught.value).split("The server's last log lines")[0]
    assert f"{model.variant.engine} cannot load {broken.name} (15 bytes)" in headline
    assert f"{name}: delete the folder {tmp_path} and run notebook 02_build_engines again" in headline


def test_an_option_this_triton_lacks_is_refused(encoder: Encoder, models, tmp_path: Path):
    settings = replace(SETTINGS, grpc_infer_thread_count=4)
    with pytest.raises(SettingError, match=r"grpc_infer_thread_count is 4.*2\.51.*set it to 0"):
        start_variant_server(encoder, [models["onnx_fp32"]], settings, Run(tmp_path, "04"))


def test_batching_settings_reach_the_server(encoder: Encoder, models, tmp_path: Path):
    settings = replace(SETTINGS, instances=2, preferred_batch_sizes=(4, 8), queue_delay_microseconds=700)
    model = models["onnx_int8"]
    with start_variant_server(encoder, [model], settings, Run(tmp_path, "04"), in_turn=False) as server:
        config = server.model_config(served_name(model.variant))
    assert config["dynamic_batching"]["preferred_batch_size"] == [4, 8]
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 700
    assert config["instance_group"][0]["count"] == 2
