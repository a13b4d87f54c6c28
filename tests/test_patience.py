"""A machine that is slow takes longer and fails nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fake_triton import FakeTriton
from workbook.analysis.not_run import not_run_rows
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.load import Load, measure_load, send_all
from workbook.measuring.online.patience import lone_request_s, patient
from workbook.measuring.variants.rate_sweep import longer_rates, seconds_at
from workbook.models.variants import find_variant

BATCHES = [Batch(np.ones((1, 3), np.int64), np.ones((1, 3), np.int64), np.array([0]), ("a",))]


def test_windows_hold_four_requests_or_two_turns_of_all_clients() -> None:
    load = Load("m", concurrency=1, warmup_s=0.2, window_s=0.3)
    assert patient(load, 0.05) is load
    assert patient(load, 0.1).window_s == pytest.approx(0.4)
    assert patient(Load("m", concurrency=4, warmup_s=0.2, window_s=0.3), 0.1).window_s == pytest.approx(0.8)
    assert patient(load, 1.0).warmup_s == 1.0


def test_a_request_longer_than_the_windows_asked_for_is_measured(tmp_path: Path) -> None:
    """Three windows of 50 ms would end before the first answer, which takes 250 ms."""
    asked = Load("fake", transport="http", warmup_s=0, window_s=0.05, stability_percent=1000.0, max_windows=3)
    with FakeTriton(service_s=0.25) as fake:
        lone_s = lone_request_s(send_all(fake, asked, BATCHES * 3, tmp_path / "w.csv", progress=False))
        result = measure_load(fake, patient(asked, lone_s), BATCHES, tmp_path / "r.csv", progress=False)
    assert lone_s >= 0.25
    assert result.duration_s >= 3 * 4 * 0.25
    assert result.throughput_rows_per_s <= 4.4


def test_a_slow_rate_is_offered_until_ten_requests_were_due() -> None:
    assert seconds_at(100.0, 3.0) == 3.0
    assert seconds_at(0.5, 3.0) == 20.0
    assert longer_rates(pd.DataFrame({"seconds": [3.0]}), 3.0) == ""
    assert "Rates below 3.33 requests/s" in longer_rates(pd.DataFrame({"seconds": [3.0, 20.0]}), 3.0)


def test_what_was_left_out_says_what_it_needs() -> None:
    rows = not_run_rows([(find_variant("tensorrt_fp32"), "needs a GPU")], "embedded", perf_analyzer=False)
    needs = {row["variant"]: row["needs"] for row in rows}
    assert needs["tensorrt_fp32"] == "needs a GPU"
    assert "NVIDIA GPU" in needs["transport grpc + CUDA shared memory"]
    assert 'server = "container"' in needs["Triton's own backends of onnxruntime and openvino in the container"]
    assert "pip install perf-analyzer" in needs["comparison with perf_analyzer"]
    there = [row["variant"] for row in not_run_rows([], "container", perf_analyzer=True)]
    assert there == ["transport grpc + CUDA shared memory", "transport grpc + system shared memory"]
