"""Measured cost of handing tensors on, against the ledger's prediction: per hop, per MB, per size.

What an arrangement adds is its latency minus the monolith's, run by run, at equal size. Over sizes that is a line:
its slope is what a byte costs, its intercept what a hop costs whatever its size (messages, waking processes).

Not all of that slope is copying. A stage in a process of its own does not find its input in the processor's cache as
the monolith does. The `handle` arrangement has the same stages, processes and hops and copies nothing: it is the
control, and copying is what an arrangement's latency grows by, from small tensors on, beyond the control's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.copies import BYTES_PER_MB, Copy, copied_bytes, ledger, predicted_ms
from workbook.analysis.intervals import Interval, runs_interval
from workbook.errors import SettingError
from workbook.serving.pipelines import relay_pipeline

if TYPE_CHECKING:
    import pandas as pd

HOPS = 2
"""Tensors that a pipeline of three stages hands on."""
LINEAR_TO_BYTES = 32 << 20
"""Up to here cost is a line; above, malloc takes fresh pages each time."""
JUDGED_FROM_BYTES = 1_000_000
"""Predictions are judged from this size on: below, copies are shorter than the waking of a process varies."""
WITHIN = 0.2
"""A prediction this close to the measured value is called held."""
REFERENCE, CONTROL = "monolith", "handle"


@dataclass(frozen=True)
class HopCost:
    """What one hop of an arrangement costs beyond the monolith.

    Attributes:
        arrangement: which.
        per_hop_ms: whatever the size, ms.
        per_mb_ms: for each 10^6 bytes handed on, ms.
        copying_per_mb_ms: the part of `per_mb_ms` that the control does not have, ms.
        predicted_per_mb_ms: of copying, from the ledger and the machine's copy rates.
    """

    arrangement: str
    per_hop_ms: Interval
    per_mb_ms: Interval
    copying_per_mb_ms: Interval
    predicted_per_mb_ms: float

    def added_ms(self, megabytes: float, hops: int = HOPS) -> float:
        """Added latency of so many hops with a tensor of that size, ms; never below 0."""
        return max(0.0, hops * (self.per_hop_ms.estimate + megabytes * self.per_mb_ms.estimate))


def relay_bytes(size: int) -> dict[str, int]:
    """Sizes of the relay's tensors when it hands on `size` bytes."""
    return {"request": 16, "payload": size, "shifted": size, "total": 16}


def added_latency(latencies: pd.DataFrame) -> pd.DataFrame:
    """What each run of each arrangement took longer than the monolith's run beside it.

    Args:
        latencies: of `measuring.copies.SizeSweep`.

    Returns:
        A row a run: `arrangement`, `bytes`, `run`, `added_ms`; the monolith itself is left out.

    Raises:
        SettingError: the monolith was not measured.
    """
    reference = latencies[latencies["arrangement"] == REFERENCE]
    if reference.empty:
        raise SettingError("the monolith was not measured: without it nothing says what the copies add.")
    joined = latencies.merge(reference, on=["bytes", "run"], suffixes=("", "_reference"))
    joined["added_ms"] = joined["latency_ms"] - joined["latency_ms_reference"]
    others = joined[~joined["arrangement"].str.startswith(REFERENCE)]
    return others[["arrangement", "bytes", "run", "added_ms"]].reset_index(drop=True)


def hop_costs(latencies: pd.DataFrame, rates: pd.DataFrame) -> dict[str, HopCost]:
    """A line through each run's added latencies, the mean over the runs with its 95% interval.

    Args:
        latencies: of `measuring.copies.SizeSweep`, the control among them.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.

    Raises:
        SettingError: fewer than two sizes up to 32 MiB, or monolith or control were not measured.
    """
    added = added_latency(latencies)
    linear = added[added["bytes"] <= LINEAR_TO_BYTES]
    sizes = sorted(linear["bytes"].unique())
    if len(sizes) < 2:
        raise SettingError("a line needs two sizes up to 33,554 kB: add some to copy_sizes_kb.")
    lines = {
        str(name): [fit_line(run["bytes"] / BYTES_PER_MB, run["added_ms"]) for _, run in group.groupby("run")]
        for name, group in linear.groupby("arrangement", sort=False)
    }
    if CONTROL not in lines:
        raise SettingError(f"{CONTROL} was not measured: without it nothing says what of the added time is copying.")
    costs = {}
    for name, fitted in lines.items():
        predicted = [predicted_ms(_relay_ledger(name, size), rates) for size in sizes]
        slope, _ = fit_line([size / BYTES_PER_MB for size in sizes], predicted)
        beyond = [(own - control) / HOPS for (own, _), (control, _) in zip(fitted, lines[CONTROL], strict=True)]
        costs[name] = HopCost(
            name,
            per_hop_ms=runs_interval([intercept / HOPS for _, intercept in fitted]),
            per_mb_ms=runs_interval([own / HOPS for own, _ in fitted]),
            copying_per_mb_ms=runs_interval(beyond),
            predicted_per_mb_ms=slope / HOPS,
        )
    return costs


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept that make the squared errors least, each taken relative to 1 + x.

    So a size of 1 MB, where a millisecond counts, weighs as much as one of 30.
    """
    sizes, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    slope, intercept = np.polyfit(sizes, values, 1, w=1 / (1 + sizes))
    return float(slope), float(intercept)


def copy_times(latencies: pd.DataFrame) -> pd.DataFrame:
    """What copying costs in each run: growth of the latency beyond small tensors, less the control's growth.

    The same processes wake each other at every size, so what that takes drops out; so does what leaving the cache
    costs, which the control pays too. The control itself is held to the monolith.

    Returns:
        A row a run: `arrangement`, `bytes`, `run`, `copy_ms`; sizes of `small_sizes` are left out.
    """
    import pandas as pd

    small = small_sizes(latencies)
    table = latencies.pivot(index=["run", "bytes"], columns="arrangement", values="latency_ms")
    of_small = table[table.index.isin(small, level="bytes")].groupby("run").mean()
    growth = table - of_small.reindex(table.index, level="run")
    names = [name for name in latencies["arrangement"].unique() if not str(name).startswith(REFERENCE)]
    beyond = {name: growth[name] - growth[REFERENCE if name == CONTROL else CONTROL] for name in names}
    rows = [
        {"arrangement": str(name), "bytes": size, "run": run, "copy_ms": milliseconds}
        for name, values in beyond.items()
        for (run, size), milliseconds in values.items()
        if size not in small
    ]
    return pd.DataFrame(rows)


def small_sizes(latencies: pd.DataFrame) -> list[int]:
    """Sizes whose copies take next to no time: those below 1 MB, or the smallest if there is none."""
    sizes = sorted(int(size) for size in latencies["bytes"].unique())
    return [size for size in sizes if size < JUDGED_FROM_BYTES] or sizes[:1]


def compare_sizes(latencies: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured copy time at every size but the small ones, from which growth is counted.

    Args:
        latencies: of `measuring.copies.SizeSweep`.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.

    Returns:
        A row an arrangement and size: `arrangement`, `bytes`, `added_ms` (to the monolith's latency, median over runs),
        `measured_copy_ms` (of `copy_times`, and what the small sizes' own copies should take), `measured_low_ms`,
        `measured_high_ms` (95%), `predicted_copy_ms`, `copies`, `copied_bytes`, `ratio` (predicted / measured), `held`:
        within 20%, None where nothing is copied; `undecided`: not held, yet the prediction lies in the interval.
    """
    import pandas as pd

    added = added_latency(latencies).groupby(["arrangement", "bytes"])["added_ms"].median()
    rows = []
    for (name, size), group in copy_times(latencies).groupby(["arrangement", "bytes"], sort=False):
        copies = _relay_ledger(name, size)
        big = [copy for copy in copies if copy.bytes >= size]
        measured = runs_interval(group["copy_ms"] + _predicted_small_ms(latencies, rates, name))
        predicted = predicted_ms(copies, rates)
        ratio = predicted / measured.estimate if big and measured.estimate > 0 else float("nan")
        held = (abs(ratio - 1) <= WITHIN) if big else None
        rows.append(
            {
                "arrangement": name,
                "bytes": int(size),
                "added_ms": added[name, size],
                "measured_copy_ms": measured.estimate,
                "measured_low_ms": measured.low,
                "measured_high_ms": measured.high,
                "predicted_copy_ms": predicted,
                "copies": len(big),
                "copied_bytes": copied_bytes(big),
                "ratio": ratio,
                "held": held,
                "undecided": held is False and measured.low <= predicted <= measured.high,
            }
        )
    return pd.DataFrame(rows)


def measured_over_predicted(latencies: pd.DataFrame, rates: pd.DataFrame) -> dict[str, Interval]:
    """Measured copy time as a multiple of the predicted one, all judged sizes together, each weighing the same.

    Single sizes are at the mercy of a few requests; the mean over the sizes is taken run by run.

    Args:
        latencies: of `measuring.copies.SizeSweep`.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.

    Returns:
        By arrangement that copies anything, the mean over the runs with its 95% interval.
    """
    times = copy_times(latencies)
    predicted = {
        (name, size): predicted_ms(_relay_ledger(name, size), rates) - _predicted_small_ms(latencies, rates, name)
        for name, size in times[["arrangement", "bytes"]].drop_duplicates().itertuples(index=False)
    }
    keys = zip(times["arrangement"], times["bytes"], strict=True)
    times["multiple"] = times["copy_ms"] / [predicted[key] for key in keys]
    copying = times[times["arrangement"] != CONTROL]
    return {
        str(name): runs_interval(list(group.groupby("run")["multiple"].mean()))
        for name, group in copying.groupby("arrangement", sort=False)
    }


def copies_of_lone_requests(alone: pd.DataFrame, bare: pd.DataFrame) -> dict[tuple[str, str], Interval]:
    """Copy time of lone requests: what they take beyond the control's, less what that is without a tensor.

    The control is held to the monolith. All pipelines have the same number of stages as the relay, so what their hops
    take whatever they carry is the same as well.

    Args:
        alone: of `measuring.copies.measure_alone`, any number of pipelines.
        bare: the same for the relay with next to no tensor.

    Returns:
        By pipeline and arrangement other than a monolith, ms: mean over the runs with its 95% interval.
    """
    without = _beyond_control(bare)
    found = {}
    for pipeline, group in alone.groupby("pipeline", sort=False):
        beyond = _beyond_control(group)
        for name in beyond:
            copying = (beyond[name] - without[name]).dropna()
            found[str(pipeline), str(name)] = runs_interval(list(copying))
    return found


def _beyond_control(alone: pd.DataFrame) -> pd.DataFrame:
    """A row a run, a column an arrangement: latency less that of the control's two requests beside it."""
    table = alone.pivot(index="run", columns="arrangement", values="latency_ms")
    names = [name for name in table if not str(name).startswith(REFERENCE)]
    bases = {name: table[REFERENCE if name == CONTROL else CONTROL] for name in names}
    return table[names].apply(lambda column: column - bases[column.name])


def compare_statistics(parts: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured `compute_input` and `compute_output`, all stages together.

    Both statistics hold a fixed part beside the copy; that of the smallest size is taken off.

    Returns:
        A row an arrangement, size and statistic: `arrangement`, `bytes`, `statistic`, `measured_ms`, `predicted_ms`.
    """
    import pandas as pd

    statistics = ("compute_input", "compute_output")
    by_run = parts.groupby(["arrangement", "bytes", "run"], sort=False)[[f"{name}_ms" for name in statistics]].sum()
    medians = by_run.groupby(["arrangement", "bytes"], sort=False).median()
    least = int(parts["bytes"].min())
    rows = []
    for arrangement, size in medians.index:
        copies = _relay_ledger(arrangement, size)
        for name in statistics:
            fixed = medians.loc[(arrangement, least), f"{name}_ms"]
            rows.append(
                {
                    "arrangement": arrangement,
                    "bytes": int(size),
                    "statistic": name,
                    "measured_ms": medians.loc[(arrangement, size), f"{name}_ms"] - fixed,
                    "predicted_ms": predicted_ms(copies, rates, [name]),
                }
            )
    return pd.DataFrame(rows)


def compare_counted(counted: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """Time that the counted copies took, against the ledger's prediction.

    Args:
        counted: of `serving.arrangement_server.count_copies`.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.

    Returns:
        `counted` and `predicted_ms`, `ratio` (predicted / counted), `held`: within 20%; both empty where nothing is
        copied.
    """
    table = counted.copy()
    table["predicted_ms"] = [
        predicted_ms([copy for copy in _relay_ledger(name, size) if copy.bytes == size], rates)
        for name, size in zip(table["arrangement"], table["bytes"], strict=True)
    ]
    table["ratio"] = table["predicted_ms"] / table["counted_ms"].where(table["counted_ms"] > 0)
    table["held"] = [None if ratio != ratio else abs(ratio - 1) <= WITHIN for ratio in table["ratio"]]
    return table


def count_held(compared: pd.DataFrame) -> dict[str, int]:
    """How many copy times were predicted within 20%, and of how many that could be judged: `held` and `of`.

    Args:
        compared: of `compare_sizes` or `compare_counted`.
    """
    judged = [bool(held) for held in compared["held"] if held is not None and held == held]
    return {"held": sum(judged), "of": len(judged)}


def held_of_counted(compared: pd.DataFrame) -> dict[str, int]:
    """The same for counted copy times, from 1 MB on.

    Args:
        compared: of `compare_counted`.
    """
    return count_held(compared[compared["bytes"] >= JUDGED_FROM_BYTES])


def _predicted_small_ms(latencies: pd.DataFrame, rates: pd.DataFrame, arrangement: str) -> float:
    """Copy time of the small sizes, from which growth is counted."""
    small = [predicted_ms(_relay_ledger(arrangement, size), rates) for size in small_sizes(latencies)]
    return float(np.mean(small))


def _relay_ledger(arrangement: str, size: int) -> list[Copy]:
    return ledger(relay_pipeline(), arrangement, relay_bytes(int(size)))
