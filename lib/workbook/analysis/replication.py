"""What counts as one measurement: the request, or the run?

The article's t-test takes every batch for an independent measurement. Batches of one run share the machine's pace of
that minute, so they resemble each other more than batches of another run do, and the test takes the difference between
two minutes for one between two methods.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.analysis.intervals import BLOCKS, Interval, effective_sample_size, ratio_interval
from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05
"""Where a p value is called significant."""
DRAWS = 2000


@dataclass(frozen=True)
class TTest:
    """Student's t of two samples.

    Attributes:
        t: difference of the means over its standard error.
        p: chance of so large a |t| if nothing differed and all values were independent.
    """

    t: float
    p: float


def naive_t_test(first: Sequence[float], second: Sequence[float]) -> TTest:
    """The article's test: Student's t with equal variances over all values, each taken for independent."""
    from scipy import stats

    result = stats.ttest_ind(np.asarray(first), np.asarray(second))
    return TTest(float(result.statistic), float(result.pvalue))


def t_of_summaries(first: Mapping[str, float], second: Mapping[str, float], n: int) -> TTest:
    """The same test from published means and deviations (`mean_ms`, `std_ms`) of n values each."""
    from scipy import stats

    result = stats.ttest_ind_from_stats(first["mean_ms"], first["std_ms"], n, second["mean_ms"], second["std_ms"], n)
    return TTest(float(result.statistic), float(result.pvalue))


def published_batches(online: Mapping[str, float], batch: Mapping[str, float], t: float, most: int = 10_000) -> int:
    """How many batches an arm the published t fits: t = difference x sqrt(n) / sqrt(sum of variances), solved for n.

    Raises:
        SettingError: no number of batches up to `most` fits.
    """
    difference = online["mean_ms"] - batch["mean_ms"]
    n = round((t / difference) ** 2 * (online["std_ms"] ** 2 + batch["std_ms"] ** 2))
    if not 2 <= n <= most:
        raise SettingError(f"t = {t} would need {n} batches: the published figures do not fit each other.")
    return n


def deviation_of_one(maximum_ms: float, mean_ms: float, n: int) -> float:
    """Standard deviation that one value among n equal ones makes on its own: (max - rest) / sqrt(n)."""
    rest_ms = (n * mean_ms - maximum_ms) / (n - 1)
    return (maximum_ms - rest_ms) / math.sqrt(n)


def block_t_test(first: Sequence[float], second: Sequence[float], blocks: int = BLOCKS) -> TTest:
    """Welch's t over means of consecutive blocks, which are nearly independent where neighbours are not.

    NaN where a sample is shorter than two values a block.
    """
    from scipy import stats

    cut = [_block_means(values, blocks) for values in (first, second)]
    if any(part is None for part in cut):
        return TTest(math.nan, math.nan)
    result = stats.ttest_ind(*cut, equal_var=False)
    return TTest(float(result.statistic), float(result.pvalue))


def same_arm_table(runs: Mapping[int, Sequence[float]]) -> pd.DataFrame:
    """Every pair of runs of one and the same arm: what the tests say where nothing differs.

    Args:
        runs: latencies of each run, in order of time.

    Returns:
        A row a pair: `first`, `second`, `difference_percent` of the means, `naive_p` over requests, `block_p` over
        means of blocks, `requests` and `effective` sample size of both together.
    """
    import pandas as pd

    rows = []
    for (i, first), (j, second) in itertools.combinations(runs.items(), 2):
        rows.append(
            {
                "first": i,
                "second": j,
                "difference_percent": 100 * (float(np.mean(second)) / float(np.mean(first)) - 1),
                "naive_p": naive_t_test(first, second).p,
                "block_p": block_t_test(first, second).p,
                "requests": len(first) + len(second),
                "effective": effective_sample_size(first) + effective_sample_size(second),
            }
        )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class SameArmVerdict:
    """What testing an arm against itself shows.

    Attributes:
        pairs: pairs of runs.
        naive_share: share of them that the test over requests calls significant; 0.05 would be honest.
        block_share: share that the test over block means calls so.
        spread_percent: standard deviation of the runs' means, % of their mean.
        inflation: variance of the runs' means / what independent requests would show; 1 would be honest.
    """

    pairs: int
    naive_share: float
    block_share: float
    spread_percent: float
    inflation: float

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return (
            f"Nothing differs between these runs, yet the t-test over requests calls {self.naive_share:.0%} of "
            f"{self.pairs} pairs significant, where {LEVEL:.0%} would be honest; over means of blocks it is "
            f"{self.block_share:.0%}. The runs' means differ by {self.spread_percent:.1f}% (standard deviation), "
            f"{math.sqrt(max(self.inflation, 0)):.1f} times as much as independent requests would: the run is the unit."
        )


def same_arm_verdict(runs: Mapping[int, Sequence[float]]) -> SameArmVerdict:
    """Sum up `same_arm_table`, and compare the spread between runs with the spread within them."""
    table = same_arm_table(runs)
    means = np.array([np.mean(values) for values in runs.values()])
    within = float(np.mean([np.var(values, ddof=1) / len(values) for values in runs.values()]))
    between = float(np.var(means, ddof=1))
    return SameArmVerdict(
        pairs=len(table),
        naive_share=float((table["naive_p"] < LEVEL).mean()),
        block_share=float((table["block_p"] < LEVEL).mean()),
        spread_percent=100 * math.sqrt(between) / float(means.mean()),
        inflation=between / within if within else math.nan,
    )


def ratio_of_medians(numerator: Sequence[Sequence[float]], denominator: Sequence[Sequence[float]]) -> Interval:
    """Ratio of the medians of paired runs, Student's interval on its logarithm; one sequence of values a run."""
    return ratio_interval([float(np.median(run)) for run in numerator], [float(np.median(run)) for run in denominator])


def block_bootstrap_ratio(
    numerator: Sequence[float], denominator: Sequence[float], blocks: int = BLOCKS, seed: int = 0
) -> Interval:
    """Ratio of two means within one run each, by drawing whole blocks of neighbours anew.

    Bounds are NaN where a sample is shorter than two values a block.
    """
    estimate = float(np.mean(numerator) / np.mean(denominator))
    top, bottom = _block_means(numerator, blocks), _block_means(denominator, blocks)
    if top is None or bottom is None:
        note = f"{min(len(numerator), len(denominator))} values are too few for {blocks} blocks"
        return Interval(estimate, math.nan, math.nan, 0.95, 0, note)
    random = np.random.default_rng(seed)
    draws = [part[random.integers(0, blocks, (DRAWS, blocks))].mean(axis=1) for part in (top, bottom)]
    low, high = np.percentile(draws[0] / draws[1], [2.5, 97.5])
    return Interval(estimate, float(low), float(high), 0.95, blocks)


def _block_means(values: Sequence[float], blocks: int) -> NDArray[np.float64] | None:
    ordered = np.asarray(values, np.float64)
    if len(ordered) < 2 * blocks:
        return None
    length = len(ordered) // blocks
    return np.asarray(ordered[: blocks * length].reshape(blocks, length).mean(axis=1))
