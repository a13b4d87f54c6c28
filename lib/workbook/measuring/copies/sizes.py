"""One request at a time through each arrangement, over sizes: what a hop costs, and what a byte costs.

Latency comes from the client's clock; the parts come from Triton's statistics, read after every single request, so that
the median of a run is one of the middle requests and not of whatever disturbed the machine meanwhile.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError, SettingError
from workbook.measuring.alternation import alternate
from workbook.measuring.copies.caches import CacheSweeper
from workbook.measuring.online.load import Load, measure_load
from workbook.measuring.online.requests import PreparedRequest, check_requests, prepare_requests
from workbook.measuring.online.transports import RequestError, Transport, open_transport
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter
from workbook.serving import control
from workbook.serving.arrangements import Pipeline, entry_model, member_models, relay_pipeline
from workbook.serving.statistics import ModelStatistics

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

WARM_REQUESTS = 2
LEAST_ALONE = 3
WINDOW_REQUESTS = 4
"""A window lasts at least as long as so many lone requests."""
_BYTES_A_RUN = 8_000_000
_MOST_TIMES = 3
_TIMEOUT_S = 120.0
_BOOKING_S = 2.0
_PARTS = ("queue_ms", "compute_input_ms", "compute_infer_ms", "compute_output_ms")


@dataclass(frozen=True, eq=False)
class TensorRequest:
    """A request of plain tensors.

    Attributes:
        inputs: tensors by name, the batch dimension first.
        first_row: number of the request's content.
        rows: batch elements.
        real_tokens, padded_tokens: 0, tensors have none.
    """

    inputs: Mapping[str, NDArray[Any]]
    first_row: int = 0
    rows: int = 1
    real_tokens: int = 0
    padded_tokens: int = 0


def relay_request(size_bytes: int, seed: int = 1) -> TensorRequest:
    """A request for a tensor of so many bytes.

    Raises:
        SettingError: fewer than 8 bytes.
    """
    if size_bytes < 8:
        raise SettingError(f"size_bytes is {size_bytes}: at least 8 are needed, one 64-bit word.")
    return TensorRequest({"request": np.array([[size_bytes, seed]], np.int64)})


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
    """Send relay requests of each size to each arrangement, one at a time; all take turns, A B B A.

    Args:
        server: serves all arrangements of the relay pipeline.
        arrangements: names from `arrangement_names()`.
        sizes_bytes: sizes of the tensor that is handed on.
        records_path: CSV file of REQUEST_COLUMNS; `arm` is "arrangement bytes".
        repeats: runs of each, even.
        requests: timed requests of a run, after two that are not; up to eight times as many where the tensor is small.
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
            f"{name} {size}": partial(_measure_cell, server, writer, pipeline, name, size, requests)
            for size in sizes_bytes
            for name in arrangements
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
            _answer(server, entry_model(pipeline, name), pipeline.outputs, relay_request(size))


def _measure_cell(
    server: Server, writer: RecordWriter, pipeline: Pipeline, arrangement: str, size: int, requests: int, run: int
) -> list[dict[str, Any]]:
    """One run of one arrangement at one size: a row a request and model."""
    requests *= max(1, min(_MOST_TIMES, _BYTES_A_RUN // size))
    entry, batch = entry_model(pipeline, arrangement), relay_request(size, seed=run + 1)
    check_requests(server, entry, [batch], pipeline.outputs)
    (request,) = prepare_requests(entry, [batch], pipeline.outputs, "grpc")
    models = dict.fromkeys((entry, *member_models(pipeline, arrangement)))
    transport = open_transport("grpc", server.grpc_url, _TIMEOUT_S)
    rows: list[dict[str, Any]] = []
    sweeper = CacheSweeper()
    try:
        transport.connect()
        counters = _counters(server, models)
        for number in range(-WARM_REQUESTS, requests):
            sweeper.sweep()
            record = _send(transport, request, number, f"{arrangement} {size}", run)
            writer.append(record)
            counters, deltas = _what_happened(server, counters)
            if number < 0:
                continue
            latency_ms = (record["decoded_ns"] - record["sent_ns"]) / 1e6
            shown = {"arrangement": arrangement, "bytes": size, "run": run, "latency_ms": latency_ms}
            parts = [
                {**shown, "model": name, **{part: getattr(deltas[name], part) for part in _PARTS}}
                for name in member_models(pipeline, arrangement)
            ]
            rows += parts
    except RequestError as error:
        server.check_alive()
        raise LoadError(f"{entry} did not answer a request for {size:,} bytes: {error}.") from None
    finally:
        transport.close()
    return rows


def _send(transport: Transport, request: PreparedRequest, number: int, arm: str, run: int) -> dict[str, Any]:
    sent_ns = time.perf_counter_ns()
    answer = transport.send(request.message)
    received_ns = time.perf_counter_ns()
    answer.decode()
    return {
        "arm": arm,
        "run": run,
        "concurrency": 1,
        "client": 0,
        "request": number + WARM_REQUESTS,
        "window": 0 if number >= 0 else -1,
        "first_row": request.first_row,
        "intended_ns": sent_ns,
        "sent_ns": sent_ns,
        "received_ns": received_ns,
        "decoded_ns": time.perf_counter_ns(),
        "rows": request.rows,
        "real_tokens": 0,
        "padded_tokens": 0,
        "bytes_in": request.body_bytes,
        "bytes_out": answer.bytes,
        "error": "",
    }


def _counters(server: Server, models: Mapping[str, object]) -> dict[str, ModelStatistics]:
    """Counters of several models in one reading."""
    server.check_alive()
    answer = control.get_json(server.http_url, "/v2/models/stats")["model_stats"]
    return {stats["name"]: ModelStatistics.from_triton(stats) for stats in answer if stats["name"] in models}


def _what_happened(
    server: Server, before: Mapping[str, ModelStatistics]
) -> tuple[dict[str, ModelStatistics], dict[str, ModelStatistics]]:
    """The counters once every model has booked one more request, and the difference; Triton books after it answers."""
    deadline_ns = time.perf_counter_ns() + int(_BOOKING_S * 1e9)
    while True:
        now = _counters(server, before)
        deltas = {name: now[name] - before[name] for name in before}
        if all(delta.success_count == 1 for delta in deltas.values()):
            return now, deltas
        if time.perf_counter_ns() > deadline_ns:
            counts = ", ".join(f"{name} {delta.success_count}" for name, delta in deltas.items())
            raise LoadError(f"after one request the models have booked {counts}: is somebody else asking this server?")


def measure_stages(server: Server, pipeline: Pipeline, request: TensorRequest, requests: int = 9) -> dict[str, float]:
    """Time of each stage, ms: `compute_infer` in the `handle` arrangement, where no copy is part of it.

    Args:
        server: serves the pipeline.
        pipeline: which.
        request: sent again and again, one at a time.
        requests: that many, after two that do not count; the median counts.

    Raises:
        LoadError: a request failed.
        ServerError: the server is gone.
    """
    members = member_models(pipeline, "handle")
    deltas = _deltas(server, entry_model(pipeline, "handle"), members, pipeline.outputs, request, requests)
    return {
        stage.name: float(np.median([delta[model].compute_infer_ms for delta in deltas]))
        for stage, model in zip(pipeline.stages, members, strict=True)
    }


def measure_foreign_input(server: Server, size_bytes: int, requests: int = 9) -> float:
    """Median `compute_input` of a Python model whose tensor was made outside the Python backend, ms.

    The tensor comes from a client here, so it lies in memory of the server itself, as the output of any backend in C++
    does. What such a backend does before is its own affair.

    Args:
        server: serves the relay's stages.
        size_bytes: of the tensor.
        requests: that many, after two that do not count.

    Raises:
        LoadError: a request failed.
        ServerError: the server is gone.
    """
    pipeline = relay_pipeline()
    model = member_models(pipeline, "ensemble")[1]
    request = TensorRequest({"payload": np.ones((1, size_bytes), np.uint8)})
    deltas = _deltas(server, model, (model,), ("shifted",), request, requests)
    return float(np.median([delta[model].compute_input_ms for delta in deltas]))


def check_answers(
    server: Server, pipeline: Pipeline, request: TensorRequest, arrangements: Sequence[str]
) -> pd.DataFrame:
    """Ask every arrangement once; say whether the answers are equal to the bit.

    Returns:
        A row an arrangement: `pipeline`, `arrangement`, `answer_bytes`, `equals_the_first`.

    Raises:
        LoadError: a request failed.
    """
    import pandas as pd

    answers = {name: _answer(server, entry_model(pipeline, name), pipeline.outputs, request) for name in arrangements}
    first = next(iter(answers.values()))
    return pd.DataFrame(
        {
            "pipeline": pipeline.name,
            "arrangement": name,
            "answer_bytes": len(answer),
            "equals_the_first": answer == first,
        }
        for name, answer in answers.items()
    )


def _answer(server: Server, model: str, outputs: Sequence[str], request: TensorRequest) -> bytes:
    check_requests(server, model, [request], outputs)
    (prepared,) = prepare_requests(model, [request], outputs, "grpc")
    with closing(open_transport("grpc", server.grpc_url, _TIMEOUT_S)) as transport:
        try:
            transport.connect()
            decoded = transport.send(prepared.message).decode()
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{model} did not answer: {error}.") from None
    return b"".join(decoded[name].tobytes() for name in outputs)


def _deltas(
    server: Server, entry: str, members: Sequence[str], outputs: Sequence[str], request: TensorRequest, requests: int
) -> list[dict[str, ModelStatistics]]:
    """What the members booked for each of some requests."""
    check_requests(server, entry, [request], outputs)
    (prepared,) = prepare_requests(entry, [request], outputs, "grpc")
    found = []
    with closing(open_transport("grpc", server.grpc_url, _TIMEOUT_S)) as transport:
        try:
            transport.connect()
            counters = _counters(server, dict.fromkeys(members))
            for _ in range(WARM_REQUESTS + requests):
                transport.send(prepared.message)
                counters, deltas = _what_happened(server, counters)
                found.append(deltas)
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{entry} did not answer: {error}.") from None
    return found[WARM_REQUESTS:]


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
                record = _send(transport, prepared[number % len(prepared)], number, arm, run)
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
