"""Requests at a rate: when they leave, what a stall costs, what counts as served in time, where the knee is."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from busy_machine import in_one_of
from fake_triton import FakeTriton
from workbook.analysis.benchmark_table import ROW_FIELDS
from workbook.analysis.open_loop import SERVER_PARTS, open_loop_rows, summarise_open_loop
from workbook.errors import LoadError, SettingError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.knee import find_knee
from workbook.measuring.online.load import Load
from workbook.measuring.online.open_loop import OpenLoop, arrival_times_s, measure_open_loop
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.measuring.variants.workloads import Workload

MS = 1_000_000
BATCHES = [
    Batch(np.full((1, 3), row, np.int64), np.ones((1, 3), np.int64), np.array([row]), ("a",)) for row in range(5)
]


def open_loop(rate_per_s: float, clients: int = 8, **changes: object) -> OpenLoop:
    load = Load("fake", transport="http", concurrency=clients)
    return OpenLoop(load, rate_per_s, **{"arrivals": "constant", "duration_s": 1.0, "warmup_s": 0.2, **changes})


def measure(fake: FakeTriton, asked: OpenLoop, path: Path):
    result = measure_open_loop(fake, asked, BATCHES, path / "r.csv", progress=False)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("load-client")]
    return result


def test_constant_arrivals_are_evenly_spaced():
    np.testing.assert_allclose(arrival_times_s(4, 1.0, "constant"), [0, 0.25, 0.5, 0.75])


def test_poisson_arrivals_have_exponential_gaps():
    times = arrival_times_s(100, 200, "poisson", seed=1)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(20_000, rel=0.03)  # standard deviation: 141
    assert gaps.mean() == pytest.approx(0.01, rel=0.03)
    assert gaps.std() == pytest.approx(0.01, rel=0.03)  # an exponential's equals its mean
    assert (gaps > 0.01).mean() == pytest.approx(math.exp(-1), abs=0.02)
    assert times.max() < 200
    np.testing.assert_array_equal(times, arrival_times_s(100, 200, "poisson", seed=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s is 0.0"),
        ({"rate_per_s": float("nan")}, "rate_per_s is nan"),
        ({"arrivals": "uniform"}, "one of constant, poisson"),
        ({"duration_s": 0.0}, "duration_s is 0.0"),
    ],
)
def test_impossible_rates_are_refused(changes, message: str):
    with pytest.raises(SettingError, match=message):
        OpenLoop(Load("fake"), **{"rate_per_s": 1.0, **changes})


def test_requests_leave_when_they_should(tmp_path: Path):
    def send(number: int) -> None:
        folder = tmp_path / str(number)
        with FakeTriton(service_s=0.001) as fake:
            result = measure(fake, open_loop(50, drain_s=60), folder)
        assert result.scheduled == len(result.records) == 50
        gaps_ns = np.diff(result.records["intended_ns"])
        np.testing.assert_allclose(gaps_ns, 20 * MS, atol=2)
        late_ms = (result.records["sent_ns"] - result.records["intended_ns"]) / MS
        assert late_ms.min() >= 0
        assert late_ms.median() < 20
        on_disk = read_records(folder / "r.csv", REQUEST_COLUMNS)
        assert (on_disk["window"] == -1).sum() == 10  # the warm-up's

    in_one_of(send)


def test_the_wait_for_a_busy_server_counts(tmp_path: Path):
    """One client, 40 ms a request, 50 requests a second: request k ends at 40 (k + 1) ms and was due at 20 k ms."""
    with FakeTriton(service_s=0.04) as fake:
        result = measure(fake, open_loop(50, clients=1, warmup_s=0.0, drain_s=60), tmp_path)
    latency_ms = (result.records["decoded_ns"] - result.records["intended_ns"]) / MS
    assert (latency_ms.to_numpy() >= 40 * np.arange(1, 51) - 20 * np.arange(50) - 1e-3).all()
    assert latency_ms.iloc[49] - latency_ms.iloc[0] >= 20 * 49 - 1e-3  # each makes the next one wait
    summary = summarise_open_loop(result.records, result.scheduled, 1.0, objective_ms=200)
    assert summary["from_actual_send_p99_ms"] != summary["latency_p99_ms"] or math.isnan(summary["latency_p99_ms"])
    from_send_ms = (result.records["decoded_ns"] - result.records["sent_ns"]) / MS
    assert 4 * from_send_ms.median() < latency_ms.median()  # counted from the send, the queue is invisible
    assert summary["within_objective"] < 0.3


def test_what_cannot_leave_in_time_is_counted(tmp_path: Path):
    def send(number: int) -> None:  # a machine that stops at once sends none at all
        with FakeTriton(service_s=0.1) as fake:
            result = measure(fake, open_loop(50, clients=1, warmup_s=0.0, drain_s=0.0), tmp_path / str(number))
        summary = summarise_open_loop(result.records, result.scheduled, 1.0, objective_ms=1e9)
        assert summary["never_sent"] == 50 - len(result.records) > 30
        assert summary["within_objective"] == len(result.records) / 50

    in_one_of(send)


def test_failures_alone_are_an_error(tmp_path: Path):
    with FakeTriton(lambda _: "no such thing") as fake, pytest.raises(LoadError, match="no such thing"):
        measure(fake, open_loop(10), tmp_path)


def test_summary_of_four_requests():
    start = 1_000 * MS
    records = pd.DataFrame(
        {
            "intended_ns": [start + ms * MS for ms in (0, 100, 200, 300)],
            "sent_ns": [start + ms * MS for ms in (0, 150, 200, 300)],
            "decoded_ns": [start + ms * MS for ms in (10, 160, 230, 340)],
            "error": ["", "", "", "refused"],
        }
    )
    summary = summarise_open_loop(records, scheduled=5, duration_s=0.5, objective_ms=30)
    assert summary["offered_per_s"] == 10
    assert summary["answered_per_s"] == 6
    assert summary["goodput_per_s"] == 4  # 10 ms and 30 ms are in time, 60 ms from the intended send is not
    assert summary["within_objective"] == 0.4  # two of the five that were due
    assert summary["latency_p50_ms"] == 30
    assert (summary["errors"], summary["never_sent"], summary["requests"]) == (1, 1, 3)


def test_an_open_loop_is_a_row_among_the_others():
    rates = pd.DataFrame(
        [{"arrivals": "poisson", "offered_per_s": 12.5, "answered_per_s": 12.0, "errors": 0, "latency_p99_ms": math.nan,
          **dict.fromkeys(("latency_p50_ms", "latency_p95_ms", *SERVER_PARTS), 7.0)}]
    )  # fmt: skip
    pair = Batch(np.ones((2, 5), np.int64), np.ones((2, 5), np.int64), np.arange(2), ("a", "b"))
    (row,) = open_loop_rows(rates, "onnx_fp32", Workload("2 tweets", (pair,), timed=True))
    assert tuple(row) == ROW_FIELDS
    assert row["load_mode"] == "open, poisson, 12.5 requests/s"
    assert (row["throughput_rows_per_s"], row["concurrency"], row["latency_p99_ms"]) == (24, None, None)


@pytest.mark.parametrize("start", [1.0, 8.0, 40.0])
def test_the_knee_is_found_from_either_side(start: float):
    knee = find_knee(lambda rate: {"within_objective": float(rate <= 10)}, start, 50, probes=14, growth=2)
    assert knee.rate_per_s <= 10 < knee.beyond_per_s
    assert knee.beyond_per_s / knee.rate_per_s < 1.1
    assert "Up to" in knee.sentence
    assert len(knee.probes) == 14


def test_a_knee_outside_what_was_tried_says_so():
    assert (
        "No rate tried, down to 4 requests"
        in find_knee(lambda _: {"within_objective": 0.5}, 8, 50, probes=2, growth=2).sentence
    )
    assert (
        "Every rate tried, up to 16"
        in find_knee(lambda _: {"within_objective": 1.0}, 8, 50, probes=2, growth=2).sentence
    )
    with pytest.raises(SettingError, match="growth 1"):
        find_knee(lambda _: {}, 1, 1, growth=1)
