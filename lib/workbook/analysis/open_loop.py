"""What an open loop showed: latency from the intended send, and how much of the offered load was served in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbook.analysis.summaries import NS_PER_MS, PERCENTILES, as_json_values, latency_percentile

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.variants.workloads import Workload

SERVER_PARTS = ("queue_ms", "compute_input_ms", "compute_infer_ms", "compute_output_ms")


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


def open_loop_rows(
    rates: pd.DataFrame, variant: str, workload: Workload, output: str = "sentence_embedding"
) -> list[dict[str, Any]]:
    """Open loops as rows of the results file, with the fields of a closed loop's: see `benchmark_table.ROW_FIELDS`.

    `load_mode` says arrivals and rate, `concurrency` is None: nobody set how many were in flight.

    Args:
        rates: from `measure_rates`.
        variant: its name.
        workload: what was sent.
        output: that was asked for.
    """
    return [
        {
            "variant": variant,
            "transport": "grpc",
            "outputs": output,
            "load_mode": f"open, {row['arrivals']}, {row['offered_per_s']:.4g} requests/s",
            "concurrency": None,
            "batch_size": workload.batch_size,
            "sequence_length": workload.sequence_length,
            "throughput_rows_per_s": row["answered_per_s"] * workload.batch_size,
            **{f"latency_p{percentile}_ms": row[f"latency_p{percentile}_ms"] for percentile in (50, 95, 99)},
            **{part: row[part] for part in SERVER_PARTS},
            "errors": row["errors"],
        }
        for row in as_json_values(rates)
    ]
