"""The one sentence under each figure of the variants, made from its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbook.analysis.ranking import EXACT_COSINE, cosine_floor
from workbook.analysis.split import PARTS, LatencySplit
from workbook.display.wording import milliseconds, number

if TYPE_CHECKING:
    import pandas as pd

_KEPT_UP = 0.95
_ROUNDING = 0.001


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
            f"at a lowest cosine of {cosine_floor(lead['min_cosine'])}"
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
    sentences = [f"The smallest file: {_size(both.iloc[0])}"]
    good = both[both["acceptable"].astype(bool)]
    if len(good) and good.iloc[0]["variant"] != both.iloc[0]["variant"]:
        sentences.append(f"The smallest that keeps the quality: {_size(good.iloc[0])}")
    return " ".join(sentences)


def reading_of_open_loop(summary: pd.DataFrame, objective_ms: float) -> str:
    """How much was answered in time at each rate, and whether the highest was kept up with."""
    parts = [
        f"at {number(row['offered_per_s'])} requests/s ({row['arrivals']}) {_share(row['within_objective'])} were "
        f"answered within {objective_ms:g} ms, median {milliseconds(row['latency_p50_ms'])}"
        for _, row in summary.iterrows()
    ]
    return f"{('; '.join(parts) + '.').capitalize()} {_kept_up(summary)}".rstrip()


def reading_of_answers(answers: pd.DataFrame) -> str:
    """Which served variants answer as in this process, which do not, and why that may be."""
    apart = answers[answers["min_cosine"] < EXACT_COSINE]
    same = [str(name) for name in answers["variant"] if name not in set(apart["variant"])]
    parts = [f"Served as in this process but for rounding: {', '.join(same)}."] if same else []
    parts += [
        f"{row['variant']} answers otherwise, lowest cosine {cosine_floor(row['min_cosine'])}"
        + (
            ": the scale of its 8-bit activations is that of a whole batch, so that a row's answer depends on the rows "
            "beside it."
            if str(row["variant"]).endswith("int8")
            else ": the server does not run what this process runs."
        )
        for _, row in apart.iterrows()
    ]
    return " ".join(parts)


def reading_of_checks(checks: pd.DataFrame) -> str:
    """In how many cells both checks hold, and what it means where one does not."""
    if checks.empty:
        return "No cell was measured for a time, so there is nothing to check."
    cells, law, parts = len(checks), int(checks["law_holds"].sum()), int(checks["parts_fit"].sum())
    text = f"Little's law holds in {law} of {cells} cells, the parts add up in {parts}."
    if law < cells:
        text += " Where the law does not hold, the cell was too short for the requests at its edges not to count."
    if parts < cells:
        text += " Where a part is negative, the server's statistics cover other requests than the records."
    return text


def reading_of_axes(axes: pd.DataFrame) -> str:
    """What a request spends outside queue and model, for each output from the cheapest transport to the dearest."""
    parts = []
    for outputs, group in axes.groupby("outputs", sort=False):
        ordered = group.sort_values("outside_ms")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        parts.append(
            f"Returning {outputs}, {milliseconds(least['outside_ms'])} ({least['transport']}) to "
            f"{milliseconds(most['outside_ms'])} ({most['transport']}) of a request lie outside queue and model, at "
            f"most {most['outside_ms'] / most['latency_mean_ms']:.1%} of it."
        )
    return " ".join(parts)


def _share(value: float) -> str:
    """A share in percent that is called 100% only where nothing is missing."""
    return "100%" if value == 1 else f"{min(value, 0.999):.1%}".replace(".0%", "%")


def _kept_up(summary: pd.DataFrame) -> str:
    """Whether the highest rate was answered as fast as it was offered."""
    if "percent" not in summary:
        return ""
    most = summary[summary["percent"] == summary["percent"].max()]
    offered, answered = float(most["offered_per_s"].mean()), float(most["answered_per_s"].mean())
    percent = f"At {most['percent'].iloc[0]:g}% of the closed loop's rate"
    if answered < _KEPT_UP * offered:
        return f"{percent} it answered {number(answered)} of {number(offered)} requests/s: the queue grows with time."
    if most["percent"].iloc[0] > 100:
        return (
            f"{percent} the server still kept up ({number(answered)} of {number(offered)} requests/s): with more "
            "requests waiting than the closed loop had in flight, its batches are larger."
        )
    return f"{percent} the server kept up."


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
    is_rounding = split.parts_ms["network_ms"] > -_ROUNDING * split.mean_ms  # two clocks, and a mean of nanoseconds
    return f"{text} Note: {split.note}." if split.note and not is_rounding else text


def _size(row: pd.Series) -> str:
    lost = "" if row["acceptable"] else f", but {row['why']}"
    cosine = cosine_floor(row["min_cosine"], 5)
    return f"{row['variant']} takes {row['bytes'] / 1e6:,.0f} MB, lowest cosine {cosine}{lost}."
