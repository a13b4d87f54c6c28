import pytest

from workbook.measuring.comparison.blocks import main_arms
from workbook.measuring.comparison.switches import Plan, make_plan
from workbook.measuring.comparison.time_limit import EXPECTED_SHARE, ArmRows, fit_rows

ASKED = ArmRows(main=1024, switches=192)
STEP = 128  # four runs of one batch of 32


@pytest.fixture
def plan() -> Plan:
    return make_plan(on_gpu=False, precision="fp32", pad_to=128, streams=2, in_flight=3, batch_size=32)


def fitting(plan: Plan, limit_s: float, *, rows_per_s: float = 50, asked: ArmRows = ASKED) -> ArmRows:
    """On a machine where an arm takes so many rows a second, padded ones among them."""
    return fit_rows(asked, plan, lambda arm: 1.0, rows_per_s / EXPECTED_SHARE, limit_s=limit_s, step=STEP)


def seconds(plan: Plan, rows: ArmRows, rows_per_s: float) -> float:
    main = len(set(main_arms(plan).values())) + 1  # the library to beat takes the same rows
    return (main * rows.main + len(plan.arms()) * rows.switches) / rows_per_s


def test_no_limit_and_a_fast_machine_take_all_rows(plan: Plan) -> None:
    assert fitting(plan, 0) is ASKED
    assert fitting(plan, 290, rows_per_s=5000) is ASKED


@pytest.mark.parametrize("rows_per_s", [15, 25, 40])
def test_a_slow_machine_takes_what_fits(plan: Plan, rows_per_s: float) -> None:
    rows = fitting(plan, 290, rows_per_s=rows_per_s)
    assert seconds(plan, ASKED, rows_per_s) > 290 >= seconds(plan, rows, rows_per_s)
    assert rows.main % STEP == 0
    assert rows.switches <= rows.main
    assert f"the first {rows.main:,} and {rows.switches:,} are measured" in rows.note


def test_a_batch_in_each_run_is_always_measured(plan: Plan) -> None:
    rows = fitting(plan, 1, rows_per_s=1)
    assert (rows.main, rows.switches) == (STEP, STEP)


def test_fewer_rows_than_a_batch_are_left_as_they_are(plan: Plan) -> None:
    asked = ArmRows(main=40, switches=192)
    assert fitting(plan, 1, rows_per_s=1, asked=asked) is asked
