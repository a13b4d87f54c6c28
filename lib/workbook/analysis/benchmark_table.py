"""The benchmark's measurements as rows: throughput, percentiles, where the time went, and the checks on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from workbook.analysis.split import LatencySplit, split_latency
from workbook.analysis.summaries import LITTLES_LAW_TOLERANCE, NS_PER_MS, as_json_values, latency_percentile

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.floor import Floor
    from workbook.measuring.variants.benchmark import Cell
    from workbook.models.variants import Variant

ROW_FIELDS = (
    "variant",
    "transport",
    "outputs",
    "load_mode",
    "concurrency",
    "batch_size",
    "sequence_length",
    "throughput_rows_per_s",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "queue_ms",
    "compute_input_ms",
    "compute_infer_ms",
    "compute_output_ms",
    "errors",
)
"""Fields of a row in `results/04_online_benchmark.json`."""
_KEYS = ("variant", "workload", "transport", "outputs", "concurrency")


def benchmark_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row a variant, workload, transport, outputs and concurrency; its rounds are put together.

    Returns:
        ROW_FIELDS and `workload`, `rounds`, `requests`, `latency_mean_ms`, `lowest_rows_per_s` and
        `highest_rows_per_s` (of the rounds), `implied_in_flight`, `outside_ms` (mean latency less queue and
        `compute_infer`: what the way and the copies take), `steady`. Throughput is rows / time over all rounds;
        percentiles are NaN below `least_requests`. Of a cell that is not steady, those of the first rush that ended
        first are left out of the latencies, because each found fewer ahead of it than the concurrency says.
    """
    import pandas as pd

    return pd.DataFrame([_row(key, group) for key, group in _grouped(cells).items()])


def splits_of(cells: Sequence[Cell], workload: str) -> dict[str, dict[int, LatencySplit]]:
    """Variant -> concurrency -> where the mean latency of the workload's requests went, all rounds together."""
    found: dict[str, dict[int, LatencySplit]] = {}
    for (variant, name, *_, concurrency), group in _grouped(cells).items():
        if name == workload:
            records = _records(group)
            found.setdefault(variant, {})[concurrency] = split_latency(records, _statistics(group))
    return found


def check_table(table: pd.DataFrame, splits: Mapping[str, Mapping[int, LatencySplit]]) -> pd.DataFrame:
    """Two checks on each steady cell of one workload.

    Returns:
        `variant`, `concurrency`; `implied_in_flight` = requests/s x mean latency, which Little's law says is the
        concurrency (`law_holds`: within 5%, or within what the requests that a round's edges cut can make of it);
        `parts_ms`, the sum of all parts, and `whole_ms`, the mean latency of the
        same requests on the client's clock; `least_part_ms`: the parts fit where none is negative (`parts_fit`).
    """
    import pandas as pd

    rows = []
    for variant, by_concurrency in splits.items():
        for concurrency, split in by_concurrency.items():
            here = table[(table["variant"] == variant) & (table["concurrency"] == concurrency) & table["steady"]]
            if here.empty:
                continue
            implied = float(here["implied_in_flight"].iloc[0])
            edges = concurrency * float(here["rounds"].iloc[0] / here["requests"].iloc[0])
            rows.append(
                {
                    "variant": variant,
                    "concurrency": concurrency,
                    "implied_in_flight": implied,
                    "law_holds": abs(implied / concurrency - 1) <= max(LITTLES_LAW_TOLERANCE, edges),
                    "parts_ms": sum(split.parts_ms.values()),
                    "whole_ms": split.mean_ms,
                    "least_part_ms": min(split.parts_ms.values()),
                    "parts_fit": min(split.parts_ms.values()) >= 0,
                }
            )
    return pd.DataFrame(rows)


def wide_table(
    table: pd.DataFrame, workload: str, value: str, not_run: Iterable[tuple[Variant, str]] = ()
) -> pd.DataFrame:
    """The article's form of table: a row a variant, a column a concurrency; what did not run says what it needs.

    Variants that need the same share a row.
    """
    here = table[table["workload"] == workload]
    wide = here.pivot(index="variant", columns="concurrency", values=value).loc[list(here["variant"].unique())]
    wide.columns = [f"{concurrency} in flight" for concurrency in wide.columns]
    wide = wide.reset_index()
    wide["note"] = ""
    alike: dict[str, list[str]] = {}
    for variant, reason in not_run:
        alike.setdefault(reason, []).append(variant.name)
    for reason, names in alike.items():
        wide.loc[len(wide)] = {"variant": ", ".join(names), "note": reason}
    return wide


def longer_cells(cells: Sequence[Cell], cell_s: float) -> str:
    """Which variants were measured for longer than asked for, since their requests are slow here; empty where none."""
    longest: dict[str, float] = {}
    for cell in cells:
        if cell.steady and cell.result.duration_s > 1.05 * cell_s:
            longest[cell.variant] = max(longest.get(cell.variant, 0.0), cell.result.duration_s)
    if not longest:
        return ""
    named = ", ".join(f"{variant} up to {seconds:.1f} s" for variant, seconds in longest.items())
    return (
        f"Requests are slow on this machine, so that some cells were measured for longer than the {cell_s:g} s asked "
        f"for ({named}): a window has to hold several requests."
    )


def result_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of the results file: ROW_FIELDS and nothing else, None where a value is missing."""
    return as_json_values(table[list(ROW_FIELDS)])


def _grouped(cells: Sequence[Cell]) -> dict[tuple[Any, ...], list[Cell]]:
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        load = cell.result.load
        transport = cell.transport or load.transport
        key = (cell.variant, cell.workload.name, transport, "+".join(load.outputs), load.concurrency)
        groups.setdefault(key, []).append(cell)
    return groups


def _after_the_rush(cell: Cell, concurrency: int) -> pd.DataFrame:
    """Answered requests without the first that ended, one fewer than there are clients.

    All clients send at once, and the server takes their requests in whatever order: the order of the ends tells it.
    """
    records = cell.result.records
    return records[records["error"] == ""].sort_values("decoded_ns").iloc[concurrency - 1 :]


def _row(key: tuple[Any, ...], group: list[Cell]) -> dict[str, Any]:
    import pandas as pd

    records = _records(group)
    good = records[records["error"] == ""]
    duration_s = sum(cell.result.duration_s for cell in group)
    steady = group[0].steady
    counted = good if steady else pd.concat([_after_the_rush(cell, key[-1]) for cell in group])
    latency_ms = ((counted["decoded_ns"] - counted["intended_ns"]) / NS_PER_MS).to_numpy()
    rates = [cell.result.throughput_rows_per_s for cell in group]
    statistics = _statistics(group)
    mean_ms = float(latency_ms.mean()) if len(latency_ms) else float("nan")
    return {
        **dict(zip(_KEYS, key, strict=True)),
        "load_mode": "closed",
        "batch_size": group[0].workload.batch_size,
        "sequence_length": group[0].workload.sequence_length,
        "throughput_rows_per_s": float(good["rows"].sum()) / duration_s,
        **{f"latency_p{p}_ms": latency_percentile(latency_ms, p) for p in (50, 95, 99)},
        "latency_mean_ms": mean_ms,
        **{name: getattr(statistics, name) for name in ROW_FIELDS if name.startswith(("queue", "compute"))},
        "errors": len(records) - len(good),
        "rounds": len(group),
        "requests": len(good),
        "lowest_rows_per_s": min(rates),
        "highest_rows_per_s": max(rates),
        "implied_in_flight": len(good) / duration_s * mean_ms / 1e3,
        "outside_ms": mean_ms - statistics.queue_ms - statistics.compute_infer_ms,
        "steady": steady,
    }


def _records(group: Sequence[Cell]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([cell.result.records for cell in group], ignore_index=True)


def _statistics(group: Sequence[Cell]) -> Any:
    return reduce(add, [cell.result.statistics for cell in group])


def fastest_fp32(table: pd.DataFrame, workload: str) -> float:
    """Highest throughput under a workload of the variants that compute in fp32, rows/s; NaN where there is none.

    The ceiling is of fp32 products: a variant in fewer bits may well exceed it.
    """
    here = table[(table["workload"] == workload) & table["variant"].str.endswith("_fp32")]
    return float(here["throughput_rows_per_s"].max())


def floor_table(table: pd.DataFrame, floors: Mapping[str, Floor]) -> pd.DataFrame:
    """How near each variant comes to what the machine can multiply.

    Args:
        table: from `benchmark_table`.
        floors: workload -> from `predict_floor`.

    Returns:
        `workload`, `variant`, `throughput_rows_per_s` (its highest), `gflop_per_row`, `gflop_per_s`,
        `share_of_ceiling`: of a bare fp32 matrix product, padding of the request included; padding that Triton's
        batcher adds is not counted as work.
    """
    import pandas as pd

    rows = []
    for (workload, variant), group in table.groupby(["workload", "variant"], sort=False):
        floor = floors[str(workload)]
        rate, flop_per_row = float(group["throughput_rows_per_s"].max()), floor.flop / floor.rows
        rows.append(
            {
                "workload": workload,
                "variant": variant,
                "throughput_rows_per_s": rate,
                "gflop_per_row": flop_per_row / 1e9,
                "gflop_per_s": rate * flop_per_row / 1e9,
                "share_of_ceiling": rate * flop_per_row / floor.ceiling_flop_per_s,
            }
        )
    return pd.DataFrame(rows)
