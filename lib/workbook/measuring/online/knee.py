"""The knee: the highest request rate at which nearly every request is answered within the latency objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

SHARE = 0.99
"""Share of the scheduled requests that must be answered in time: the same as p99 <= objective, and defined for few."""


@dataclass(frozen=True)
class Knee:
    """Where the search ended.

    Attributes:
        rate_per_s: highest rate that kept the objective; NaN where none did.
        beyond_per_s: lowest rate above it that did not; infinity where every rate tried kept it.
        objective_ms: the latency objective.
        probes: a row a rate in the order tried: `rate_per_s`, `kept`, and what `measure` gave.
    """

    rate_per_s: float
    beyond_per_s: float
    objective_ms: float
    probes: pd.DataFrame = field(repr=False)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        objective = f"99% of the requests within {self.objective_ms:g} ms"
        if math.isnan(self.rate_per_s):
            return f"No rate tried, down to {self.beyond_per_s:.3g} requests/s, was answered with {objective}."
        if math.isinf(self.beyond_per_s):
            return f"Every rate tried, up to {self.rate_per_s:.3g} requests/s, was answered with {objective}."
        return (
            f"Up to {self.rate_per_s:.3g} requests/s were answered with {objective}; at {self.beyond_per_s:.3g} "
            "requests/s no longer."
        )


def find_knee(
    measure: Callable[[float], Mapping[str, float]],
    start_per_s: float,
    objective_ms: float,
    *,
    probes: int = 5,
    growth: float = 1.5,
) -> Knee:
    """Search the highest rate that keeps the objective: outwards from the start, then between a kept and a missed rate.

    Between a kept and a missed rate the next one is their geometric mean, since rates differ by factors.

    Args:
        measure: rate in requests per second -> summary with `within_objective`, see `summarise_open_loop`.
        start_per_s: first rate; a guess such as half of what a closed loop reached.
        objective_ms: written into the answer.
        probes: rates tried.
        growth: factor of each step outwards.

    Raises:
        SettingError: the start, the number of probes or the growth is out of bounds.
    """
    import pandas as pd

    if not start_per_s > 0 or probes < 1 or not growth > 1:
        raise SettingError(f"start {start_per_s}, {probes} probes, growth {growth}: give > 0, >= 1 and > 1.")
    kept, missed, rate = float("nan"), math.inf, start_per_s
    rows = []
    for _ in range(probes):
        summary = dict(measure(rate))
        good = summary["within_objective"] >= SHARE
        rows.append({"rate_per_s": rate, "kept": good, **summary})
        if good:
            kept = rate
        else:
            missed = rate
        rate = _next_rate(kept, missed, growth)
    return Knee(kept, missed, objective_ms, pd.DataFrame(rows))


def _next_rate(kept: float, missed: float, growth: float) -> float:
    if math.isnan(kept):
        return missed / growth
    return kept * growth if math.isinf(missed) else math.sqrt(kept * missed)
