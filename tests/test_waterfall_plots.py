from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.breakeven import BreakEven, Costs, break_even
from workbook.analysis.replication import same_arm_table, same_arm_verdict
from workbook.analysis.waterfall import effects_over_orders, ratio_of, waterfall
from workbook.display.breakeven_panel import break_even_plot, flip_sentence
from workbook.display.regime_map import regime_map, regime_ratios
from workbook.display.waterfall_plots import order_plot, same_arm_plot, waterfall_plot, waterfall_table
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.comparison.regimes import REGIME_COLUMNS, Regime, make_regimes
from workbook.measuring.comparison.switches import make_plan

PLAN = make_plan(on_gpu=False, precision="fp32", pad_to=128, streams=2, in_flight=3, batch_size=32)
FAIR = {switch.name for switch in PLAN.fair}


def times(arm: Protocol) -> tuple[float, float, float]:
    ms = 100.0 if arm.side == "batch" else 150.0 if arm.pad_to else 110.0
    return ms, ms, ms


def test_the_waterfall_starts_and_ends_where_it_says():
    effects = waterfall(PLAN.orders()[0], times)
    states = [ratio_of(state, times) for state in (PLAN.article, PLAN.fair_state, PLAN.tuned_state)]
    figure = waterfall_plot(effects, *states, FAIR)
    names = list(figure.layout.yaxis.ticktext)
    assert len(names) == len(effects) + 3
    assert (names[0], names[-1]) == (
        "<b>the article's protocol</b>  <b>1.50</b>",
        "<b>both tuned</b>  <b>1.10</b>",
    )
    assert figure.layout.xaxis.type == "log"
    areas = [trace for trace in figure.data if trace.fill == "toself"]
    assert (min(areas[2].x), max(areas[2].x)) == pytest.approx((1.1, 1.5))  # padding, the second switch
    assert (
        "“online padding: 128 tokens -> longest row of the batch”: a factor of 0.733" in figure.layout.meta["reading"]
    )
    assert waterfall_table(effects)["after_ms"].iloc[-1] == pytest.approx(10)


def test_both_orders_are_drawn():
    table = effects_over_orders(PLAN, times)
    figure = order_plot(table)
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert [len(trace.x) for trace in dots] == [len(table)] * 2


def test_runs_of_one_arm_are_drawn_with_every_pair():
    random = np.random.default_rng(0)
    runs = {run: list(random.normal(10 + run, 1, 100)) for run in range(3)}
    figure = same_arm_plot(same_arm_table(runs), runs, same_arm_verdict(runs))
    assert [len(trace.x) for trace in figure.data] == [1, 1, 1, 3, 3]
    assert "100% of 3 pairs" in figure.layout.meta["reading"]


def regimes() -> pd.DataFrame:
    rows = [
        (1, 8, 40, "sentence_embedding", run, 1e8, 2e3, 10.0, online, 5) for run, online in enumerate((20.0, 20.0))
    ] + [(12, 8, 40, "last_hidden_state", 0, 1e9, 1e5, 100.0, 105.0, 5)]
    return pd.DataFrame(rows, columns=list(REGIME_COLUMNS))


def test_a_regime_stands_where_its_work_and_its_bytes_are():
    ratios = regime_ratios(regimes())
    assert ratios["ratio"].tolist() == pytest.approx([2, 1.05])
    assert ratios["flop_per_byte"].tolist() == pytest.approx([5e4, 1e4])
    figure = regime_map(ratios)
    assert [(trace.x[0], trace.y[0], trace.text[0]) for trace in figure.data[:2]] == [
        (2e3, 100.0, "2.0"),
        (1e5, 1000.0, "1.1"),
    ]
    assert figure.layout.meta["reading"].endswith(
        "2.00 times (1 layer, 8 rows of 40 tokens, vector, 50,000 operations a byte)."
    )


def test_regimes_cover_batch_length_depth_and_output():
    found = make_regimes([1, 12], [1, 32], [128, 512], 32)
    assert Regime(12, 1) in found
    assert Regime(1, 4, 512) in found
    assert Regime(12, 32, 0, "last_hidden_state") in found
    assert len(found) == len(set(found)) == 2 * (2 + 2 + 1 + 1)


def test_the_flip_is_marked_and_said():
    costs = Costs(100.0, 100.0, 20.0, 10.0, 1.0, 60.0)
    flip = break_even(costs, [99, 101], [99, 101])
    figure = break_even_plot(costs, flip, 1.0)
    assert any(shape.x0 == pytest.approx(200 / 3, rel=1e-3) for shape in figure.layout.shapes)
    assert "At 66.7 rows/s" in flip_sentence(flip)
    assert "never" in flip_sentence(BreakEven(None, None, 1.0))
