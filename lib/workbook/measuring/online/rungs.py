"""The rungs of the transport ladder: each gives a function that asks once for a tensor of some size."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import util
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.measuring.copies.requests import relay_request
from workbook.measuring.online.requests import PreparedRequest, prepare_requests
from workbook.measuring.online.shared_memory import point, shared_region
from workbook.measuring.online.transports import GrpcTransport, open_transport
from workbook.serving.arrangements import SOURCE_MODEL
from workbook.serving.repository import committed_repository

if TYPE_CHECKING:
    from workbook.serving.handle import Server

IN_PROCESS, SHARED_MEMORY, GRPC, HTTP_BINARY, HTTP_JSON = RUNGS = (
    "in-process",
    "system shared memory",
    "gRPC",
    "HTTP binary",
    "HTTP JSON",
)
OUTPUT = "values"
TIMEOUT_S = 300.0

Ask = Callable[[], tuple[int, NDArray[Any], int]]
"""Sends one request; gives when the answer had arrived (ns), the array, and the size of the answer's body in bytes."""


def _open_in_process(server: Server, size: int, opened: ExitStack) -> Ask:
    """The model's own code, called here; its answer is copied, so that it belongs to the caller as all others do."""
    stage = load_stage()
    request = relay_request(size).inputs

    def ask() -> tuple[int, NDArray[Any], int]:
        values = stage(request, None)[OUTPUT]
        return time.perf_counter_ns(), values.copy(), 0

    return ask


def load_stage() -> Any:
    """The stage of `copies_source`, to be called in this process."""
    file = committed_repository() / "copies_stages" / "1" / "stages.py"
    spec = util.spec_from_file_location("workbook_copies_stages", file)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_stage("serve", file.parent, 1)


def _open_grpc(server: Server, size: int, opened: ExitStack) -> Ask:
    (request,) = prepare_requests(SOURCE_MODEL, [relay_request(size)], [OUTPUT], "grpc")
    return _over(open_transport("grpc", server.grpc_url, TIMEOUT_S), request, opened)


def _open_http(server: Server, size: int, opened: ExitStack) -> Ask:
    (request,) = prepare_requests(SOURCE_MODEL, [relay_request(size)], [OUTPUT], "http")
    return _over(open_transport("http", server.http_url, TIMEOUT_S), request, opened)


def _open_json(server: Server, size: int, opened: ExitStack) -> Ask:
    """Numbers as text in both directions, as a client without the binary extension sends and gets them."""
    (name, array), *_ = relay_request(size).inputs.items()
    asked = {"name": name, "datatype": "INT64", "shape": list(array.shape), "data": array.ravel().tolist()}
    wanted = {"name": OUTPUT, "parameters": {"binary_data": False}}
    body = json.dumps({"inputs": [asked], "outputs": [wanted]}).encode()
    head = f"POST /v2/models/{SOURCE_MODEL}/infer HTTP/1.1\r\nHost: triton\r\nContent-Length: {len(body)}\r\n\r\n"
    request = PreparedRequest(head.encode() + body, len(body), 0, 1, 0, 0)
    return _over(open_transport("http", server.http_url, TIMEOUT_S), request, opened)


def _over(transport: Any, request: PreparedRequest, opened: ExitStack) -> Ask:
    opened.callback(transport.close)
    transport.connect()

    def ask() -> tuple[int, NDArray[Any], int]:
        answer = transport.send(request.message)
        received_ns = time.perf_counter_ns()
        return received_ns, answer.decode()[OUTPUT], answer.bytes

    return ask


def _open_shared_memory(server: Server, size: int, opened: ExitStack) -> Ask:
    """The server writes the tensor into memory of the client's; only the message about it travels over gRPC."""
    from tritonclient.grpc import service_pb2

    transport = GrpcTransport(server.grpc_url, TIMEOUT_S)
    opened.callback(transport.close)
    transport.connect()
    memory, name = opened.enter_context(shared_region(server, transport, size))
    (request,) = prepare_requests(SOURCE_MODEL, [relay_request(size)], [OUTPUT], "grpc")
    message = service_pb2.ModelInferRequest.FromString(request.message)
    point(message.outputs[0].parameters, name, size)
    raw = message.SerializeToString()

    def ask() -> tuple[int, NDArray[Any], int]:
        answer = transport.send(raw)
        return time.perf_counter_ns(), np.frombuffer(memory, np.float32, size // 4)[None], answer.bytes

    return ask


OPEN: dict[str, Callable[[Server, int, ExitStack], Ask]] = {
    IN_PROCESS: _open_in_process,
    SHARED_MEMORY: _open_shared_memory,
    GRPC: _open_grpc,
    HTTP_BINARY: _open_http,
    HTTP_JSON: _open_json,
}
