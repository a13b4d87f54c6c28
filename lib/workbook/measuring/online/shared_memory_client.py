"""One client whose tensors lie in system shared memory: the connection carries only names of regions.

Ids and mask of every batch are written into one region before the clock starts, as a request's bytes are serialised
before it elsewhere; the answer is read out of a second region.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.shared_memory import point, shared_region
from workbook.measuring.online.transports import GrpcTransport, RequestError
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter

if TYPE_CHECKING:
    from workbook.serving.handle import Server

_FLOAT_BYTES = 4


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
    given_bytes = sum(2 * batch.input_ids.nbytes for batch in batches)
    outputs = []
    transport = GrpcTransport(server.grpc_url, timeout_s)
    try:
        transport.connect()
        with (
            shared_region(server, transport, given_bytes) as (
                given,
                given_name,
            ),
            shared_region(server, transport, most_rows * hidden_size * _FLOAT_BYTES) as (made, made_name),
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


def _write_requests(
    batches: Sequence[Batch], model: str, output: str, hidden_size: int, region: mmap.mmap, given: str, made: str
) -> list[bytes]:
    """Fill the region with all batches; the requests that point into it, serialised."""
    from tritonclient.grpc import service_pb2

    messages, offset = [], 0
    for batch in batches:
        request = service_pb2.ModelInferRequest(model_name=model)
        for name, array in batch.inputs.items():
            region[offset : offset + array.nbytes] = np.ascontiguousarray(array).tobytes()
            tensor = request.inputs.add(name=name, datatype="INT64", shape=array.shape)
            point(tensor.parameters, given, array.nbytes, offset)
            offset += array.nbytes
        wanted = request.outputs.add(name=output)
        point(wanted.parameters, made, batch.rows * hidden_size * _FLOAT_BYTES)
        messages.append(request.SerializeToString())
    return messages


def _read(region: mmap.mmap, rows: int, hidden_size: int) -> NDArray[np.float32]:
    # copied: the next answer is written into the same memory
    return np.frombuffer(region, np.float32, rows * hidden_size).reshape(rows, hidden_size).copy()
