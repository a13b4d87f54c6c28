"""How long this machine takes to copy a tensor, by what it copies into.

The copies that a Triton Python model causes differ in their target, and that decides the cost. A shared region stays:
its pages are there. Memory that the server takes with `malloc` and gives back is reused while it is small; above 32 MiB
glibc maps it anew each time (M_MMAP_THRESHOLD's upper bound, mallopt(3)) and the kernel clears every 4 KiB page
before it can be written. NumPy asks for 2 MiB pages from 4 MiB on, which is cheaper.

A tensor on its way through Triton is copied by one process after another wrote it, on another processor as a rule, with
the request's other tensors written in between. So here: before each timed copy a partner on another processor writes
the source, and other data passes through the caches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.errors import SettingError
from workbook.serving.handles import SHARED_MEMORY_DIR

if TYPE_CHECKING:
    import pandas as pd


LEAST_BYTES, MOST_BYTES = 8, 1 << 30
TENSORS_BETWEEN = 8
"""Tensors of the same size that are written between two timed copies: about as many as one request has copies."""
_SETTLING = 2


def measure_copy_rates(sizes_bytes: Sequence[int], repeats: int = 15, *, progress: bool = True) -> pd.DataFrame:
    """Time single copies of each size into each kind of target.

    Args:
        sizes_bytes: sizes of a tensor.
        repeats: timed copies of each; the median counts.
        progress: show a progress bar.

    Returns:
        A row a kind and size: `kind` (see `analysis.copies.KINDS`), `bytes`, `ms` (median), `ms_p10`, `ms_p90`,
        `mb_per_s` at the median.

    Raises:
        SettingError: no sizes, or one outside 8 bytes to 1 GiB.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    for size in sizes_bytes:
        if not LEAST_BYTES <= size <= MOST_BYTES:
            raise SettingError(f"a size is {size} bytes: it must lie between {LEAST_BYTES} and {MOST_BYTES:,}.")
    if not sizes_bytes or repeats < 1:
        raise SettingError(
            f"sizes_bytes has {len(sizes_bytes)} entries and repeats is {repeats}: give at least 1 each."
        )
    rows = []
    for size in tqdm(sorted(set(sizes_bytes)), desc="copy rates", unit="size", leave=False, disable=not progress):
        for kind, times_ns in _time_kinds(size, repeats).items():
            low, middle, high = np.percentile(times_ns, (10, 50, 90)) / 1e6
            rate = size / 1e6 / (middle / 1e3)
            rows.append({"kind": kind, "bytes": size, "ms": middle, "ms_p10": low, "ms_p90": high, "mb_per_s": rate})
    return pd.DataFrame(rows)


def measure_gather(size_bytes: int, tensors: int = 4, repeats: int = 15) -> float:
    """Time it takes to put several tensors of one size into a single array, for each of them, ms (median).

    What a model does that wants to compute a batch: Triton hands it the requests' tensors one by one.
    """
    parts = [np.ones((1, size_bytes), np.uint8) for _ in range(tensors)]
    between, times_ns = np.ones(TENSORS_BETWEEN * size_bytes, np.uint8), []
    for turn in range(repeats + _SETTLING):
        between.fill(turn % 250)
        start_ns = time.perf_counter_ns()
        np.concatenate(parts)
        times_ns.append(time.perf_counter_ns() - start_ns)
    return float(np.median(times_ns[_SETTLING:])) / tensors / 1e6


def _time_kinds(size: int, repeats: int) -> dict[str, list[int]]:
    source, between = np.ones(size, np.uint8), np.ones(TENSORS_BETWEEN * size, np.uint8)
    with _shared_region(size) as region, _two_processors() as partner:
        copies: dict[str, tuple[np.ndarray, Callable[[], object]]] = {
            "region": (source, lambda: _move(region.ctypes.data, source.ctypes.data, size)),
            "heap": (region, lambda: _copy_into_heap(region.ctypes.data, size)),
            "array": (region, region.copy),
        }
        times: dict[str, list[int]] = {kind: [] for kind in copies}
        for turn in range(repeats + _SETTLING):  # the kinds take turns: a machine that drifts slows all alike
            for kind, (written, copy) in copies.items():
                between.fill(turn % 250)
                partner.submit(written.fill, turn % 251).result()
                start_ns = time.perf_counter_ns()
                copy()
                elapsed_ns = time.perf_counter_ns() - start_ns
                if turn >= _SETTLING:
                    times[kind].append(elapsed_ns)
        return times


@contextmanager
def _two_processors() -> Iterator[ThreadPoolExecutor]:
    """This thread on one processor, a partner thread on another; where there is one only, they share it."""
    usable = sorted(os.sched_getaffinity(0))
    with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {usable[-1]})) as partner:
        os.sched_setaffinity(0, {usable[0]})
        try:
            yield partner
        finally:
            os.sched_setaffinity(0, usable)


@contextmanager
def _shared_region(size: int) -> Iterator[np.ndarray]:
    """UINT8 `bytes` in a file of shared memory that has no name any more: nothing can be left behind."""
    path = SHARED_MEMORY_DIR / f"workbook-bandwidth-{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    path.unlink()
    try:
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
    region = np.frombuffer(memory, np.uint8)
    region.fill(1)
    yield region


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
    libc.memcpy.argtypes, libc.memcpy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
    return libc


_LIBC = _libc()


def _move(target: int, source: int, size: int) -> None:
    _LIBC.memcpy(target, source, size)


def _copy_into_heap(source: int, size: int) -> None:
    target = _LIBC.malloc(size)
    if not target:
        raise MemoryError(f"malloc gave no {size} bytes")
    _LIBC.memcpy(target, source, size)
    _LIBC.free(target)
