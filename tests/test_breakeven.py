from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from busy_machine import in_one_of
from workbook.analysis.breakeven import (
    MICRO,
    NIGHTLY,
    NONE,
    ONLINE,
    Costs,
    added_latency_s,
    break_even,
    break_even_rows_per_s,
    choices,
    cost_table,
    price_per_million,
    rate_grid,
    recommendation,
)
from workbook.errors import SettingError

# a job of 100 rows/s and a server of 100 rows/s at 3.6 an hour, 0.001 a second; jobs start in 10 s
COSTS = Costs(100.0, 100.0, row_ms=20.0, start_s=10.0, price_per_hour=3.6, objective_s=60.0)


def at(rate: float, costs: Costs = COSTS) -> str:
    return choices(costs, np.array([rate]))[0]


def test_prices_that_can_be_worked_out_in_the_head():
    price = price_per_million(COSTS, np.array([1.0]))
    # nightly: 10,000 s of computing and 11.6 starts of 10 s; online: 1,000,000 s of one server
    assert price[NIGHTLY][0] == pytest.approx(10 + 1e6 / 86_400 * 10 * 0.001)
    assert price[ONLINE][0] == pytest.approx(1000)
    # micro: a period of (60 - 10) / 1.01 s, so 20,200 starts of 10 s
    assert price[MICRO][0] == pytest.approx(10 + 1e6 * 1.01 / 50 * 10 * 0.001)


def test_a_second_server_comes_at_eight_tenths_of_the_first():
    price = price_per_million(COSTS, np.array([80.0, 80.001]))[ONLINE]
    assert price[1] / price[0] == pytest.approx(2, rel=1e-4)


def test_the_objective_decides_who_may_answer():
    assert at(1, replace(COSTS, objective_s=200_000.0)) in (NIGHTLY, MICRO)
    assert at(1) == MICRO
    assert at(1, replace(COSTS, objective_s=5.0)) == ONLINE  # a job starts in 10 s
    assert at(1, replace(COSTS, objective_s=0.001)) == NONE  # a request alone takes 20 ms
    assert "nothing answers" in recommendation(replace(COSTS, objective_s=0.001), 1.0)


def test_the_flip_solves_its_equation():
    """online = micro: 1 / r = 1 / B + s (1 + r / B) / (r (L - s)), so 40 = 0.6 r with these numbers."""
    flip = break_even_rows_per_s(COSTS)
    assert flip == pytest.approx(200 / 3, rel=1e-3)
    assert (at(flip * 0.99), at(flip * 1.01)) == (MICRO, ONLINE)


def test_the_price_moves_no_flip_and_the_start_does():
    assert break_even_rows_per_s(replace(COSTS, price_per_hour=36.0)) == pytest.approx(break_even_rows_per_s(COSTS))
    assert break_even_rows_per_s(replace(COSTS, start_s=20.0)) < break_even_rows_per_s(COSTS)
    assert break_even_rows_per_s(replace(COSTS, start_s=0.0)) is None  # jobs that start at once are never dearer
    assert break_even_rows_per_s(replace(COSTS, objective_s=5.0)) == pytest.approx(rate_grid(COSTS)[0])


def test_the_band_holds_the_flip_and_widens_with_the_runs():
    narrow = break_even(COSTS, [99, 100, 101, 100], [100, 99, 100, 101])
    wide = break_even(COSTS, [80, 100, 120, 100], [100, 80, 100, 120])
    for flip in (narrow, wide):
        assert flip.band
        assert flip.band[0] <= flip.rows_per_s <= flip.band[1]
    assert wide.band[1] - wide.band[0] > 3 * (narrow.band[1] - narrow.band[0])


def test_waiting_grows_with_the_load():
    latency = added_latency_s(COSTS, np.array([0.01, 40.0, 79.0]))[ONLINE]
    assert latency[0] == pytest.approx(0.02, rel=1e-3)
    assert latency[1] == pytest.approx(0.02 * (1 + 0.4 / 1.2))
    assert (np.diff(latency) > 0).all()


def test_the_table_and_the_sentence_agree():
    table = cost_table(COSTS, [1.0, 70.0])
    assert table["choice"].tolist() == [MICRO, ONLINE]
    assert "take micro-batch" in recommendation(COSTS, 1.0)
    assert "take online" in recommendation(COSTS, 70.0)


@pytest.mark.parametrize("name", ["batch_rows_per_s", "price_per_hour", "objective_s"])
def test_impossible_costs_are_refused(name):
    with pytest.raises(SettingError, match=name):
        replace(COSTS, **{name: 0.0})


def test_the_panel_redraws_from_rates_alone():
    from workbook.display.breakeven_panel import BreakEvenPanel

    panel = BreakEvenPanel(COSTS, [99, 100, 101, 100], [100, 99, 100, 101])
    assert "take micro-batch" in panel.reading.value

    def redraw(number):
        panel.rate.value = 1.0 + number
        started = time.process_time()
        panel.rate.value = 70.0
        assert time.process_time() - started < 1
        assert "take online" in panel.reading.value

    in_one_of(redraw)
    panel.objective.value = 0.01
    assert "nothing answers" in panel.reading.value
    panel.costs = None  # type: ignore[assignment]
    panel.redraw()
    assert "cannot be drawn" in panel.error.value
