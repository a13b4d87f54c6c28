"""Which variant to serve: speed and quality together, beside the order that was published."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

EXACT_COSINE = 0.9999
"""From this lowest cosine on a variant counts as exact, and no exact one as closer than another."""
SAME_NEIGHBOURS = 0.005
"""Shares of kept neighbours that differ by no more count as equal: rounding alone swaps two that are equally near."""
FULL_SHARE = 0.95


def rank_variants(table: pd.DataFrame, quality: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Every measured variant by its highest throughput under one workload, acceptable ones first.

    Args:
        table: from `benchmark_table`.
        quality: from `quality_table`.
        workload: its name.

    Returns:
        `place` (None where the quality is not acceptable), `variant`, `throughput_rows_per_s` and the `concurrency` of
        it, `latency_p50_ms` there, `times_slowest`, `min_cosine`, `mean_cosine`, `neighbour_agreement`,
        `probe_accuracy`, `acceptable`, `why` (what was lost), `dominated_by`: an acceptable variant that is at least as
        fast and as close to fp32 (in cosine, all exact ones being equal, and in neighbours kept), and better in one of
        the three; empty where there is none.
    """
    here = table[table["workload"] == workload]
    best = here.loc[here.groupby("variant")["throughput_rows_per_s"].idxmax()]
    wanted = ["variant", "throughput_rows_per_s", "concurrency", "latency_p50_ms"]
    ranked = best[wanted].merge(quality, on="variant", how="left")
    ranked = ranked.sort_values(["acceptable", "throughput_rows_per_s"], ascending=False, ignore_index=True)
    ranked["times_slowest"] = ranked["throughput_rows_per_s"] / ranked["throughput_rows_per_s"].min()
    ranked["dominated_by"] = [_dominating(row, ranked) for _, row in ranked.iterrows()]
    places = [place + 1 if good else None for place, good in enumerate(ranked["acceptable"])]
    ranked.insert(0, "place", places)
    return ranked


def beside_published(ranked: pd.DataFrame, published: pd.DataFrame, not_run: Mapping[str, str]) -> pd.DataFrame:
    """The published order, and where each of its variants came here.

    Args:
        ranked: from `rank_variants`.
        published: `place`, `column`, `variant`: `published_figures("article_ranking")`.
        not_run: variant -> why it was not run on this machine.

    Returns:
        `published_place`, `published_name`, `variant`, `place_here` (among the published ones that ran here; NaN where
        it did not), `throughput_rows_per_s`, `note`.
    """
    import pandas as pd

    both = [name for name in ranked["variant"] if name in set(published["variant"])]
    rates = dict(zip(ranked["variant"], ranked["throughput_rows_per_s"], strict=True))
    both.sort(key=lambda name: -rates[name])
    return pd.DataFrame(
        {
            "published_place": row["place"],
            "published_name": row["column"],
            "variant": row["variant"],
            "place_here": both.index(row["variant"]) + 1 if row["variant"] in both else float("nan"),
            "throughput_rows_per_s": rates.get(row["variant"], float("nan")),
            "note": not_run.get(row["variant"], "" if row["variant"] in both else "not asked for"),
        }
        for _, row in published.iterrows()
    )


def order_sentence(beside: pd.DataFrame) -> str:
    """Whether the order here is the published one, as far as its variants ran here."""
    ran = beside.dropna(subset="place_here")
    missing = len(beside) - len(ran)
    others = f" {missing} of its {len(beside)} did not run on this machine." if missing else ""
    if len(ran) < 2:
        return f"Too few of the published variants ran here to compare orders.{others}"
    names = list(ran.sort_values("place_here")["variant"])
    same = ran["place_here"].is_monotonic_increasing
    verdict = "the same order as the article's" if same else "NOT the article's order"
    return f"Here {' > '.join(names)}: {verdict}.{others}"


def fewest_in_flight(table: pd.DataFrame, variant: str, workload: str, share: float = FULL_SHARE) -> int:
    """The smallest concurrency that reaches this share of the variant's highest throughput."""
    here = table[(table["variant"] == variant) & (table["workload"] == workload)].sort_values("concurrency")
    enough = here[here["throughput_rows_per_s"] >= share * here["throughput_rows_per_s"].max()]
    return int(enough["concurrency"].iloc[0])


def advise(ranked: pd.DataFrame, table: pd.DataFrame, workload: str, smallest_difference_percent: float = 5.0) -> str:
    """One sentence: what to serve on this machine, and with how many requests in flight."""
    good = ranked[ranked["acceptable"].astype(bool)]
    if good.empty:
        return "No variant keeps the quality that is asked for: serve none of them, or widen the tolerance knowingly."
    first = good.iloc[0]
    name, rate = str(first["variant"]), float(first["throughput_rows_per_s"])
    in_flight = fewest_in_flight(table, name, workload)
    enough = f"{in_flight} request{'s' if in_flight > 1 else ''} in flight {'are' if in_flight > 1 else 'is'} enough"
    ahead = _ahead(good, smallest_difference_percent)
    return (
        f"Serve {name} on this machine: {rate:.1f} rows/s ({workload} a request), {ahead}its rows at a cosine of at "
        f"least {cosine_floor(first['min_cosine'])} to fp32; {enough} to reach {FULL_SHARE:.0%} of that."
    )


def cosine_floor(cosine: float, decimals: int = 4) -> str:
    """A lowest cosine cut off, not rounded: 0.99997 is at least 0.9999, and not 1.0000."""
    return f"{math.floor(cosine * 10**decimals + 1e-9) / 10**decimals:.{decimals}f}"


def _ahead(good: pd.DataFrame, smallest_difference_percent: float) -> str:
    if len(good) < 2:
        return ""
    ratio = float(good["throughput_rows_per_s"].iloc[0] / good["throughput_rows_per_s"].iloc[1])
    second = good["variant"].iloc[1]
    if ratio - 1 < smallest_difference_percent / 100:
        small = f"{ratio:.2f} times, less than {smallest_difference_percent:g}% is called equal"
        return f"not told apart from {second} ({small}), "
    return f"{ratio:.2f} times as fast as the next, {second}, "


def _dominating(row: pd.Series, ranked: pd.DataFrame) -> str:
    speed = row["throughput_rows_per_s"]
    for _, other in ranked[ranked["acceptable"].astype(bool)].iterrows():
        faster, closer = other["throughput_rows_per_s"] - speed, _closer(other, row)
        if faster >= 0 and closer >= 0 and (faster > 0 or closer > 0):
            return str(other["variant"])
    return ""


def _closer(one: pd.Series, other: pd.Series) -> int:
    """1 where one is closer to fp32 than the other, 0 where neither is, -1 where it is farther in either measure."""
    cosines = min(one["min_cosine"], EXACT_COSINE) - min(other["min_cosine"], EXACT_COSINE)
    neighbours = one["neighbour_agreement"] - other["neighbour_agreement"]
    if cosines < 0 or neighbours < -SAME_NEIGHBOURS:
        return -1
    return int(cosines > 0 or neighbours > SAME_NEIGHBOURS)
