"""The fair ratio once more in plain Python: onnxruntime and Triton's own client in a loop, nothing of ours timed."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc

from busy_machine import in_one_of
from workbook.measuring.corpus.batches import make_batches
from workbook.measuring.online.shared_memory import NAME_PREFIX
from workbook.measuring.online.shared_memory_client import send_through_shared_memory
from workbook.models.e5 import Encoder
from workbook.models.export import export_onnx
from workbook.serving.handle import Server
from workbook.serving.handles import SHARED_MEMORY_DIR

pytestmark = pytest.mark.integration
TEXTS = ["The storm has taken the roof off our house", "just got sent this photo #wildfires", "ok", "Forest fire"] * 4


def test_a_served_batch_costs_what_the_engine_costs(bundled_encoder: Encoder, e5_server: Server) -> None:
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(export_onnx(bundled_encoder).path, session_options)
    tokens = bundled_encoder.tokenize(TEXTS)
    feed = {"input_ids": tokens.input_ids, "attention_mask": tokens.attention_mask}
    inputs = [tritonclient.grpc.InferInput(name, list(array.shape), "INT64") for name, array in feed.items()]
    for tensor, array in zip(inputs, feed.values(), strict=True):
        tensor.set_data_from_numpy(array)
    wanted = [tritonclient.grpc.InferRequestedOutput("sentence_embedding")]

    def compare(_: int) -> None:
        ratios, answers = [], {}
        with tritonclient.grpc.InferenceServerClient(e5_server.grpc_url) as client:
            for turn in range(12):  # in turn, so that a busy machine slows both
                started = time.perf_counter()
                answers["batch"] = session.run(["sentence_embedding"], feed)[0]
                between = time.perf_counter()
                answers["online"] = client.infer("e5_onnx", inputs, outputs=wanted).as_numpy("sentence_embedding")
                if turn >= 2:
                    ratios.append((time.perf_counter() - between) / (between - started))
        np.testing.assert_allclose(answers["online"], answers["batch"], atol=1e-5)
        # its batcher waits 20 ms for company; beyond that no factor of five is hidden anywhere
        assert statistics.median(ratios) < 3

    in_one_of(compare)


def test_shared_memory_gives_the_same_answers(bundled_encoder: Encoder, e5_server: Server, tmp_path: Path) -> None:
    batches = make_batches(bundled_encoder, TEXTS[:6], 4)
    made = send_through_shared_memory(
        e5_server, "e5_onnx", "sentence_embedding", bundled_encoder.hidden_size, batches, tmp_path / "r.csv"
    )
    with tritonclient.grpc.InferenceServerClient(e5_server.grpc_url) as client:
        for batch, found in zip(batches, made, strict=True):
            inputs = [tritonclient.grpc.InferInput(n, list(a.shape), "INT64") for n, a in batch.inputs.items()]
            for tensor, array in zip(inputs, batch.inputs.values(), strict=True):
                tensor.set_data_from_numpy(array)
            wanted = client.infer("e5_onnx", inputs).as_numpy("sentence_embedding")
            np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert list(SHARED_MEMORY_DIR.glob(f"{NAME_PREFIX}{os.getpid()}-*")) == []
