"""Every arrangement alone and under load: latency and throughput, all arrangements taking turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.errors import LoadError
from workbook.measuring.alternation import alternate
from workbook.measuring.copies.requests import WARM_REQUESTS, TensorRequest, send_recorded
from workbook.measuring.online.load import Load, measure_load
from workbook.measuring.online.requests import check_requests, prepare_requests
from workbook.measuring.online.transports import RequestError, open_transport
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter
from workbook.serving.arrangements import entry_model
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

LEAST_ALONE = 3
WINDOW_REQUESTS = 4
"""A window lasts at least as long as so many lone requests."""


def measure_arrangements(
    server: Server,
    pipeline: Pipeline,
    requests: Sequence[TensorRequest],
    arrangements: Sequence[str],
    concurrencies: Sequence[int],
    load: Load,
    records_path: Path,
    *,
    repeats: int = 2,
    progress: bool = True,
) -> pd.DataFrame:
    """Closed loops through every arrangement at every concurrency; all take turns, A B B A.

    Args:
        server: serves all arrangements of the pipeline.
        pipeline: which.
        requests: sent in turn.
        arrangements: names from `arrangement_names()`.
        concurrencies: requests in flight.
        load: warm-up and windows; model, outputs and concurrency are set here.
        records_path: CSV file of REQUEST_COLUMNS; `arm` is the arrangement.
        repeats: runs of each, even.
        progress: show a progress bar.

    Returns:
        A row a run: `pipeline`, `arrangement`, `concurrency`, `run`, `requests_per_s`, `latency_p50_ms`,
        `latency_mean_ms`, `requests`, `failed`, `stable`.

    Raises:
        LoadError: no request of a run was answered.
        ServerError: the server is gone.
    """
    import pandas as pd

    alone_ms: dict[str, float] = {}

    def measure(arrangement: str, concurrency: int, run: int) -> dict[str, Any]:
        model = entry_model(pipeline, arrangement)
        # a window has to hold several requests, also where the machine is slow or the pipeline long
        window_s = max(load.window_s, WINDOW_REQUESTS * alone_ms.get(arrangement, 0.0) / 1e3)
        windows = (load.warmup_s, window_s, load.stability_percent, load.max_windows, load.timeout_s)
        one = Load(model, concurrency, load.transport, pipeline.outputs, *windows)
        if concurrency == 1:
            found = _measure_alone(server, one, requests, records_path, arrangement, run)
            alone_ms[arrangement] = found["latency_mean_ms"]
        else:
            found = _measure_load(server, one, requests, records_path, arrangement, run)
        shown = {"pipeline": pipeline.name, "arrangement": arrangement, "concurrency": concurrency, "run": run}
        return {**shown, **found}

    arms = {
        f"{pipeline.name} {name}, {concurrency} in flight": partial(measure, name, concurrency)
        for concurrency in concurrencies
        for name in arrangements
    }
    results = alternate(arms, repeats, progress=progress)
    return pd.DataFrame(list(itertools.chain.from_iterable(results.values())))


def _measure_load(
    server: Server, load: Load, requests: Sequence[TensorRequest], records_path: Path, arm: str, run: int
) -> dict[str, Any]:
    result = measure_load(server, load, requests, records_path, arm=arm, run=run, progress=False)
    answered = result.records[result.records["error"] == ""]
    latencies_ms = (answered["decoded_ns"] - answered["sent_ns"]) / 1e6
    return {
        "requests_per_s": result.requests_per_s,
        "latency_p50_ms": float(latencies_ms.median()),
        "latency_mean_ms": float(latencies_ms.mean()),
        "requests": len(answered),
        "failed": result.failed,
        "stable": result.stable,
    }


def _measure_alone(
    server: Server, load: Load, requests: Sequence[TensorRequest], records_path: Path, arm: str, run: int
) -> dict[str, Any]:
    """One request after the other for as long as three windows of the load, at least three times each."""
    check_requests(server, load.model, requests, load.outputs)
    prepared = prepare_requests(load.model, requests, load.outputs, load.transport)
    url = server.grpc_url if load.transport == "grpc" else server.http_url
    latencies_ms: list[float] = []
    with (
        RecordWriter(records_path, REQUEST_COLUMNS) as writer,
        closing(open_transport(load.transport, url, load.timeout_s)) as transport,
    ):
        try:
            transport.connect()
            end_ns = time.perf_counter_ns() + int(3 * load.window_s * 1e9)
            for number in itertools.count(-WARM_REQUESTS):
                record = send_recorded(transport, prepared[number % len(prepared)], number, arm, run)
                writer.append(record)
                if number >= 0:
                    latencies_ms.append((record["decoded_ns"] - record["sent_ns"]) / 1e6)
                if len(latencies_ms) >= LEAST_ALONE and time.perf_counter_ns() > end_ns:
                    break
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{load.model} did not answer: {error}.") from None
    mean_ms = float(np.mean(latencies_ms))
    return {
        "requests_per_s": 1e3 / mean_ms,
        "latency_p50_ms": float(np.median(latencies_ms)),
        "latency_mean_ms": mean_ms,
        "requests": len(latencies_ms),
        "failed": 0,
        "stable": True,
    }
