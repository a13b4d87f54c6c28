from __future__ import annotations

import math

import pytest

from workbook.analysis.split import PARTS, LatencySplit
from workbook.analysis.waterfall import account, effects_over_orders, ratio_of, waterfall
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.comparison.switches import make_plan

PLAN = make_plan(on_gpu=False, precision="fp32", pad_to=128, streams=2, in_flight=3, batch_size=32)
FAIR = {switch.name for switch in PLAN.fair}


def times(arm: Protocol) -> tuple[float, float]:
    """A machine on which padding doubles a request, the hidden state adds 30 ms, and the server adds 10."""
    if arm.side == "batch":
        ms = 100.0 if arm.engine == "torch" else 50.0
    else:
        ms = (100.0 if arm.pad_to else 50.0) + (30.0 if "last_hidden_state" in arm.outputs else 0.0) + 10.0
    return ms, ms * 1.1  # the second run is slower on both sides


def split(own_ms: float) -> LatencySplit:
    return LatencySplit(60.0, {name: own_ms if name == "network_ms" else 0.0 for name in PARTS}, 1, 1)


def test_steps_add_up_in_ms_and_multiply_in_ratios():
    effects = [e for e in waterfall(PLAN.orders()[0], times) if not e.detour]
    assert effects[0].before_ms == pytest.approx(40 * 1.05)
    assert sum(e.change_ms.estimate for e in effects) == pytest.approx(effects[-1].after_ms - effects[0].before_ms)
    assert math.prod(e.factor.estimate for e in effects) == pytest.approx(
        effects[-1].ratio_after / effects[0].ratio_before
    )
    padding = next(e for e in effects if e.switch == "padding")
    assert padding.factor.estimate == pytest.approx(90 / 140)
    assert padding.change_ms.estimate == pytest.approx(-50 * 1.05)


def test_a_ratio_is_free_of_what_slows_both_sides():
    ratio = ratio_of(PLAN.article, times)
    assert (ratio.estimate, ratio.low, ratio.high) == pytest.approx((1.4, 1.4, 1.4))


def test_the_order_changes_what_a_switch_is_worth():
    table = effects_over_orders(PLAN, times).set_index("switch")
    # before the hidden state is gone 90 / 140, after it 60 / 110
    assert table.loc["padding", ["factor_low", "factor_high"]].tolist() == pytest.approx([60 / 110, 90 / 140])
    assert table.loc["clock", "factor_low"] == pytest.approx(1)


def test_all_is_explained_where_the_request_owns_the_rest():
    whole = account(1.4, waterfall(PLAN.orders()[0], times), 50.0, split(10.0), FAIR)
    assert whole.steps_factor == pytest.approx((60 / 50) / 1.4)
    assert whole.owned_factor == pytest.approx(1.2)
    assert whole.unexplained_share == pytest.approx(0, abs=1e-9)


def test_what_nobody_owns_is_said():
    whole = account(2.8, waterfall(PLAN.orders()[0], times), 50.0, split(10.0), FAIR)
    assert whole.unexplained_factor == pytest.approx(2)
    assert whole.unexplained_share == pytest.approx(math.log(2) / way(), rel=1e-6)


def way() -> float:
    factors = [e.factor.estimate for e in waterfall(PLAN.orders()[0], times) if e.switch in FAIR]
    return max(math.log(2.8), sum(abs(math.log(f)) for f in factors))
