"""Cells of the benchmark put together: rates, percentiles, the server's parts, the checks."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.benchmark_table import (
    ROW_FIELDS,
    benchmark_table,
    check_table,
    floor_table,
    longer_cells,
    result_rows,
    splits_of,
    wide_table,
)
from workbook.errors import SettingError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.floor import Floor
from workbook.measuring.online.scenario import Load, LoadResult
from workbook.measuring.records import REQUEST_COLUMNS
from workbook.measuring.variants.benchmark import Cell, benchmark_variants
from workbook.measuring.variants.workloads import Workload
from workbook.models.variants import VariantModel, find_variant
from workbook.serving.statistics import ModelStatistics
from workbook.settings import Settings

MS = 1_000_000


def workload(name: str = "2 rows", rows: int = 2, width: int = 5, timed: bool = True) -> Workload:
    ids = np.ones((rows, width), np.int64)
    return Workload(name, (Batch(ids, ids, np.arange(rows), ("a",) * rows),), timed)


def statistics(requests: int, queue_ms: int, infer_ms: int) -> ModelStatistics:
    """Every request waited and was computed so long; 1 ms each for input and output."""
    counts = dict.fromkeys(("success_count", "inference_count", "execution_count"), requests)
    times = {"queue_ns": queue_ms, "compute_input_ns": 1, "compute_infer_ns": infer_ms, "compute_output_ns": 1}
    return ModelStatistics(
        model="m", version="1", fail_count=0, success_ns=0, fail_ns=0, **counts,
        **{name: ms * requests * MS for name, ms in times.items()},
    )  # fmt: skip


def cell(variant: str, latencies_ms: list[int], *, concurrency: int = 1, run: int = 0, timed: bool = True,
         duration_s: float = 1.0, infer_ms: int = 6, errors: tuple[str, ...] = ()) -> Cell:  # fmt: skip
    texts = [*errors, *[""] * (len(latencies_ms) - len(errors))]
    records = pd.DataFrame(
        {
            **dict.fromkeys(REQUEST_COLUMNS, 0),
            "request": range(len(latencies_ms)),
            "rows": 2,
            "decoded_ns": [ms * MS for ms in latencies_ms],
            "received_ns": [ms * MS for ms in latencies_ms],
            "error": texts,
        },
        index=range(len(latencies_ms)),
    )
    result = LoadResult(
        Load("m", concurrency), variant, run, records, Path("r.csv"), pd.DataFrame(), True, duration_s,
        statistics(len(latencies_ms) - len(errors), 0, infer_ms), 0.1,
    )  # fmt: skip
    return Cell(variant, workload(timed=timed), result, steady=timed)


def test_rounds_are_put_together():
    table = benchmark_table([cell("a", [10] * 50), cell("a", [20] * 25, run=1, infer_ms=9)])
    row = table.iloc[0]
    assert len(table) == 1
    assert row["throughput_rows_per_s"] == 75  # 150 rows in 2 s
    assert (row["lowest_rows_per_s"], row["highest_rows_per_s"], row["rounds"]) == (50, 100, 2)
    assert row["latency_p50_ms"] == 10
    assert row["latency_p95_ms"] == 20
    assert math.isnan(row["latency_p99_ms"])  # 75 requests are fewer than the 100 it needs
    assert row["compute_infer_ms"] == 7  # (50 x 6 + 25 x 9) / 75
    assert (row["batch_size"], row["sequence_length"], row["load_mode"]) == (2, 5, "closed")


def test_requests_of_the_first_rush_do_not_count_as_latencies():
    """Three clients, one server, 10 ms a request: 10, 20, 30, then 30 for everyone who comes after."""
    row = benchmark_table([cell("a", [10, 20, 30, 30], concurrency=3, timed=False)]).iloc[0]
    assert row["latency_mean_ms"] == 30
    assert row["requests"] == 4


def test_the_server_may_take_the_first_rush_in_another_order():
    """The third of three that were sent at once was served first; two rounds of it."""
    cells = [cell("a", [20, 30, 10, 30], concurrency=3, timed=False, run=run) for run in range(2)]
    assert benchmark_table(cells).iloc[0]["latency_mean_ms"] == 30


def test_failures_are_counted_and_left_out():
    row = benchmark_table([cell("a", [5, 10, 10], errors=("refused",))]).iloc[0]
    assert (row["errors"], row["requests"], row["latency_mean_ms"]) == (1, 2, 10)


def test_results_have_exactly_the_fields_that_readers_rely_on():
    rows = result_rows(benchmark_table([cell("a", [10] * 3)]))
    assert tuple(rows[0]) == ROW_FIELDS
    assert rows[0]["latency_p99_ms"] is None
    assert rows[0]["outputs"] == "sentence_embedding"


def test_little_and_the_sum_of_parts():
    good, slow = cell("a", [10] * 100), cell("b", [10] * 50, infer_ms=12)  # 12 ms of model in a request of 10
    table = benchmark_table([good, slow])
    splits = splits_of([good, slow], "2 rows")
    checks = check_table(table, splits).set_index("variant")
    assert checks.loc["a", "implied_in_flight"] == pytest.approx(1.0)
    assert checks.loc["a", "law_holds"]
    assert checks.loc["a", "parts_fit"]
    assert splits["a"][1].parts_ms["network_ms"] == pytest.approx(2)  # 10 - (1 + 6 + 1)
    assert not checks.loc["b", "law_holds"]  # 50 answers of 10 ms fill half a second
    assert not checks.loc["b", "parts_fit"]


def test_few_requests_widen_what_the_edges_of_a_cell_may_do():
    """Four clients, 10 requests a second of 0.43 s each: 4.3 in flight, where up to 4 of 10 were cut by an edge."""
    few = cell("a", [430] * 10, concurrency=4, infer_ms=100)
    many = cell("b", [43] * 100, concurrency=4, infer_ms=10)
    checks = check_table(benchmark_table([few, many]), splits_of([few, many], "2 rows")).set_index("variant")
    assert list(checks["implied_in_flight"]) == pytest.approx([4.3, 4.3])
    assert checks.loc["a", "law_holds"]
    assert not checks.loc["b", "law_holds"]


def test_what_lies_outside_queue_and_model():
    assert benchmark_table([cell("a", [10] * 5)]).iloc[0]["outside_ms"] == pytest.approx(4)  # 10 - 6 of the model


def test_cells_that_took_longer_are_named():
    cells = [cell("a", [10] * 3, duration_s=1.0), cell("b", [10] * 3, duration_s=2.5), cell("b", [10], timed=False)]
    assert longer_cells(cells[:1], 1.0) == ""
    assert "longer than the 1 s asked for (b up to 2.5 s)" in longer_cells(cells, 1.0)


def test_the_table_says_what_was_not_run():
    table = benchmark_table([cell("a", [10] * 3), cell("a", [20] * 4, concurrency=2)])
    missing = [(find_variant(name), "needs a GPU") for name in ("tensorrt_bf16", "tensorrt_best")]
    wide = wide_table(table, "2 rows", "throughput_rows_per_s", missing)
    assert list(wide.columns) == ["variant", "1 in flight", "2 in flight", "note"]
    assert list(wide.iloc[0]) == ["a", 6, 8, ""]
    assert list(wide.iloc[1][["variant", "note"]]) == ["tensorrt_bf16, tensorrt_best", "needs a GPU"]
    assert math.isnan(wide.iloc[1]["1 in flight"])


def test_share_of_the_ceiling():
    floor = Floor(flop=2e9, ceiling_flop_per_s=4e9, rows=2, measure=lambda: 4e9)  # 1 GFLOP a row: 4 rows/s at most
    row = floor_table(benchmark_table([cell("a", [1000], duration_s=1.0)]), {"2 rows": floor}).iloc[0]
    assert (row["gflop_per_row"], row["gflop_per_s"], row["share_of_ceiling"]) == (1, 2, 0.5)


def test_rows_longer_than_a_variant_takes_are_refused_before_anything_is_sent(tmp_path: Path):
    model = VariantModel(find_variant("onnx_fp32"), tmp_path / "model.onnx", "", 1, 8, max_length=512)
    with pytest.raises(SettingError, match="rows of 513 tokens and onnx_fp32 takes at most 512: lower sequence_length"):
        benchmark_variants(None, [model], [workload(width=513)], Settings(), tmp_path)  # type: ignore[arg-type]
