from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.ensemble_results import ensemble_results, explain_misses, search_predictions
from workbook.analysis.ensemble_search import choose, search_grid, with_hop
from workbook.analysis.loss_causes import effects, loss_causes, settings_of
from workbook.analysis.prediction import PipelineCosts, predict
from workbook.display.bottleneck_plots import case_bars, causes_plot, prediction_plot
from workbook.display.search_plots import curve_plot, reading_of_open_loops, search_plot
from workbook.display.segmentation_pictures import picture_of_masks
from workbook.display.timeline_plots import timeline_plot
from workbook.display.what_if import WhatIfPanel
from workbook.measuring.ensemble.ablations import Predicted, beside_published, what_reappears
from workbook.measuring.ensemble.conditions import EnsembleConditions
from workbook.measuring.ensemble.images import Images
from workbook.measuring.ensemble.runs import Point
from workbook.measuring.ensemble.study import Case
from workbook.measuring.processor_time import ProcessorTimes
from workbook.runs import Run, write_json
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B, EnsembleVariant, pin_apart

APART = pin_apart(EnsembleVariant(), (0, 1))
COSTS = PipelineCosts(
    a_work_s=0.005, b_work_s=0.001, a_processor_s=0.005, b_processor_s=0.001, transport_s=0.001, processors=(0, 1)
)
CONDITIONS = EnsembleConditions(
    images_per_request=1, transport="http", connections=128, image="i", b_input="b", a_max_batch=32
)


def case(name: str, **rates: float) -> Case:
    nothing = pd.DataFrame()
    points = {
        model: [Point(model, APART, CONDITIONS, rate, 1.0, 1.0, 2.0, 0, (), {}, {}, nothing)]
        for model, rate in rates.items()
    }
    return Case(name, APART, points)


BASE = case("as reported", **{MEMBER_A: 200.0, MEMBER_B: 500.0, ENSEMBLE: 190.0})
ABLATIONS = [
    Predicted(case("B as an identity", **{ENSEMBLE: 192.0}), predict(COSTS, APART, 128)),
    Predicted(case("A at most 1 image", **{MEMBER_A: 210.0, ENSEMBLE: 205.0}), predict(COSTS, APART, 128)),
    Predicted(case("A at most 4 images", **{MEMBER_A: 205.0, ENSEMBLE: 150.0}), predict(COSTS, APART, 128)),
]


def found() -> pd.DataFrame:
    rows = [
        {
            **{"b_instances": 1, "b_max_batch": 0, "a_delay_us": 0, "hop": hop, "a_max_batch": 32},
            **{"connections": connections, "images_per_s": rate, "latency_p50_ms": 50.0, "latency_mean_ms": 60.0},
            **{"latency_p99_ms": p99, "failed": 0, "a_inside_per_s": 195.0, "b_inside_per_s": 500.0},
        }
        for hop, connections, rate, p99 in (("mask", 128, 190.0, 700.0), ("logits", 128, 170.0, 650.0))
    ]
    return pd.DataFrame(rows)


def test_every_figure_asks_a_question_and_reads_its_numbers() -> None:
    causes = loss_causes(APART, 128, 5000)
    effect = effects(causes, {setting: [100.0, 99.0] for setting in settings_of(causes)})
    predictions = pd.DataFrame([each.row() for each in ABLATIONS])
    timeline = pd.DataFrame(
        {
            "image": [0, 0, 1, 1],
            "member": [MEMBER_A, MEMBER_B] * 2,
            "queue_start_ms": [0.0, 30, 1, 30],
            "work_start_ms": [10.0, 30, 10, 35],
            "work_end_ms": [30.0, 35, 30, 40],
            "execution": [0, 0, 0, 1],
        }
    )
    masks = np.zeros((1, 256, 448), np.uint8)
    images = Images(np.zeros((1, 3, 256, 448), np.float16), np.zeros((1, 2, 256, 448), np.float16), masks)
    for figure, words in (
        (case_bars(BASE), "the ensemble reaches 95% of sfpn16"),
        (causes_plot(effect), "costs most: x 1.00"),
        (prediction_plot(predictions), "2 of 3 predictions lie within 10%"),
        (curve_plot(found(), 200), "128 connections reach 190/s (95%"),
        (search_plot(found(), choose(found()), 200), "Of 2 configurations 2 are not beaten"),
        (timeline_plot(timeline), "up to 2 images then reached pypost16 within 5 ms"),
        (picture_of_masks(images), "0% of their pixels"),
    ):
        assert figure.layout.title.text.endswith("?")
        assert words in figure.layout.meta["reading"]


def test_the_issues_rows_stand_beside_ours() -> None:
    table = beside_published(BASE, ABLATIONS).set_index("case")
    assert table.loc["as reported", ["ensemble_published_per_s", "ensemble_per_s"]].tolist() == [141.40, 190]
    assert table.loc["A at most 4 images", "published_ratio"] == pytest.approx(191 / 230)
    assert table.loc["A at most 4 images", "ratio"] == pytest.approx(150 / 205)
    sentences = what_reappears(table.reset_index())
    assert "The loss does not show here: the ensemble reaches 95%" in sentences[0]
    assert "does not help here either: 1.01 times" in sentences[1]


def test_a_prediction_far_off_is_explained_by_what_was_counted_inside_the_ensemble() -> None:
    far = {"case": "x", "measured_per_s": 100.0, "error_percent": 50.0, "a_alone_per_s": 150.0, "b_alone_per_s": 400.0}
    inside = {"a_inside_per_s": 104.0, "b_inside_per_s": 390.0}
    (sentence,) = explain_misses(pd.DataFrame([{**far, **inside}, {**far, **inside, "error_percent": -9.0}]))
    assert "Triton counts 104/s as what A's executions allow, expected were 150/s." in sentence
    assert sentence.endswith("it would have been predicted.")
    (other,) = explain_misses(pd.DataFrame([{**far, **inside, "a_inside_per_s": 140.0}]))
    assert "140/s" in other and not other.endswith("predicted.")


def test_the_open_loop_is_held_against_five_service_times() -> None:
    loop = {"rate_per_s": 96.0, "answered_per_s": 96.0, "latency_p50_ms": 11.0, "latency_p99_ms": 30.0}
    loops = {"as reported": {**loop, "latency_p99_ms": 280.0}, "tuned": loop}
    assert "99% in 30.0 ms, within" in reading_of_open_loops(loops, 8.0, 119.0, 120.0)
    thrice = {**loop, "runs": 3, "lowest_p99_ms": 25.0, "highest_p99_ms": 90.0}
    said = reading_of_open_loops({**loops, "tuned": thrice}, 8.0, 119.0, 120.0)
    assert "99% in 30.0 ms (median of 3 runs, 25.0 ms to 90.0 ms), within" in said
    assert "NOT within" in reading_of_open_loops({**loops, "tuned": loops["as reported"]}, 8.0, 119.0, 120.0)


def test_processor_time_of_a_process_that_ended_counts_for_nothing() -> None:
    earlier = ProcessorTimes(0, {"m": 9.0}, {5: ("m", 9.0)})
    later = ProcessorTimes(10, {"m": 2.0}, {6: ("m", 2.0)})
    assert (later - earlier).per_image(4) == {"m": 0.5}


def test_moving_a_slider_redraws_the_prediction_with_the_points_measured_there() -> None:
    panel = WhatIfPanel(COSTS, APART, found(), 200)
    assert len(panel.figure.data[1].x) == 0  # nothing was measured at 150 ms
    panel.a_delay_ms.value = 0
    assert list(panel.figure.data[1].y) == [170.0]
    panel.hop.value = "mask"
    assert list(panel.figure.data[1].y) == [190.0]
    assert "with 128 connections 200/s, limited by sfpn16" in panel.reading.value


def test_the_figure_names_the_configuration_also_where_a_control_moves_no_line() -> None:
    panel = WhatIfPanel(replace(COSTS, b_work_s=1e-6), APART, found(), 200)  # B limits nothing
    line = list(panel.figure.data[0].y)
    panel.b_instances.value += 1
    assert list(panel.figure.data[0].y) == pytest.approx(line, rel=1e-4)
    assert f"instances: {panel.b_instances.value}, fed logits" in panel.figure.layout.title.subtitle.text


def test_what_b_is_fed_changes_the_prediction_by_what_was_counted_with_either() -> None:
    rows = found()
    rows["a_inside_per_s"] = [250.0, 200.0]  # mask, logits: A takes 0.8 times as long where it hands over a mask
    rows["b_inside_per_s"] = [1000.0, 500.0]
    other = rows.iloc[[1]].assign(b_instances=2, b_inside_per_s=float("nan"))  # measured with logits alone: no pair
    rows = pd.concat([rows, other], ignore_index=True)
    costs = with_hop(replace(COSTS, a_work_by_batch=((1, 0.01),)), rows, "mask")
    assert (costs.a_work_s, costs.b_work_s) == pytest.approx((0.004, 0.0005))
    assert (costs.a_processor_s, costs.b_processor_s, costs.transport_s) == pytest.approx((0.004, 0.0005, 0.001))
    assert costs.a_work_by_batch == ((1, pytest.approx(0.008)),)
    assert with_hop(COSTS, rows, "logits") == COSTS
    assert with_hop(COSTS, other, "mask") == replace(COSTS, hop="mask")
    panel = WhatIfPanel(COSTS, APART, rows, 200)
    assert "with 128 connections 200/s" in panel.reading.value
    panel.hop.value = "mask"
    assert "with 128 connections 250/s" in panel.reading.value


def test_results_have_the_fields_that_others_read_and_are_json(tmp_path: Path) -> None:
    causes = loss_causes(APART, 128, 5000)
    effect = effects(causes, {setting: [100.0] for setting in settings_of(causes)})
    grid = search_grid(APART, [1], [0], [0])
    expected = [predict(COSTS, variant, 128) for variant in grid]
    results = ensemble_results(
        BASE,
        case("tuned", **{MEMBER_A: 200.0, MEMBER_B: 500.0, ENSEMBLE: 198.0}),
        predict(COSTS, APART, 128),
        search_predictions(found(), expected),
        effect,
        {"latency_p99_ms": float("nan")},
        pd.DataFrame({"scheduler_ms": [0.1]}),
        {"refused": 3.0, "memory_end_mb": float("nan")},
        not_run={"pinned memory": "no GPU"},
        figure="06/x.json",
    )
    assert (results["ratio_as_reported"], results["ratio_tuned"], results["bound_per_s"]) == (0.95, 0.99, 200)
    assert results["prediction_error"] == pytest.approx(200 / 190 - 1)
    assert results["loss_causes"][0]["ci95"] is None
    assert results["overload"] == {"refused": 3.0, "memory_end_mb": None}
    write_json(tmp_path / "environment.json", {})
    Run(tmp_path, "06_ensemble_throughput").write_results(results)
