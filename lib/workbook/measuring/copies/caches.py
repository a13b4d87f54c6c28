"""Every request finds cold caches, whatever the size of its tensor.

A tensor of some MB drives the code and data of Triton, its stubs and this process out of the processor's caches, a
small one does not: sent one behind the other, requests with large tensors would take a millisecond longer for a reason
that is no copy. On a machine that does other work between requests all of them pay that. So the caches are swept before
each.
"""

from __future__ import annotations

import os
import threading

import numpy as np

LAST_LEVEL_BYTES, OWN_LEVEL_BYTES = 64 << 20, 4 << 20
"""More than the last-level cache of a few cores, and more than what a core has to itself."""
_MOST_CORES = 16


class CacheSweeper:
    """Writes through memory of its own, once on every processor this thread may use. For one thread."""

    def __init__(self) -> None:
        self._memory = np.ones(LAST_LEVEL_BYTES, np.uint8)

    def sweep(self) -> None:
        """Put other data into the caches; leaves the thread where it may run as it was."""
        usable = os.sched_getaffinity(threading.get_native_id())
        try:
            for core in sorted(usable)[:_MOST_CORES]:
                os.sched_setaffinity(threading.get_native_id(), {core})
                self._memory[:OWN_LEVEL_BYTES] += 1
        finally:
            os.sched_setaffinity(threading.get_native_id(), usable)
        self._memory += 1
