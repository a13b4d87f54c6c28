"""Hand a big tensor from one Python model to the next without copying it: a handle travels, the bytes stay.

A producer owns a few slots, each a file in shared memory; it computes into one and sends its *handle* (some 200 bytes)
through Triton in place of the tensor. The consumer maps the file and reads the bytes where they lie.

What can go wrong, and what keeps it from happening:

- *The data of another request.* Each lease writes a fresh random nonce into the slot, the handle carries the same one.
  A handle whose slot was given to somebody else is refused, never answered with what lies there now.
- *Overwritten while it is read.* A consumer holds a shared `flock` on the slot while it reads; a producer takes a slot
  only under the exclusive one, and without waiting.
- *A consumer that never comes* (killed, request cancelled): a lease runs out, then the producer takes the slot back. A
  consumer killed while it reads drops its lock with its life: the kernel does that.
- *A producer that dies.* The names carry its process id and start time: `clear_dead` removes the files of dead ones,
  and every producer calls it at its start. They also begin with the server's own prefix, so that the server's
  supervisor removes them at the server's end, or the next start does.
- *Memory without bound.* A producer has so many slots and no more; when all are out, the request fails with a message.

What remains: consumers must live on the same machine, under the same user, and trust each other; Triton sees only the
handle, so it can neither batch nor cache nor check the tensor. One handle is for one consumer.

Standard library and NumPy only: the file is copied beside a model's code and runs in the server's environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import re
import secrets
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHARED_MEMORY_DIR = Path("/dev/shm")
DEFAULT_PREFIX = "workbook-"
_SERVER_PREFIX = re.compile(rb"workbook-triton-\d+-\d+-\d+-")
_PRODUCER = re.compile(r"handle-(\d+)-(\d+)-(\d+)-")
_HEADER = struct.Struct("<16sQQQ")  # nonce, state, deadline on the monotonic clock in ns, bytes
_DATA_OFFSET = 4096
_FREE, _READY = 0, 1
_NO_NONCE = bytes(16)


class HandleError(Exception):
    """A handle that cannot be followed, or no slot to make one from."""


def server_prefix() -> str:
    """First part of the names of this server's shared-memory files, read off the stub's own command line."""
    found = _SERVER_PREFIX.search(Path("/proc/self/cmdline").read_bytes())
    return found.group().decode() if found else DEFAULT_PREFIX


def clear_dead(prefix: str) -> list[str]:
    """Remove the slots of producers that are gone; returns their names.

    A process id alone would be reused one day: the start time goes with it. Process ids of another pid namespace mean
    nothing here, so such files are left alone.
    """
    removed = []
    for file in SHARED_MEMORY_DIR.glob(f"{prefix}handle-*"):
        match = _PRODUCER.match(file.name[len(prefix) :])
        if match is None:
            continue
        pid, start_ticks, namespace = (int(part) for part in match.groups())
        if namespace == _pid_namespace() and _start_ticks(pid) != start_ticks:
            with contextlib.suppress(OSError):
                file.unlink()
                removed.append(file.name)
    return removed


class Arena:
    """A producer's slots. Used by one thread.

    Args:
        prefix: of the files' names, `server_prefix()`.
        slots: tensors that may be on their way at the same time.
        slot_bytes: largest tensor; a slot's memory is taken when it is first written to, not before.
        ttl_s: how long a lease lasts that no consumer takes up, s.
    """

    def __init__(self, prefix: str, *, slots: int = 8, slot_bytes: int = 64 << 20, ttl_s: float = 30.0) -> None:
        if slots < 1 or slot_bytes < 1 or not ttl_s > 0:
            raise HandleError(f"slots={slots}, slot_bytes={slot_bytes}, ttl_s={ttl_s}: all must be above 0")
        clear_dead(prefix)
        stem = f"{prefix}handle-{os.getpid()}-{_start_ticks(os.getpid())}-{_pid_namespace()}-{secrets.token_hex(4)}"
        self.slot_bytes = slot_bytes
        self.ttl_s = ttl_s
        self._slots = [_Slot.create(f"{stem}-{number}", _DATA_OFFSET + slot_bytes) for number in range(slots)]
        self._writing: set[str] = set()

    def lease(self, shape: Sequence[int], dtype: Any) -> Lease:
        """A slot to compute into; it stays the producer's until `Lease.publish`, or until `Lease.give_back`.

        Raises:
            HandleError: the tensor is larger than a slot, or every slot is on its way.
        """
        array_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if array_bytes > self.slot_bytes:
            raise HandleError(f"the tensor has {array_bytes} bytes, a slot {self.slot_bytes}: raise handle_slot_bytes")
        for slot in self._slots:
            if slot.name not in self._writing and slot.take():
                self._writing.add(slot.name)
                array = np.frombuffer(slot.memory, np.dtype(dtype), int(np.prod(shape)), _DATA_OFFSET).reshape(shape)
                return Lease(self, slot, array)
        raise HandleError(
            f"all {len(self._slots)} slots are on their way (a lease lasts {self.ttl_s:g} s): raise handle_slots, or "
            "send fewer requests at a time"
        )

    def close(self) -> None:
        """Remove the files; a consumer that reads goes on reading what it has mapped."""
        for slot in self._slots:
            slot.unlink()


@dataclass(frozen=True, eq=False)
class Lease:
    """A slot that is being written.

    Attributes:
        arena: whose slot.
        slot: the slot.
        array: where the tensor goes, of the shape and type asked for.
    """

    arena: Arena
    slot: _Slot
    array: np.ndarray

    def publish(self) -> bytes:
        """Make the tensor readable and return its handle; from here on the slot is the consumer's."""
        nonce = secrets.token_bytes(16)
        deadline_ns = time.monotonic_ns() + int(self.arena.ttl_s * 1e9)
        self.slot.write_header(nonce, _READY, deadline_ns, self.array.nbytes)
        self._end()
        described = {"file": self.slot.name, "nonce": nonce.hex(), "dtype": self.array.dtype.str}
        return json.dumps({**described, "shape": list(self.array.shape)}).encode()

    def give_back(self) -> None:
        """Free the slot again: computing failed."""
        self.slot.write_header(_NO_NONCE, _FREE, 0, 0)
        self._end()

    def _end(self) -> None:
        self.arena._writing.discard(self.slot.name)
        self.slot.unlock()


class Reader:
    """A consumer's side: follows handles to tensors. Used by one thread.

    Args:
        prefix: the only files it opens are those of this server, `server_prefix()`.
        kept: mappings kept open for reuse.
    """

    def __init__(self, prefix: str, *, kept: int = 64) -> None:
        self._prefix = prefix
        self._kept = kept
        self._open: dict[str, _Slot] = {}

    @contextlib.contextmanager
    def borrow(self, handle: bytes) -> Iterator[np.ndarray]:
        """The tensor behind a handle, read-only, where it lies; leaving the block frees the slot.

        What is computed from it must not point into it: it is somebody else's afterwards.

        Raises:
            HandleError: the handle is none, or its slot was taken back in the meantime.
        """
        name, nonce, dtype, shape = _parse(handle)
        slot = self._slot(name)
        if not slot.lock_shared():
            raise HandleError(f"{name} was taken back: its lease had run out (handle_ttl_ms)")
        freed = False
        try:
            written, state, _, array_bytes = slot.read_header()
            if state != _READY or not secrets.compare_digest(written, nonce):
                raise HandleError(f"{name} holds another tensor by now, or none: its lease had run out, or it was used")
            count = int(np.prod(shape, dtype=np.int64))
            if count * dtype.itemsize != array_bytes:
                raise HandleError(f"{name} holds {array_bytes} bytes, the handle speaks of {count * dtype.itemsize}")
            array = np.frombuffer(slot.memory, dtype, count, _DATA_OFFSET).reshape(shape)
            array.flags.writeable = False
            freed = True
            yield array
        finally:
            if freed:
                slot.write_header(_NO_NONCE, _FREE, 0, 0)
            slot.unlock()

    def _slot(self, name: str) -> _Slot:
        if name not in self._open:
            if "/" in name or not name.startswith(f"{self._prefix}handle-"):
                raise HandleError(f"{name!r} is not one of this server's slots")
            while len(self._open) >= self._kept:
                self._open.pop(next(iter(self._open)))
            self._open[name] = _Slot.open(name)
        return self._open[name]


class _Slot:
    """One file: a header page, then the tensor."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        self.memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    @classmethod
    def create(cls, name: str, size: int) -> _Slot:
        descriptor = os.open(SHARED_MEMORY_DIR / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(descriptor, size)
        return cls(name, descriptor)

    @classmethod
    def open(cls, name: str) -> _Slot:
        try:
            return cls(name, os.open(SHARED_MEMORY_DIR / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
        except OSError as error:
            raise HandleError(f"{name} is gone: its producer ended ({error.strerror})") from None

    def take(self) -> bool:
        """Lock it for writing if it is free or its lease has run out; never waits.

        A slot on its way is left alone, not even locked for a moment: its consumer does not wait for a lock either.
        """
        if self._is_leased() or not self._lock(fcntl.LOCK_EX):
            return False
        self.write_header(_NO_NONCE, _FREE, 0, 0)  # an old handle is void before the first byte changes
        return True

    def _is_leased(self) -> bool:
        _, state, deadline_ns, _ = self.read_header()
        return state == _READY and time.monotonic_ns() < deadline_ns

    def lock_shared(self) -> bool:
        return self._lock(fcntl.LOCK_SH)

    def _lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read_header(self) -> tuple[bytes, int, int, int]:
        nonce, state, deadline_ns, array_bytes = _HEADER.unpack_from(self.memory)
        return nonce, state, deadline_ns, array_bytes

    def write_header(self, nonce: bytes, state: int, deadline_ns: int, array_bytes: int) -> None:
        _HEADER.pack_into(self.memory, 0, nonce, state, deadline_ns, array_bytes)

    def unlink(self) -> None:
        with contextlib.suppress(OSError):
            (SHARED_MEMORY_DIR / self.name).unlink()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._descriptor)


def _parse(handle: bytes) -> tuple[str, bytes, np.dtype[Any], tuple[int, ...]]:
    try:
        said = json.loads(handle)
        shape = tuple(int(size) for size in said["shape"])
        name, nonce, dtype = str(said["file"]), bytes.fromhex(said["nonce"]), np.dtype(said["dtype"])
    except (ValueError, KeyError, TypeError) as error:
        raise HandleError(f"this is no handle: {error}") from None
    if dtype.hasobject or len(nonce) != 16 or any(size < 0 for size in shape):
        raise HandleError("this is no handle: type, nonce or shape cannot be")
    return name, nonce, dtype, shape


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it has ended or never was."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command name, in parentheses, may hold blanks
    return None if fields[0] in "ZX" else int(fields[19])


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
