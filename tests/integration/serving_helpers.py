"""What the tests of the real server share."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.http

from busy_machine import PATIENCE_S, wait_for
from workbook.serving import supervisor
from workbook.serving.embedded import EmbeddedServer
from workbook.serving.handle import Server
from workbook.serving.options import ServerOptions
from workbook.serving.repository import committed_repository
from workbook.serving.server import start_server
from workbook.serving.statistics import ModelStatistics


def infer(url: str, model: str, ids: np.ndarray, outputs: list[str], *, transport=tritonclient.grpc, mask=None):  # type: ignore[no-untyped-def]
    """One request; returns the asked outputs by name."""
    mask = np.ones_like(ids) if mask is None else mask
    inputs = []
    for name, array in (("input_ids", ids), ("attention_mask", mask)):
        tensor = transport.InferInput(name, list(array.shape), "INT64" if array.dtype == np.int64 else "INT32")
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    with contextlib.closing(transport.InferenceServerClient(url)) as client:
        wanted = [transport.InferRequestedOutput(name) for name in outputs]
        answer = client.infer(model, inputs, outputs=wanted)
        return {name: answer.as_numpy(name) for name in outputs}


def start_null(**options: object) -> EmbeddedServer:
    server = start_server(
        "embedded",
        committed_repository(),
        models=["null"],
        options=ServerOptions(**options),  # type: ignore[arg-type]
    )
    assert isinstance(server, EmbeddedServer)
    return server


def traces(identity: str) -> list[str]:
    """What is left of a server on this machine."""
    prefix = supervisor.shared_memory_prefix(identity)
    files = [str(file) for file in supervisor.SHARED_MEMORY_DIR.glob(f"{prefix}*")]
    return files + [str(pid) for pid in supervisor.processes_of(identity)]


def assert_gone(identity: str, urls: list[str], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and (traces(identity) or not supervisor.is_stale(identity)):
        time.sleep(0.05)
    assert traces(identity) == []
    assert supervisor.is_stale(identity)  # its supervisor is gone too
    # a port may be the end of some other connection by now, but nobody listens there
    listening = {each.laddr.port for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    assert not listening & {int(url.rpartition(":")[2]) for url in urls}


def settled(server: Server, model: str, quiet_s: float = 0.5) -> ModelStatistics:
    """Counters once they have stood still for a while: Triton books a request some time after it has answered it."""
    reading, since = server.statistics(model), time.monotonic()
    while time.monotonic() < since + quiet_s:
        time.sleep(0.05)
        if (now := server.statistics(model)) != reading:
            reading, since = now, time.monotonic()
    return reading


def booked(server: Server, model: str, before: ModelStatistics, requests: int) -> ModelStatistics:
    """What was counted since an earlier reading, once it holds so many requests and stands still."""
    wait_for(lambda: (server.statistics(model) - before).success_count >= requests)
    return settled(server, model) - before


def urls_of(server: Server) -> list[str]:
    return [server.http_url, server.grpc_url, server.metrics_url]
