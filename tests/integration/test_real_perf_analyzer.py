"""The real perf_analyzer against the real server; skipped where it is neither on PATH nor named by $PERF_ANALYZER."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving_helpers import settled

from busy_machine import in_one_of
from workbook.errors import LoadError
from workbook.measuring.corpus.batches import Batch, make_batches
from workbook.measuring.online.agreement import agreement_table, compare_with_perf_analyzer
from workbook.measuring.online.capacity import measure_capacity
from workbook.measuring.online.load import Load
from workbook.measuring.online.perf_analyzer import find_perf_analyzer, perf_analyzer_version, run_perf_analyzer
from workbook.models.e5 import Encoder
from workbook.serving.handle import Server
from workbook.serving.model_config import to_config_pbtxt
from workbook.serving.model_spec import InstanceSpec, ModelSpec, TensorSpec
from workbook.serving.server import start_server

pytestmark = pytest.mark.integration

TEXTS = [f"Flood warning number {n}: the river has reached the lower town and still rises" for n in range(32)]
QUICK = {"window_s": 1.0, "warmup_s": 0.5, "stability_percent": 1000.0}


@pytest.fixture(scope="module")
def program() -> Path:
    found = find_perf_analyzer(os.environ.get("PERF_ANALYZER", ""))
    if found is None:
        pytest.skip("perf_analyzer is neither on PATH nor named by $PERF_ANALYZER")
    return found


@pytest.fixture(scope="module")
def batches(bundled_encoder: Encoder) -> list[Batch]:
    return make_batches(bundled_encoder, TEXTS, 8)


def test_it_says_its_version(program: Path):
    assert "commit" in perf_analyzer_version(program)


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_it_sends_real_tokens(e5_server: Server, batches: list[Batch], program: Path, transport):
    before = settled(e5_server, "e5_onnx")
    load = Load("e5_onnx", 2, transport, **QUICK)

    def measure(_: int) -> None:
        measured = run_perf_analyzer(e5_server, load, batches, program).iloc[0]
        assert measured["throughput_rows_per_s"] > 0
        assert measured["concurrency"] == 2
        # the mean of 2 requests in flight: latency and rate belong together (Little's law); rows/s / 8 are requests/s
        assert measured["throughput_rows_per_s"] / 8 * measured["latency_p50_ms"] / 1000 == pytest.approx(2, rel=0.5)

    in_one_of(measure)
    delta = settled(e5_server, "e5_onnx") - before
    assert delta.inference_count == 8 * delta.success_count  # each request carries a batch of 8


def test_its_errors_are_told(e5_server: Server, batches: list[Batch], program: Path):
    with pytest.raises(LoadError, match="unknown model: 'nosuch'"):
        run_perf_analyzer(e5_server, Load("nosuch"), batches, program)
    with pytest.raises(LoadError, match="windows did not agree"):
        never = Load("e5_onnx", window_s=0.2, stability_percent=0.1, max_windows=3)
        run_perf_analyzer(e5_server, never, batches, program)


def test_capacity_stands_beside_perf_analyzers(null_server: Server, batches: list[Batch], program: Path, tmp_path):
    load = Load("null", **QUICK)
    table = measure_capacity(
        null_server, batches, tmp_path / "r.csv", concurrencies=(1,), program=program, load=load, progress=False
    )
    assert table["transport"].tolist() == ["grpc", "http"]
    shares = table["requests_per_s"] / table["perf_analyzer_requests_per_s"]
    assert shares.min() > 0.05  # a Python client; what matters is that e5 needs a hundredth of it


SLEEPER = """
import time
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            ids = pb.get_input_tensor_by_name(request, "input_ids").as_numpy()
            time.sleep(0.02 + 0.001 * (ids[0, -2] % 10))
            hidden = np.zeros((*ids.shape, 384), np.float32)
            answers.append(pb.InferenceResponse([pb.Tensor("last_hidden_state", hidden)]))
        return answers
"""


@pytest.fixture(scope="module")
def sleeping_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model that takes 20 to 29 ms by the clock, however busy the machine, and answers with a whole hidden state."""
    repository = tmp_path_factory.mktemp("sleeper")
    spec = ModelSpec(
        name="sleeper",
        backend="python",
        max_batch_size=32,
        inputs=tuple(TensorSpec(name, "INT64", (-1,)) for name in ("input_ids", "attention_mask")),
        outputs=(TensorSpec("last_hidden_state", "FP32", (-1, 384)),),
        instances=(InstanceSpec(1, "cpu"),),
    )
    (repository / "sleeper" / "1").mkdir(parents=True)
    (repository / "sleeper" / "config.pbtxt").write_text(to_config_pbtxt(spec))
    (repository / "sleeper" / "1" / "model.py").write_text(SLEEPER)
    with start_server("embedded", repository, log_file=repository.parent / "sleeper.log") as server:
        yield server


@pytest.mark.parametrize(("transport", "concurrency"), [("grpc", 4), ("http", 1)])
def test_both_tools_agree_where_the_service_time_is_fixed(
    sleeping_server: Server, batches: list[Batch], program: Path, tmp_path: Path, transport, concurrency
):
    load = Load("sleeper", transport=transport, **QUICK)

    def compare(_: int) -> None:
        measured = compare_with_perf_analyzer(
            sleeping_server,
            load,
            batches,
            program,
            tmp_path / "r.csv",
            concurrencies=(concurrency,),
            repeats=1,
            progress=False,
        )
        ratios = agreement_table(measured).iloc[0]
        assert ratios["throughput_ratio"] == pytest.approx(1, abs=0.08)
        assert ratios["latency_p50_ratio"] == pytest.approx(1, abs=0.08)

    in_one_of(compare)


def test_both_tools_agree_on_the_real_model(e5_server: Server, batches: list[Batch], program: Path, tmp_path: Path):
    load = Load("e5_onnx", **QUICK)

    def compare(_: int) -> None:
        measured = compare_with_perf_analyzer(
            e5_server, load, batches, program, tmp_path / "r.csv", concurrencies=(1,), repeats=1, progress=False
        )
        assert measured["tool"].tolist() == ["workbook", "perf_analyzer"]
        ratios = agreement_table(measured).iloc[0]
        # a test machine is busy: within 5% is for a quiet one, a mistake in rows, time or unit would be a factor
        assert 0.6 < ratios["throughput_ratio"] < 1.6
        assert 0.6 < ratios["latency_p50_ratio"] < 1.6

    in_one_of(compare)
