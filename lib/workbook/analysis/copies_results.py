"""What notebook 07 leaves behind: `results/07_copies_between_models.json` and its headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbook.analysis.arrangement_choice import Claim
from workbook.analysis.copies import copied_bytes, ledger, predicted_ms
from workbook.analysis.copy_answers import NOT_WITHOUT_GPU
from workbook.analysis.copy_costs import CONTROL, REFERENCE, HopCost
from workbook.analysis.intervals import Interval
from workbook.analysis.summaries import as_json_values
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd


def arrangement_rows(
    pipelines: Mapping[str, Pipeline],
    sizes: Mapping[str, Mapping[str, int]],
    loads: pd.DataFrame,
    rates: pd.DataFrame,
    costs: Mapping[str, HopCost],
) -> list[dict[str, Any]]:
    """A row a pipeline and arrangement.

    `measured_copy_ms` is the median latency of a lone request less that of the control (the handle, which copies
    nothing) and less what their hops differ by without a tensor; the handle itself is held to the monolith, and for the
    monolith there is none. Copies that the monolith has too are left out of `predicted_copy_ms`, not out of the counts.

    Args:
        pipelines: by name.
        sizes: by pipeline, the bytes of each tensor in a request.
        loads: of `measuring.copies.measure_arrangements`.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.
        costs: of `copy_costs.hop_costs`.
    """
    rows = []
    for (pipeline_name, arrangement), group in loads.groupby(["pipeline", "arrangement"], sort=False):
        pipeline = pipelines[pipeline_name]
        copies = ledger(pipeline, arrangement, sizes[pipeline_name])
        common = ledger(pipeline, REFERENCE, sizes[pipeline_name])
        hops = len(pipeline.stages) - 1
        busy = group[group["concurrency"] == group["concurrency"].max()]
        rows.append(
            {
                "name": arrangement,
                "pipeline": pipeline_name,
                "latency_p50_ms": _latency(loads, pipeline_name, arrangement),
                "throughput_per_s": float(busy["requests_per_s"].mean()),
                "copies_per_request": len(copies),
                "bytes_copied_per_request": copied_bytes(copies),
                "predicted_copy_ms": predicted_ms(copies, rates) - predicted_ms(common, rates),
                "measured_copy_ms": _measured_copy_ms(loads, pipeline_name, arrangement, costs, hops),
            }
        )
    return rows


def _measured_copy_ms(
    loads: pd.DataFrame, pipeline: str, arrangement: str, costs: Mapping[str, HopCost], hops: int
) -> float | None:
    if arrangement.startswith(REFERENCE):
        return None
    base = REFERENCE if arrangement == CONTROL else CONTROL
    fixed = costs[arrangement].per_hop_ms.estimate - (costs[base].per_hop_ms.estimate if base == CONTROL else 0.0)
    return _latency(loads, pipeline, arrangement) - _latency(loads, pipeline, base) - hops * fixed


def _latency(loads: pd.DataFrame, pipeline: str, arrangement: str) -> float:
    here = (loads["pipeline"] == pipeline) & (loads["arrangement"] == arrangement)
    alone = loads[here & (loads["concurrency"] == loads["concurrency"].min())]
    return float(alone["latency_p50_ms"].median())


def copies_results(
    arrangements: Sequence[Mapping[str, Any]],
    costs: Mapping[str, HopCost],
    comparison: pd.DataFrame,
    claims: Sequence[Claim],
    tables: Mapping[str, pd.DataFrame | None],
    answers: Sequence[str],
    figure: str,
    *,
    has_gpu: bool,
) -> dict[str, Any]:
    """The results as JSON values.

    Args:
        arrangements: of `arrangement_rows`.
        costs: of `copy_costs.hop_costs`.
        comparison: of `copy_costs.compare_sizes`.
        claims: the seed's statements, judged.
        tables: further tables by name, kept as rows; None where one was not made.
        answers: to the seed's two questions.
        figure: of the headline.
        has_gpu: whether this machine has one.
    """
    ensemble = costs["ensemble"]
    judged = [bool(held) for held in comparison["held"] if held is not None and held == held]
    largest = comparison[comparison["bytes"] == comparison["bytes"].max()].set_index("arrangement")
    size_mb = comparison["bytes"].max() / 1e6
    counted = tables.get("counted_copies")
    return {
        "arrangements": list(arrangements),
        "cost_per_hop_ms": ensemble.per_hop_ms.estimate,
        "cost_per_hop_ms_ci95": _bounds(ensemble.per_hop_ms),
        "cost_per_mb_ms": ensemble.per_mb_ms.estimate,
        "cost_per_mb_ms_ci95": _bounds(ensemble.per_mb_ms),
        "costs": {name: _cost(cost) for name, cost in costs.items()},
        "predictions_within_20_percent": {
            "held": sum(judged),
            "undecided": int(comparison["undecided"].sum()),
            "of": len(judged),
        },
        "sizes": as_json_values(comparison),
        "claims": [asdict(claim) for claim in claims],
        "answers": list(answers),
        **{name: [] if table is None else as_json_values(table) for name, table in tables.items()},
        "not_run": [
            *([] if has_gpu else [{"what": "copies on the GPU", "needs": NOT_WITHOUT_GPU}]),
            *([] if counted is not None else [{"what": "copies counted in the server", "needs": "a C compiler"}]),
        ],
        "headline": {
            "question": "What is copied between Python models, what does it cost, and what avoids it?",
            "answer": (
                f"A hop of an ensemble copies a tensor four times, {ensemble.per_mb_ms.estimate:.2f} ms per MB here: "
                f"with {size_mb:g} MB two hops add {largest.loc['ensemble', 'added_ms']:.0f} ms, by handle "
                f"{largest.loc['handle', 'added_ms']:.0f} ms."
            ),
            "numbers": [
                {
                    "label": f"{name}, per MB and hop",
                    "value": f"{costs[name].per_mb_ms.estimate:.3f} ms",
                    "detail": f"of it copying {costs[name].copying_per_mb_ms.estimate:.3f}, predicted "
                    f"{costs[name].predicted_per_mb_ms:.3f}; {_words(costs[name].per_mb_ms)}",
                }
                for name in ("ensemble", "bls", "handle")
                if name in costs
            ],
            "figure": figure,
        },
    }


def _cost(cost: HopCost) -> dict[str, Any]:
    return {
        "per_hop_ms": cost.per_hop_ms.estimate,
        "per_hop_ms_ci95": _bounds(cost.per_hop_ms),
        "per_mb_ms": cost.per_mb_ms.estimate,
        "per_mb_ms_ci95": _bounds(cost.per_mb_ms),
        "copying_per_mb_ms": cost.copying_per_mb_ms.estimate,
        "copying_per_mb_ms_ci95": _bounds(cost.copying_per_mb_ms),
        "predicted_per_mb_ms": cost.predicted_per_mb_ms,
    }


def _bounds(interval: Interval) -> list[float] | None:
    return [interval.low, interval.high] if interval.known else None


def _words(interval: Interval) -> str:
    return f"95% interval {interval.low:.3f} to {interval.high:.3f}" if interval.known else interval.note
