"""The two sides: an arena of slots that leases them, a reader that follows handles."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .names import clear_dead, producer_stem
from .slots import DATA_OFFSET, FREE, NO_NONCE, READY, HandleError, Slot


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
        stem = producer_stem(prefix)
        self.slot_bytes = slot_bytes
        self.ttl_s = ttl_s
        self._slots = [Slot.create(f"{stem}-{number}", DATA_OFFSET + slot_bytes) for number in range(slots)]
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
                array = np.frombuffer(slot.memory, np.dtype(dtype), int(np.prod(shape)), DATA_OFFSET).reshape(shape)
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
    slot: Slot
    array: np.ndarray

    def publish(self) -> bytes:
        """Make the tensor readable and return its handle; from here on the slot is the consumer's."""
        nonce = secrets.token_bytes(16)
        deadline_ns = time.monotonic_ns() + int(self.arena.ttl_s * 1e9)
        self.slot.write_header(nonce, READY, deadline_ns, self.array.nbytes)
        self._end()
        described = {"file": self.slot.name, "nonce": nonce.hex(), "dtype": self.array.dtype.str}
        return json.dumps({**described, "shape": list(self.array.shape)}).encode()

    def give_back(self) -> None:
        """Free the slot again: computing failed."""
        self.slot.write_header(NO_NONCE, FREE, 0, 0)
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
        self._open: dict[str, Slot] = {}

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
            if state != READY or not secrets.compare_digest(written, nonce):
                raise HandleError(f"{name} holds another tensor by now, or none: its lease had run out, or it was used")
            count = int(np.prod(shape, dtype=np.int64))
            if count * dtype.itemsize != array_bytes:
                raise HandleError(f"{name} holds {array_bytes} bytes, the handle speaks of {count * dtype.itemsize}")
            array = np.frombuffer(slot.memory, dtype, count, DATA_OFFSET).reshape(shape)
            array.flags.writeable = False
            freed = True
            yield array
        finally:
            if freed:
                slot.write_header(NO_NONCE, FREE, 0, 0)
            slot.unlock()

    def _slot(self, name: str) -> Slot:
        if name not in self._open:
            if "/" in name or not name.startswith(f"{self._prefix}handle-"):
                raise HandleError(f"{name!r} is not one of this server's slots")
            while len(self._open) >= self._kept:
                self._open.pop(next(iter(self._open)))
            self._open[name] = Slot.open(name)
        return self._open[name]


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
