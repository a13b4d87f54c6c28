"""Speed and quality together, the published order, the advice."""

from __future__ import annotations

import pandas as pd
import pytest

from workbook.analysis.published import published_figures
from workbook.analysis.ranking import (
    advise,
    beside_published,
    cosine_floor,
    fewest_in_flight,
    order_sentence,
    rank_variants,
)
from workbook.display.plots import (
    benchmark_plot,
    cost_plot,
    open_loop_plot,
    quality_plot,
    reading_of_answers,
    reading_of_axes,
    reading_of_checks,
    reading_of_open_loop,
)

RATES = {"onnx_fp32": [30, 38, 40], "onnx_fp16": [20, 21, 22], "onnx_int8": [50, 55, 60], "openvino_fp32": [40, 50, 51]}
COSINES = {"onnx_fp32": 0.9999999, "onnx_fp16": 0.99996, "onnx_int8": 0.98, "openvino_fp32": 0.9999998}


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        {"variant": name, "workload": "1 tweet", "concurrency": place + 1, "throughput_rows_per_s": rate,
         "latency_p50_ms": 10.0, "lowest_rows_per_s": rate - 1, "highest_rows_per_s": rate + 1}
        for name, rates in RATES.items()
        for place, rate in enumerate(rates)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture
def quality() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"variant": name, "min_cosine": cosine, "mean_cosine": cosine, "neighbour_agreement": 0.9 + 0.1 * cosine,
             "probe_accuracy": 0.8, "acceptable": name != "onnx_int8",
             "why": "a row's cosine is 0.98" if name == "onnx_int8" else ""}
            for name, cosine in COSINES.items()
        ]
    )  # fmt: skip


def test_what_loses_too_much_has_no_place_however_fast(table, quality):
    ranked = rank_variants(table, quality, "1 tweet")
    assert list(ranked["variant"]) == ["openvino_fp32", "onnx_fp32", "onnx_fp16", "onnx_int8"]
    assert list(ranked["place"][:3]) == [1, 2, 3]
    assert pd.isna(ranked["place"][3])
    assert ranked["concurrency"][0] == 3
    assert ranked["times_slowest"][0] == 51 / 22


def test_dominated_is_slower_and_no_closer(table, quality):
    dominated = dict(rank_variants(table, quality, "1 tweet")[["variant", "dominated_by"]].to_numpy())
    assert dominated["openvino_fp32"] == ""
    assert dominated["onnx_fp32"] == "openvino_fp32"  # the seventh decimal of its cosine does not save it
    assert dominated["onnx_fp16"] == "openvino_fp32"
    assert dominated["onnx_int8"] == ""  # nothing acceptable is as fast


def test_one_that_keeps_more_neighbours_is_not_dominated(table, quality):
    kept = quality.assign(neighbour_agreement=[1.0, 0.99, 0.84, 0.988])
    dominated = dict(rank_variants(table, kept, "1 tweet")[["variant", "dominated_by"]].to_numpy())
    assert dominated["onnx_fp32"] == ""  # slower than openvino_fp32, and closer by a hundredth of the neighbours
    assert dominated["onnx_fp16"] == "openvino_fp32"  # two thousandths are no difference


def test_a_lowest_cosine_is_never_rounded_up():
    assert cosine_floor(0.99997) == "0.9999"
    assert cosine_floor(0.9999) == "0.9999"
    assert cosine_floor(1.0) == "1.0000"
    assert cosine_floor(0.99996760, 5) == "0.99996"


def test_the_fewest_in_flight_that_are_enough(table):
    assert fewest_in_flight(table, "openvino_fp32", "1 tweet") == 2  # 50 of 51
    assert fewest_in_flight(table, "onnx_fp16", "1 tweet") == 2  # 21 of 22 is 95.5%


def test_advice_names_the_leader_its_lead_and_the_concurrency(table, quality):
    said = advise(rank_variants(table, quality, "1 tweet"), table, "1 tweet")
    assert said.startswith("Serve openvino_fp32 on this machine: 51.0 rows/s")
    assert "1.27 times as fast as the next, onnx_fp32" in said
    assert "2 requests in flight are enough" in said


def test_advice_does_not_tell_equals_apart(table, quality):
    table.loc[table["variant"] == "onnx_fp32", "throughput_rows_per_s"] = 50.0
    assert "not told apart from onnx_fp32" in advise(rank_variants(table, quality, "1 tweet"), table, "1 tweet")


def test_advice_where_nothing_keeps_the_quality(table, quality):
    assert "serve none of them" in advise(
        rank_variants(table, quality.assign(acceptable=False), "1 tweet"), table, "1 tweet"
    )


def test_the_published_order_stands_beside_ours(table, quality):
    published = published_figures("article_ranking")
    assert list(published["column"]) == ["BF16", "Best", "Base", "ONNX-Half", "ONNX"]
    beside = beside_published(rank_variants(table, quality, "1 tweet"), published, {"tensorrt_bf16": "needs a GPU"})
    notes = dict(zip(beside["variant"], beside["note"], strict=True))
    assert notes["tensorrt_bf16"] == "needs a GPU"
    assert dict(zip(beside["variant"], beside["place_here"], strict=True))["onnx_fp32"] == 1
    assert order_sentence(beside) == (
        "Here onnx_fp32 > onnx_fp16: NOT the article's order. 3 of its 5 did not run on this machine."
    )
    swapped = beside.assign(place_here=beside["place_here"].map({1: 2, 2: 1}))
    assert "the same order as the article's" in order_sentence(swapped)


def test_figures_carry_question_and_reading(table, quality):
    ranked = rank_variants(table, quality, "1 tweet")
    figure = quality_plot(ranked)
    assert "onnx_int8 is out: a row's cosine is 0.98" in figure.layout.meta["reading"]
    symbols = {trace.text[0]: trace.marker.symbol for trace in figure.data}
    assert symbols["onnx_fp32"].endswith("-open")
    assert not symbols["openvino_fp32"].endswith("-open")
    lines = benchmark_plot(table)
    assert lines.layout.title.text.endswith("?")
    assert "openvino_fp32" in lines.layout.meta["reading"] or "onnx_int8 is fastest" in lines.layout.meta["reading"]
    costs = pd.DataFrame({"variant": list(RATES), "bytes": [400e6, 200e6, 100e6, 400e6]})
    assert "onnx_int8 takes 100 MB" in cost_plot(costs, quality).layout.meta["reading"]
    assert "The smallest that keeps the quality: onnx_fp16" in cost_plot(costs, quality).layout.meta["reading"]


def test_served_answers_in_words():
    answers = pd.DataFrame({"variant": ["onnx_fp32", "onnx_int8", "torch_fp32"], "min_cosine": [1.0, 0.9954, 0.9]})
    assert reading_of_answers(answers) == (
        "Served as in this process but for rounding: onnx_fp32. onnx_int8 answers otherwise, lowest cosine 0.9954: the "
        "scale of its 8-bit activations is that of a whole batch, so that a row's answer depends on the rows beside "
        "it. torch_fp32 answers otherwise, lowest cosine 0.9000: the server does not run what this process runs."
    )


def test_checks_and_axes_in_words():
    checks = pd.DataFrame({"law_holds": [True, False], "parts_fit": [True, True]})
    assert reading_of_checks(checks).startswith("Little's law holds in 1 of 2 cells, the parts add up in 2. Where the")
    axes = pd.DataFrame(
        {"outputs": ["pooled"] * 2, "transport": ["grpc", "http"], "outside_ms": [2.0, 1.0], "latency_mean_ms": 200.0}
    )
    assert reading_of_axes(axes) == (
        "Returning pooled, 1.00 ms (http) to 2.00 ms (grpc) of a request lie outside queue and model, at most 1.0% of "
        "it."
    )


@pytest.mark.parametrize(
    ("answered", "percent", "said"),
    [
        (99.0, 120, "still kept up (99.0 of 100 requests/s)"),
        (99.0, 80, "kept up."),
        (70.0, 120, "answered 70.0 of 100"),
    ],
)
def test_whether_the_highest_rate_was_kept_up_with(answered: float, percent: int, said: str):
    row = {"arrivals": "constant", "latency_p50_ms": 20.0, "within_objective": 0.996}
    rates = pd.DataFrame([{**row, "percent": percent, "offered_per_s": 100.0, "answered_per_s": answered}])
    assert said in reading_of_open_loop(rates, 50)
    assert "99.6% were" in reading_of_open_loop(rates, 50)


def test_open_loop_figure_says_how_many_were_in_time():
    summary = pd.DataFrame(
        {"arrivals": ["poisson"], "offered_per_s": [10.0], "latency_p50_ms": [20.0], "latency_p95_ms": [30.0],
         "within_objective": [0.5]}
    )  # fmt: skip
    assert "50% were answered within 100 ms" in open_loop_plot(summary, 100).layout.meta["reading"]
