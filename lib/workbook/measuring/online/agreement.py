"""Does our load generator measure what perf_analyzer measures? Both on one server, alternated, on the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.measuring.online.load import Load, measure_load, send_all
from workbook.measuring.online.patience import lone_request_s, patient
from workbook.measuring.online.perf_analyzer import run_perf_analyzer
from workbook.measuring.online.requests import ModelInputs

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

OURS, THEIRS = "workbook", "perf_analyzer"
TOLERANCE = 0.05
"""Difference in throughput up to which both tools are said to agree."""


def compare_with_perf_analyzer(
    server: Server,
    load: Load,
    batches: Sequence[ModelInputs],
    program: Path,
    records_path: Path,
    *,
    workload: str = "these requests",
    concurrencies: Sequence[int] = (1, 4),
    repeats: int = 4,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure the same load with both tools in turn: A B B A at each concurrency.

    perf_analyzer asks for every output of the model, hence so do we, whatever `load.outputs` says. Set
    `load.stability_percent` to 1000 where the machine is noisy: both then take three windows each time. Where a window
    would hold too few requests, both take longer ones.

    Args:
        server: running server.
        load: what is sent; its concurrency does not apply.
        batches: of one size; both tools send them in turn.
        program: perf_analyzer.
        records_path: CSV file of REQUEST_COLUMNS that our records are appended to.
        workload: what the batches are called in tables.
        concurrencies: requests in flight.
        repeats: measurements by each tool at each concurrency.
        progress: show progress bars.

    Returns:
        A row a measurement, in the order they were made: `workload`, `concurrency`, `tool`, `repeat`,
        `throughput_rows_per_s`, `latency_p50_ms`.

    Raises:
        LoadError: a measurement failed.
        ServerError: the server is gone.
    """
    import pandas as pd

    outputs = tuple(output["name"] for output in server.model_config(load.model)["output"])
    rows = []
    alone = replace(load, concurrency=1, outputs=outputs)
    lone_s = lone_request_s(send_all(server, alone, batches[:3], records_path, arm="warm-up", progress=False))
    for concurrency in concurrencies:
        one = patient(replace(alone, concurrency=concurrency), lone_s)
        for repeat in range(repeats):
            for tool in (OURS, THEIRS) if repeat % 2 == 0 else (THEIRS, OURS):
                if tool == OURS:
                    measured = _measure_ours(server, one, batches, records_path, repeat, progress)
                else:
                    theirs = run_perf_analyzer(server, one, batches, program).iloc[0]
                    measured = (float(theirs["throughput_rows_per_s"]), float(theirs["latency_p50_ms"]))
                rows.append((workload, concurrency, tool, repeat, *measured))
    columns = ["workload", "concurrency", "tool", "repeat", "throughput_rows_per_s", "latency_p50_ms"]
    return pd.DataFrame(rows, columns=columns)


def agreement_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Ours divided by perf_analyzer's.

    A repeat is a pair of neighbouring measurements, so that a machine that gets slower slows both; the ratio of a cell
    is the median over its pairs.

    Args:
        measured: from `compare_with_perf_analyzer`.

    Returns:
        A row a `workload` and `concurrency`: `pairs`; `throughput_rows_per_s` and `latency_p50_ms` of each tool
        (medians), `throughput_ratio`, `latency_p50_ratio`, and the pairs' smallest and largest ratios; `agrees`:
        the ratio of throughput lies within TOLERANCE of 1.
    """
    import pandas as pd

    rows = []
    for (workload, concurrency), group in measured.groupby(["workload", "concurrency"], sort=False):
        row: dict[str, object] = {"workload": workload, "concurrency": concurrency, "pairs": group["repeat"].nunique()}
        for column, name in (("throughput_rows_per_s", "throughput"), ("latency_p50_ms", "latency_p50")):
            pairs = group.pivot(index="repeat", columns="tool", values=column)
            ratios = pairs[OURS] / pairs[THEIRS]
            row |= {f"{tool}_{column}": pairs[tool].median() for tool in (OURS, THEIRS)}
            row |= {f"{name}_ratio": ratios.median(), f"{name}_ratio_min": ratios.min()}
            row |= {f"{name}_ratio_max": ratios.max()}
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.assign(agrees=(table["throughput_ratio"] - 1).abs() <= TOLERANCE)


def agreement_sentence(table: pd.DataFrame) -> str:
    """Where both tools agree, where not, and what to make of it.

    Args:
        table: from `agreement_table`.
    """
    ratios = [
        f"{row.throughput_ratio:.2f} for {row.workload}, {row.concurrency} in flight (single pairs "
        f"{row.throughput_ratio_min:.2f} to {row.throughput_ratio_max:.2f})"
        for row in table.itertuples()
    ]
    shown = f"This workbook's throughput over perf_analyzer's, the median of the pairs: {', '.join(ratios)}."
    apart = table[~table["agrees"]]
    if apart.empty:
        return f"{shown} They agree within {TOLERANCE:.0%} in every cell."
    both_sides = (apart["throughput_ratio_min"] <= 1 + TOLERANCE) & (apart["throughput_ratio_max"] >= 1 - TOLERANCE)
    loose, sure = apart[both_sides], apart[~both_sides]
    if len(loose):
        shown += (
            f" Not within {TOLERANCE:.0%} for {_named(loose)} in flight, where single pairs scatter across that bound: "
            "something else uses the machine, or the cells are short; raise repeats."
        )
    if len(sure):
        shown += f" NOT within {TOLERANCE:.0%} for {_named(sure)} in flight, in no pair: doubt these cells."
    return shown


def _named(cells: pd.DataFrame) -> str:
    return " and ".join(f"{cell.workload}, {cell.concurrency}" for cell in cells.itertuples())


def _measure_ours(
    server: Server, load: Load, batches: Sequence[ModelInputs], records_path: Path, repeat: int, progress: bool
) -> tuple[float, float]:
    result = measure_load(server, load, batches, records_path, arm=OURS, run=repeat, progress=progress)
    answered = result.records[result.records["error"] == ""]
    return result.throughput_rows_per_s, float((answered["decoded_ns"] - answered["sent_ns"]).median() / 1e6)
