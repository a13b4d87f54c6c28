"""The one sentence under each figure of the variants, made from its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbook.analysis.split import PARTS, LatencySplit
from workbook.display.wording import milliseconds, number

if TYPE_CHECKING:
    import pandas as pd


def reading_of_benchmark(table: pd.DataFrame) -> str:
    """The fastest and the slowest variant of each workload, and what concurrency gains the fastest."""
    return " ".join(_fastest(str(workload), group) for workload, group in table.groupby("workload", sort=False))


def reading_of_splits(splits: Mapping[str, Mapping[int, LatencySplit]]) -> str:
    """At the highest concurrency of each variant: the largest part, and what is spent outside model and queue."""
    return " ".join(_largest(variant, by) for variant, by in splits.items())


def reading_of_quality(ranked: pd.DataFrame) -> str:
    """Who leads, who is dominated, who loses too much."""
    good = ranked[ranked["acceptable"].astype(bool)]
    parts = []
    if len(good):
        lead = good.iloc[0]
        parts.append(
            f"{lead['variant']} is the fastest that keeps the quality: {number(lead['throughput_rows_per_s'])} rows/s "
            f"at a lowest cosine of {lead['min_cosine']:.4f}"
        )
    if dominated := list(good.loc[good["dominated_by"] != "", "variant"]):
        parts.append(f"another is at least as fast and as close as {', '.join(dominated)}")
    parts += [f"{row['variant']} is out: {row['why']}" for _, row in ranked.iterrows() if not row["acceptable"]]
    return "; ".join(parts) + "."


def reading_of_costs(costs: pd.DataFrame, quality: pd.DataFrame) -> str:
    """The smallest acceptable file, and the smallest of all where that is another."""
    both = costs.merge(quality, on="variant").sort_values("bytes")
    if both.empty:
        return "No variant was made."
    sentences = [_size(both.iloc[0])]
    good = both[both["acceptable"].astype(bool)]
    if len(good) and good.iloc[0]["variant"] != both.iloc[0]["variant"]:
        sentences.append(f"The smallest that keeps the quality: {_size(good.iloc[0])}")
    return " ".join(sentences)


def reading_of_open_loop(summary: pd.DataFrame, objective_ms: float) -> str:
    """How much was answered in time at each rate."""
    parts = [
        f"at {number(row['offered_per_s'])} requests/s ({row['arrivals']}) {row['within_objective']:.0%} were answered "
        f"within {objective_ms:g} ms, median {milliseconds(row['latency_p50_ms'])}"
        for _, row in summary.iterrows()
    ]
    return ("; ".join(parts) + ".").capitalize()


def _fastest(workload: str, group: pd.DataFrame) -> str:
    best = group.groupby("variant")["throughput_rows_per_s"].max().sort_values(ascending=False)
    first = group[group["variant"] == best.index[0]].sort_values("concurrency")["throughput_rows_per_s"]
    gain = f"{first.max() / first.iloc[0]:.2f} times what it does with the fewest in flight"
    if len(best) == 1:
        return f"{workload}: {best.index[0]} reaches {number(best.iloc[0])} rows/s, {gain}."
    return (
        f"{workload}: {best.index[0]} is fastest with {number(best.iloc[0])} rows/s, {gain}; {best.index[-1]} is "
        f"slowest with {number(best.iloc[-1])}."
    )


def _largest(variant: str, by_concurrency: Mapping[int, LatencySplit]) -> str:
    concurrency, split = max(by_concurrency.items())
    part = max(split.parts_ms, key=lambda name: split.parts_ms[name])
    serving_ms = split.mean_ms - split.parts_ms["compute_infer_ms"] - split.parts_ms["queue_ms"]
    text = (
        f"{variant}, {concurrency} in flight: of {milliseconds(split.mean_ms)} most is “{PARTS[part]}” "
        f"({split.parts_ms[part] / split.mean_ms:.0%}); all but queue and model takes {milliseconds(serving_ms)}."
    )
    return f"{text} Note: {split.note}." if split.note else text


def _size(row: pd.Series) -> str:
    lost = "" if row["acceptable"] else f", but {row['why']}"
    return f"{row['variant']} takes {row['bytes'] / 1e6:,.0f} MB, lowest cosine {row['min_cosine']:.5f}{lost}."
