"""What notebook 07 leaves behind: `results/07_copies_between_models.json` and its headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbook.analysis.arrangement_choice import Claim
from workbook.analysis.copies import copied_bytes, ledger, predicted_ms
from workbook.analysis.copy_answers import NOT_WITHOUT_GPU
from workbook.analysis.copy_costs import REFERENCE, HopCost, copies_of_lone_requests, count_held, held_of_counted
from workbook.analysis.intervals import Interval
from workbook.analysis.summaries import as_json_values
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd


def arrangement_rows(
    pipelines: Mapping[str, Pipeline],
    sizes: Mapping[str, Mapping[str, int]],
    alone: pd.DataFrame,
    bare: pd.DataFrame,
    loads: pd.DataFrame,
    rates: pd.DataFrame,
) -> list[dict[str, Any]]:
    """A row a pipeline and arrangement.

    `measured_copy_ms` is what `copy_costs.copies_of_lone_requests` finds, with its 95% interval; for a monolith there
    is none. Copies that the monolith has too are left out of `predicted_copy_ms`, not out of the counts.

    Args:
        pipelines: by name.
        sizes: by pipeline, the bytes of each tensor in a request.
        alone: of `measuring.copies.measure_alone`, all pipelines.
        bare: the same for the relay with next to no tensor.
        loads: of `measuring.copies.measure_arrangements`, all pipelines.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.
    """
    measured = copies_of_lone_requests(alone, bare)
    rows = []
    for (pipeline_name, arrangement), group in alone.groupby(["pipeline", "arrangement"], sort=False):
        copies = ledger(pipelines[pipeline_name], arrangement, sizes[pipeline_name])
        common = ledger(pipelines[pipeline_name], REFERENCE, sizes[pipeline_name])
        busy = loads[(loads["pipeline"] == pipeline_name) & (loads["arrangement"] == arrangement)]
        copying = measured.get((pipeline_name, arrangement))
        rows.append(
            {
                "name": arrangement,
                "pipeline": pipeline_name,
                "latency_p50_ms": float(group["latency_ms"].median()),
                "throughput_per_s": float(busy["requests_per_s"].mean()),
                "copies_per_request": len(copies),
                "bytes_copied_per_request": copied_bytes(copies),
                "predicted_copy_ms": predicted_ms(copies, rates) - predicted_ms(common, rates),
                "measured_copy_ms": copying.estimate if copying else None,
                "measured_copy_ms_ci95": _bounds(copying) if copying else None,
            }
        )
    return rows


def copies_results(
    arrangements: Sequence[Mapping[str, Any]],
    costs: Mapping[str, HopCost],
    comparison: pd.DataFrame,
    overall: Mapping[str, Interval],
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
        overall: of `copy_costs.measured_over_predicted`.
        claims: the seed's statements, judged.
        tables: further tables by name, kept as rows; None where one was not made.
        answers: to the seed's two questions.
        figure: of the headline.
        has_gpu: whether this machine has one.
    """
    ensemble = costs["ensemble"]
    judged = count_held(comparison)
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
            "held": judged["held"],
            "undecided": int(comparison["undecided"].sum()),
            "of": judged["of"],
        },
        "counted_within_20_percent": None if counted is None else held_of_counted(counted),
        "measured_over_predicted": {
            name: {"mean": multiple.estimate, "ci95": _bounds(multiple)} for name, multiple in overall.items()
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
