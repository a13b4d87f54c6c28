from __future__ import annotations

import math

import numpy as np
import pytest

from workbook.analysis.article import published_doubts
from workbook.analysis.published import published_figures
from workbook.analysis.replication import (
    block_bootstrap_ratio,
    block_t_test,
    deviation_of_one,
    naive_t_test,
    published_batches,
    ratio_of_medians,
    same_arm_table,
    same_arm_verdict,
    t_of_summaries,
)


def arms() -> tuple[dict[str, float], dict[str, float]]:
    times = published_figures("article_batch_times").set_index("arm")
    online, batch = (dict(times.loc[arm]) for arm in ("online", "batch"))
    return online, batch


def test_the_published_t_and_p_are_those_of_238_batches():
    assert published_batches(*arms(), 17.05) == 238 == math.ceil(7613 / 32)
    test = t_of_summaries(*arms(), 238)
    assert test.t == pytest.approx(17.05, abs=0.005)
    assert test.p == pytest.approx(3.43e-51, rel=0.02)
    assert "**238 batches**" in published_doubts()


def test_one_slow_batch_makes_the_published_deviation():
    values = np.full(238, 8.89)
    values[0] = 400.53
    assert deviation_of_one(400.53, float(values.mean()), 238) == pytest.approx(values.std(ddof=1), rel=1e-3)
    assert deviation_of_one(400.53, 10.53, 238) == pytest.approx(25.46, rel=0.01)


def drifting_runs(runs: int, seed: int) -> dict[int, list[float]]:
    """Each run has a pace of its own (2%) and noise (5%)."""
    random = np.random.default_rng(seed)
    return {run: list(random.normal(random.normal(10, 0.2), 0.5, 1000)) for run in range(runs)}


def test_where_runs_have_a_pace_of_their_own_the_test_over_requests_misleads():
    verdict = same_arm_verdict(drifting_runs(8, 1))
    assert verdict.pairs == 28
    assert verdict.naive_share > 0.5
    assert verdict.inflation > 20
    assert 1 < verdict.spread_percent < 4


def test_where_requests_are_independent_it_does_not():
    random = np.random.default_rng(2)
    verdicts = [same_arm_verdict({run: list(random.normal(10, 0.5, 400)) for run in range(4)}) for _ in range(60)]
    assert np.mean([verdict.naive_share for verdict in verdicts]) == pytest.approx(0.05, abs=0.04)
    assert np.mean([verdict.block_share for verdict in verdicts]) == pytest.approx(0.05, abs=0.04)
    assert np.mean([verdict.inflation for verdict in verdicts]) == pytest.approx(1, abs=0.3)


def test_neighbours_that_resemble_each_other_are_worth_fewer():
    random = np.random.default_rng(3)
    steps = random.normal(0, 1, (2, 2000))
    walk = np.zeros_like(steps)
    for i in range(1, 2000):
        walk[:, i] = 0.95 * walk[:, i - 1] + steps[:, i]
    table = same_arm_table({0: list(10 + walk[0] * 0.1), 1: list(10 + walk[1] * 0.1)})
    assert table.loc[0, "effective"] < 400  # of 4,000; (1 - 0.95) / (1 + 0.95) of them in the limit, 103
    assert table.loc[0, "block_p"] > table.loc[0, "naive_p"]


def test_tests_tell_a_real_difference():
    random = np.random.default_rng(4)
    a, b = random.normal(10, 1, 400), random.normal(12, 1, 400)
    assert naive_t_test(a, b).p < 1e-6
    assert block_t_test(a, b).p < 1e-6
    assert math.isnan(block_t_test(a[:10], b).p)


def test_ratios_hold_the_true_one():
    random = np.random.default_rng(5)
    a, b = random.normal(20, 1, 400), random.normal(10, 1, 400)
    interval = block_bootstrap_ratio(a, b)
    assert interval.low < 2 < interval.high
    assert interval.high - interval.low < 0.1
    assert not block_bootstrap_ratio(a[:5], b).known
    assert ratio_of_medians([[2, 4, 90], [4, 4, 4]], [[1, 2, 3], [2, 2, 2]]).estimate == pytest.approx(2)
