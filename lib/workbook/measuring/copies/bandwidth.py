"""How long this machine takes to copy a tensor, by what is copied into.

The copies that a Triton Python model causes differ in their target, and that decides the cost. A shared region stays:
its pages are there. Memory that the server takes with `malloc` and gives back is reused while it is small; above 32 MiB
glibc maps it anew each time (M_MMAP_THRESHOLD's upper bound, mallopt(3)) and the kernel clears every 4 KiB page
before it can be written. NumPy asks for 2 MiB pages from 4 MiB on, which is cheaper. A BLS caller holds all arrays of a
request; given back together they exceed what `malloc` keeps (M_TRIM_THRESHOLD, twice the largest it has mapped), so the
next request's pages are fresh again although a single array's would not be.

None of this is assumed: `chain` sends tensors through processes that stand as Triton and its stubs do, times each copy
and counts the pages that the kernel had to provide.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbook.errors import SettingError, SetupError

if TYPE_CHECKING:
    import pandas as pd


LEAST_BYTES, MOST_BYTES = 8, 1 << 30
TENSORS_BETWEEN = 8
"""Tensors of the same size that are written between two timed gathers."""
_SETTLING = 2
_CHAIN = "workbook.measuring.copies.chain"
_TIMEOUT_S = 600


def measure_copy_rates(sizes_bytes: Sequence[int], repeats: int = 20) -> pd.DataFrame:
    """Time the copies of each size on a tensor's way, by what they go into.

    Args:
        sizes_bytes: sizes of a tensor.
        repeats: requests of each; each has several copies of a kind, their median counts.

    Returns:
        A row a kind and size: `kind` (see `analysis.copies.KINDS`), `bytes`, `ms` (median), `ms_p10`, `ms_p90`,
        `mb_per_s` at the median, `fresh_pages` (that the kernel provided during a copy, median).

    Raises:
        SettingError: no sizes, or one outside 8 bytes to 1 GiB.
        SetupError: the program that copies ended with an error.
    """
    import pandas as pd

    for size in sizes_bytes:
        if not LEAST_BYTES <= size <= MOST_BYTES:
            raise SettingError(f"a size is {size} bytes: it must lie between {LEAST_BYTES} and {MOST_BYTES:,}.")
    if not sizes_bytes or repeats < 1:
        raise SettingError(
            f"sizes_bytes has {len(sizes_bytes)} entries and repeats is {repeats}: give at least 1 each."
        )
    copies = pd.DataFrame(_run_chain(sizes_bytes, repeats), columns=["kind", "bytes", "request", "ns", "fresh_pages"])
    groups = copies.groupby(["kind", "bytes"])
    times_ms = groups["ns"].quantile([0.1, 0.5, 0.9]).unstack() / 1e6
    table = times_ms.rename(columns={0.1: "ms_p10", 0.5: "ms", 0.9: "ms_p90"}).reset_index()
    table["mb_per_s"] = table["bytes"] / 1e3 / table["ms"]
    table["fresh_pages"] = groups["fresh_pages"].median().to_numpy()
    return table[["kind", "bytes", "ms", "ms_p10", "ms_p90", "mb_per_s", "fresh_pages"]]


def _run_chain(sizes_bytes: Sequence[int], rounds: int) -> list[tuple[str, int, int, int, int]]:
    """A process of its own: what this one has allocated before would decide what `malloc` does."""
    order = json.dumps({"sizes": sorted(set(sizes_bytes)), "rounds": rounds})
    command = [sys.executable, "-m", _CHAIN]
    ended = subprocess.run(command, input=order, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if ended.returncode:
        raise SetupError(f"{_CHAIN} ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    copies: list[tuple[str, int, int, int, int]] = json.loads(ended.stdout)
    return copies


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
