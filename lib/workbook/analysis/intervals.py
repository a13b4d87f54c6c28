"""Intervals: how far a number would move if it were measured again.

The unit of replication is the run: requests of one run share its cache, clock speed and neighbours, so a thousand of
them are not a thousand measurements. Between runs the interval is Student's on the logarithm of the ratio; within one
run it is made from blocks of neighbouring requests, because neighbours resemble each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbook.errors import SettingError

BLOCKS = 20
"""Blocks a run is cut into. Fewer leave Student's t few degrees of freedom, more leave neighbours correlated."""

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate with the interval around it.

    Attributes:
        estimate: the value itself.
        low: lower bound; NaN where there is no interval.
        high: upper bound; NaN where there is no interval.
        confidence: share of such intervals that hold the true value, 0 to 1.
        n: runs, pairs of runs or blocks it rests on.
        note: why there is no interval, or what is odd about it; empty where nothing is.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    n: int
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def ratio_interval(
    numerator_runs: Sequence[float],
    denominator_runs: Sequence[float],
    paired: bool = True,
    confidence: float = 0.95,
) -> Interval:
    """Ratio of two arms with its interval, from one value a run.

    Paired (the arms alternated, run i of one beside run i of the other): the ratio is exp(mean of log(a_i / b_i)), the
    interval Student's t on those logarithms; what slows both runs of a pair cancels. Unpaired: Welch's interval on the
    difference of the mean logarithms.

    Args:
        numerator_runs: one positive value a run, for example rows/s of the batch arm.
        denominator_runs: the same for the other arm, in the same order where paired.
        paired: whether the arms alternated.
        confidence: between 0 and 1.

    Returns:
        The ratio; bounds are NaN, with a note, where there are fewer than two runs each.

    Raises:
        SettingError: no runs, a value that is not positive and finite, arms of unequal length where paired.
    """
    top, bottom = _log_runs("numerator", numerator_runs), _log_runs("denominator", denominator_runs)
    _require_confidence(confidence)
    if paired and len(top) != len(bottom):
        raise SettingError(
            f"{len(top)} runs cannot be paired with {len(bottom)}: "
            "measure both arms equally often, or compare them with paired=False."
        )
    interval = _paired(top - bottom, confidence) if paired else _welch(top, bottom, confidence)
    return Interval(
        math.exp(interval.estimate),
        math.exp(interval.low),
        math.exp(interval.high),
        confidence,
        interval.n,
        interval.note,
    )


def runs_interval(runs: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of one value a run with Student's t interval; bounds are NaN for a single run."""
    _require_confidence(confidence)
    return _t_interval(np.asarray(runs, dtype=np.float64), confidence, "run")


def mean_interval(values: Sequence[float], blocks: int = BLOCKS, confidence: float = 0.95) -> Interval:
    """Mean within one run by batch means: values in order of time are cut into blocks, Student's t on the block means.

    Args:
        values: one a request, in order of time.
        blocks: how many; a remainder that fills no block is left out of the interval, not of the estimate.
        confidence: between 0 and 1.
    """
    _require_confidence(confidence)
    ordered = np.asarray(values, dtype=np.float64)
    if len(ordered) < 2 * blocks:
        return _unknown(
            float(ordered.mean()) if len(ordered) else float("nan"), confidence, 0, _too_few(ordered, blocks)
        )
    centred = _t_interval(_cut(ordered, blocks).mean(axis=1), confidence, "block")
    half_width = (centred.high - centred.low) / 2
    mean = float(ordered.mean())
    return Interval(mean, mean - half_width, mean + half_width, confidence, blocks, centred.note)


def percentile_interval(
    values: Sequence[float], percentile: float, blocks: int = BLOCKS, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """A percentile within one run by the block bootstrap: whole blocks of neighbours are drawn anew, with replacement.

    Args:
        values: one a request, in order of time.
        percentile: 0 to 100.
        blocks: how many the run is cut into.
        confidence: between 0 and 1.
        seed: of the draws.
    """
    from scipy import stats

    _require_confidence(confidence)
    ordered = np.asarray(values, dtype=np.float64)
    if len(ordered) < 2 * blocks:
        estimate = float(np.percentile(ordered, percentile)) if len(ordered) else float("nan")
        return _unknown(estimate, confidence, 0, _too_few(ordered, blocks))
    cut = _cut(ordered, blocks)
    drawn = stats.bootstrap(
        (np.arange(blocks),),
        lambda chosen: np.percentile(cut[chosen], percentile),
        n_resamples=RESAMPLES,
        vectorized=False,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(np.percentile(ordered, percentile)), float(drawn.low), float(drawn.high), confidence, blocks)


def effective_sample_size(values: Sequence[float]) -> float:
    """How many independent values would fix the mean as well as these, which follow one another in time.

    n / (1 + 2 x sum of the autocorrelations), the sum cut off where a pair of neighbouring terms is no longer positive
    (the initial positive sequence of Geyer, Statistical Science 7, 1992). At most n.
    """
    ordered = np.asarray(values, dtype=np.float64)
    n = len(ordered)
    centred = ordered - ordered.mean() if n else ordered
    if n < 4 or not np.any(centred):
        return float(n)
    spectrum = np.fft.rfft(centred, 2 * n)
    correlations = np.fft.irfft(spectrum * np.conj(spectrum))[:n]
    correlations /= correlations[0]
    pairs = correlations[0 : n - 1 : 2] + correlations[1:n:2]
    end = int(np.argmax(pairs <= 0)) if np.any(pairs <= 0) else len(pairs)
    return float(min(n, n / max(1e-12, 2 * pairs[:end].sum() - 1)))


def _paired(log_ratios: np.ndarray, confidence: float) -> Interval:
    return _t_interval(log_ratios, confidence, "pair of runs")


def _welch(top: np.ndarray, bottom: np.ndarray, confidence: float) -> Interval:
    from scipy import stats

    difference, fewest = float(top.mean() - bottom.mean()), min(len(top), len(bottom))
    if fewest < 2:
        return _unknown(
            difference, confidence, fewest, "one run of an arm gives no interval: measure at least two of each"
        )
    if np.ptp(top) == 0 and np.ptp(bottom) == 0:
        return Interval(
            difference, difference, difference, confidence, fewest, "all runs of an arm gave the same value"
        )
    bounds = stats.ttest_ind(top, bottom, equal_var=False).confidence_interval(confidence)
    return Interval(difference, float(bounds.low), float(bounds.high), confidence, fewest)


def _t_interval(values: np.ndarray, confidence: float, unit: str) -> Interval:
    from scipy import stats

    n = len(values)
    mean = float(values.mean()) if n else float("nan")
    if n < 2:
        return _unknown(mean, confidence, n, f"one {unit} gives no interval: measure at least two")
    if np.ptp(values) == 0:
        return Interval(mean, mean, mean, confidence, n, f"every {unit} gave the same value")
    low, high = stats.t.interval(confidence, n - 1, loc=mean, scale=stats.sem(values))
    return Interval(mean, float(low), float(high), confidence, n)


def _cut(ordered: np.ndarray, blocks: int) -> np.ndarray:
    length = len(ordered) // blocks
    return ordered[: blocks * length].reshape(blocks, length)


def _unknown(estimate: float, confidence: float, n: int, note: str) -> Interval:
    return Interval(estimate, float("nan"), float("nan"), confidence, n, note)


def _too_few(values: np.ndarray, blocks: int) -> str:
    return f"{len(values)} values are too few for {blocks} blocks: at least {2 * blocks} are needed"


def _log_runs(name: str, runs: Sequence[float]) -> np.ndarray:
    values = np.asarray(runs, dtype=np.float64)
    if not len(values):
        raise SettingError(f"the {name} has no runs: measure the arm at least once.")
    if not np.all(np.isfinite(values) & (values > 0)):
        raise SettingError(f"the {name} runs are {list(runs)}: a ratio needs values above 0. Leave failed runs out.")
    return np.log(values)


def _require_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise SettingError(f"confidence is {confidence}: it must lie between 0 and 1, for example 0.95.")
