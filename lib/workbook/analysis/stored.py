"""Stored records of any run as one table of measurements, without a server: what the records panel draws from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.analysis.summaries import NS_PER_MS, PERCENTILES, latency_percentile, summarise_requests
from workbook.errors import SettingError
from workbook.measuring.comparison.blocks import MAIN, main_arms
from workbook.measuring.comparison.study import Study
from workbook.measuring.comparison.switches import make_plan
from workbook.measuring.online.live import LIVE, LIVE_SERVER, SERVER_COLUMNS
from workbook.measuring.online.windows import STABLE_WINDOWS
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.runs import Run, read_json

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.comparison.protocol import Protocol

QUANTITIES = {
    "throughput_rows_per_s": "throughput (rows/s)",
    "latency_mean_ms": "mean latency (ms)",
    "latency_p50_ms": "median latency, p50 (ms)",
    "latency_p95_ms": "95% within, p95 (ms)",
    "latency_p99_ms": "99% within, p99 (ms)",
    "queue_ms": "waiting in the server's queue (ms)",
    "compute_input_ms": "server gathers inputs (ms)",
    "compute_infer_ms": "model computes (ms)",
    "compute_output_ms": "server hands out outputs (ms)",
}
"""What can be shown, with the words a reader sees."""
SERVER_PARTS = tuple(name for name in QUANTITIES if name.startswith(("queue", "compute")))
KEYS = ["measurement", "arm", "concurrency", "run"]
COMPARISON = "comparison"
_OF_ANOTHER_KIND = (
    *("warm", "answers", "axes", "agreement", "capacity", "knee", "open_loop", "serving_cost", "quality"),
    *("main-", "switch-", "peer", "ceiling", "plain", "regimes", "arrivals", "repeats", LIVE_SERVER),
)
"""Records that are no closed loop of one arm: they have figures of their own."""


def stored_measurements(directory: Path, notebook: str) -> pd.DataFrame:
    """Every run of every arm that a notebook measured in a run directory.

    Args:
        directory: `runs/<run>`.
        notebook: its stem.

    Returns:
        KEYS and QUANTITIES: `measurement` is the records file, or "comparison" for the main arms of notebook 05;
        `concurrency` 0 stands for a batch job. NaN where something was not measured, or not in enough requests
        (`summaries.least_requests`). Times in the server are means over all runs of an arm, as Triton counts them.

    Raises:
        SettingError: the directory holds no such records.
    """
    import pandas as pd

    frames = []
    for path in sorted((directory / "records" / notebook).glob("*.csv")):
        if not path.stem.startswith(_OF_ANOTHER_KIND):
            frames.append(_read(path, path.stat().st_mtime_ns))
    study = directory / "records" / notebook / "study.json"
    if study.is_file():
        frames += _comparison(study, study.stat().st_mtime_ns)
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        raise SettingError(f"{directory.name} holds no records of {notebook} to draw: run the notebook first.")
    table = pd.concat(filled, ignore_index=True)
    return _with_server_parts(table, directory, notebook)[[*KEYS, *QUANTITIES]]


@lru_cache(maxsize=256)
def _read(path: Path, modified_ns: int) -> pd.DataFrame:
    """One file's runs; the same file is read once."""
    import pandas as pd

    with path.open(encoding="utf-8") as file:
        if file.readline().strip().split(",") != list(REQUEST_COLUMNS):
            return pd.DataFrame()
    return summarise_requests(_measured(read_records(path, REQUEST_COLUMNS))).assign(measurement=path.stem)


def _measured(records: pd.DataFrame) -> pd.DataFrame:
    """The requests that a measurement counts: of its last three windows, as `measure_load` does."""
    inside = records[records["window"] >= 0]
    last = inside.groupby(["arm", "concurrency", "run"])["window"].transform("max")
    return inside[inside["window"] > last - STABLE_WINDOWS]


@lru_cache(maxsize=32)
def _comparison(facts_path: Path, modified_ns: int) -> list[pd.DataFrame]:
    """Runs of the comparison's main arms, by its own names and clocks; none while it is not measured to the end."""
    import pandas as pd

    facts = read_json(facts_path)
    if "fair_split" not in facts:
        return []
    plan = make_plan(**facts["plan"])
    study = Study(Run(facts_path.parents[2], facts_path.parent.name), facts, plan)
    frames = []
    for name, protocol in main_arms(plan).items():
        rows = _batch_runs(study.records(MAIN, protocol), protocol)
        rates = study.rows_per_s(MAIN, protocol)
        part = pd.DataFrame(rows).assign(arm=name, measurement=COMPARISON, throughput_rows_per_s=list(rates))
        split = facts["fair_split"]["parts_ms"] if name == "fair online" else {}
        frames.append(part.assign(**{key: value for key, value in split.items() if key in QUANTITIES}))
    return frames


def _batch_runs(records: pd.DataFrame, protocol: Protocol) -> list[dict[str, Any]]:
    """A row a run: batches or requests a second of its own rate, and percentiles by the protocol's clock."""
    online = protocol.side == "online"
    start, end = ("sent_ns", "decoded_ns") if online else ("tokenised_ns", "pooled_ns")
    end = "inferred_ns" if protocol.clock == "launched" and not online else end
    rows = []
    for run, group in records[records["error"] == ""].groupby("run", sort=True):
        times_ms = ((group[end] - group[start]) / NS_PER_MS).to_numpy()
        rows.append(
            {
                "concurrency": protocol.in_flight if online else 0,
                "run": run,
                "rows": int(group["rows"].sum()),
                "requests": len(group),
                "latency_mean_ms": float(times_ms.mean()),
                **{f"latency_p{p}_ms": latency_percentile(times_ms, p) for p in PERCENTILES},
            }
        )
    return rows


def _with_server_parts(table: pd.DataFrame, directory: Path, notebook: str) -> pd.DataFrame:
    """The table with what Triton counted, where the results or the live records hold it."""
    for name in SERVER_PARTS:
        if name not in table:
            table[name] = float("nan")
    for row in (*_live_parts(directory, notebook), *_result_parts(directory, notebook)):
        same = (table["measurement"] == LIVE) == (row.get("measurement") == LIVE)
        for name in ("arm", "concurrency", "run"):
            if name in row:
                same &= table[name] == row[name]
        if "batch_size" in row:
            same &= (table["rows"] / table["requests"]).round() == row["batch_size"]
        for name in SERVER_PARTS:
            if row.get(name) is not None:
                table.loc[same, name] = float(row[name])
    return table


def _live_parts(directory: Path, notebook: str) -> list[dict[str, Any]]:
    path = directory / "records" / notebook / f"{LIVE_SERVER}.csv"
    if not path.is_file():
        return []
    rows = read_records(path, SERVER_COLUMNS).to_dict("records")
    return [{str(name): value for name, value in row.items()} | {"measurement": LIVE} for row in rows]


def _result_parts(directory: Path, notebook: str) -> list[dict[str, Any]]:
    """Parts as notebooks 03 (by concurrency) and 04 (by variant) write them; empty while there are no results."""
    path = directory / "results" / f"{notebook}.json"
    if not path.is_file() or notebook[:2] not in ("03", "04"):
        return []
    results = read_json(path)
    split = results.get("latency_split_ms", {})
    by_concurrency = [{"concurrency": int(label.split()[-1]), **parts} for label, parts in split.items()]
    return by_concurrency + [{"arm": row["variant"], **row} for row in results.get("rows", [])]
