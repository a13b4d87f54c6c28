"""One slot: a file in shared memory, its lock, and the header that says whose tensor lies in it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time

from .names import SHARED_MEMORY_DIR

DATA_OFFSET = 4096
FREE, READY = 0, 1
NO_NONCE = bytes(16)
_HEADER = struct.Struct("<16sQQQ")  # nonce, state, deadline on the monotonic clock in ns, bytes


class HandleError(Exception):
    """A handle that cannot be followed, or no slot to make one from."""


class Slot:
    """One file: a header page, then the tensor."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        self.memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    @classmethod
    def create(cls, name: str, size: int) -> Slot:
        """A new file of that size."""
        descriptor = os.open(SHARED_MEMORY_DIR / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(descriptor, size)
        return cls(name, descriptor)

    @classmethod
    def open(cls, name: str) -> Slot:
        """A file that a producer made; raises HandleError where it is gone."""
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
        self.write_header(NO_NONCE, FREE, 0, 0)  # an old handle is void before the first byte changes
        return True

    def _is_leased(self) -> bool:
        _, state, deadline_ns, _ = self.read_header()
        return state == READY and time.monotonic_ns() < deadline_ns

    def lock_shared(self) -> bool:
        """Lock it for reading; False, without waiting, where somebody writes."""
        return self._lock(fcntl.LOCK_SH)

    def _lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Let others have it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read_header(self) -> tuple[bytes, int, int, int]:
        """Nonce, FREE or READY, deadline on the monotonic clock (ns), bytes of the tensor."""
        nonce, state, deadline_ns, array_bytes = _HEADER.unpack_from(self.memory)
        return nonce, state, deadline_ns, array_bytes

    def write_header(self, nonce: bytes, state: int, deadline_ns: int, array_bytes: int) -> None:
        """Write the four."""
        _HEADER.pack_into(self.memory, 0, nonce, state, deadline_ns, array_bytes)

    def unlink(self) -> None:
        """Remove the file's name; who has mapped it keeps it."""
        with contextlib.suppress(OSError):
            (SHARED_MEMORY_DIR / self.name).unlink()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._descriptor)
