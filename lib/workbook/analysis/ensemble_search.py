"""The search for a configuration that reaches the bound: its grid, its Pareto curve, the choice, the costs it shows."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbook.analysis.prediction import PipelineCosts, ceiling_inside
from workbook.errors import LoadError
from workbook.serving.ensemble_spec import HOPS, MEMBER_A, MEMBER_B, EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.ensemble.runs import Point

NEAR_BEST = 0.97
"""Configurations within 3% of the best rate count as equally fast; the lowest p99 among them is chosen."""
NEARLY_BEST = 0.95
"""Of A's limits whose rate comes within 5% of the best one, the smallest is chosen."""
VARIED = ("b_instances", "b_max_batch", "a_delay_us", "hop", "a_max_batch")


def search_grid(
    apart: EnsembleVariant, b_instances: Sequence[int], b_batches: Sequence[int], delays_us: Sequence[int]
) -> list[EnsembleVariant]:
    """All combinations of B's instances and batch, A's delay, and logits or mask between them."""
    return [
        replace(apart, b_instances=instances, b_max_batch=batch, a_delay_us=delay_us, hop=hop)
        for hop, delay_us, batch, instances in itertools.product(HOPS, delays_us, b_batches, b_instances)
    ]


def point_row(point: Point) -> dict[str, Any]:
    """A measurement as a flat row of JSON values: what was served, `connections`, latencies, members' ceilings."""
    variant = point.variant
    return {
        **{name: getattr(variant, name) for name in VARIED},
        "connections": point.conditions.connections,
        "images_per_s": point.images_per_s,
        "latency_mean_ms": point.latency_mean_ms,
        "latency_p50_ms": point.latency_p50_ms,
        "latency_p99_ms": point.latency_p99_ms,
        "failed": point.failed,
        "a_inside_per_s": ceiling_inside(point, MEMBER_A),
        "b_inside_per_s": ceiling_inside(point, MEMBER_B),
    }


def pareto(found: pd.DataFrame) -> pd.DataFrame:
    """The configurations that no other beats in both rate and p99, fastest first.

    Args:
        found: rows of `point_row`; rows without a p99 (too few answers) are left out.
    """
    ordered = found.dropna(subset="latency_p99_ms").sort_values(
        ["images_per_s", "latency_p99_ms"], ascending=[False, True]
    )
    least_before = ordered["latency_p99_ms"].cummin().shift()
    return ordered[least_before.isna() | (ordered["latency_p99_ms"] < least_before)]


def choose(found: pd.DataFrame) -> pd.Series:
    """The chosen row: of those within 3% of the best rate, the one with the lowest p99 (mean latency without one).

    Raises:
        LoadError: nothing was measured.
    """
    if found.empty:
        raise LoadError("the search measured nothing: give at least one configuration.")
    fast = found[found["images_per_s"] >= NEAR_BEST * found["images_per_s"].max()]
    return fast.loc[fast["latency_p99_ms"].fillna(fast["latency_mean_ms"]).idxmin()]


def chosen_variant(chosen: pd.Series, apart: EnsembleVariant) -> EnsembleVariant:
    """The configuration of a row of the search."""
    return replace(
        apart,
        b_instances=int(chosen["b_instances"]),
        b_max_batch=int(chosen["b_max_batch"]),
        a_delay_us=int(chosen["a_delay_us"]),
        hop=str(chosen["hop"]),
        a_max_batch=int(chosen["a_max_batch"]),
    )


def a_batches_grid(chosen: EnsembleVariant, a_batches: Sequence[int]) -> list[EnsembleVariant]:
    """The second step of the search: the chosen configuration again, and with other limits on A's batches."""
    return [replace(chosen, a_max_batch=batch) for batch in dict.fromkeys((chosen.a_max_batch, *a_batches))]


def choose_a_batch(found: pd.DataFrame) -> pd.Series:
    """Of the limits on A's batches that are nearly as fast as the fastest, the smallest.

    Connections that are always busy cannot show what it is good for: at a fixed rate an image waits for the batch it is
    in, so the smaller the batch, the shorter the slowest requests.
    """
    fast = found[found["images_per_s"] >= NEARLY_BEST * found["images_per_s"].max()]
    return fast.loc[fast["a_max_batch"].idxmin()]


def with_hop(costs: PipelineCosts, found: pd.DataFrame, hop: str) -> PipelineCosts:
    """The costs where A hands over `hop` in place of what it handed over while they were measured.

    How many times as long a member's executions then take is read from configurations that were measured with both: the
    geometric mean of the ratios of its ceilings, as Triton counted them inside the ensemble. Where there is no such
    configuration, the costs stay as they are.

    Args:
        costs: of the pipeline.
        found: rows of `point_row`.
        hop: `logits` or `mask`.
    """
    longer = {member: _times_as_long(found, f"{member}_inside_per_s", costs.hop, hop) for member in ("a", "b")}
    return replace(
        costs,
        a_work_s=costs.a_work_s * longer["a"],
        b_work_s=costs.b_work_s * longer["b"],
        a_processor_s=costs.a_processor_s * longer["a"],
        b_processor_s=costs.b_processor_s * longer["b"],
        a_work_by_batch=tuple((batch, work_s * longer["a"]) for batch, work_s in costs.a_work_by_batch),
        hop=hop,
    )


def _times_as_long(found: pd.DataFrame, ceiling: str, before: str, after: str) -> float:
    """Ratio of a member's times for an image, of configurations that differ in what is handed over alone."""
    alike = [*(name for name in VARIED if name != "hop"), "connections"]
    per_s = found.pivot_table(index=alike, columns="hop", values=ceiling)
    if not {before, after} <= set(per_s.columns):
        return 1.0
    ratios = (per_s[before] / per_s[after]).dropna()
    return statistics.geometric_mean(ratios) if len(ratios) else 1.0


def reason_for(chosen: pd.Series, reported_per_s: float, bound_per_s: float) -> str:
    """One sentence: what was chosen, and why."""
    b = f"{chosen['b_instances']:.0f} instance(s) of B"
    batch = f"in batches of up to {chosen['b_max_batch']:.0f}" if chosen["b_max_batch"] else "one image at a time"
    hop = "a uint8 mask" if chosen["hop"] == "mask" else "float16 logits"
    return (
        f"Chosen: {b}, {batch}, fed {hop}, A with up to {chosen['a_max_batch']:.0f} images and waiting at most "
        f"{chosen['a_delay_us'] / 1e3:g} ms for them: it reaches "
        f"{chosen['images_per_s']:.0f}/s, {chosen['images_per_s'] / bound_per_s:.0%} of the slower member's "
        f"{bound_per_s:.0f}/s (as reported: {reported_per_s / bound_per_s:.0%}). Of the configurations within "
        f"{1 - NEAR_BEST:.0%} of the fastest its slowest requests waited the least, and of A's limits within "
        f"{1 - NEARLY_BEST:.0%} of the fastest this is the smallest: at a fixed rate an image waits for its batch."
    )
