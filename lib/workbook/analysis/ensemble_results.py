"""The headline numbers of the ensemble notebook, with the fields that the report and later comparisons read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbook.analysis.summaries import as_json_values
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B

if TYPE_CHECKING:
    import pandas as pd

    from workbook.analysis.prediction import Prediction
    from workbook.measuring.ensemble.study import Case


def ensemble_results(
    base: Case,
    tuned: Case,
    prediction: Prediction,
    predictions: pd.DataFrame,
    causes: pd.DataFrame,
    open_loop: Mapping[str, float],
    scheduler: pd.DataFrame,
    overloaded: Mapping[str, float | str],
    *,
    not_run: Mapping[str, str],
    figure: str,
) -> dict[str, Any]:
    """What goes into `results/06_ensemble_throughput.json`.

    Args:
        base: as reported.
        tuned: the chosen configuration.
        prediction: for the reported configuration, made before it was measured.
        predictions: of the ablations and the search, `case`, `predicted_per_s`, `measured_per_s`, `error_percent`, ...
        causes: from `loss_causes.effects`.
        open_loop: from `open_loop_at`, of the chosen configuration.
        scheduler: from `scheduler_cost`.
        overloaded: from `overload`.
        not_run: what this machine cannot show -> what it needs.
        figure: of the headline.
    """
    ensemble, bound = base.rate(ENSEMBLE), base.bound
    return {
        "member_a_per_s": base.rate(MEMBER_A),
        "member_b_per_s": base.rate(MEMBER_B),
        "ensemble_per_s": ensemble,
        "bound_per_s": bound.per_s,
        "ratio_as_reported": base.ratio,
        "ratio_tuned": tuned.ratio,
        "predicted_per_s": prediction.per_s,
        "prediction_error": prediction.per_s / ensemble - 1,
        "bottleneck": prediction.bottleneck,
        "ablations": as_json_values(predictions),
        "loss_causes": [_cause(row) for row in as_json_values(causes)],
        "tuned_per_s": tuned.rate(ENSEMBLE),
        "open_loop": _without_nan(open_loop),
        "scheduler": as_json_values(scheduler),
        "overload": _without_nan(overloaded),
        "not_run": [{"what": what, "needs": needs} for what, needs in not_run.items()],
        "headline": _headline(base, tuned, prediction, figure),
    }


def _without_nan(values: Mapping[str, float | str]) -> dict[str, float | str | None]:
    return {name: value if value == value else None for name, value in values.items()}


def _cause(row: dict[str, Any]) -> dict[str, Any]:
    known = row["ci95_low"] is not None
    return {
        "cause": row["cause"],
        "effect": row["effect"],
        "ci95": [row["ci95_low"], row["ci95_high"]] if known else None,
        "emulated": row["emulated"],
    }


def _headline(base: Case, tuned: Case, prediction: Prediction, figure: str) -> dict[str, Any]:
    measured = base.rate(ENSEMBLE)
    numbers: Sequence[tuple[str, str, str]] = (
        ("ensemble over its slower member", f"{base.ratio:.2f}", "as reported; 0.45 in the issue"),
        ("after tuning", f"{tuned.ratio:.2f}", f"{tuned.rate(ENSEMBLE):.0f} images/s"),
        (
            "prediction before measuring",
            f"{prediction.per_s / measured - 1:+.0%}",
            f"{prediction.per_s:.0f}/s predicted, {measured:.0f}/s measured; limited by {prediction.bottleneck}",
        ),
    )
    return {
        "question": "Why is the ensemble slower than its members, and how is it fixed?",
        "answer": (
            f"As reported it reaches {base.ratio:.0%} of its slower member here, tuned {tuned.ratio:.0%}; "
            f"what limits it is {prediction.bottleneck}."
        ),
        "numbers": [{"label": label, "value": value, "detail": detail} for label, value, detail in numbers],
        "figure": figure,
    }


def search_predictions(found: pd.DataFrame, predicted: Sequence[Prediction]) -> pd.DataFrame:
    """Each configuration of the search with its prediction, in the columns of the other cases.

    Args:
        found: rows of `ensemble_search.point_row`.
        predicted: one for each, made from the members' costs alone.
    """
    import pandas as pd

    rows = []
    for row, prediction in zip(found.to_dict("records"), predicted, strict=True):
        batch = f"batches of {row['b_max_batch']:.0f}" if row["b_max_batch"] else "unbatched"
        name = (
            f"A up to {row['a_max_batch']:.0f}, delay {row['a_delay_us'] / 1e3:g} ms, {row['hop']}, "
            f"{row['b_instances']:.0f} x B {batch}"
        )
        rows.append(
            {
                "case": name,
                "predicted_per_s": prediction.per_s,
                "measured_per_s": row["images_per_s"],
                "error_percent": 100 * (prediction.per_s / row["images_per_s"] - 1),
                "bottleneck": prediction.bottleneck,
                "a_alone_per_s": prediction.bound_of(MEMBER_A),
                "b_alone_per_s": prediction.bound_of(MEMBER_B),
                "a_inside_per_s": row["a_inside_per_s"],
                "b_inside_per_s": row["b_inside_per_s"],
            }
        )
    return pd.DataFrame(rows)


def explain_misses(predictions: pd.DataFrame, percent: float = 10) -> list[str]:
    """A sentence for each prediction that is further off: what the members' executions took inside the ensemble.

    Args:
        predictions: with `error_percent`, and each member's ceiling as expected (`a_alone_per_s`, ...) and as counted
            by Triton while the ensemble ran (`a_inside_per_s`, ...).
        percent: how far off is far.
    """
    far = predictions[predictions["error_percent"].abs() > percent]
    return [_explain(row) for row in far.to_dict("records")]


def _explain(row: Mapping[str, Any]) -> str:
    most = min(("a", "b"), key=lambda member: float(row[f"{member}_inside_per_s"]))
    within = " With those it would have been predicted." if _holds_inside(row) else ""
    return (
        f"“{row['case']}” is {row['error_percent']:+.0f}% off: while the ensemble ran Triton counts "
        f"{row[f'{most}_inside_per_s']:.0f}/s as what {most.upper()}'s executions allow, expected were "
        f"{row[f'{most}_alone_per_s']:.0f}/s.{within}"
    )


def _holds_inside(row: Mapping[str, Any]) -> bool:
    inside = min(row["a_inside_per_s"], row["b_inside_per_s"])
    return bool(abs(inside / row["measured_per_s"] - 1) <= 0.1)
