"""What an open loop showed: latency from the intended send, and how much of the offered load was served in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbook.analysis.summaries import NS_PER_MS, PERCENTILES, latency_percentile

if TYPE_CHECKING:
    import pandas as pd

PERCENTILE_OF_OBJECTIVE = 99


def summarise_open_loop(
    records: pd.DataFrame, scheduled: int, duration_s: float, objective_ms: float
) -> dict[str, float]:
    """One open loop in numbers.

    Args:
        records: REQUEST_COLUMNS of the requests that were sent.
        scheduled: requests that should have been sent.
        duration_s: over which they were scheduled.
        objective_ms: latency within which an answer is good.

    Returns:
        `offered_per_s` = scheduled / duration; `answered_per_s` = answers / (duration, or until the last answer where
        that came later); `goodput_per_s` = answers within the objective / duration; `within_objective` = those answers
        / scheduled, so that a request that failed or never left counts as late; `latency_p50_ms` and the other
        percentiles, from the intended send (decoded - intended), NaN below `least_requests`;
        `from_actual_send_p99_ms`, what a tool that counts from the actual send would report; `errors`; `never_sent`;
        `requests`, answered.
    """
    good = records[records["error"] == ""]
    latency_ms = ((good["decoded_ns"] - good["intended_ns"]) / NS_PER_MS).to_numpy()
    from_send_ms = ((good["decoded_ns"] - good["sent_ns"]) / NS_PER_MS).to_numpy()
    span_s = float((good["decoded_ns"].max() - records["intended_ns"].min()) / 1e9) if len(good) else duration_s
    in_time = int((latency_ms <= objective_ms).sum())
    return {
        "offered_per_s": scheduled / duration_s,
        "answered_per_s": len(good) / max(duration_s, span_s),
        "goodput_per_s": in_time / duration_s,
        "within_objective": in_time / scheduled if scheduled else float("nan"),
        **{f"latency_p{p}_ms": latency_percentile(latency_ms, p) for p in PERCENTILES},
        "from_actual_send_p99_ms": latency_percentile(from_send_ms, 99),
        "errors": len(records) - len(good),
        "never_sent": scheduled - len(records),
        "requests": len(good),
    }
