"""A small HTTP server that answers as Triton does, with a service time and mistakes of the test's choosing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from workbook.errors import ServerError
from workbook.serving.statistics import ModelStatistics

CONFIG = {
    "name": "fake",
    "max_batch_size": 8,
    "input": [
        {"name": "input_ids", "data_type": "TYPE_INT64", "dims": [-1]},
        {"name": "attention_mask", "data_type": "TYPE_INT64", "dims": [-1]},
    ],
    "output": [{"name": "sentence_embedding", "data_type": "TYPE_FP32", "dims": [1]}],
}


class FakeTriton:
    """The handle and the server in one; the answer to a row is its first token id, as the only element.

    Args:
        reply: takes the first token id of a request; returns an error text, or "" to answer.
        service_s: time each request takes; requests are served side by side.
    """

    def __init__(self, reply: Callable[[int], str] = lambda _: "", service_s: float = 0.0) -> None:
        self.reply, self.service_s = reply, service_s
        self.is_dead = False
        self.answered = 0
        self.received: list[int] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.http_url = self.grpc_url = f"127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def check_alive(self) -> None:
        if self.is_dead:
            raise ServerError("the fake server ended", "its last line")

    def model_config(self, model: str) -> dict[str, Any]:
        if model != "fake":
            raise ServerError(f"unknown model: {model}")
        return CONFIG

    def statistics(self, model: str, *, settled: bool = False) -> ModelStatistics:
        names = ("inference", "execution", "success", "fail")
        counts = {f"{name}_count": self.answered for name in names}
        times = {f"{name}_ns": 0 for name in ("success", "fail", "queue", "compute_input", "compute_infer")}
        return ModelStatistics(model=model, version="1", **counts, **times, compute_output_ns=0)

    def die(self) -> None:
        """Break every connection from the next request on."""
        self.is_dead = True

    def __enter__(self) -> FakeTriton:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _handler(fake: FakeTriton) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            header_bytes = int(self.headers["Inference-Header-Content-Length"])
            shape = json.loads(body[:header_bytes])["inputs"][0]["shape"]
            ids = np.frombuffer(body, np.int64, shape[0] * shape[1], header_bytes).reshape(shape)
            with fake.lock:
                fake.received.append(int(ids[0, 0]))
                fake.in_flight += 1
                fake.most_in_flight = max(fake.most_in_flight, fake.in_flight)
            time.sleep(fake.service_s)
            with fake.lock:
                fake.in_flight -= 1
            if fake.is_dead:
                self.close_connection = True
                return
            if error := fake.reply(int(ids[0, 0])):
                self.answer(400, {"error": error})
                return
            with fake.lock:
                fake.answered += 1
            embedding = ids[:, :1].astype(np.float32)
            parameters = {"binary_data_size": embedding.nbytes}
            output = {"name": "sentence_embedding", "datatype": "FP32", "shape": list(embedding.shape)}
            self.answer(200, {"outputs": [{**output, "parameters": parameters}]}, embedding.tobytes())

        def answer(self, status: int, header: dict[str, Any], tensors: bytes = b"") -> None:
            text = json.dumps(header).encode()
            lines = [f"HTTP/1.1 {status} Any", f"content-length: {len(text) + len(tensors)}"]
            if tensors:
                lines.append(f"Inference-Header-Content-Length: {len(text)}")
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + text + tensors)

        def log_message(self, *args: object) -> None:
            pass

    return Handler
