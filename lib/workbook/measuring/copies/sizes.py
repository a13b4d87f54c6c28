"""One request at a time through each arrangement, over sizes: what a hop costs, and what a byte costs.

The arrangements take turns request by request: what one costs more than another is a difference of milliseconds, and a
shared machine may slow down by that much from one second to the next. Latency comes from the client's clock; the parts
come from Triton's statistics, read after every single request, so that the median of a run is one of the middle
requests and not of whatever disturbed the machine meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.errors import LoadError
from workbook.measuring.alternation import alternate, order_of_runs
from workbook.measuring.copies.answers import ask_once
from workbook.measuring.copies.booking import read_counters, what_happened
from workbook.measuring.copies.caches import CacheSweeper
from workbook.measuring.copies.requests import TIMEOUT_S, WARM_REQUESTS, prepare_each, relay_request, send_recorded
from workbook.measuring.online.transports import RequestError, open_transport
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter
from workbook.serving.arrangements import entry_model, member_models
from workbook.serving.pipelines import Pipeline, relay_pipeline

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

_BYTES_A_RUN = 24_000_000
_MOST_TIMES = 2
_PARTS = ("queue_ms", "compute_input_ms", "compute_infer_ms", "compute_output_ms")


@dataclass(frozen=True, eq=False)
class SizeSweep:
    """Measurements over sizes.

    Attributes:
        latencies: a row a run: `arrangement`, `bytes`, `run`, `latency_ms` (median over its requests).
        parts: a row a run and model: `arrangement`, `bytes`, `run`, `model`, `queue_ms`, `compute_input_ms`,
            `compute_infer_ms`, `compute_output_ms` (medians over the run's requests).
    """

    latencies: pd.DataFrame
    parts: pd.DataFrame


def measure_sizes(
    server: Server,
    arrangements: Sequence[str],
    sizes_bytes: Sequence[int],
    records_path: Path,
    *,
    repeats: int = 4,
    requests: int = 8,
    pipeline: Pipeline | None = None,
    progress: bool = True,
) -> SizeSweep:
    """Send relay requests of each size to each arrangement, one at a time; arrangements and sizes take turns, A B B A.

    Args:
        server: serves all arrangements of the relay pipeline.
        arrangements: names from `arrangement_names()`.
        sizes_bytes: sizes of the tensor that is handed on.
        records_path: CSV file of REQUEST_COLUMNS; `arm` is "arrangement bytes".
        repeats: runs of each, even.
        requests: timed requests of a run, after two that are not; twice as many of 12 MB or less.
        pipeline: the relay, or another that takes its requests.
        progress: show a progress bar.

    Raises:
        LoadError: a request failed.
        ServerError: the server is gone.
    """
    import pandas as pd

    pipeline = pipeline or relay_pipeline()
    settle_memory(server, pipeline, arrangements, sizes_bytes)
    with RecordWriter(records_path, REQUEST_COLUMNS) as writer:
        arms: dict[str, Callable[[int], list[dict[str, Any]]]] = {
            f"{size:,} bytes": partial(_measure_size, server, writer, pipeline, arrangements, size, requests)
            for size in sizes_bytes
        }
        cells = alternate(arms, repeats, progress=progress)
    frame = pd.DataFrame(list(itertools.chain.from_iterable(itertools.chain.from_iterable(cells.values()))))
    keys = ["arrangement", "bytes", "run"]
    medians = frame.groupby([*keys, "model"], sort=False)[["latency_ms", *_PARTS]].median().reset_index()
    latencies = medians.groupby(keys, sort=False)["latency_ms"].first().reset_index()
    return SizeSweep(latencies, medians.drop(columns="latency_ms"))


def settle_memory(server: Server, pipeline: Pipeline, arrangements: Sequence[str], sizes_bytes: Sequence[int]) -> None:
    """Send one request of each size: `malloc` and the stubs' regions are then as in a server that has run for a while.

    What `malloc` keeps depends on the largest tensor it has given back so far (mallopt(3), M_TRIM_THRESHOLD); without
    this the first run would find other memory than the later ones.

    Raises:
        LoadError: a request failed.
        ServerError: the server is gone.
    """
    for size in sorted(sizes_bytes):
        for name in arrangements:
            ask_once(server, entry_model(pipeline, name), pipeline.outputs, relay_request(size))


def _measure_size(
    server: Server,
    writer: RecordWriter,
    pipeline: Pipeline,
    arrangements: Sequence[str],
    size: int,
    requests: int,
    run: int,
) -> list[dict[str, Any]]:
    """One run at one size: a row a request and model."""
    requests *= max(1, min(_MOST_TIMES, _BYTES_A_RUN // size))
    batch, sweeper = relay_request(size, seed=run + 1), CacheSweeper()
    entries = {name: entry_model(pipeline, name) for name in arrangements}
    members = {name: member_models(pipeline, name) for name in arrangements}
    prepared = prepare_each(server, pipeline, [batch], arrangements)
    rows: list[dict[str, Any]] = []
    name = arrangements[0]
    transport = open_transport("grpc", server.grpc_url, TIMEOUT_S)
    try:
        transport.connect()
        counters = read_counters(server, dict.fromkeys([*entries.values(), *itertools.chain(*members.values())]))
        for turn, name in order_of_runs(tuple(arrangements), WARM_REQUESTS + requests):
            number = turn - WARM_REQUESTS
            sweeper.sweep()
            record = send_recorded(transport, prepared[name][0], number, f"{name} {size}", run)
            writer.append(record)
            asked = {model: counters[model] for model in (entries[name], *members[name])}
            booked, deltas = what_happened(server, asked)
            counters |= booked
            latency_ms = (record["decoded_ns"] - record["sent_ns"]) / 1e6
            shown = {"arrangement": name, "bytes": size, "run": run, "latency_ms": latency_ms}
            rows += [
                {**shown, "model": model, **{part: getattr(deltas[model], part) for part in _PARTS}}
                for model in members[name]
                if number >= 0
            ]
    except RequestError as error:
        server.check_alive()
        raise LoadError(f"{entries[name]} did not answer a request for {size:,} bytes: {error}.") from None
    finally:
        transport.close()
    return rows
