"""Sizes, load, counter and ladder against the real server, with numbers too small to mean anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from serving_helpers import booked, settled

from busy_machine import in_one_of
from workbook.analysis.copies import KINDS
from workbook.analysis.copy_costs import hop_costs
from workbook.errors import LoadError
from workbook.measuring.copies.alone import measure_alone
from workbook.measuring.copies.answers import check_answers
from workbook.measuring.copies.booking import measure_foreign_input, measure_stages
from workbook.measuring.copies.counter import find_compiler
from workbook.measuring.copies.loads import measure_arrangements
from workbook.measuring.copies.requests import relay_request
from workbook.measuring.copies.sizes import measure_sizes
from workbook.measuring.copies.study import count_copies
from workbook.measuring.online.load import Load
from workbook.measuring.online.rungs import RUNGS
from workbook.measuring.online.shared_memory import NAME_PREFIX
from workbook.measuring.online.transport_ladder import ladder_table, measure_ladder
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.runs import Run
from workbook.serving.arrangement_server import start_arrangement_server
from workbook.serving.arrangements import arrangement_names
from workbook.serving.handles import SHARED_MEMORY_DIR
from workbook.serving.pipelines import relay_pipeline
from workbook.serving.server import Server
from workbook.settings import Settings

pytestmark = pytest.mark.integration
SETTINGS = Settings(server="embedded", stub_memory_mb=32, copy_sizes_kb=(8, 1000, 4000))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("run"), "07_copies")


@pytest.fixture(scope="module")
def server(run: Run) -> Iterator[Server]:
    with start_arrangement_server([relay_pipeline()], SETTINGS, run) as running:
        yield running


def test_all_answers_are_equal(server: Server) -> None:
    table = check_answers(server, relay_pipeline(), relay_request(1 << 20), arrangement_names())
    assert table["equals_the_first"].all()
    assert set(table["answer_bytes"]) == {16}


def test_sizes_give_a_row_a_run_and_a_record_a_request(server: Server, tmp_path: Path) -> None:
    sizes, names = (1_000_000, 4_000_000), ("monolith", "ensemble", "handle")
    sweep = measure_sizes(server, names, sizes, tmp_path / "r.csv", repeats=2, requests=2, progress=False)
    assert len(sweep.latencies) == len(sizes) * len(names) * 2
    assert (sweep.latencies["latency_ms"] > 0).all()
    in_ensemble = sweep.parts.query("arrangement == 'ensemble' and bytes == 4000000")
    assert len(in_ensemble) == 3 * 2  # stages, runs
    assert (in_ensemble["compute_input_ms"] > 0).all()
    records = read_records(tmp_path / "r.csv", REQUEST_COLUMNS)
    assert records["arm"].value_counts()["ensemble 4000000"] == 2 * (2 + 2 * 2)
    rates = [(kind, size, size / 1e7) for kind in KINDS for size in sizes]  # measured ones are not sure to grow
    costs = hop_costs(sweep.latencies, pd.DataFrame(rates, columns=["kind", "bytes", "ms"]))
    assert costs["ensemble"].predicted_per_mb_ms > 10 * costs["handle"].predicted_per_mb_ms


def test_somebody_else_on_the_server_is_noticed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbook.measuring.copies import booking

    monkeypatch.setattr(booking, "_BOOKING_S", 0.1)
    settled(server, "copies_relay_monolith")
    before = booking.read_counters(server, {"copies_relay_monolith": None})
    check_answers(server, relay_pipeline(), relay_request(8), ["monolith"])
    check_answers(server, relay_pipeline(), relay_request(8), ["monolith"])
    booked(server, "copies_relay_monolith", before["copies_relay_monolith"], requests=2)
    with pytest.raises(LoadError, match="copies_relay_monolith 2: is somebody else"):
        booking.what_happened(server, before)


def test_alone_and_under_load(server: Server, tmp_path: Path) -> None:
    names, requests = ("monolith", "bls_async"), [relay_request(80_000), relay_request(90_000)]
    alone = measure_alone(server, relay_pipeline(), requests, names, tmp_path / "alone.csv", runs=3, progress=False)
    assert len(alone) == 2 * 3
    assert (alone["latency_ms"] > 0).all()
    sent = read_records(tmp_path / "alone.csv", REQUEST_COLUMNS)
    assert list(sent["arm"][4:12]) == ["monolith", "bls_async", "bls_async", "monolith"] * 2  # after the warm-up
    load = Load("any", warmup_s=0.05, window_s=0.1, stability_percent=900, max_windows=3)
    table = measure_arrangements(
        server, relay_pipeline(), requests, alone, 2, load, tmp_path / "r.csv", repeats=2, progress=False
    )
    assert len(table) == 2 * 2
    assert (table[["requests_per_s", "latency_p50_ms"]] > 0).all().all()
    assert (table["failed"] == 0).all()
    assert set(read_records(tmp_path / "r.csv", REQUEST_COLUMNS)["concurrency"]) == {2}


def test_stage_times_and_foreign_input(server: Server) -> None:
    times = measure_stages(server, relay_pipeline(), relay_request(4_000_000), requests=3)
    assert list(times) == ["make", "shift", "total"]
    assert min(times.values()) > 0
    assert measure_foreign_input(server, 4_000_000, requests=3) > 0


def test_ladder_measures_every_rung_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    def measure(number: int) -> None:
        path = tmp_path / f"{number}.csv"
        table = ladder_table(measure_ladder(server, [80_000], path, requests=9, progress=False))
        assert set(table["rung"]) == set(RUNGS)
        assert (table["latency_ms"] > 0).all()
        assert table.set_index("rung").loc["in-process", "latency_ms"] == table["latency_ms"].min()

    in_one_of(measure)
    assert list(SHARED_MEMORY_DIR.glob(f"{NAME_PREFIX}{os.getpid()}-*")) == []


@pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler")
def test_the_ledger_counts_as_the_server_copies(run: Run) -> None:
    def count(_: int) -> pd.DataFrame:  # a copy is reported a moment after its answer; a busy machine makes it long
        counted = count_copies(SETTINGS, run, arrangement_names(), [1_000_000])
        assert counted is not None
        assert counted["agree"].all()
        return counted

    counted = in_one_of(count)
    by_name = counted.set_index("arrangement")
    assert by_name.loc["ensemble", ["counted_by_server", "counted_by_stubs"]].tolist() == [4, 4]
    assert by_name.loc["bls", ["counted_by_server", "counted_by_stubs"]].tolist() == [4, 6]
    assert by_name.loc["handle", "counted_ms"] == 0
