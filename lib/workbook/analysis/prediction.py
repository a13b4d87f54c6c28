"""The rate of an ensemble, predicted from what its members cost alone, with the name of what limits it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbook.analysis.bottleneck import Bound, Demand, Stage, processor_bound
from workbook.analysis.pipeline import Member, Simulated, simulate_pipeline
from workbook.errors import SettingError
from workbook.measuring.processor_time import CLIENT, SERVER
from workbook.serving.ensemble_spec import HOPS, MEMBER_A, MEMBER_B, EnsembleVariant, hop_bytes

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.ensemble.runs import Point

WAITING = "connections waiting for batches to fill"
IMAGE_BYTES = 3 * 256 * 448 * 2
NEGLIGIBLE = 0.97
"""Queueing is named as the limit where it costs more than 3% of what members and processors would allow."""


@dataclass(frozen=True)
class PipelineCosts:
    """What one image costs, from measurements of each member alone.

    Attributes:
        a_work_s: A's instances for one image, on one processor of its own.
        b_work_s: B's, likewise, without any stall.
        a_processor_s: processor time of A's processes for one image.
        b_processor_s: of B's.
        transport_s: processor time of server and client for an image that comes in over the network and a JPEG that
            goes back.
        processors: numbers of those that may be used.
        a_work_by_batch: (images in an execution, A's work for each of them), ascending, where several batch sizes were
            measured; empty: `a_work_s` for any.
        hop: what A handed over while they were measured: `logits` or `mask`.
    """

    a_work_s: float
    b_work_s: float
    a_processor_s: float
    b_processor_s: float
    transport_s: float
    processors: tuple[int, ...]
    a_work_by_batch: tuple[tuple[float, float], ...] = ()
    hop: str = HOPS[0]

    def __post_init__(self) -> None:
        for name in ("a_work_s", "b_work_s"):
            if not getattr(self, name) > 0:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be above 0.")


@dataclass(frozen=True)
class Prediction:
    """What is expected before it is measured.

    Attributes:
        per_s: images per second.
        bottleneck: what limits it.
        bounds: every bound looked at, the tightest first.
        simulated: what the simulation of batches and queues says; its rate is one of the bounds.
    """

    per_s: float
    bottleneck: str
    bounds: tuple[Bound, ...]
    simulated: Simulated

    @property
    def sentence(self) -> str:
        """The prediction in one sentence."""
        others = ", ".join(f"{bound.name} {bound.per_s:.0f}/s" for bound in self.bounds)
        return f"Predicted: {self.per_s:.0f} images/s, limited by {self.bottleneck} (bounds: {others})."

    def bound_of(self, name: str) -> float:
        """One of the bounds, images per second; NaN where it was not looked at."""
        return next((bound.per_s for bound in self.bounds if bound.name == name), math.nan)

    def table(self) -> pd.DataFrame:
        """The bounds as a table: `limit`, `images_per_s`, `decides`."""
        import pandas as pd

        rows = [(bound.name, bound.per_s, bound.name == self.bottleneck) for bound in self.bounds]
        return pd.DataFrame(rows, columns=["limit", "images_per_s", "decides"])


def costs_of(a: Sequence[Point], b: Sequence[Point], processors: tuple[int, ...]) -> PipelineCosts:
    """Calibrate from measurements of A and of B, each alone; several of one member are averaged.

    The members' work is read from Triton's statistics, so that ceiling = instances x batch / execution comes out again;
    transport is taken as proportional to the bytes that went through the network, a fit over both measurements.

    Args:
        a: A alone, busy, in one configuration.
        b: B alone, busy, fed what A would hand it.
        processors: numbers of those that may be used.

    Raises:
        SettingError: no measurement of a member.
    """
    if not a or not b:
        raise SettingError(f"{len(a)} measurements of A and {len(b)} of B: at least one of each is needed.")
    runs = {MEMBER_A: a, MEMBER_B: b}
    work = {model: _mean(_work_s(point, processors) for point in points) for model, points in runs.items()}
    own = {m: _mean(point.processor_s_per_image.get(m, 0.0) for point in points) for m, points in runs.items()}
    spent = {m: _mean(_spent(point.processor_s_per_image) for point in points) for m, points in runs.items()}
    hop = hop_bytes(a[0].variant)
    moved = {MEMBER_A: IMAGE_BYTES + hop, MEMBER_B: hop}
    per_byte = sum(moved[m] * spent[m] for m in moved) / sum(moved[m] ** 2 for m in moved)
    return PipelineCosts(
        a_work_s=work[MEMBER_A],
        b_work_s=work[MEMBER_B] - b[0].variant.b_stall_us / 1e6,
        a_processor_s=own[MEMBER_A],
        b_processor_s=own[MEMBER_B],
        transport_s=per_byte * IMAGE_BYTES,
        processors=processors,
        hop=a[0].variant.hop,
    )


def with_batch_sizes(costs: PipelineCosts, a_alone: Sequence[Point]) -> PipelineCosts:
    """The costs with A's work at every batch size that was measured.

    Args:
        costs: of the pipeline.
        a_alone: measurements of A alone, in batches of different sizes.
    """
    works: dict[float, list[float]] = {}
    for point in a_alone:
        batch = round(_stage(point).batch)
        works.setdefault(batch, []).append(_work_s(point, costs.processors))
    return replace(costs, a_work_by_batch=tuple((batch, sum(w) / len(w)) for batch, w in sorted(works.items())))


def _work_s(point: Point, processors: tuple[int, ...]) -> float:
    """A member's work for one image on one processor: ceiling = min(instances, processors) / work."""
    variant = point.variant
    is_a = point.model == MEMBER_A
    instances = variant.a_instances if is_a else variant.b_instances
    own = len((variant.a_processors if is_a else variant.b_processors) or processors)
    return min(instances, own) / _stage(point).ceiling_per_s


def _stage(point: Point) -> Stage:
    instances = point.variant.a_instances if point.model == MEMBER_A else point.variant.b_instances
    return Stage.from_statistics(point.statistics[point.model], instances)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def ceiling_inside(point: Point, member: str) -> float:
    """What a member's executions inside a measured ensemble allow, images per second; NaN where none were counted."""
    counted = point.statistics.get(member)
    if counted is None or not counted.batches:
        return math.nan
    instances = point.variant.a_instances if member == MEMBER_A else point.variant.b_instances
    return Stage.from_statistics(counted, instances).ceiling_per_s


def _spent(seconds: Mapping[str, float]) -> float:
    return seconds.get(SERVER, 0.0) + seconds.get(CLIENT, 0.0)


def predict(costs: PipelineCosts, variant: EnsembleVariant, connections: int) -> Prediction:
    """The ensemble's rate in this configuration.

    The least of: both members' ceilings; what the processors can do, server and client included; and what a simulation
    of the batchers allows so many connections, which is named only where it costs more than 3%.

    Args:
        costs: of one image.
        variant: the configuration.
        connections: requests in flight.
    """
    a, b = _members(costs, variant)
    simulated = simulate_pipeline(a, b, connections, transport_s=costs.transport_s)
    batch_cost = a.work_of(simulated.mean_batch_a) / costs.a_work_s
    demands = [
        Demand(MEMBER_A, costs.a_processor_s * batch_cost, variant.a_processors),
        Demand(MEMBER_B, costs.b_processor_s, variant.b_processors),
        Demand("server and client", costs.transport_s),
    ]
    shared = processor_bound(demands, costs.processors)
    bounds = [
        Bound(MEMBER_A, _ceiling(a, simulated.mean_batch_a)),
        Bound(MEMBER_B, _ceiling(b)),
        Bound(f"processors ({shared.name})", shared.per_s),
    ]
    tightest = min(bounds, key=lambda bound: bound.per_s)
    if simulated.images_per_s < NEGLIGIBLE * tightest.per_s:
        bounds.append(Bound(_name_of_wait(costs, variant, connections, simulated), simulated.images_per_s))
    ordered = tuple(sorted((bound for bound in bounds if math.isfinite(bound.per_s)), key=lambda bound: bound.per_s))
    return Prediction(ordered[0].per_s, ordered[0].name, ordered, simulated)


def _name_of_wait(costs: PipelineCosts, variant: EnsembleVariant, connections: int, simulated: Simulated) -> str:
    """Whether the batcher's delay is what costs, or just too few connections, or members that share processors."""
    without = replace(variant, a_delay_us=0, b_delay_us=0)
    rate = simulate_pipeline(*_members(costs, without), connections, transport_s=costs.transport_s).images_per_s
    if simulated.images_per_s < NEGLIGIBLE * rate:
        return WAITING
    return "members sharing processors" if _share(variant) else "too few connections"


def _share(variant: EnsembleVariant) -> bool:
    a, b = set(variant.a_processors), set(variant.b_processors)
    return not a or not b or bool(a & b)


def _members(costs: PipelineCosts, variant: EnsembleVariant) -> tuple[Member, Member]:
    share = _share(variant)
    a = Member(
        instances=variant.a_instances,
        max_batch=variant.a_max_batch,
        delay_s=variant.a_delay_us / 1e6,
        work_s=costs.a_work_s,
        work_by_batch=costs.a_work_by_batch,
        pool="all" if share else "a",
        processors=len(costs.processors) if share else len(variant.a_processors),
    )
    b = Member(
        instances=variant.b_instances,
        max_batch=max(1, variant.b_max_batch),
        delay_s=variant.b_delay_us / 1e6,
        work_s=costs.b_work_s,
        stall_s=variant.b_stall_us / 1e6,
        pool="all" if share else "b",
        processors=len(costs.processors) if share else len(variant.b_processors),
    )
    return a, b


def _ceiling(member: Member, batch: float = 1) -> float:
    """Images per second of a member that has its processors to itself."""
    work_s = member.work_of(batch)
    return min(member.instances / (work_s + member.stall_s), member.processors / work_s)


def ceilings(costs: PipelineCosts, variant: EnsembleVariant) -> tuple[float, float]:
    """Images per second of A, in full batches, and of B at most, each with its processors to itself."""
    a, b = _members(costs, variant)
    return _ceiling(a, a.max_batch), _ceiling(b)
