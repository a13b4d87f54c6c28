"""What Triton books for one request at a time: its statistics, read before and after each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from workbook.errors import LoadError
from workbook.measuring.copies.requests import TIMEOUT_S, WARM_REQUESTS, TensorRequest
from workbook.measuring.online.requests import check_requests, prepare_requests
from workbook.measuring.online.transports import RequestError, open_transport
from workbook.serving import control
from workbook.serving.arrangements import entry_model, member_models
from workbook.serving.pipelines import Pipeline, relay_pipeline
from workbook.serving.statistics import ModelStatistics

if TYPE_CHECKING:
    from workbook.serving.handle import Server

_BOOKING_S = 10.0
"""Triton books within milliseconds; a shared machine may stop it for seconds in between."""


def read_counters(server: Server, models: Mapping[str, object]) -> dict[str, ModelStatistics]:
    """Counters of several models in one reading."""
    server.check_alive()
    answer = control.get_json(server.http_url, "/v2/models/stats")["model_stats"]
    return {stats["name"]: ModelStatistics.from_triton(stats) for stats in answer if stats["name"] in models}


def what_happened(
    server: Server, before: Mapping[str, ModelStatistics]
) -> tuple[dict[str, ModelStatistics], dict[str, ModelStatistics]]:
    """The counters once every model has booked one more request, and the difference; Triton books after it answers."""
    deadline_ns = time.perf_counter_ns() + int(_BOOKING_S * 1e9)
    while True:
        now = read_counters(server, before)
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


def _deltas(
    server: Server, entry: str, members: Sequence[str], outputs: Sequence[str], request: TensorRequest, requests: int
) -> list[dict[str, ModelStatistics]]:
    """What the members booked for each of some requests."""
    check_requests(server, entry, [request], outputs)
    (prepared,) = prepare_requests(entry, [request], outputs, "grpc")
    found = []
    with closing(open_transport("grpc", server.grpc_url, TIMEOUT_S)) as transport:
        try:
            transport.connect()
            counters = read_counters(server, dict.fromkeys(members))
            for _ in range(WARM_REQUESTS + requests):
                transport.send(prepared.message)
                counters, deltas = what_happened(server, counters)
                found.append(deltas)
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{entry} did not answer: {error}.") from None
    return found[WARM_REQUESTS:]
