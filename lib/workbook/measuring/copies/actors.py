"""Who copies in `chain`: stubs in processes of their own, threads of a server, and the memory between them."""

from __future__ import annotations

import collections
import ctypes
import mmap
import os
import queue
import resource
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ORDER, TIMED = struct.Struct("<16sqq"), struct.Struct("<qq")
OWN_ARRAYS, OWN_BYTES = 8, 64 << 20
"""A stage computes into several arrays in turn, as in `model_repository/copies_stages`."""
_ODD = 71
"""Tensors in a stub's region begin at any byte."""

GAP_S = 1e-4
"""Between two steps: about what Triton and a stub need to hand a request on; others may run on that processor then."""
WORK_BYTES = 1 << 20
"""Code and data of a process's own that it goes through before it copies: about a core's own cache (level 2)."""

Timed = tuple[int, int]
"""Nanoseconds of a copy, and pages that the kernel had to provide meanwhile."""


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
    libc.memcpy.argtypes, libc.memcpy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
    return libc


LIBC = _libc()


def timed(copy: Callable[[], object]) -> tuple[Timed, object]:
    """Do it; how long it took, what it gave."""
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    start_ns = time.perf_counter_ns()
    made = copy()
    elapsed_ns = time.perf_counter_ns() - start_ns
    return (elapsed_ns, resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults), made


class Region:
    """Memory that server and stub share: a tensor that comes in, and one that goes out."""

    def __init__(self, most_bytes: int) -> None:
        memory = mmap.mmap(-1, 2 * (most_bytes + 4096))
        self.bytes = np.frombuffer(memory, np.uint8)
        self.bytes.fill(0)
        self.into, self.out_of = _ODD, most_bytes + 4096 + _ODD

    def address(self, offset: int) -> int:
        """Where a tensor begins in this process."""
        return int(self.bytes.ctypes.data) + offset


class Stub:
    """A stage, or a caller: what its process does when told."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.own: collections.deque[np.ndarray] = collections.deque()
        self.held: list[np.ndarray] = []
        self.work = np.ones(WORK_BYTES, np.uint8)

    def send(self, size: int) -> Timed:
        """Compute a tensor into memory of its own, then copy it into the region."""
        if not self.own or self.own[0].nbytes != size:
            self.own.clear()
            self.own.extend(np.ones(size, np.uint8) for _ in range(max(1, min(OWN_ARRAYS, OWN_BYTES // size))))
        self.own.rotate(1)
        array, target = self.own[0], self.region.address(self.region.out_of)
        array.fill(size % 251)
        return timed(lambda: LIBC.memcpy(target, array.ctypes.data, size))[0]

    def take(self, size: int) -> Timed:
        """Make an array of what lies in the region, read it, forget it."""
        times, array = timed(self.region.bytes[self.region.into : self.region.into + size].copy)
        assert isinstance(array, np.ndarray)
        array[: size // 8 * 8].view(np.int64).sum()
        return times

    def hold(self, size: int) -> Timed:
        """Make an array of it and keep that until `drop`: a caller has all tensors of a request at once."""
        times, array = timed(self.region.bytes[self.region.into : self.region.into + size].copy)
        assert isinstance(array, np.ndarray)
        self.held.append(array)
        return times

    def drop(self, size: int) -> Timed:
        """The caller's request is answered."""
        self.held.clear()
        return 0, 0


class StubProcess:
    """A stub in a process of its own, reached through two pipes. Ends when its pipe does."""

    def __init__(self, region: Region) -> None:
        self.region = region
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        if os.fork() == 0:
            os.close(self._orders)
            stub = Stub(region)
            while order := os.read(orders, ORDER.size):
                name, size, _ = ORDER.unpack(order)
                stub.work += 1
                os.write(answers, TIMED.pack(*getattr(stub, name.rstrip(b"\0").decode())(size)))
            os._exit(0)
        os.close(orders)

    def ask(self, order: str, size: int) -> Timed:
        """Have the stub do it."""
        time.sleep(GAP_S)
        os.write(self._orders, ORDER.pack(order.encode(), size, 0))
        nanoseconds, faults = TIMED.unpack(os.read(self._answers, TIMED.size))
        return nanoseconds, faults


class ServerThread:
    """A thread of the server: each model instance has one, and its own part of the server's memory with it."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Timed, object]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        work = np.ones(WORK_BYTES, np.uint8)
        while True:
            copy = self._orders.get()
            work += 1
            self._answers.put(timed(copy))

    def do(self, copy: Callable[[], object]) -> tuple[Timed, Any]:
        """Have the thread do it."""
        time.sleep(GAP_S)
        self._orders.put(copy)
        return self._answers.get()

    def fetch(self, source: int, size: int) -> tuple[Timed, int]:
        """Copy a tensor into memory taken for it; `free` it later."""

        def copy() -> int:
            target = LIBC.malloc(size)
            if not target:
                raise MemoryError(f"malloc gave no {size} bytes")
            LIBC.memcpy(target, source, size)
            return int(target)

        return self.do(copy)

    def move(self, target: int, source: int, size: int) -> Timed:
        """Copy into a region."""
        return self.do(lambda: LIBC.memcpy(target, source, size))[0]
