"""The benchmark's other axes on the real server: transports, outputs, rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from busy_machine import in_one_of
from workbook.analysis.benchmark_table import benchmark_table
from workbook.measuring.corpus.sample import sample_rows
from workbook.measuring.variants.benchmark import SHARED_MEMORY, Cell, measure_axes
from workbook.measuring.variants.rate_sweep import measure_rates, search_knee
from workbook.measuring.variants.workloads import Workload, tweets_workload
from workbook.models.e5 import Encoder
from workbook.models.variants import VariantModel
from workbook.runs import Run
from workbook.serving.server import Server
from workbook.serving.variant_server import serving, start_variant_server
from workbook.settings import Settings

pytestmark = pytest.mark.integration

SETTINGS = Settings(layers=2, threads=2, server="embedded", open_loop_s=1.0, load_percents=(50,), objective_ms=60_000.0)


@pytest.fixture(scope="module")
def encoder(short_encoder: Encoder) -> Encoder:
    return short_encoder


@pytest.fixture(scope="module")
def model(short_variants: dict[str, VariantModel]) -> VariantModel:
    return short_variants["onnx_fp32"]


@pytest.fixture(scope="module")
def server(encoder: Encoder, model: VariantModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    run = Run(tmp_path_factory.mktemp("axes"), "04")
    with start_variant_server(encoder, [model], SETTINGS, run, in_turn=False) as started:
        yield started


@pytest.fixture(scope="module")
def tweets(encoder: Encoder) -> Workload:
    return tweets_workload(encoder, [row.text for row in sample_rows(rows=16)], 4)


def test_every_transport_and_output(server: Server, model: VariantModel, tweets: Workload, tmp_path: Path) -> None:
    few = Workload(tweets.name, tweets.batches, timed=False)

    def measure(number: int) -> list[Cell]:  # Triton books a request some time after it has answered it
        cells = measure_axes(server, model, few, SETTINGS, tmp_path / f"{number}.csv")
        table = benchmark_table(cells)
        measured = set(zip(table["transport"], table["outputs"], strict=True))
        outputs = ("sentence_embedding", "last_hidden_state")
        assert measured >= {(transport, output) for transport in ("grpc", "http") for output in outputs}
        assert (SHARED_MEMORY, "sentence_embedding") in measured
        assert (table["errors"] == 0).all()
        assert (table["requests"] == 2 * SETTINGS.rounds).all()
        assert (table["compute_infer_ms"] > 0).all()
        assert (table["outside_ms"] > 0).all()
        return cells

    cells = in_one_of(measure)
    sizes = {
        cell.result.load.outputs[0]: cell.result.records["bytes_out"].max()
        for cell in cells
        if cell.transport != SHARED_MEMORY
    }
    assert sizes["last_hidden_state"] > 10 * sizes["sentence_embedding"]


def test_rates_and_knee(server: Server, model: VariantModel, tweets: Workload, tmp_path: Path) -> None:

    def measure(number: int) -> None:
        paths = [tmp_path / f"{name}-{number}.csv" for name in ("rates", "knee")]
        with serving(server, model) as name:
            rates = measure_rates(server, name, tweets, 10.0, SETTINGS, paths[0], progress=False)
            knee = search_knee(server, name, tweets, 10.0, SETTINGS, paths[1], probes=2, progress=False)
        assert list(rates["arrivals"]) == ["constant", "poisson"]
        assert rates["offered_per_s"][0] == 5
        assert (rates["within_objective"] == 1).all()  # a minute is time enough
        assert knee.rate_per_s == pytest.approx(9)  # 60% of the closed loop's rate, then half as much again

    in_one_of(measure)
