"""One client whose tensors lie in system shared memory: the connection carries only names of regions.

Ids and mask of every batch are written into one region before the clock starts, as a request's bytes are serialised
before it elsewhere; the answer is read out of a second region.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.transports import GrpcTransport, RequestError
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter

if TYPE_CHECKING:
    from workbook.serving.handle import Server

_FLOAT_BYTES = 4
_RELEASE_NS = 2_000_000_000


def send_through_shared_memory(
    server: Server,
    model: str,
    output: str,
    hidden_size: int,
    batches: Sequence[Batch],
    records_path: Path,
    *,
    arm: str = "online",
    run: int = 0,
    timeout_s: float = 120.0,
) -> list[NDArray[np.float32]]:
    """Send every batch once, in order, one in flight; a record a request is appended.

    Args:
        server: on this machine.
        model: its name.
        output: an output of `batch hidden`, float32.
        hidden_size: width of that output.
        batches: the requests.
        records_path: CSV file of REQUEST_COLUMNS.
        arm: written into the records.
        run: written into the records.
        timeout_s: after which a request counts as failed.

    Returns:
        The output of each batch, float32, `batch hidden`.

    Raises:
        LoadError: the server takes no shared memory, or a request failed.
        ServerError: the server is gone.
    """
    most_rows = max(batch.rows for batch in batches)
    outputs = []
    transport = GrpcTransport(server.grpc_url, timeout_s)
    try:
        transport.connect()
        with (
            _region(server, sum(2 * batch.input_ids.nbytes for batch in batches)) as (given, given_name),
            _region(server, most_rows * hidden_size * _FLOAT_BYTES) as (made, made_name),
            RecordWriter(records_path, REQUEST_COLUMNS) as writer,
        ):
            messages = _write_requests(batches, model, output, hidden_size, given, given_name, made_name)
            free_ns = time.perf_counter_ns()
            for number, (batch, message) in enumerate(zip(batches, messages, strict=True)):
                sent_ns = time.perf_counter_ns()
                answer = transport.send(message)
                received_ns = time.perf_counter_ns()
                outputs.append(_read(made, batch.rows, hidden_size))
                decoded_ns = time.perf_counter_ns()
                times = {
                    "intended_ns": free_ns,
                    "sent_ns": sent_ns,
                    "received_ns": received_ns,
                    "decoded_ns": decoded_ns,
                }
                writer.append(
                    {
                        "arm": arm,
                        "run": run,
                        "concurrency": 1,
                        "client": 0,
                        "request": number,
                        "window": 0,
                        "first_row": batch.first_row,
                        **times,
                        "rows": batch.rows,
                        "real_tokens": batch.real_tokens,
                        "padded_tokens": batch.padded_tokens,
                        "bytes_in": len(message),
                        "bytes_out": answer.bytes,
                        "error": "",
                    }
                )
                free_ns = decoded_ns
    except RequestError as error:
        server.check_alive()
        raise LoadError(f"a request through shared memory failed: {error}. Records so far are kept.") from None
    finally:
        transport.close()
    return outputs


@contextmanager
def _region(server: Server, size_bytes: int) -> Iterator[tuple[Any, str]]:
    """A region of this process's making that the server has mapped; gone afterwards, whatever happens."""
    import tritonclient.grpc
    from tritonclient.utils import InferenceServerException, shared_memory

    name = f"workbook_{uuid.uuid4().hex[:12]}"
    region = shared_memory.create_shared_memory_region(name, f"/{name}", size_bytes)
    client = tritonclient.grpc.InferenceServerClient(server.grpc_url)
    try:
        client.register_system_shared_memory(name, f"/{name}", size_bytes)
        yield region, name
        _unregister(client, name)
    except InferenceServerException as error:
        server.check_alive()
        raise LoadError(f"the server takes no shared memory: {error}") from None
    finally:
        client.close()
        shared_memory.destroy_shared_memory_region(region)


def _unregister(client: Any, name: str) -> None:
    """Have the server let go of a region; right after an answer it may still hold it for a moment."""
    from tritonclient.utils import InferenceServerException

    deadline_ns = time.perf_counter_ns() + _RELEASE_NS
    while True:
        try:
            client.unregister_system_shared_memory(name)
            return
        except InferenceServerException:
            if time.perf_counter_ns() > deadline_ns:
                raise
            time.sleep(0.01)


def _write_requests(
    batches: Sequence[Batch], model: str, output: str, hidden_size: int, region: Any, given: str, made: str
) -> list[bytes]:
    """Fill the region with all batches; the requests that point into it, serialised."""
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import shared_memory

    messages, offset = [], 0
    for batch in batches:
        request = service_pb2.ModelInferRequest(model_name=model)
        for name, array in batch.inputs.items():
            shared_memory.set_shared_memory_region(region, [np.ascontiguousarray(array)], offset=offset)
            tensor = request.inputs.add(name=name, datatype="INT64", shape=array.shape)
            _point(tensor.parameters, given, array.nbytes, offset)
            offset += array.nbytes
        wanted = request.outputs.add(name=output)
        _point(wanted.parameters, made, batch.rows * hidden_size * _FLOAT_BYTES, 0)
        messages.append(request.SerializeToString())
    return messages


def _point(parameters: Any, region: str, size_bytes: int, offset: int) -> None:
    parameters["shared_memory_region"].string_param = region
    parameters["shared_memory_byte_size"].int64_param = size_bytes
    if offset:
        parameters["shared_memory_offset"].int64_param = offset


def _read(region: Any, rows: int, hidden_size: int) -> NDArray[np.float32]:
    from tritonclient.utils import shared_memory

    # copied: the next answer is written into the same memory
    return np.array(shared_memory.get_contents_as_numpy(region, np.float32, [rows, hidden_size]))
