"""From the article's ratio to the fair one and to the tuned one: what each switch is worth, with an interval.

A step's factor is the ratio online / batch after the switch over the ratio before it, run by run; below 1 it brings the
two sides together. Factors of the steps multiply to the factor of the whole, so that in logarithms they add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.analysis.intervals import Interval, ratio_interval, runs_interval
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.comparison.switches import Plan, State, Step

if TYPE_CHECKING:
    import pandas as pd

    from workbook.analysis.split import LatencySplit

Times = Callable[[Protocol], Sequence[float]]
"""An arm -> its time for a batch in each run, ms."""
CLIENT_AND_SERVER_PARTS = ("encode_ms", "network_ms", "queue_ms", "compute_input_ms", "compute_output_ms", "decode_ms")
"""Parts of a request that a batch job does not have: all but the model's own time."""


@dataclass(frozen=True)
class StepEffect:
    """What one switch did.

    Attributes:
        switch: its name.
        words: what it changed.
        detour: measured and shown, but the next step does not build on it.
        before_ms: online - batch before it, ms a batch, mean over runs.
        after_ms: the same after it.
        change_ms: after - before, with its interval over runs.
        ratio_before: online / batch before it.
        ratio_after: the same after it.
        factor: ratio after / ratio before, with its interval over runs.
    """

    switch: str
    words: str
    detour: bool
    before_ms: float
    after_ms: float
    change_ms: Interval
    ratio_before: float
    ratio_after: float
    factor: Interval

    def as_json(self) -> dict[str, Any]:
        """For the results: gap before and after, and the interval of the change, in ms a batch; factors beside."""
        known = self.change_ms.known
        return {
            "switch": self.switch,
            "words": self.words,
            "before_ms": self.before_ms,
            "after_ms": self.after_ms,
            "ci95": [self.change_ms.low, self.change_ms.high] if known else None,
            "ratio_before": self.ratio_before,
            "ratio_after": self.ratio_after,
            "factor": self.factor.estimate,
            "factor_ci95": [self.factor.low, self.factor.high] if self.factor.known else None,
            "detour": self.detour,
        }


def ratio_of(state: State, times: Times) -> Interval:
    """Online / batch of a state, with its interval over paired runs; above 1 batch is faster."""
    return ratio_interval(times(state.online), times(state.batch))


def waterfall(steps: Sequence[Step], times: Times) -> list[StepEffect]:
    """The effect of each step, in order.

    Args:
        steps: an order of `Plan.orders`.
        times: times of each arm on the same rows, one a run.
    """
    return [_effect(step, times) for step in steps]


def _effect(step: Step, times: Times) -> StepEffect:
    before, after = (_gaps(state, times) for state in (step.before, step.after))
    ratios_before, ratios_after = (_ratios(state, times) for state in (step.before, step.after))
    return StepEffect(
        switch=step.switch.name,
        words=step.switch.words,
        detour=step.switch.detour,
        before_ms=fmean(before),
        after_ms=fmean(after),
        change_ms=runs_interval([b - a for a, b in zip(before, after, strict=True)]),
        ratio_before=_mean_ratio(ratios_before),
        ratio_after=_mean_ratio(ratios_after),
        factor=ratio_interval(ratios_after, ratios_before),
    )


def effects_over_orders(plan: Plan, times: Times) -> pd.DataFrame:
    """Each switch's factor in every order: `switch`, `words`, `factor_low`, `factor_high`, and one column an order.

    Where the two differ, the switch is worth more or less depending on what was switched before it.
    """
    import pandas as pd

    orders = [{effect.switch: effect for effect in waterfall(order, times)} for order in plan.orders()]
    rows = []
    for switch in (*plan.fair, *plan.tuning):
        factors = [order[switch.name].factor.estimate for order in orders]
        rows.append(
            {
                "switch": switch.name,
                "words": switch.words,
                "factor_low": min(factors),
                "factor_high": max(factors),
                **{f"factor_order_{place}": factor for place, factor in enumerate(factors, start=1)},
            }
        )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Account:
    """Who owns the article's ratio; all shares are of its logarithm.

    Attributes:
        article_ratio: online / batch by the article's protocol, measured on all rows.
        steps_factor: product of the fair switches' factors, measured apart, on fewer rows.
        owned_factor: what the parts of a request that a batch job lacks make of the ratio that is left.
        unexplained_factor: what then remains; 1 where all is explained.
        unexplained_share: |log unexplained| over the way: |log article_ratio|, or the sum of the steps' |log| where
            that is more.
    """

    article_ratio: float
    steps_factor: float
    owned_factor: float
    unexplained_factor: float
    unexplained_share: float

    @property
    def sentence(self) -> str:
        """The account in words."""
        return (
            f"The article's ratio, {self.article_ratio:.2f}, is {1 / self.steps_factor:.2f} (all switches to equal "
            f"conditions, each measured on its own) x {self.owned_factor:.3f} (sending, waiting, receiving) x "
            f"{self.unexplained_factor:.3f} (nobody's). Unexplained: {self.unexplained_share:.0%} of the way."
        )


def account(
    article_ratio: float, effects: Sequence[StepEffect], fair_batch_ms: float, split: LatencySplit, fair: set[str]
) -> Account:
    """Hold the steps, measured on their own, against the ratio measured at once.

    article ratio = 1 / (product of the fair steps) x (batch + parts only a request has) / batch x unexplained.

    Args:
        article_ratio: online / batch by the article's protocol, from its own block of runs.
        effects: steps of one order.
        fair_batch_ms: time of a batch in the fair batch arm, ms.
        split: of a request of the fair online arm.
        fair: names of the switches that lead to the fair state.
    """
    factors = [effect.factor.estimate for effect in effects if effect.switch in fair]
    steps = math.prod(factors)
    owned_ms = sum(split.parts_ms[name] for name in CLIENT_AND_SERVER_PARTS)
    owned = (fair_batch_ms + owned_ms) / fair_batch_ms
    unexplained = article_ratio * steps / owned
    way = max(abs(math.log(article_ratio)), sum(abs(math.log(factor)) for factor in factors), 1e-9)
    return Account(article_ratio, steps, owned, unexplained, abs(math.log(unexplained)) / way)


def _gaps(state: State, times: Times) -> list[float]:
    return [online - batch for online, batch in zip(times(state.online), times(state.batch), strict=True)]


def _ratios(state: State, times: Times) -> list[float]:
    return [online / batch for online, batch in zip(times(state.online), times(state.batch), strict=True)]


def _mean_ratio(ratios: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))
