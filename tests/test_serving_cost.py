from __future__ import annotations

import pytest

from workbook.measuring.variants.serving_cost import IN_PROCESS, ServingCost

RUNS = {
    IN_PROCESS: [40.0, 20.0, 40.0, 20.0],
    "served, 1 in flight": [36.0, 18.0, 36.0, 18.0],
    "served, 2 in flight": [39.2, 19.6, 39.2, 19.6],
}


def test_the_share_is_of_runs_side_by_side() -> None:
    """A machine that halves its speed between runs halves both arms: the ratio does not move."""
    cost = ServingCost("openvino_fp32", RUNS)
    assert cost.best == "served, 2 in flight"
    share = cost.share(cost.best)
    assert share.estimate == pytest.approx(0.98)
    assert share.low == pytest.approx(0.98)
    assert cost.share("served, 1 in flight").estimate == pytest.approx(0.9)
    assert cost.sentence.startswith("openvino_fp32, served, 2 in flight, handles 98.0% (95% interval 98.0% to 98.0%)")
    assert cost.sentence.endswith("at least 95% was expected, and kept.")
    assert len(cost.runs()) == 12


def test_less_than_expected_is_said() -> None:
    runs = {name: rates for name, rates in RUNS.items() if "2" not in name}
    assert "and NOT kept" in ServingCost("onnx_fp32", runs).sentence


def test_runs_that_scatter_are_not_called_sure() -> None:
    scattered = {IN_PROCESS: [100.0, 100.0, 100.0, 100.0], "served, 1 in flight": [80.0, 120.0, 90.0, 110.0]}
    said = ServingCost("onnx_fp32", scattered).sentence
    assert said.endswith("and kept, though the runs scatter too much to be sure of it.")
