"""Every arrangement under load: its throughput, all arrangements taking turns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.measuring.alternation import alternate
from workbook.measuring.copies.requests import TensorRequest
from workbook.measuring.online.load import Load, measure_load
from workbook.serving.arrangements import entry_model
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

WINDOW_REQUESTS = 3
"""A window lasts at least as long as so many lone requests."""


def measure_arrangements(
    server: Server,
    pipeline: Pipeline,
    requests: Sequence[TensorRequest],
    alone: pd.DataFrame,
    concurrency: int,
    load: Load,
    records_path: Path,
    *,
    repeats: int = 4,
    progress: bool = True,
) -> pd.DataFrame:
    """A closed loop through every arrangement; all take turns, A B B A.

    Args:
        server: serves all arrangements of the pipeline.
        pipeline: which.
        requests: sent in turn.
        alone: of `measure_alone`; its arrangements are measured, for windows that hold several requests each.
        concurrency: requests in flight.
        load: warm-up and windows; model, outputs and concurrency are set here.
        records_path: CSV file of REQUEST_COLUMNS; `arm` is the arrangement.
        repeats: runs of each, even.
        progress: show a progress bar.

    Returns:
        A row a run: `pipeline`, `arrangement`, `concurrency`, `run`, `requests_per_s`, `latency_p50_ms`, `requests`,
        `failed`, `stable`.

    Raises:
        LoadError: no request of a run was answered.
        ServerError: the server is gone.
    """
    import pandas as pd

    def measure(arrangement: str, alone_ms: float, run: int) -> dict[str, Any]:
        window_s = max(load.window_s, WINDOW_REQUESTS * alone_ms / 1e3)
        one = replace(
            load,
            model=entry_model(pipeline, arrangement),
            concurrency=concurrency,
            outputs=pipeline.outputs,
            window_s=window_s,
        )
        result = measure_load(server, one, requests, records_path, arm=arrangement, run=run, progress=False)
        answered = result.records[result.records["error"] == ""]
        return {
            "pipeline": pipeline.name,
            "arrangement": arrangement,
            "concurrency": concurrency,
            "run": run,
            "requests_per_s": result.requests_per_s,
            "latency_p50_ms": float(((answered["decoded_ns"] - answered["sent_ns"]) / 1e6).median()),
            "requests": len(answered),
            "failed": result.failed,
            "stable": result.stable,
        }

    medians = alone[alone["pipeline"] == pipeline.name].groupby("arrangement", sort=False)["latency_ms"].median()
    arms = {
        f"{pipeline.name} {name}, {concurrency} in flight": partial(measure, str(name), float(alone_ms))
        for name, alone_ms in medians.items()
    }
    results = alternate(arms, repeats, progress=progress)
    return pd.DataFrame(list(itertools.chain.from_iterable(results.values())))
