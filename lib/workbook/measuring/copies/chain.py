"""The copies of a hop, done and timed by processes that stand as Triton and its stubs do: a program of its own.

    python -m workbook.measuring.copies.chain  < {"sizes": [...], "rounds": 15}  > a JSON list

What a copy costs depends on where its source and its target have been: written by which process, how long ago, and
whether the target's pages are there. So nothing is timed alone. Two stages and a caller are processes, each with a
memory region that it shares with a server process of two threads, and a tensor takes the way it takes through Triton's
Python backend: over two hops of an ensemble, then over two hops with the caller between. Nothing of Triton runs here.

`malloc` decides by what was freed before whether it keeps memory (M_MMAP_THRESHOLD and M_TRIM_THRESHOLD are dynamic up
to 32 MiB, mallopt(3)). So the program is started afresh, and every size goes through once before any is timed, as in a
server that has run for a while.
"""

from __future__ import annotations

import json
import sys

from workbook.measuring.copies.actors import LIBC, Region, ServerThread, StubProcess, Timed
from workbook.measuring.copies.caches import CacheSweeper


class Chain:
    """Two stages, a caller and a server between them."""

    def __init__(self, most_bytes: int) -> None:
        regions = [Region(most_bytes) for _ in range(3)]
        self.stages = [StubProcess(regions[0]), StubProcess(regions[1])]  # processes before threads: a fork copies one
        self.caller = StubProcess(regions[2])
        self.threads = [ServerThread(), ServerThread()]
        self._sweeper = CacheSweeper()

    def round(self, size: int) -> list[tuple[str, Timed]]:
        """One request by ensemble and one by caller, each into cold caches: every copy's kind and time."""
        self._sweeper.sweep()
        by_ensemble = self._ensemble(size)
        self._sweeper.sweep()
        return [*by_ensemble, *self._caller(size)]

    def _ensemble(self, size: int) -> list[tuple[str, Timed]]:
        found, heaps = [], []
        for hop in (0, 1):
            maker, taker = self.stages[hop], self.stages[1 - hop]
            found.append(("region", maker.ask("send", size)))
            times, heap = self.threads[hop].fetch(maker.region.address(maker.region.out_of), size)
            found.append(("heap", times))
            target = taker.region.address(taker.region.into)
            found.append(("region", self.threads[1 - hop].move(target, heap, size)))
            found.append(("array", taker.ask("take", size)))
            heaps.append(heap)
        for heap in heaps:  # the server lets go of a tensor when the request behind it has been answered
            self.threads[0].do(lambda heap=heap: LIBC.free(heap))  # type: ignore[misc]
        return found

    def _caller(self, size: int) -> list[tuple[str, Timed]]:
        found, region = [], self.caller.region
        for hop in (0, 1):
            maker, taker = self.stages[hop], self.stages[1 - hop]
            found.append(("region", maker.ask("send", size)))
            source, between = (
                maker.region.address(maker.region.out_of),
                region.address((region.into, region.out_of)[hop]),
            )
            found.append(("region", self.threads[hop].move(between, source, size)))
            found.append(("held", self.caller.ask("hold", size)))
            target = taker.region.address(taker.region.into)
            found.append(("region", self.threads[1 - hop].move(target, between, size)))
            found.append(("array", taker.ask("take", size)))
        self.caller.ask("drop", size)
        return found


def main() -> None:
    """Read the order, send every size through once, then time size after size; write a row a copy.

    A row holds the kind, bytes, number of the request, nanoseconds and fresh pages.
    """
    order = json.load(sys.stdin)
    sizes, rounds = sorted(order["sizes"]), int(order["rounds"])
    chain = Chain(sizes[-1])
    for size in sizes:
        chain.round(size)
    rows = []
    for size in sizes:
        chain.round(size)
        for number in range(rounds):
            rows += [(kind, size, number, *times) for kind, times in chain.round(size)]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
