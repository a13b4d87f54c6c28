"""What others' published numbers say by the same formulas that ours are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbook.analysis.bottleneck import Stage, slowest_member
from workbook.analysis.published import published_figures
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B

if TYPE_CHECKING:
    import pandas as pd

_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class PublishedEnsemble:
    """The reported case.

    Attributes:
        a_per_s, b_per_s: the members alone.
        ensemble_per_s: the ensemble.
        bound_per_s: min of the members.
        bound_member: which one that is.
        b_request_bytes: bytes that went to and fro for one request of B's own test; what it was fed can be told from
            it.
    """

    a_per_s: float
    b_per_s: float
    ensemble_per_s: float
    bound_per_s: float
    bound_member: str
    b_request_bytes: float

    @property
    def ratio(self) -> float:
        """Ensemble over bound."""
        return self.ensemble_per_s / self.bound_per_s


def published_ensemble() -> PublishedEnsemble:
    """The rates of Triton issue 2760 as its reporter measured them with bombardier."""
    rows = published_figures("ensemble_throughput").dropna(subset="latency_mean_ms").set_index("model")
    rates = rows["requests_per_s_mean"]
    slower = min((MEMBER_A, MEMBER_B), key=lambda member: float(rates[member]))
    return PublishedEnsemble(
        a_per_s=float(rates[MEMBER_A]),
        b_per_s=float(rates[MEMBER_B]),
        ensemble_per_s=float(rates[ENSEMBLE]),
        bound_per_s=float(rates[slower]),
        bound_member=slower,
        b_request_bytes=float(rows["body_megabytes_per_s"][MEMBER_B] * _MEBIBYTE / rates[MEMBER_B]),
    )


def published_explanations() -> pd.DataFrame:
    """Each published printout that shows a member's times *inside* an ensemble, against the ceiling they imply.

    Returns:
        A row an issue: `issue`, `bottleneck`, `execution_ms`, `predicted_per_s` (instances x batch / execution),
        `measured_per_s`, `error_percent` = 100 x (predicted / measured - 1), `assumed` (what the issue leaves open).
    """
    import pandas as pd

    rows = []
    for issue, group in published_figures("ensemble_printouts").fillna(0.0).groupby("issue"):
        limit = slowest_member([_stage(row) for row in group.to_dict("records")])
        measured = float(group["ensemble_per_s"].iloc[0])
        rows.append(
            {
                "issue": str(issue),
                "bottleneck": limit.name,
                "execution_ms": _stage(group.iloc[0].to_dict()).execution_ms,
                "predicted_per_s": limit.per_s,
                "measured_per_s": measured,
                "error_percent": 100 * (limit.per_s / measured - 1),
                "assumed": "one instance" if "assumption" in group["source"].iloc[0] else "",
            }
        )
    return pd.DataFrame(rows)


def _stage(row: dict[str, float]) -> Stage:
    return Stage(
        name=str(row["member"]),
        instances=int(row["instances"]),
        batch=row["batch"],
        input_ms=row["compute_input_ms"],
        infer_ms=row["compute_infer_ms"],
        output_ms=row["compute_output_ms"],
    )
