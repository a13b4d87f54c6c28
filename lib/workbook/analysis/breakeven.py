"""When is a server worth its price? Cost a million rows and added latency of three ways, by arrival rate.

- *nightly batch*: rows wait for the night; one job, paid for as long as it runs.
- *micro-batch*: a job starts whenever the oldest row must be served to meet the objective; paid for as long as it runs,
  its start included.
- *online*: as many servers as the rate needs, paid for all the time.

All are paid by the second at one price. The choice is the cheapest way that answers within the objective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

NIGHTLY, MICRO, ONLINE, NONE = "nightly batch", "micro-batch", "online", "none"
WAYS = (NIGHTLY, MICRO, ONLINE)
DAY_S = 86_400.0
MOST_UTILISATION = 0.8
"""Share of a server's rate it is loaded with: beyond it random arrivals queue for long, as rho / (1 - rho)."""
MOST_MACHINES = 20
_POINTS = 400
_DRAWS = 200
_REFINEMENTS = 3
Rates = NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """What the three ways are worked out from.

    Attributes:
        batch_rows_per_s: of the batch job, measured.
        online_rows_per_s: of one server that is kept busy, measured.
        row_ms: time of a request with a single row on an idle server, measured, ms.
        start_s: from asking for a machine to the first row, s: the assumption plus loading the model, measured.
        price_per_hour: of one machine, any currency.
        objective_s: longest acceptable wait for an answer, s.

    Raises:
        SettingError: a value is not positive.
    """

    batch_rows_per_s: float
    online_rows_per_s: float
    row_ms: float
    start_s: float
    price_per_hour: float
    objective_s: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 and math.isfinite(value)) and not (name == "start_s" and value == 0):
                raise SettingError(f"{name} is {value}: it must be above 0.")


def rate_grid(costs: Costs) -> Rates:
    """Arrival rates to look at, rows/s: from one row in 100 s to twenty busy machines, evenly in logarithm."""
    return np.geomspace(0.01, MOST_MACHINES * costs.batch_rows_per_s, _POINTS)


def machine_seconds_per_row(costs: Costs, rates: Rates) -> dict[str, Rates]:
    """Paid machine time a row, s; infinite where a way cannot keep up or cannot meet the objective at all.

    With B and O the rates of batch and server, s the start, L the objective and r the arrival rate:

    - nightly: 1 / B + s / (r x day), plus nothing for waiting.
    - micro-batch: 1 / B + s x jobs / (r x P). The period P is the longest that meets the objective: the first row of a
      period waits P, the start, and the job, r x P / (B x jobs); so P = (L - s) / (1 + r / (B x jobs)). `jobs` machines
      share a period's rows: as many as make the job no longer than the period, ceil(r / B).
    - online: servers / r, with ceil(r / (0.8 x O)) servers.
    """
    jobs = np.maximum(1.0, np.ceil(rates / costs.batch_rows_per_s))
    period_s = micro_period_s(costs, rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        micro = np.where(period_s > 0, 1 / costs.batch_rows_per_s + costs.start_s * jobs / (rates * period_s), np.inf)
    servers = np.ceil(rates / (MOST_UTILISATION * costs.online_rows_per_s))
    return {
        NIGHTLY: 1 / costs.batch_rows_per_s + costs.start_s * jobs / (rates * DAY_S),
        MICRO: micro,
        ONLINE: servers / rates,
    }


def micro_period_s(costs: Costs, rates: Rates) -> Rates:
    """Longest time between two jobs that meets the objective, s; at most a day, 0 or less where none does."""
    jobs = np.maximum(1.0, np.ceil(rates / costs.batch_rows_per_s))
    return np.minimum(DAY_S, (costs.objective_s - costs.start_s) / (1 + rates / (costs.batch_rows_per_s * jobs)))


def added_latency_s(costs: Costs, rates: Rates) -> dict[str, Rates]:
    """Longest wait for an answer, s: of the first row of a period; online the mean, which grows with the load.

    Online: service time x (1 + rho / (2 (1 - rho))), the mean of an M/D/1 queue (Pollaczek and Khinchine), with rho the
    rate over what the servers can do.
    """
    jobs = np.maximum(1.0, np.ceil(rates / costs.batch_rows_per_s))
    busy_day_s = DAY_S * np.minimum(1.0, rates / (costs.batch_rows_per_s * jobs))
    period_s = micro_period_s(costs, rates)
    servers = np.ceil(rates / (MOST_UTILISATION * costs.online_rows_per_s))
    rho = rates / (servers * costs.online_rows_per_s)
    return {
        NIGHTLY: DAY_S + costs.start_s + busy_day_s,
        MICRO: np.where(
            period_s > 0,
            period_s * (1 + rates / (costs.batch_rows_per_s * jobs)) + costs.start_s,
            np.inf,
        ),
        ONLINE: costs.row_ms / 1e3 * (1 + rho / (2 * (1 - rho))),
    }


def price_per_million(costs: Costs, rates: Rates) -> dict[str, Rates]:
    """Cost of a million rows, in the currency of the price."""
    per_s = costs.price_per_hour / 3600
    return {way: seconds * per_s * 1e6 for way, seconds in machine_seconds_per_row(costs, rates).items()}


def choices(costs: Costs, rates: Rates) -> list[str]:
    """The cheapest way within the objective at each rate; NONE where no way meets it."""
    return [(*WAYS, NONE)[place] for place in _best(costs, rates)]


def _best(costs: Costs, rates: Rates) -> NDArray[np.intp]:
    """Place in WAYS of the choice at each rate; behind its end where there is none."""
    seconds, latency = machine_seconds_per_row(costs, rates), added_latency_s(costs, rates)
    allowed = np.array([np.where(latency[way] <= costs.objective_s * (1 + 1e-9), seconds[way], np.inf) for way in WAYS])
    return np.where(np.isfinite(allowed.min(axis=0)), allowed.argmin(axis=0), len(WAYS))


def break_even_rows_per_s(costs: Costs) -> float | None:
    """Lowest rate at which online is the choice, rows/s; None where it never is.

    Below it a job on demand is cheaper, because a server that waits costs what a busy one does.
    """
    rates = rate_grid(costs)
    for _ in range(_REFINEMENTS):
        online = np.flatnonzero(_best(costs, rates) == WAYS.index(ONLINE))
        if not len(online):
            return None
        if online[0] == 0:
            return float(rates[0])
        rates = np.geomspace(rates[online[0] - 1], rates[online[0]], _POINTS)
    return float(rates[-1])


@dataclass(frozen=True)
class BreakEven:
    """Where the choice flips.

    Attributes:
        rows_per_s: lowest rate at which online is the choice; None: it never is.
        band: middle 95% of it when the measured runs are drawn anew, over the draws that have a flip; None where there
            is one run, or where most draws have none.
        never_share: share of the draws in which online never is the choice.
    """

    rows_per_s: float | None
    band: tuple[float, float] | None
    never_share: float


def break_even(costs: Costs, batch_runs: Sequence[float], online_runs: Sequence[float], seed: int = 0) -> BreakEven:
    """The flip, with a band from drawing the runs of both arms anew, in pairs and with replacement.

    Args:
        costs: with the rates of all runs together.
        batch_runs: rows/s of each run.
        online_runs: rows/s of each run, measured beside those.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    top, bottom = np.asarray(batch_runs, float), np.asarray(online_runs, float)
    found = []
    for _ in range(_DRAWS if len(top) > 1 else 0):
        drawn = random.integers(0, len(top), len(top))
        batch, online = float(top[drawn].mean()), float(bottom[drawn].mean())
        found.append(break_even_rows_per_s(replace(costs, batch_rows_per_s=batch, online_rows_per_s=online)))
    known = [rate for rate in found if rate is not None]
    never = 1 - len(known) / len(found) if found else 0.0
    band = tuple(float(edge) for edge in np.percentile(known, [2.5, 97.5])) if known and never < 0.5 else None
    return BreakEven(break_even_rows_per_s(costs), band, never)  # type: ignore[arg-type]


def recommendation(costs: Costs, rate_rows_per_s: float) -> str:
    """What to do at this rate, with price and wait, in a sentence or two."""
    rates = np.array([rate_rows_per_s])
    way = choices(costs, rates)[0]
    if way == NONE:
        return (
            f"At {rate_rows_per_s:.3g} rows/s nothing answers within {_duration(costs.objective_s)}: a request alone "
            f"takes {_duration(costs.row_ms / 1e3)}. A faster engine or machine is needed."
        )
    price, latency = price_per_million(costs, rates), added_latency_s(costs, rates)
    second = min((other for other in WAYS if other != way), key=lambda other: price[other][0])
    too_late = latency[second][0] > costs.objective_s * (1 + 1e-9)
    return (
        f"At {rate_rows_per_s:.3g} rows/s and an objective of {_duration(costs.objective_s)}, take {way}: "
        f"{price[way][0]:.3g} for a million rows, answers after "
        f"{'about' if way == ONLINE else 'at most'} {_duration(latency[way][0])}. Next is {second} at "
        f"{price[second][0]:.3g}{', but it answers too late' if too_late else ''}."
    )


def cost_table(costs: Costs, rates: Sequence[float]) -> pd.DataFrame:
    """A row a rate: the price of each way, its latency, and the choice."""
    import pandas as pd

    grid = np.asarray(rates, float)
    price, latency = price_per_million(costs, grid), added_latency_s(costs, grid)
    columns: dict[str, object] = {"arrivals_rows_per_s": grid}
    for way in WAYS:
        columns[f"{way}, price a million rows"] = price[way]
        columns[f"{way}, wait_s"] = latency[way]
    return pd.DataFrame({**columns, "choice": choices(costs, grid)})


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
