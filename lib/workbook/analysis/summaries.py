"""Raw records to summaries: pure functions over DataFrames, no server needed.

Two kinds of records come in (`measuring.records`): a request of the online arm, a batch of the offline arm.
Throughput is always in rows per second, so that the two can stand side by side; MB is 10^6 bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

PERCENTILES = (50, 90, 95, 99)
GROUP_KEYS = ("arm", "concurrency", "run")
NS_PER_MS = 1e6
NS_PER_S = 1e9
BYTES_PER_MB = 1e6
LITTLES_LAW_TOLERANCE = 0.05


def least_requests(percentile: float) -> int:
    """Values needed before a percentile is shown: at least one must be expected beyond it, `n >= 100 / (100 - p)`.

    That is 2 values for p50, 10 for p90, 20 for p95, 100 for p99. Below it the "percentile" is the largest value under
    another name.
    """
    return math.ceil(round(100 / (100 - percentile), 6))


def latency_percentile(latencies_ms: Any, percentile: float) -> float:
    """The percentile by linear interpolation (NumPy's default), NaN where `least_requests` is not reached."""
    if len(latencies_ms) < least_requests(percentile):
        return float("nan")
    return float(np.percentile(latencies_ms, percentile))


def summarise_requests(records: pd.DataFrame, by_run: bool = True) -> pd.DataFrame:
    """One row an arm, concurrency and run of the online records.

    Args:
        records: rows with `REQUEST_COLUMNS`; warm-up (`window` -1) is left out of every count and mean.
        by_run: False pools the runs: durations add up, percentiles are those of all requests together.

    Returns:
        A frame with `arm`, `concurrency`, `run` (unless pooled) and

        - `requests`, `rows`: answered without error; `errors`: requests that failed.
        - `duration_s`: from the moment the warm-up ended to the last answer. The moment is the last answer of the
          warm-up, or the first intended send where there was none; n answers then fill exactly the duration.
        - `throughput_rows_per_s` = rows / duration, `requests_per_s` = requests / duration.
        - `latency_mean_ms`, `latency_p50_ms`, `..p90..`, `..p95..`, `..p99_ms`: latency = decoded - intended. A
          percentile is NaN below `least_requests` of it.
        - `real_tokens_per_s`, `padded_tokens_per_s`: tokens / duration, and `padding_percent` = 100 x (1 - real /
          padded).
        - `mb_in_per_s`, `mb_out_per_s`: request and answer bodies / duration, 10^6 bytes.
        - `note`: why a value is missing, in words; empty where none is.
    """
    import pandas as pd

    runs = [_count_requests(group) | dict(zip(GROUP_KEYS, key, strict=True)) for key, group in _groups(records)]
    if not runs:
        return pd.DataFrame(columns=[*GROUP_KEYS, "requests", "rows", "errors", "duration_s", "note"])
    keys = GROUP_KEYS if by_run else GROUP_KEYS[:2]
    grouped = pd.DataFrame(runs).groupby(list(keys), sort=True)
    return pd.DataFrame([dict(zip(keys, key, strict=True)) | _rates(group) for key, group in grouped])


def summarise_batches(records: pd.DataFrame, by_run: bool = True) -> pd.DataFrame:
    """One row an arm and run of the offline records.

    Args:
        records: rows with `BATCH_COLUMNS`.
        by_run: False pools the runs of an arm.

    Returns:
        A frame with `arm`, `run` (unless pooled), `batches`, `rows`, `errors`; `duration_s` from the first batch's
        start to the last embedding; `throughput_rows_per_s` = rows / duration; the mean of each stage a batch,
        `tokenise_ms`, `inference_ms`, `pooling_ms`; `latency_mean_ms` and `latency_p50_ms` of a whole batch (pooled -
        start); `real_tokens_per_s`, `padded_tokens_per_s`, `padding_percent`; `unaccounted_percent` = 100 x (1 - sum
        of all stages / duration), the time between batches that no stage holds.
    """
    import pandas as pd

    keys = ["arm", "run"] if by_run else ["arm"]
    grouped = records.groupby(keys, sort=True)
    return pd.DataFrame([dict(zip(keys, key, strict=True)) | _batch_rates(group) for key, group in grouped])


def latency_table(*records: pd.DataFrame) -> pd.DataFrame:
    """Latencies of any records in one table, what the figures and panels take.

    Failed and warm-up records are left out.

    Returns:
        One row a request or batch: `arm`, `run`, `concurrency` (0 for the offline arm), `label` (the arm, with the
        concurrency where the arm has several), `order`, `start_s` since the run's first record, `rows`, `latency_ms`,
        `ms_per_row`.
    """
    import pandas as pd

    return pd.concat([_latencies(frame) for frame in records], ignore_index=True)


def describe_latency(latencies: pd.DataFrame) -> pd.DataFrame:
    """Count, mean, standard deviation, least, quartiles and largest latency in ms, a column each label.

    Args:
        latencies: from `latency_table`.
    """
    import pandas as pd

    columns = {label: group.describe() for label, group in latencies.groupby("label", sort=False)["latency_ms"]}
    return pd.DataFrame(columns)


def check_littles_law(summary: pd.DataFrame) -> pd.DataFrame:
    """Requests in flight that the numbers imply, against the concurrency that was set.

    Little's law: mean number in flight = arrival rate x mean time in the system. A closed loop keeps `concurrency`
    requests in flight, so requests_per_s x mean latency must give it back; where it does not, time is lost that no
    latency holds, or the clock is wrong.

    Args:
        summary: from `summarise_requests`.

    Returns:
        `arm`, `concurrency`, `run` where there is one, `implied_in_flight`, `holds` (within 5%).
    """
    result = summary[[name for name in GROUP_KEYS if name in summary]].copy()
    result["implied_in_flight"] = summary["requests_per_s"] * summary["latency_mean_ms"] / 1e3
    result["holds"] = (result["implied_in_flight"] / result["concurrency"] - 1).abs() <= LITTLES_LAW_TOLERANCE
    return result


def arm_labels(frame: pd.DataFrame) -> pd.Series:
    """What each row is called in a figure: its arm, with the concurrency where the arm has several."""
    if "concurrency" not in frame:
        return frame["arm"]
    several = frame.groupby("arm")["concurrency"].transform("nunique") > 1
    with_concurrency = frame["arm"] + ", " + frame["concurrency"].astype(str) + " in flight"
    return frame["arm"].where(~several, with_concurrency)


def as_json_values(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows as JSON values: plain numbers and strings, None for NaN and infinity."""
    return [{str(name): _json_value(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _groups(records: pd.DataFrame) -> Any:
    return records.groupby(list(GROUP_KEYS), sort=True)


def _count_requests(records: pd.DataFrame) -> dict[str, Any]:
    """Sums of one run; latencies as one array, so that pooled percentiles stay exact."""
    measured = records[records["window"] >= 0]
    good = measured[measured["error"] == ""]
    sums = {name: int(good[name].sum()) for name in ("rows", "real_tokens", "padded_tokens", "bytes_in", "bytes_out")}
    return {
        **sums,
        "requests": len(good),
        "errors": int((measured["error"] != "").sum()),
        "duration_s": _measured_duration_s(records, good),
        "latencies_ms": ((good["decoded_ns"] - good["intended_ns"]) / NS_PER_MS).to_numpy(),
    }


def _measured_duration_s(records: pd.DataFrame, good: pd.DataFrame) -> float:
    if good.empty:
        return float("nan")
    warmup = records[(records["window"] < 0) & (records["error"] == "")]
    start_ns = good["intended_ns"].min() if warmup.empty else warmup["decoded_ns"].max()
    return float((good["decoded_ns"].max() - start_ns) / NS_PER_S)


def _rates(runs: pd.DataFrame) -> dict[str, Any]:
    duration_s = float(runs["duration_s"].sum()) or float("nan")
    latencies_ms = np.concatenate(list(runs["latencies_ms"]))
    rows, requests = int(runs["rows"].sum()), int(runs["requests"].sum())
    return {
        "requests": requests,
        "rows": rows,
        "errors": int(runs["errors"].sum()),
        "duration_s": duration_s,
        "throughput_rows_per_s": rows / duration_s,
        "requests_per_s": requests / duration_s,
        "latency_mean_ms": float(latencies_ms.mean()) if requests else float("nan"),
        **{f"latency_p{p}_ms": latency_percentile(latencies_ms, p) for p in PERCENTILES},
        **_token_rates(runs, duration_s),
        "mb_in_per_s": float(runs["bytes_in"].sum()) / BYTES_PER_MB / duration_s,
        "mb_out_per_s": float(runs["bytes_out"].sum()) / BYTES_PER_MB / duration_s,
        "note": _missing_note(requests),
    }


def _missing_note(requests: int) -> str:
    missing = [p for p in PERCENTILES if requests < least_requests(p)]
    needs = ", ".join(f"p{p} needs {least_requests(p)} requests" for p in missing)
    return f"{needs}; there are {requests}" if missing else ""


def _token_rates(records: pd.DataFrame, duration_s: float) -> dict[str, float]:
    real, padded = float(records["real_tokens"].sum()), float(records["padded_tokens"].sum())
    return {
        "real_tokens_per_s": real / duration_s,
        "padded_tokens_per_s": padded / duration_s,
        "padding_percent": 100 * (1 - real / padded) if padded else float("nan"),
    }


def _batch_rates(records: pd.DataFrame) -> dict[str, Any]:
    good = records[records["error"] == ""]
    spans = good.groupby("run").agg(start=("start_ns", "min"), end=("pooled_ns", "max"))
    duration_s = float((spans["end"] - spans["start"]).sum() / NS_PER_S) or float("nan")
    batch_ms = (good["pooled_ns"] - good["start_ns"]) / NS_PER_MS
    rows = int(good["rows"].sum())
    return {
        "batches": len(good),
        "rows": rows,
        "errors": int((records["error"] != "").sum()),
        "duration_s": duration_s,
        "throughput_rows_per_s": rows / duration_s,
        "tokenise_ms": float((good["tokenised_ns"] - good["start_ns"]).mean() / NS_PER_MS),
        "inference_ms": float((good["inferred_ns"] - good["tokenised_ns"]).mean() / NS_PER_MS),
        "pooling_ms": float((good["pooled_ns"] - good["inferred_ns"]).mean() / NS_PER_MS),
        "latency_mean_ms": float(batch_ms.mean()),
        "latency_p50_ms": latency_percentile(batch_ms, 50),
        **_token_rates(good, duration_s),
        "unaccounted_percent": 100 * (1 - float(batch_ms.sum()) / 1e3 / duration_s),
    }


def _latencies(records: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    online = "decoded_ns" in records
    good = records[(records["error"] == "") & (records["window"] >= 0)] if online else records[records["error"] == ""]
    start, end = (good["intended_ns"], good["decoded_ns"]) if online else (good["start_ns"], good["pooled_ns"])
    concurrency = good["concurrency"] if online else 0
    frame = pd.DataFrame({"arm": good["arm"], "run": good["run"], "concurrency": concurrency})
    frame["label"] = arm_labels(frame)
    frame["order"] = good["request" if online else "batch"]
    by_run = frame.assign(start=start).groupby(["arm", "concurrency", "run"])["start"]
    frame["start_s"] = (start - by_run.transform("min")) / NS_PER_S
    frame["rows"] = good["rows"]
    frame["latency_ms"] = (end - start) / NS_PER_MS
    frame["ms_per_row"] = frame["latency_ms"] / frame["rows"]
    return frame


def _json_value(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
