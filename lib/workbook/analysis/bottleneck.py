"""What limits a pipeline: the ceiling of each member, and the processors that members share.

A member with `k` instances that takes `t` for an execution of `b` images answers at most `k x b / t` images a second,
where t = compute_input + compute_infer + compute_output as Triton counts them once per execution (Triton's statistics
extension; the waiting in the queue is a consequence, not a cost). A chain is no faster than its slowest member, and no
faster than the processors its members run on: a set of `c` processors gives `c` seconds of work a second.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from workbook.errors import SettingError
from workbook.serving.statistics import ModelStatistics


@dataclass(frozen=True)
class Stage:
    """A member as its own statistics show it.

    Attributes:
        name: of the member.
        instances: copies that run at the same time, 1 or more.
        batch: images in one execution, on average.
        input_ms, infer_ms, output_ms: of one execution.
    """

    name: str
    instances: int
    batch: float
    input_ms: float
    infer_ms: float
    output_ms: float

    def __post_init__(self) -> None:
        for name in ("instances", "batch"):
            if not getattr(self, name) >= 1:
                raise SettingError(f"{self.name}: {name} is {getattr(self, name)}; it must be at least 1.")
        if not (math.isfinite(self.execution_ms) and self.execution_ms > 0):
            raise SettingError(f"{self.name}: an execution takes {self.execution_ms} ms; it must be above 0.")

    @classmethod
    def from_statistics(cls, statistics: ModelStatistics, instances: int) -> Stage:
        """The stage that Triton's counters describe; they must hold at least one execution."""
        return cls(
            name=statistics.model,
            instances=instances,
            batch=_mean_batch(statistics),
            input_ms=statistics.execution_input_ms,
            infer_ms=statistics.execution_infer_ms,
            output_ms=statistics.execution_output_ms,
        )

    @property
    def execution_ms(self) -> float:
        """One execution, all three parts."""
        return self.input_ms + self.infer_ms + self.output_ms

    @property
    def ceiling_per_s(self) -> float:
        """Images per second at most: instances x batch / execution."""
        return self.instances * self.batch / self.execution_ms * 1e3


@dataclass(frozen=True)
class Demand:
    """Processor time that one image costs somewhere.

    Attributes:
        name: who needs it.
        seconds: for one image.
        processors: where it may be spent; empty: anywhere.
    """

    name: str
    seconds: float
    processors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bound:
    """A rate that cannot be exceeded, and who says so."""

    name: str
    per_s: float


def _mean_batch(statistics: ModelStatistics) -> float:
    """Images per execution from the counters by batch size, which are written once an execution, all together."""
    executions = sum(batch.execution_count for batch in statistics.batches)
    images = sum(batch.batch_size * batch.execution_count for batch in statistics.batches)
    return images / executions if executions else math.nan


def slowest_member(stages: Sequence[Stage]) -> Bound:
    """The bound of members that share nothing: min over their ceilings."""
    if not stages:
        raise SettingError("a pipeline without members has no bound: give at least one stage.")
    slowest = min(stages, key=lambda stage: stage.ceiling_per_s)
    return Bound(slowest.name, slowest.ceiling_per_s)


def processor_bound(demands: Sequence[Demand], processors: Collection[int]) -> Bound:
    """The bound of processors that are shared.

    For every set S of processors: what can only be spent inside S must fit into it, so the rate is at most
    |S| / (sum of the demands confined to S). Only unions of the demands' own sets can be the tightest.

    Args:
        demands: for one image.
        processors: numbers of those that may be used.

    Returns:
        The tightest bound; its name lists who shares the processors. Infinity where nothing is demanded.

    Raises:
        SettingError: no processor, or a negative demand.
    """
    if not processors:
        raise SettingError("there are no processors: at least 1 is needed.")
    if any(not demand.seconds >= 0 for demand in demands):
        raise SettingError(f"a demand is below 0: {[(demand.name, demand.seconds) for demand in demands]}.")
    everywhere = frozenset(processors)
    sets = {demand: frozenset(demand.processors) or everywhere for demand in demands}
    bounds = []
    for union in _unions(set(sets.values()) | {everywhere}):
        inside = [demand for demand in demands if sets[demand] <= union and demand.seconds > 0]
        if total := sum(demand.seconds for demand in inside):
            bounds.append(Bound(" + ".join(demand.name for demand in inside), len(union) / total))
    return min(bounds, key=lambda bound: bound.per_s, default=Bound("nothing", math.inf))


def _unions(sets: set[frozenset[int]]) -> set[frozenset[int]]:
    """Every union of some of the sets; there are few different ones."""
    return {frozenset().union(*some) for size in range(1, len(sets) + 1) for some in itertools.combinations(sets, size)}
