"""Does our load generator measure what perf_analyzer measures? Both on one server, alternated, on the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.measuring.online.load import Load, measure_load
from workbook.measuring.online.perf_analyzer import run_perf_analyzer
from workbook.measuring.online.requests import ModelInputs

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

OURS, THEIRS = "workbook", "perf_analyzer"


def compare_with_perf_analyzer(
    server: Server,
    load: Load,
    batches: Sequence[ModelInputs],
    program: Path,
    records_path: Path,
    *,
    concurrencies: Sequence[int] = (1, 4),
    repeats: int = 4,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure the same load with both tools in turn: A B B A at each concurrency.

    perf_analyzer asks for every output of the model, hence so do we, whatever `load.outputs` says. Set
    `load.stability_percent` to 1000 where the machine is noisy: both then take three windows each time.

    Args:
        server: running server.
        load: what is sent; its concurrency does not apply.
        batches: of one size; both tools send them in turn.
        program: perf_analyzer.
        records_path: CSV file of REQUEST_COLUMNS that our records are appended to.
        concurrencies: requests in flight.
        repeats: measurements by each tool at each concurrency.
        progress: show progress bars.

    Returns:
        A row a measurement, in the order they were made: `concurrency`, `tool`, `repeat`, `throughput_rows_per_s`,
        `latency_p50_ms`.

    Raises:
        LoadError: a measurement failed.
        ServerError: the server is gone.
    """
    import pandas as pd

    outputs = tuple(output["name"] for output in server.model_config(load.model)["output"])
    rows = []
    for concurrency in concurrencies:
        one = replace(load, concurrency=concurrency, outputs=outputs)
        for repeat in range(repeats):
            for tool in (OURS, THEIRS) if repeat % 2 == 0 else (THEIRS, OURS):
                if tool == OURS:
                    measured = _measure_ours(server, one, batches, records_path, repeat, progress)
                else:
                    theirs = run_perf_analyzer(server, one, batches, program).iloc[0]
                    measured = (float(theirs["throughput_rows_per_s"]), float(theirs["latency_p50_ms"]))
                rows.append((concurrency, tool, repeat, *measured))
    return pd.DataFrame(rows, columns=["concurrency", "tool", "repeat", "throughput_rows_per_s", "latency_p50_ms"])


def agreement_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Ours divided by perf_analyzer's.

    A repeat is a pair of neighbouring measurements, so that a machine that gets slower slows both; the ratio of a
    concurrency is the median over its pairs.

    Args:
        measured: from `compare_with_perf_analyzer`.

    Returns:
        A row a concurrency: `throughput_rows_per_s` and `latency_p50_ms` of each tool (medians), `throughput_ratio`,
        `latency_p50_ratio`, and the pairs' smallest and largest ratios.
    """
    import pandas as pd

    rows = []
    for concurrency, group in measured.groupby("concurrency"):
        row = {"concurrency": concurrency}
        for column, name in (("throughput_rows_per_s", "throughput"), ("latency_p50_ms", "latency_p50")):
            pairs = group.pivot(index="repeat", columns="tool", values=column)
            ratios = pairs[OURS] / pairs[THEIRS]
            row |= {f"{tool}_{column}": pairs[tool].median() for tool in (OURS, THEIRS)}
            row |= {f"{name}_ratio": ratios.median(), f"{name}_ratio_min": ratios.min()}
            row |= {f"{name}_ratio_max": ratios.max()}
        rows.append(row)
    return pd.DataFrame(rows)


def _measure_ours(
    server: Server, load: Load, batches: Sequence[ModelInputs], records_path: Path, repeat: int, progress: bool
) -> tuple[float, float]:
    result = measure_load(server, load, batches, records_path, arm=OURS, run=repeat, progress=progress)
    answered = result.records[result.records["error"] == ""]
    return result.throughput_rows_per_s, float((answered["decoded_ns"] - answered["sent_ns"]).median() / 1e6)
