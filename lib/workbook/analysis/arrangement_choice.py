"""Which arrangement for which pipeline: a small model of latency and throughput, the seed's claims, advice.

The model knows the time of each stage, what a hop adds, and how many processors there are. A stage that is a process of
its own works on one request at a time; the stages of an ensemble work on different requests at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbook.analysis.copy_costs import HOPS, HopCost
from workbook.analysis.intervals import ratio_interval
from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

HELD, NOT_HELD, UNDECIDED = "held", "did not hold", "undecided"
BEST_LATENCY = "One model has the best latency: an ensemble takes longer"
MORE_INSTANCES = "More instances raise throughput"
SLOWER_INSTANCES = "More instances make each request slower: they get in each other's way"
OVERLAP = "An ensemble overlaps its stages: more throughput than one monolith"
BLOCKING = "A blocking BLS has less throughput than the ensemble"
ONE_PROCESS, SLOWEST_STAGE = "its one process", "its slowest stage"
ITS_COPIES, THE_PROCESSORS = "the number of its copies", "the number of processors"
_UNITS = {"latency_ms": "ms", "service_ms": "ms in an instance", "requests_per_s": "requests/s"}


@dataclass(frozen=True)
class Situation:
    """A pipeline and a machine.

    Attributes:
        megabytes: size of the tensor that each stage hands on, 10^6 bytes.
        stage_ms: time of each stage, ms.
        instances: copies of the monolith in `monolith_x`.
        processors: that the stages may use; each computes on one.
    """

    megabytes: float
    stage_ms: tuple[float, ...]
    instances: int = 2
    processors: int = 2

    def __post_init__(self) -> None:
        """Refuse what no pipeline could be."""
        if self.megabytes < 0 or not self.stage_ms or min(self.stage_ms) < 0 or sum(self.stage_ms) <= 0:
            raise SettingError(
                f"megabytes is {self.megabytes:g} and stage_ms {list(self.stage_ms)}: sizes and times are 0 or more, "
                "and one stage takes longer than 0."
            )
        if self.instances < 1 or self.processors < 1:
            raise SettingError(f"instances is {self.instances}, processors {self.processors}: both are 1 or more.")


@dataclass(frozen=True)
class Expectation:
    """What an arrangement should do in a situation.

    Attributes:
        latency_ms: of a request that is alone.
        throughput_per_s: requests a second with enough of them in flight.
        limit: what holds the throughput down, in words.
    """

    latency_ms: float
    throughput_per_s: float
    limit: str


def expect(situation: Situation, costs: Mapping[str, HopCost], base_ms: float = 0.0) -> dict[str, Expectation]:
    """Latency and throughput of every arrangement.

    Latency is the stages' time, the hops' and `base_ms`. Throughput has two bounds, and the lower one counts: the
    slowest process that takes one request at a time, and all work together against the processors. A copy is work of
    a processor; what a hop costs beside it is waiting, in part, so the second bound is a little low.

    Args:
        situation: pipeline and machine.
        costs: of `copy_costs.hop_costs`.
        base_ms: latency of a request to a model that does nothing, ms.
    """
    work = sum(situation.stage_ms)
    expected = {"monolith": Expectation(base_ms + work, 1e3 / work, ONE_PROCESS)}
    together = min(situation.instances, situation.processors)
    copies_limit = ITS_COPIES if situation.instances <= situation.processors else THE_PROCESSORS
    expected[f"monolith_x{situation.instances}"] = Expectation(base_ms + work, 1e3 * together / work, copies_limit)
    for name, cost in costs.items():
        added = cost.added_ms(situation.megabytes, len(situation.stage_ms) - 1)
        total = work + added
        one_stage = max(situation.stage_ms) + added / max(1, len(situation.stage_ms) - 1)
        # a BLS caller waits for its stages: one request at a time
        slowest, its_limit = (total, ONE_PROCESS) if name == "bls" else (one_stage, SLOWEST_STAGE)
        shared = total / situation.processors
        limit = its_limit if slowest >= shared else THE_PROCESSORS
        expected[name] = Expectation(base_ms + total, 1e3 / max(slowest, shared), limit)
    return expected


def best_arrangement(situation: Situation, costs: Mapping[str, HopCost]) -> tuple[str, str]:
    """The arrangement with the lowest latency and the one with the highest throughput; the simpler one where equal.

    One within 5% of the best counts as equal to it. Simpler is: monolith, more instances, ensemble, BLS, handle.
    """
    expected = expect(situation, costs)
    lowest = min(one.latency_ms for one in expected.values())
    highest = max(one.throughput_per_s for one in expected.values())
    ordered = sorted(expected, key=_effort)
    return (
        next(name for name in ordered if expected[name].latency_ms <= 1.05 * lowest),
        next(name for name in ordered if expected[name].throughput_per_s >= highest / 1.05),
    )


def _effort(name: str) -> int:
    order = ("monolith", "monolith_x", "ensemble", "bls_async", "bls", "handle")
    return max(place for place, start in enumerate(order) if name.startswith(start))


def advice_table(
    costs: Mapping[str, HopCost],
    sizes_mb: Sequence[float] = (0.1, 1, 10, 50),
    stage_ms: Sequence[float] = (1, 10, 100),
    *,
    instances: int = 2,
    processors: int = 2,
) -> pd.DataFrame:
    """For each tensor size and stage time: what copies add, and which arrangement to take.

    Args:
        costs: of `copy_costs.hop_costs`.
        sizes_mb: of the tensor, 10^6 bytes.
        stage_ms: time of each of three equal stages, ms.
        instances: of `monolith_x`.
        processors: of the machine.

    Returns:
        A row each: `tensor_mb`, `stage_ms`, `ensemble_adds_percent` (to the latency), `best_latency`,
        `best_throughput`.
    """
    import pandas as pd

    rows = []
    for size in sizes_mb:
        for stage in stage_ms:
            situation = Situation(size, (float(stage),) * (HOPS + 1), instances, processors)
            latency, throughput = best_arrangement(situation, costs)
            added = 100 * costs["ensemble"].added_ms(size) / (3 * stage)
            rows.append(
                {
                    "tensor_mb": size,
                    "stage_ms": stage,
                    "ensemble_adds_percent": added,
                    "best_latency": latency,
                    "best_throughput": throughput,
                }
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Claim:
    """One statement of the seed, tried here.

    Attributes:
        claim: in words.
        pipeline: on which pipeline.
        verdict: `held`, `did not hold` or `undecided`.
        numbers: what it rests on.
    """

    claim: str
    pipeline: str
    verdict: str
    numbers: str


def judge_claims(alone: pd.DataFrame, loads: pd.DataFrame, smallest_difference_percent: float = 5.0) -> list[Claim]:
    """The maintainers' statements about latency and throughput, each against the measured runs.

    Args:
        alone: of `measuring.copies.measure_alone`, any number of pipelines.
        loads: of `measuring.copies.measure_arrangements`, the same ones.
        smallest_difference_percent: a smaller one is called none.
    """
    claims = []
    for pipeline, group in loads.groupby("pipeline", sort=False):
        several = next(name for name in group["arrangement"].unique() if str(name).startswith("monolith_x"))
        copies = group["arrangement"].map({several: int(several.removeprefix("monolith_x"))}).fillna(1)
        # a busy instance answers every so many ms
        busy = group.assign(service_ms=1e3 * copies / group["requests_per_s"])
        runs = _Runs(str(pipeline), alone[alone["pipeline"] == pipeline], busy, 1 + smallest_difference_percent / 100)
        claims += [
            runs.compare(BEST_LATENCY, "latency_ms", "ensemble", "monolith"),
            runs.compare(MORE_INSTANCES, "requests_per_s", several, "monolith"),
            runs.compare(SLOWER_INSTANCES, "service_ms", several, "monolith"),
            runs.compare(OVERLAP, "requests_per_s", "ensemble", "monolith"),
            runs.compare(BLOCKING, "requests_per_s", "ensemble", "bls"),
        ]
    return claims


def batching_claim(gathered_ms: float, copied_ms: float, megabytes: float) -> Claim:
    """Whether putting requests together costs a copy, from the time it takes and the time of a copy of one of them.

    Args:
        gathered_ms: time to put several tensors into one, for each of them, ms.
        copied_ms: time of one copy of such a tensor, ms.
        megabytes: size of one of them, 10^6 bytes.
    """
    held = HELD if gathered_ms > 0.5 * copied_ms else NOT_HELD
    numbers = (
        f"Triton hands a Python model the tensors of a batch one by one; putting tensors of {megabytes:g} MB together "
        f"took {gathered_ms:.3g} ms each, a copy of one takes {copied_ms:.3g} ms"
    )
    return Claim("Dynamic batching has no way around a copy", "any", held, numbers)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True, eq=False)
class _Runs:
    """The runs of one pipeline, alone and busy; a ratio below `margin` is called none."""

    pipeline: str
    alone: pd.DataFrame
    busy: pd.DataFrame
    margin: float

    def compare(self, claim: str, column: str, larger: str, smaller: str) -> Claim:
        """Whether `column` of the one really is larger than of the other."""
        top, bottom = self._values(larger, column), self._values(smaller, column)
        ratio = ratio_interval(top, bottom)
        bounds = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.known else ""
        load = "alone" if column in self.alone else f"with {int(self.busy['concurrency'].iloc[0])} in flight"
        numbers = (
            f"{larger} {_short(sum(top) / len(top))}, {smaller} {_short(sum(bottom) / len(bottom))} {_UNITS[column]} "
            f"{load}: ratio {ratio.estimate:.2f}{bounds}"
        )
        return Claim(claim, self.pipeline, self._verdict(ratio.estimate, ratio.low, ratio.high), numbers)

    def _verdict(self, ratio: float, low: float, high: float) -> str:
        if ratio >= self.margin and (low > 1 or low != low):  # NaN: one run each, no interval
            return HELD
        if high < self.margin or ratio <= 1:
            return NOT_HELD
        return UNDECIDED

    def _values(self, arrangement: str, column: str) -> list[float]:
        runs = self.alone if column in self.alone else self.busy
        return [float(value) for value in runs[runs["arrangement"] == arrangement].sort_values("run")[column]]
