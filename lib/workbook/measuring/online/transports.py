"""One client's connection to the server: send a prepared request, get the whole answer, decode it.

Lighter than Triton's own clients on purpose, because the load generator must not be what is measured: gRPC sends bytes
serialised beforehand, HTTP is a plain keep-alive socket. Both were compared with perf_analyzer (`capacity.py`).
"""

from __future__ import annotations

import contextlib
import json
import socket
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbook.measuring.online.requests import TransportName

_INFER_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_LIVE_METHOD = "/inference.GRPCInferenceService/ServerLive"
_CONNECT_TIMEOUT_S = 10.0
NUMPY_TYPES = {
    "BOOL": np.dtype("bool"),
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
_RECEIVE_BYTES = 65536
_HEADER_BYTES_MAX = 65536


class RequestError(Exception):
    """One request failed.

    Attributes:
        is_broken: the connection failed, so that the server may be gone; else the server answered with an error.
    """

    def __init__(self, message: str, *, is_broken: bool) -> None:
        super().__init__(message)
        self.is_broken = is_broken


class Answer(ABC):
    """A whole answer in the client's memory.

    Attributes:
        bytes: size of the answer's body.
    """

    bytes: int

    @abstractmethod
    def decode(self) -> dict[str, NDArray[Any]]:
        """The outputs as NumPy arrays, by name."""


class Transport(ABC):
    """One client's connection; used by one thread, closed by any."""

    @abstractmethod
    def connect(self) -> None:
        """Open the connection; raises RequestError where nobody listens."""

    @abstractmethod
    def send(self, message: bytes) -> Answer:
        """Send a prepared request and wait for the whole answer; raises RequestError."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; a request in flight ends with RequestError at once."""


def open_transport(name: TransportName, url: str, timeout_s: float) -> Transport:
    """A transport that is not connected yet; `url` is `host:port`."""
    return GrpcTransport(url, timeout_s) if name == "grpc" else HttpTransport(url, timeout_s)


class GrpcTransport(Transport):
    """A channel of its own, with a connection of its own, for serialised `ModelInferRequest`s."""

    def __init__(self, url: str, timeout_s: float) -> None:
        import grpc
        from tritonclient.grpc import service_pb2

        self._grpc = grpc
        self._response_type = service_pb2.ModelInferResponse
        self._url = url
        self._timeout_s = timeout_s
        options = [
            ("grpc.use_local_subchannel_pool", 1),  # else channels to one address share one connection
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = grpc.insecure_channel(url, options=options)
        self._infer = self._channel.unary_unary(_INFER_METHOD, request_serializer=None, response_deserializer=None)

    def connect(self) -> None:  # noqa: D102
        is_live = self._channel.unary_unary(_LIVE_METHOD, request_serializer=None, response_deserializer=None)
        try:
            is_live(b"", timeout=min(self._timeout_s, _CONNECT_TIMEOUT_S))
        except self._grpc.RpcError as error:
            raise RequestError(
                f"no gRPC server answers at {self._url}: {self._explain(error)}", is_broken=True
            ) from None

    def send(self, message: bytes) -> Answer:  # noqa: D102
        try:
            return GrpcAnswer(self._infer(message, timeout=self._timeout_s), self._response_type)
        except self._grpc.RpcError as error:
            raise self._explain(error) from None
        except ValueError as error:  # the channel was closed by another thread
            raise RequestError(str(error), is_broken=True) from None

    def call(self, method: str, message: bytes) -> bytes:
        """Any other method of the server, by its full name, with a serialised message; raises RequestError."""
        try:
            answer: bytes = self._channel.unary_unary(method, request_serializer=None, response_deserializer=None)(
                message, timeout=self._timeout_s
            )
        except self._grpc.RpcError as error:
            raise self._explain(error) from None
        return answer

    def _explain(self, error: Any) -> RequestError:
        if error.code() == self._grpc.StatusCode.DEADLINE_EXCEEDED:
            return RequestError(f"no answer within {self._timeout_s:g} s (timeout_s)", is_broken=True)
        broken = error.code() in (self._grpc.StatusCode.UNAVAILABLE, self._grpc.StatusCode.CANCELLED)
        return RequestError(f"{error.code().name}: {error.details()}", is_broken=broken)

    def close(self) -> None:  # noqa: D102
        self._channel.close()


class GrpcAnswer(Answer):
    """A serialised `ModelInferResponse`."""

    def __init__(self, raw: bytes, response_type: Any) -> None:
        self._raw = raw
        self._response_type = response_type
        self.bytes = len(raw)

    def decode(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        response = self._response_type.FromString(self._raw)
        return {
            output.name: _to_array(raw, output.datatype, output.shape)
            for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }


class HttpTransport(Transport):
    """A keep-alive HTTP/1.1 connection that carries Triton's binary tensor extension."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._is_closed = False

    def connect(self) -> None:  # noqa: D102
        host, _, port = self._url.rpartition(":")
        try:
            self._socket = socket.create_connection(
                (host.strip("[]"), int(port)), timeout=min(self._timeout_s, _CONNECT_TIMEOUT_S)
            )
        except OSError as error:
            raise RequestError(f"no HTTP server answers at {self._url}: {error}", is_broken=True) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self._timeout_s)

    def send(self, message: bytes) -> Answer:  # noqa: D102
        if self._is_closed:
            raise RequestError("the connection is closed", is_broken=True)
        if self._socket is None:
            self.connect()
        assert self._socket is not None
        try:
            self._socket.sendall(message)
            status, headers, body = _receive(self._socket)
        except TimeoutError:
            self._disconnect()
            raise RequestError(f"no answer within {self._timeout_s:g} s (timeout_s)", is_broken=True) from None
        except OSError as error:
            self._disconnect()
            raise RequestError(f"the connection broke: {error}", is_broken=True) from None
        if headers.get("connection") == "close":
            self._disconnect()
        if status != 200:
            raise RequestError(_error_text(status, body), is_broken=False)
        return HttpAnswer(headers, body)

    def close(self) -> None:  # noqa: D102
        self._is_closed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in recv
            self._disconnect()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


class HttpAnswer(Answer):
    """A body of JSON, then the raw tensors of those outputs that were asked for as binary."""

    def __init__(self, headers: dict[str, str], body: bytearray) -> None:
        self._json_bytes = int(headers.get("inference-header-content-length", len(body)))
        self._body = body
        self.bytes = len(body)

    def decode(self) -> dict[str, NDArray[Any]]:  # noqa: D102
        view, offset, outputs = memoryview(self._body), self._json_bytes, {}
        for output in json.loads(self._body[: self._json_bytes])["outputs"]:
            if "data" in output:
                outputs[output["name"]] = _from_json(output)
                continue
            end = offset + int(output["parameters"]["binary_data_size"])
            outputs[output["name"]] = _to_array(view[offset:end], output["datatype"], output["shape"])
            offset = end
        return outputs


def _receive(connection: socket.socket) -> tuple[int, dict[str, str], bytearray]:
    """Read one HTTP answer: status, header fields in lower case, body; raises OSError where it cannot be read."""
    head = b""
    while (end := head.find(b"\r\n\r\n")) < 0:
        part = connection.recv(_RECEIVE_BYTES)
        if not part:
            raise ConnectionError("the server closed it")
        head += part
        if len(head) > _HEADER_BYTES_MAX and b"\r\n\r\n" not in head:
            raise ConnectionError("the answer's header has no end")
    lines = head[:end].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if "content-length" not in headers:
        raise ConnectionError("the answer has no Content-Length: is there a proxy before Triton?")
    body = bytearray(int(headers["content-length"]))
    received = len(head) - end - 4
    body[:received] = head[end + 4 :]
    view = memoryview(body)
    while received < len(body):
        part_bytes = connection.recv_into(view[received:])
        if not part_bytes:
            raise ConnectionError(f"the server closed it after {received} of {len(body)} bytes")
        received += part_bytes
    return int(lines[0].split()[1]), headers, body


def _error_text(status: int, body: bytearray) -> str:
    text = body.decode(errors="replace")
    with contextlib.suppress(ValueError, AttributeError):
        text = json.loads(text).get("error", text)
    return f"HTTP {status}: {text}"


def _from_json(output: dict[str, Any]) -> NDArray[Any]:
    """A tensor whose elements stand in the JSON itself."""
    dtype = NUMPY_TYPES.get(output["datatype"], np.dtype(object))
    return np.array(output["data"], dtype).reshape(tuple(output["shape"]))


def _to_array(raw: bytes | memoryview, datatype: str, shape: Any) -> NDArray[Any]:
    """A tensor's bytes as an array, without a copy; read-only where the bytes are."""
    if datatype in NUMPY_TYPES:
        return np.frombuffer(raw, dtype=NUMPY_TYPES[datatype]).reshape(tuple(shape))
    if datatype == "BF16":  # NumPy has no such type: the upper half of a float32
        return (np.frombuffer(raw, dtype="<u2").astype("<u4") << 16).view("<f4").reshape(tuple(shape))
    from tritonclient.utils import deserialize_bytes_tensor

    return np.asarray(deserialize_bytes_tensor(bytes(raw))).reshape(tuple(shape))
