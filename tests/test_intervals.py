import math

import numpy as np
import pytest

from workbook.analysis.intervals import (
    effective_sample_size,
    mean_interval,
    percentile_interval,
    ratio_interval,
    runs_interval,
)
from workbook.errors import SettingError


def test_ratio_of_two_pairs_by_hand():
    # log ratios are log 2 and log 8: mean log 4, standard error log 2, t(0.975, 1 df) = 12.706
    ratio = ratio_interval([2, 8], [1, 1])
    assert ratio.estimate == pytest.approx(4)
    assert ratio.low == pytest.approx(4 / 2**12.7062, rel=1e-4)
    assert ratio.high == pytest.approx(4 * 2**12.7062, rel=1e-4)
    assert ratio.n == 2


def test_pairing_cancels_what_slows_both():
    batch, online = [100, 50, 200, 80], [49, 25.4, 101, 39.6]
    paired, apart = ratio_interval(batch, online), ratio_interval(batch, online, paired=False)
    assert paired.high - paired.low < 0.2 < 1 < apart.high - apart.low


def test_turning_the_ratio_over_turns_the_interval_over():
    there, back = ratio_interval([5, 6, 7], [2, 2, 2]), ratio_interval([2, 2, 2], [5, 6, 7])
    assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high))


def test_one_run_gives_the_ratio_and_a_reason_instead_of_an_interval():
    for paired in (True, False):
        ratio = ratio_interval([10], [5], paired=paired)
        assert ratio.estimate == pytest.approx(2)
        assert math.isnan(ratio.low) and not ratio.known and "at least two" in ratio.note


def test_runs_without_any_spread_say_so():
    ratio = ratio_interval([10, 10], [5, 5])
    assert (ratio.low, ratio.high) == pytest.approx((2, 2)) and "same value" in ratio.note
    assert "same value" in ratio_interval([10, 10], [5, 5], paired=False).note


@pytest.mark.parametrize(
    ("top", "bottom", "message"),
    [
        ([], [1], "no runs"),
        ([1, 0], [1, 1], "above 0"),
        ([1, math.nan], [1, 1], "above 0"),
        ([1, 2, 3], [1, 2], "3 runs cannot be paired with 2"),
    ],
)
def test_runs_no_ratio_can_be_made_of(top, bottom, message):
    with pytest.raises(SettingError, match=message):
        ratio_interval(top, bottom)


def test_a_confidence_is_a_share():
    with pytest.raises(SettingError, match="confidence is 95"):
        ratio_interval([1, 2], [1, 2], confidence=95)


def test_ratio_interval_covers_the_truth_as_often_as_it_says():
    """4 pairs that share a slowdown: 95% of 1,000 intervals hold the true ratio 1.5, within 3 standard errors."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(1000):
        shared, noise = rng.normal(0, 0.3, 4), rng.normal(0, 0.05, (2, 4))
        ratio = ratio_interval(150 * np.exp(shared + noise[0]), 100 * np.exp(shared + noise[1]))
        held += ratio.low <= 1.5 <= ratio.high
    assert 0.929 < held / 1000 < 0.971


def correlated(rng, n, correlation):
    """AR(1) series of mean 10 and variance 1."""
    steps = rng.normal(0, math.sqrt(1 - correlation**2), n)
    values = np.empty(n)
    values[0] = rng.normal()
    for i in range(1, n):
        values[i] = correlation * values[i - 1] + steps[i]
    return 10 + values


def test_batch_means_cover_a_correlated_mean_where_the_plain_interval_does_not():
    rng, held, held_plain = np.random.default_rng(1), 0, 0
    for _ in range(200):
        values = correlated(rng, 1000, 0.7)
        blocks, plain = mean_interval(values), runs_interval(values)
        held += blocks.low <= 10 <= blocks.high
        held_plain += plain.low <= 10 <= plain.high
    assert held / 200 > 0.90
    assert held_plain / 200 < 0.75


def test_a_bootstrapped_median_holds_the_median():
    values = correlated(np.random.default_rng(2), 2000, 0.5)
    interval = percentile_interval(values, 50)
    assert interval.estimate == np.median(values)
    assert interval.low < interval.estimate < interval.high
    # median of n normals: 1.2533 sd / sqrt(n), here with 2000 x 0.5 / 1.5 = 667 independent ones: 95% is 0.19 wide
    assert interval.high - interval.low == pytest.approx(0.19, rel=0.4)


def test_too_few_values_for_blocks_say_how_many_are_needed():
    for interval in (mean_interval([1, 2, 3]), percentile_interval([1, 2, 3], 50)):
        assert interval.estimate == 2 and not interval.known and "at least 40" in interval.note
    assert math.isnan(mean_interval([]).estimate)


def test_effective_sample_size():
    independent = np.random.default_rng(3).normal(size=4000)
    assert effective_sample_size(independent) > 3000
    # AR(1): n (1 - r) / (1 + r) = 4000 x 0.2 / 1.8 = 444
    assert effective_sample_size(correlated(np.random.default_rng(4), 4000, 0.8)) == pytest.approx(444, rel=0.25)
    assert effective_sample_size([5, 5, 5, 5, 5]) == 5
