import math
from dataclasses import replace

import pytest

from workbook.analysis.comparison import check_comparable, compare_arms, differences, verdict_of
from workbook.analysis.intervals import Interval
from workbook.errors import NotComparableError, SettingError
from workbook.measuring.conditions import Arm, Conditions

BATCH = Conditions(
    model="3f2a", rows=1024, real_tokens=39_000, padded_tokens=62_000, batch_size=32, padding="longest",
    precision="fp32", engine="onnxruntime",
    outputs="sentence_embedding", transport="in-process", concurrency=1, threads=2,
    scope="text to NumPy array in the client", serving="loop",
)  # fmt: skip
ONLINE = replace(BATCH, transport="grpc", serving="triton")
SERVING = {"transport", "serving"}


def test_declared_differences_are_found_and_returned():
    assert check_comparable(BATCH, ONLINE, SERVING) == {
        "transport": ("in-process", "grpc"),
        "serving": ("loop", "triton"),
    }
    assert differences(BATCH, BATCH) == {}


def test_an_undeclared_difference_is_refused_with_its_name_and_both_values():
    with pytest.raises(NotComparableError, match="padded_tokens is 62000 in one and 520000 in the other"):
        check_comparable(BATCH, replace(ONLINE, padded_tokens=520_000), SERVING)


def test_every_undeclared_difference_is_named():
    with pytest.raises(NotComparableError, match=r"precision is 'fp32'.*; threads is 2 in one and 1"):
        check_comparable(BATCH, replace(ONLINE, precision="bf16", threads=1), SERVING)


def test_a_declared_name_must_be_a_condition():
    with pytest.raises(SettingError, match="'sevring' is declared"):
        check_comparable(BATCH, ONLINE, {"sevring"})


@pytest.mark.parametrize(("field", "value"), [("rows", 0), ("real_tokens", 70_000), ("threads", 0)])
def test_work_that_cannot_be(field, value):
    with pytest.raises(SettingError):
        replace(BATCH, **{field: value})


def test_compare_arms_by_hand():
    compared = compare_arms(Arm("batch", (40, 42, 40, 42), BATCH), Arm("online", (20, 21, 20, 21), ONLINE), SERVING)
    assert compared.ratio == pytest.approx(2) and compared.per_run == (2, 2, 2, 2)
    assert compared.ci95 == pytest.approx((2, 2)) and "same value" in compared.note
    assert list(compared.differences) == ["transport", "serving"]
    assert compared.verdict.startswith("batch is 2.00 times as fast as online")


def test_unequal_conditions_are_never_compared():
    with pytest.raises(NotComparableError, match="serving"):
        compare_arms(Arm("batch", (40, 42), BATCH), Arm("online", (20, 21), ONLINE), {"transport"})


def test_one_run_is_a_ratio_without_an_interval():
    compared = compare_arms(Arm("batch", (40,), BATCH), Arm("online", (20,), ONLINE), SERVING)
    assert compared.ci95 is None and "at least two" in compared.note
    assert compared.verdict.startswith("batch was 2.00 times as fast as online; one pair of runs")


@pytest.mark.parametrize(
    ("estimate", "low", "high", "start"),
    [
        (1.23, 1.18, 1.28, "A is 1.23 times as fast as B (95% interval 1.18 to 1.28)"),
        (0.80, 0.75, 0.85, "B is 1.25 times as fast as A (95% interval 1.18 to 1.33)"),
        (1.01, 0.98, 1.04, "No difference that matters"),  # inside 5% with certainty
        (0.99, 0.97, 1.02, "No difference that matters"),
        (1.03, 1.01, 1.06, "No difference that matters"),  # told apart, but too small to matter
        (1.20, 0.90, 1.60, "Undecided: A came out 1.20 times as fast as B"),
        (1.01, 0.80, 1.28, "Undecided"),  # close to equal, but the runs do not show it
        (0.83, 0.60, 1.10, "Undecided: B came out 1.20 times as fast as A"),
    ],
)
def test_verdicts(estimate, low, high, start):
    assert verdict_of("A", "B", Interval(estimate, low, high, 0.95, 4), 5).startswith(start)


def test_a_verdict_without_an_interval_says_why():
    interval = Interval(0.5, math.nan, math.nan, 0.95, 1, "one pair of runs gives no interval")
    assert verdict_of("A", "B", interval, 5) == "B was 2.00 times as fast as A; one pair of runs gives no interval."
