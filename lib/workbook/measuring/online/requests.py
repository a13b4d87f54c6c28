"""Requests made ahead of time: while measuring, a client only sends bytes that are ready and reads the answer.

Checked here too: what the model would refuse is refused before the load starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError

if TYPE_CHECKING:
    from workbook.serving.handle import Server

TransportName = Literal["grpc", "http"]
TRITON_TYPES = {
    "TYPE_BOOL": "BOOL",
    "TYPE_STRING": "BYTES",
    **{f"TYPE_{kind}": kind for kind in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")},
    **{f"TYPE_{kind}": kind for kind in ("FP16", "FP32", "FP64", "BF16")},
}


class ModelInputs(Protocol):
    """What a request carries: `workbook.measuring.corpus.batches.Batch`, or any other value with these."""

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]: ...  # noqa: D102

    @property
    def first_row(self) -> int: ...  # noqa: D102

    @property
    def rows(self) -> int: ...  # noqa: D102

    @property
    def real_tokens(self) -> int: ...  # noqa: D102

    @property
    def padded_tokens(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A request ready to be sent.

    Attributes:
        message: the bytes to send: a serialised `ModelInferRequest`, or a whole HTTP request.
        body_bytes: size of the request body, without HTTP's header lines.
        first_row, rows, real_tokens, padded_tokens: as in the record of the request.
    """

    message: bytes
    body_bytes: int
    first_row: int
    rows: int
    real_tokens: int
    padded_tokens: int


def prepare_requests(
    model: str, batches: Sequence[ModelInputs], outputs: Sequence[str], transport: TransportName
) -> list[PreparedRequest]:
    """Serialise one request per batch.

    Args:
        model: name of the model.
        batches: what the requests carry.
        outputs: names of the outputs to ask for; the others are not sent back.
        transport: `grpc` or `http`.
    """
    encode = _encode_grpc if transport == "grpc" else _encode_http
    prepared = []
    for batch in batches:
        message, body_bytes = encode(model, batch.inputs, outputs)
        prepared.append(
            PreparedRequest(message, body_bytes, batch.first_row, batch.rows, batch.real_tokens, batch.padded_tokens)
        )
    return prepared


def _encode_grpc(model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> tuple[bytes, int]:
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import np_to_triton_dtype

    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        request.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
    for name in outputs:
        request.outputs.add(name=name)
    message = request.SerializeToString()
    return message, len(message)


def _encode_http(model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> tuple[bytes, int]:
    """The whole HTTP/1.1 request, with Triton's binary tensor extension."""
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
    from tritonclient.utils import np_to_triton_dtype

    tensors = []
    for name, array in inputs.items():
        tensors.append(InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(np.ascontiguousarray(array))
    wanted = [InferRequestedOutput(name, binary_data=True) for name in outputs]
    body, json_bytes = InferenceServerClient.generate_request_body(tensors, outputs=wanted)
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: triton", f"Content-Length: {len(body)}"]
    if json_bytes is not None:
        lines += [f"Inference-Header-Content-Length: {json_bytes}", "Content-Type: application/octet-stream"]
    return "\r\n".join([*lines, "", ""]).encode() + body, len(body)


def check_requests(server: Server, model: str, batches: Sequence[ModelInputs], outputs: Sequence[str]) -> None:
    """Compare what would be sent with the model's configuration.

    Raises:
        LoadError: no batches, or the model has no such input or output, takes another type or smaller batches.
        ServerError: the server is gone, or does not know the model; the message is Triton's.
    """
    if not batches:
        raise LoadError("there is nothing to send: give at least one batch.")
    server.check_alive()
    config = server.model_config(model)
    _require_outputs(config, outputs)
    for batch in batches:
        _require_inputs(config, batch)


def _require_outputs(config: Mapping[str, Any], outputs: Sequence[str]) -> None:
    known = [output["name"] for output in config["output"]]
    for name in outputs:
        if name not in known:
            raise LoadError(f"model {config['name']} has no output {name!r}: it has {', '.join(known)}.")
    if not outputs:
        raise LoadError(f"no output of model {config['name']} is asked for: name one of {', '.join(known)}.")


def _require_inputs(config: Mapping[str, Any], batch: ModelInputs) -> None:
    from tritonclient.utils import np_to_triton_dtype

    model, limit = config["name"], int(config["max_batch_size"])
    if limit and batch.rows > limit:
        raise LoadError(
            f"a batch has {batch.rows} rows and model {model} takes at most {limit} (its max_batch_size): "
            "send smaller batches, or raise it in the model's configuration."
        )
    known = {given["name"]: given for given in config["input"]}
    for name, array in batch.inputs.items():
        if name not in known:
            raise LoadError(f"model {model} has no input {name!r}: it has {', '.join(known)}.")
        sent, taken = np_to_triton_dtype(array.dtype), TRITON_TYPES.get(known[name]["data_type"])
        if sent != taken:
            raise LoadError(f"input {name} of model {model} takes {taken}, the batch has {sent}.")
        _require_shape(model, name, array.shape, known[name], batched=limit > 0)
    missing = [name for name, given in known.items() if name not in batch.inputs and not given.get("optional")]
    if missing:
        raise LoadError(f"model {model} also needs the input {', '.join(missing)}, which the batch does not carry.")


def _require_shape(model: str, name: str, shape: Sequence[int], given: Mapping[str, Any], *, batched: bool) -> None:
    dims = [int(size) for size in given["dims"]]
    own = list(shape)[1:] if batched else list(shape)
    if len(own) != len(dims) or any(size not in (-1, here) for size, here in zip(dims, own, strict=True)):
        wanted = ", ".join(["batch"] * batched + ["any" if size == -1 else str(size) for size in dims])
        raise LoadError(f"input {name} of model {model} takes the shape [{wanted}], the batch has {list(shape)}.")
