"""The one sentence that says what a figure shows, made from its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbook.analysis.intervals import ratio_interval
from workbook.analysis.split import PARTS, LatencySplit
from workbook.analysis.summaries import latency_percentile, least_requests
from workbook.display.wording import milliseconds, number, plural

if TYPE_CHECKING:
    import pandas as pd

STEADY_PERCENT = 5.0
"""A median that moves less than this between the first and the last third of a run is called steady."""


def reading_of_latencies(latencies: pd.DataFrame, quantity: str = "latency_ms") -> str:
    """Median and 95% bound of each arm, from `summaries.latency_table`."""
    if latencies.empty:
        return "Nothing was answered, so there is no latency to show."
    each = "row" if quantity == "ms_per_row" else "request or batch"
    parts = [_spread(str(label), group[quantity]) for label, group in latencies.groupby("label", sort=False)]
    return f"Time for one {each}: " + "; ".join(parts) + "."


def reading_of_throughput(runs: pd.DataFrame) -> str:
    """Mean throughput of each arm, fastest first, and how far the fastest is ahead.

    Args:
        runs: `label`, `rows_per_s`, a row each run.
    """
    means = runs.groupby("label", sort=False)["rows_per_s"].mean().sort_values(ascending=False)
    counts = runs.groupby("label")["rows_per_s"].size()
    parts = [
        f"{label} handled {number(mean)} rows/s (mean of {plural(counts[label], 'run')})"
        for label, mean in means.items()
    ]
    if len(means) < 2:
        return f"{parts[0]}." if parts else "No run was finished, so there is no throughput to show."
    ahead = f"{means.index[0]} is {means.iloc[0] / means.iloc[-1]:.2f} times as fast as {means.index[-1]}"
    return "; ".join(parts) + f": {ahead}."


def reading_of_split(splits: Mapping[str, LatencySplit]) -> str:
    """The largest part of each mean latency and the second largest, with their shares."""
    return " ".join(_largest_parts(label, split) for label, split in splits.items())


def reading_of_trace(latencies: pd.DataFrame) -> str:
    """Whether latency moved within the runs, and the slowest request."""
    if latencies.empty:
        return "Nothing was answered, so there is no latency to show."
    drifts = [_drift(str(label), group) for label, group in latencies.groupby("label", sort=False)]
    slowest = latencies.loc[latencies["latency_ms"].idxmax()]
    return (
        "; ".join(drifts) + f". The slowest took {milliseconds(slowest['latency_ms'])} "
        f"({slowest['label']}, run {slowest['run'] + 1}, {slowest['start_s']:.0f} s after its start)."
    )


def reading_of_parity(parity: pd.DataFrame) -> str:
    """The largest difference and the lowest cosine of all shapes tried; columns as in `parity_plot`."""
    worst = parity.loc[parity["max_abs_error"].idxmax()]
    return (
        f"Over {plural(len(parity), 'comparison')} the largest difference is {worst['max_abs_error']:.1e} "
        f"(batch {worst['batch']:.0f}, {worst['sequence']:.0f} tokens) "
        f"and the lowest cosine {parity['min_cosine'].min():.7f}."
    )


def _spread(label: str, values: pd.Series) -> str:
    bound = latency_percentile(values, 95)
    within = f"95% within {milliseconds(bound)}" if len(values) >= least_requests(95) else f"only {len(values)} values"
    return f"{label} has a median of {milliseconds(values.median())}, {within}"


def _largest_parts(label: str, split: LatencySplit) -> str:
    first, second = sorted(split.parts_ms, key=lambda name: -split.parts_ms[name])[:2]
    text = (
        f"{label}: of {milliseconds(split.mean_ms)} on average, {_share(split, first)} are “{PARTS[first]}”; "
        f"next is “{PARTS[second]}” with {_share(split, second)}."
    )
    return f"{text} Note: {split.note}." if split.note else text


def _share(split: LatencySplit, name: str) -> str:
    return f"{milliseconds(split.parts_ms[name])} ({split.parts_ms[name] / split.mean_ms:.0%})"


def _drift(label: str, group: pd.DataFrame) -> str:
    """How the median moves within the runs; a drift only where it is large and the runs agree on it."""
    runs = [run for _, run in group.groupby("run") if len(run) > 1]
    thirds = [_first_and_last_third(run) for run in runs]
    if not thirds:
        return f"{label} has too few values to show a drift"
    ratio = ratio_interval([last for _, last in thirds], [first for first, _ in thirds])
    moves = f"median moves by {100 * (ratio.estimate - 1):+.0f}% from the first to the last third of a run"
    shown_by_runs = not ratio.known or not ratio.low <= 1 <= ratio.high
    if abs(ratio.estimate - 1) < STEADY_PERCENT / 100:
        return f"{label} is steady ({moves})"
    if not shown_by_runs:
        return f"{label} shows no drift that its runs agree on ({moves}, not in all alike)"
    return f"{label} gets {'slower' if ratio.estimate > 1 else 'faster'} ({moves})"


def _first_and_last_third(run: pd.DataFrame) -> tuple[float, float]:
    ordered = run.sort_values("start_s")["latency_ms"]
    third = max(1, len(ordered) // 3)
    return float(ordered.iloc[:third].median()), float(ordered.iloc[-third:].median())
