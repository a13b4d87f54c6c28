"""Lone requests to every arrangement, which take turns request by request.

What arrangements differ by is often less than a shared machine wanders by within seconds, so no arrangement has
seconds to itself: a run is one request to each in order and one to each in reverse, A B B A.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.errors import LoadError
from workbook.measuring.alternation import order_of_runs
from workbook.measuring.copies.requests import TIMEOUT_S, WARM_REQUESTS, TensorRequest, prepare_each, send_recorded
from workbook.measuring.online.transports import RequestError, open_transport
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter
from workbook.serving.arrangements import entry_model
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

_THERE_AND_BACK = 2


def measure_alone(
    server: Server,
    pipeline: Pipeline,
    requests: Sequence[TensorRequest],
    arrangements: Sequence[str],
    records_path: Path,
    *,
    runs: int,
    progress: bool = True,
) -> pd.DataFrame:
    """One request at a time, to each arrangement in turn, there and back.

    Args:
        server: serves all arrangements of the pipeline.
        pipeline: which.
        requests: each run sends the next one.
        arrangements: names from `arrangement_names()`.
        records_path: CSV file of REQUEST_COLUMNS; `arm` is the arrangement.
        runs: rounds there and back, after one that does not count.
        progress: show a progress bar.

    Returns:
        A row a run and arrangement: `pipeline`, `arrangement`, `run`, `latency_ms` (mean of its two requests).

    Raises:
        LoadError: a request failed.
        ServerError: the server is gone.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    prepared = prepare_each(server, pipeline, requests, arrangements)
    turns = order_of_runs(tuple(arrangements), WARM_REQUESTS + _THERE_AND_BACK * runs)
    rows: list[dict[str, Any]] = []
    name = arrangements[0]
    with (
        RecordWriter(records_path, REQUEST_COLUMNS) as writer,
        closing(open_transport("grpc", server.grpc_url, TIMEOUT_S)) as transport,
    ):
        try:
            transport.connect()
            total = len(arrangements) * (WARM_REQUESTS + _THERE_AND_BACK * runs)
            for turn, name in tqdm(turns, desc=f"{pipeline.name}, alone", total=total, disable=not progress):
                number = turn - WARM_REQUESTS
                run = max(0, number // _THERE_AND_BACK)
                record = send_recorded(transport, prepared[name][run % len(requests)], number, name, run)
                writer.append(record)
                if number >= 0:
                    latency_ms = (record["decoded_ns"] - record["sent_ns"]) / 1e6
                    rows.append({"arrangement": name, "run": run, "latency_ms": latency_ms})
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{entry_model(pipeline, name)} did not answer: {error}.") from None
    means = pd.DataFrame(rows).groupby(["arrangement", "run"], sort=False)["latency_ms"].mean().reset_index()
    means.insert(0, "pipeline", pipeline.name)
    return means
