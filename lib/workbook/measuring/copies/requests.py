"""Requests of plain tensors, one sent at a time and recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.measuring.online.requests import PreparedRequest, check_requests, prepare_requests
from workbook.measuring.online.transports import Transport
from workbook.serving.arrangements import entry_model
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    from workbook.serving.handle import Server

WARM_REQUESTS = 2
TIMEOUT_S = 120.0


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


def prepare_each(
    server: Server, pipeline: Pipeline, requests: Sequence[TensorRequest], arrangements: Sequence[str]
) -> dict[str, list[PreparedRequest]]:
    """The requests ready to be sent over gRPC, by arrangement; checked against what the server serves.

    Raises:
        SettingError, LoadError, ServerError: as `check_requests`.
    """
    prepared = {}
    for name in arrangements:
        entry = entry_model(pipeline, name)
        check_requests(server, entry, requests, pipeline.outputs)
        prepared[name] = prepare_requests(entry, requests, pipeline.outputs, "grpc")
    return prepared


def send_recorded(transport: Transport, request: PreparedRequest, number: int, arm: str, run: int) -> dict[str, Any]:
    """Send a request and read the answer; a record of REQUEST_COLUMNS. Requests with a negative number are warm-up."""
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
