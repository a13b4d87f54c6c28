"""Measured cost of handing tensors on, against the ledger's prediction: per hop, per MB, per size.

What an arrangement adds is its latency minus the monolith's, run by run, at equal size. Over sizes that is a line:
its slope is what a byte costs, its intercept what a hop costs whatever its size (messages, waking processes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.copies import BYTES_PER_MB, Copy, copied_bytes, ledger, predicted_ms
from workbook.analysis.intervals import Interval, runs_interval
from workbook.errors import SettingError
from workbook.serving.arrangements import relay_pipeline

if TYPE_CHECKING:
    import pandas as pd

HOPS = 2
"""Tensors that a pipeline of three stages hands on."""
LINEAR_FROM_BYTES, LINEAR_TO_BYTES = 1_000_000, 32 << 20
"""Where cost is a line: below, a tensor fits into a core's own cache; above, malloc takes fresh pages each time."""
WITHIN = 0.2
"""A prediction this close to the measured value is called held."""
REFERENCE = "monolith"


@dataclass(frozen=True)
class HopCost:
    """What one hop of an arrangement costs beyond the monolith.

    Attributes:
        arrangement: which.
        per_hop_ms: whatever the size, ms.
        per_mb_ms: for each 10^6 bytes handed on, ms.
        predicted_per_mb_ms: from the ledger and the machine's copy rates.
    """

    arrangement: str
    per_hop_ms: Interval
    per_mb_ms: Interval
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
        latencies: of `measuring.copies.SizeSweep`.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.

    Raises:
        SettingError: fewer than two sizes between 1 MB and 32 MiB.
    """
    added = added_latency(latencies)
    linear = added[added["bytes"].between(LINEAR_FROM_BYTES, LINEAR_TO_BYTES)]
    if linear["bytes"].nunique() < 2:
        raise SettingError("a line needs two sizes between 1,000 and 33,554 kB: add some to copy_sizes_kb.")
    costs = {}
    for arrangement, group in linear.groupby("arrangement", sort=False):
        name = str(arrangement)
        lines = [fit_line(run["bytes"] / BYTES_PER_MB, run["added_ms"]) for _, run in group.groupby("run")]
        sizes = sorted(group["bytes"].unique())
        predicted = [predicted_ms(ledger(relay_pipeline(), name, relay_bytes(size)), rates) for size in sizes]
        slope, _ = fit_line([size / BYTES_PER_MB for size in sizes], predicted)
        costs[name] = HopCost(
            name,
            runs_interval([intercept / HOPS for _, intercept in lines]),
            runs_interval([slope / HOPS for slope, _ in lines]),
            slope / HOPS,
        )
    return costs


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept that make the squared errors least, each taken relative to 1 + x.

    So a size of 1 MB, where a millisecond counts, weighs as much as one of 30.
    """
    sizes, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    slope, intercept = np.polyfit(sizes, values, 1, w=1 / (1 + sizes))
    return float(slope), float(intercept)


def compare_sizes(latencies: pd.DataFrame, rates: pd.DataFrame, costs: Mapping[str, HopCost]) -> pd.DataFrame:
    """Predicted and measured copy time at every size.

    Measured is what an arrangement adds to the monolith's latency, less the cost of its hops at no size.

    Returns:
        A row an arrangement and size: `arrangement`, `bytes`, `added_ms` (median over runs), `measured_copy_ms`,
        `predicted_copy_ms`, `copies`, `copied_bytes`, `ratio` (predicted / measured), `held`: within 20%, None where
        the prediction is no copy at all or the size lies below 1 MB.
    """
    import pandas as pd

    medians = added_latency(latencies).groupby(["arrangement", "bytes"], sort=False)["added_ms"].median()
    rows = []
    for (arrangement, size), added in medians.items():
        copies = ledger(relay_pipeline(), arrangement, relay_bytes(int(size)))
        big = [copy for copy in copies if copy.bytes >= size]
        measured = added - HOPS * costs[arrangement].per_hop_ms.estimate
        predicted = predicted_ms(copies, rates)
        ratio = predicted / measured if measured > 0 else float("nan")
        judged = bool(big) and size >= LINEAR_FROM_BYTES
        rows.append(
            {
                "arrangement": arrangement,
                "bytes": int(size),
                "added_ms": added,
                "measured_copy_ms": measured,
                "predicted_copy_ms": predicted,
                "copies": len(big),
                "copied_bytes": copied_bytes(big),
                "ratio": ratio if judged else float("nan"),
                "held": (abs(ratio - 1) <= WITHIN) if judged else None,
            }
        )
    return pd.DataFrame(rows)


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
        copies = ledger(relay_pipeline(), arrangement, relay_bytes(int(size)))
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


def _relay_ledger(arrangement: str, size: int) -> list[Copy]:
    return ledger(relay_pipeline(), arrangement, relay_bytes(int(size)))
