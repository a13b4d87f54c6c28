"""System shared memory between a client and a server on one machine: the one way in which all measurements use it.

Once the server has mapped a region its name is not needed any more: it is removed at once, so none can be left behind.
"""

from __future__ import annotations

import mmap
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from workbook.errors import LoadError
from workbook.measuring.online.transports import GrpcTransport, RequestError
from workbook.serving.handles import SHARED_MEMORY_DIR

if TYPE_CHECKING:
    from workbook.serving.handle import Server

NAME_PREFIX = "workbook-client-"
_SERVICE = "/inference.GRPCInferenceService/SystemSharedMemory"
_RELEASE_NS = 10_000_000_000


@contextmanager
def shared_region(server: Server, transport: GrpcTransport, size_bytes: int) -> Iterator[tuple[mmap.mmap, str]]:
    """Memory that this process and the server have mapped, and its name in requests; let go of afterwards.

    Args:
        server: on this machine.
        transport: connected to it.
        size_bytes: of the region.

    Raises:
        LoadError: the server takes no shared memory.
        ServerError: the server is gone.
    """
    from tritonclient.grpc import service_pb2

    name = f"{NAME_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    memory = _create(name, size_bytes)
    try:
        registration = service_pb2.SystemSharedMemoryRegisterRequest(name=name, key=f"/{name}", byte_size=size_bytes)
        transport.call(f"{_SERVICE}Register", registration.SerializeToString())
    except RequestError as error:
        server.check_alive()
        raise LoadError(f"the server takes no shared memory: {error}") from None
    finally:
        (SHARED_MEMORY_DIR / name).unlink()
    removal = service_pb2.SystemSharedMemoryUnregisterRequest(name=name).SerializeToString()
    try:
        yield memory, name
    except BaseException:  # the error is what counts; the server may be gone
        with suppress(RequestError):
            transport.call(f"{_SERVICE}Unregister", removal)
        raise
    _unregister(transport, removal)


def point(parameters: Any, region: str, size_bytes: int, offset: int = 0) -> None:
    """Have a tensor of a request lie in a region.

    Args:
        parameters: of the tensor in a `ModelInferRequest`.
        region: its name.
        size_bytes: of the tensor.
        offset: where in the region it begins, bytes.
    """
    parameters["shared_memory_region"].string_param = region
    parameters["shared_memory_byte_size"].int64_param = size_bytes
    if offset:
        parameters["shared_memory_offset"].int64_param = offset


def _create(name: str, size_bytes: int) -> mmap.mmap:
    descriptor = os.open(SHARED_MEMORY_DIR / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, size_bytes)
        return mmap.mmap(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def _unregister(transport: GrpcTransport, removal: bytes) -> None:
    """Have the server let go of a region; right after an answer it may still hold it for a moment."""
    deadline_ns = time.perf_counter_ns() + _RELEASE_NS
    while True:
        try:
            transport.call(f"{_SERVICE}Unregister", removal)
            return
        except RequestError:
            if time.perf_counter_ns() > deadline_ns:
                raise
            time.sleep(0.01)
