from dataclasses import replace

import pytest

from workbook.analysis.prediction import WAITING, PipelineCosts, ceilings, predict
from workbook.errors import SettingError
from workbook.serving.ensemble_spec import EnsembleVariant, pin_apart

REPORTED = pin_apart(EnsembleVariant(), (0, 1))
COSTS = PipelineCosts(
    a_work_s=0.005, b_work_s=0.001, a_processor_s=0.005, b_processor_s=0.001, transport_s=0.001, processors=(0, 1)
)


def test_apart_the_slower_member_decides() -> None:
    """A 1 / 5 ms = 200, B 1000, processors 2 / 7 ms = 286."""
    predicted = predict(COSTS, REPORTED, 128)
    assert (predicted.bottleneck, predicted.per_s) == ("sfpn16", pytest.approx(200))
    assert "Predicted: 200 images/s, limited by sfpn16" in predicted.sentence
    assert predicted.table()["decides"].tolist() == [True, False, False]


def test_two_processors_for_everything_are_the_limit_when_members_share_them() -> None:
    """A's two instances could make 400/s on two processors; A + B + transport take 7 ms of 2 s a second: 286/s."""
    predicted = predict(COSTS, EnsembleVariant(), 128)
    assert predicted.per_s == pytest.approx(2 / 0.007, rel=0.03)


def test_batches_that_never_fill_are_named() -> None:
    predicted = predict(COSTS, REPORTED, 16)
    assert predicted.bottleneck == WAITING
    assert predicted.per_s < 16 / 0.150
    assert predict(COSTS, replace(REPORTED, a_delay_us=0), 16).per_s == pytest.approx(200)


def test_one_connection_is_too_few() -> None:
    """1 + 5 + 1 ms in turn: 143/s."""
    predicted = predict(COSTS, replace(REPORTED, a_delay_us=0), 1)
    assert (predicted.bottleneck, predicted.per_s) == ("too few connections", pytest.approx(1 / 0.007, rel=0.01))


def test_a_stalled_b_is_the_bottleneck_until_it_has_more_instances() -> None:
    """1 ms of work after 9 ms of stall: 100/s an instance; three hide behind A's 200/s."""
    stalled = replace(REPORTED, b_stall_us=9000)
    assert predict(COSTS, stalled, 128).bottleneck == "pypost16"
    assert predict(COSTS, stalled, 128).per_s == pytest.approx(100)
    assert predict(COSTS, replace(stalled, b_instances=3), 128).bottleneck == "sfpn16"


def test_instances_help_only_as_far_as_there_are_processors() -> None:
    assert ceilings(COSTS, REPORTED) == pytest.approx((200, 1000))
    assert ceilings(COSTS, replace(REPORTED, b_instances=4, a_instances=8)) == pytest.approx((200, 1000))


def test_a_member_without_cost_is_refused() -> None:
    with pytest.raises(SettingError, match="a_work_s is 0"):
        replace(COSTS, a_work_s=0)


def test_a_batch_that_costs_more_for_each_image_is_predicted_slower() -> None:
    """5 ms an image in batches of 32, 4 ms alone: 200/s and 250/s, and 4.5 ms half-way between."""
    costs = replace(COSTS, a_work_by_batch=((1.0, 0.004), (32.0, 0.005)))
    assert predict(costs, REPORTED, 128).per_s == pytest.approx(200, rel=0.02)
    assert predict(costs, replace(REPORTED, a_max_batch=1), 128).per_s == pytest.approx(250, rel=0.02)
    assert ceilings(costs, replace(REPORTED, a_max_batch=16))[0] == pytest.approx(1 / 0.00448, rel=0.01)
