"""Where an ensemble can lose throughput: each known cause switched on and off alone, its effect with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from workbook.errors import SettingError
from workbook.serving.ensemble_spec import EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd

ALL_CAUSES = "all"
FEW_CONNECTIONS = 16
NO_EFFECT = 0.1
"""A cause counts as without effect where its whole interval lies this near to 1."""
SPARE_INSTANCES = 4
ISSUE_SERVICE_RATIO = 6.773 / (1000 / 314.86)
"""In issue 2760 B took so many times as long for an image inside the ensemble as A did: 6.77 ms against 3.18 ms."""


@dataclass(frozen=True)
class Setting:
    """What is served and by how many connections it is kept busy."""

    variant: EnsembleVariant
    connections: int


@dataclass(frozen=True)
class Cause:
    """A known cause of loss.

    Attributes:
        key: short, for the parameter that chooses causes.
        name: in words.
        on: the configuration that has it.
        off: the same without it.
        in_the_issue: what the numbers of issue 2760 say about it.
        emulated: whether this machine has to stand in for something it lacks.
    """

    key: str
    name: str
    on: Setting
    off: Setting
    in_the_issue: str
    emulated: bool = False


def loss_causes(apart: EnsembleVariant, connections: int, stall_us: int) -> tuple[Cause, ...]:
    """The causes, each one switch away from a common configuration.

    Args:
        apart: the reported configuration, members on processors of their own.
        connections: requests in flight.
        stall_us: wait in front of each of B's answers that stands in for a move from GPU to host.
    """
    few, base = min(FEW_CONNECTIONS, connections), Setting(apart, connections)

    def with_(**changes: object) -> Setting:
        return Setting(replace(apart, **changes), connections)  # type: ignore[arg-type]

    stalled = with_(b_stall_us=stall_us)
    return (
        Cause(
            "processors",
            "members share processors",
            Setting(replace(apart, a_processors=(), b_processors=()), connections),
            base,
            "no: A ran on the GPU, B on the CPU",
        ),
        Cause(
            "bursts",
            "bursts of full batches into an unbatched B",
            base,
            with_(b_max_batch=apart.a_max_batch),
            "there, but not the reason: a burst makes images wait, B's ceiling alone already explains the rate",
        ),
        Cause(
            "delay",
            f"150 ms of queue delay at {few} connections",
            Setting(apart, few),
            Setting(replace(apart, a_delay_us=0), few),
            "no: 128 connections fill batches of 32, and A alone reached 315/s with the same delay",
        ),
        Cause(
            "tensor",
            "B fed float16 logits in place of a uint8 mask",
            base,
            with_(hop="mask"),
            "the other way round: B's own test carried 688,128 bytes a request, the ensemble hands over 458,752",
        ),
        Cause(
            "instances",
            "one instance of B in place of two",
            base,
            with_(b_instances=2),
            "yes: one instance, 6.77 ms an image, 147.6/s at most; it would have needed three",
        ),
        Cause(
            "move",
            "B slower in the ensemble than alone (a wait stands in for the move from GPU to host)",
            stalled,
            base,
            "yes: 3.46 of B's 6.77 ms were compute_input, and its own test needed 2.4 ms in all",
            emulated=True,
        ),
        Cause(
            "remedy",
            f"the same, with one instance of B in place of {SPARE_INSTANCES}",
            stalled,
            with_(b_stall_us=stall_us, b_instances=SPARE_INSTANCES),
            "not tried there: this is the remedy",
            emulated=True,
        ),
    )


def choose_causes(causes: Sequence[Cause], wanted: Sequence[str]) -> tuple[Cause, ...]:
    """Those with these keys, in their order; `all` stands for every one.

    Raises:
        SettingError: no cause has that key.
    """
    known = [cause.key for cause in causes]
    for key in wanted:
        if key not in (*known, ALL_CAUSES):
            raise SettingError(f"ensemble_causes holds {key!r}; known are {ALL_CAUSES}, {', '.join(known)}.")
    return tuple(cause for cause in causes if cause.key in wanted or ALL_CAUSES in wanted)


def stall_like_the_issue_us(a_work_s: float, b_work_s: float) -> int:
    """The wait that makes B as slow beside A as it was in the issue, microseconds; at least 1.

    Args:
        a_work_s: A's time for one image when it is busy, the inverse of its ceiling.
        b_work_s: B's, without any wait.
    """
    return max(1, round(1e6 * (ISSUE_SERVICE_RATIO * a_work_s - b_work_s)))


def settings_of(causes: Sequence[Cause]) -> tuple[Setting, ...]:
    """Every configuration that the causes need, each once; those with the same A stand together, to be loaded once."""
    settings = dict.fromkeys(setting for cause in causes for setting in (cause.on, cause.off))
    members = list(dict.fromkeys(_member_a(setting) for setting in settings))
    return tuple(sorted(settings, key=lambda setting: members.index(_member_a(setting))))


def _member_a(setting: Setting) -> tuple[object, ...]:
    variant = setting.variant
    return variant.a_instances, variant.a_max_batch, variant.a_delay_us, variant.a_processors, variant.hop


def effects(causes: Sequence[Cause], rates: Mapping[Setting, Sequence[float]]) -> pd.DataFrame:
    """What each cause does to the ensemble's rate.

    The interval is that of a two-way layout (settings x rounds) of the logarithms of the rates: a round's own speed is
    taken out, and the scatter that is left is pooled over all settings, on the assumption that it is alike in all of
    them. Two rounds of nine settings then leave 8 degrees of freedom, where each pair alone would leave 1. Where many
    causes are looked at, one of twenty 95% intervals misses: a verdict needs the wider one that holds for all at once
    (Bonferroni).

    Args:
        causes: from `loss_causes`.
        rates: images per second of each run, in rounds: run i of one setting was measured near run i of the others.

    Returns:
        A row a cause: `cause`, `with_per_s`, `without_per_s`, `effect` (with / without: 1 costs nothing, 0.5 halves),
        `ci95_low`, `ci95_high` (NaN where one round gives no interval), `verdict`, `emulated`, `in_the_issue`.
    """
    import pandas as pd

    rows: list[dict[str, object]] = []
    half_width, half_of_all = _half_widths(list(rates.values()), (0.95, 1 - 0.05 / max(1, len(causes))))
    for cause in causes:
        effect = math.fsum(map(math.log, rates[cause.on])) - math.fsum(map(math.log, rates[cause.off]))
        effect /= len(rates[cause.on])
        low, high = math.exp(effect - half_width), math.exp(effect + half_width)
        rows.append(
            {
                "cause": cause.name,
                "with_per_s": sum(rates[cause.on]) / len(rates[cause.on]),
                "without_per_s": sum(rates[cause.off]) / len(rates[cause.off]),
                "effect": math.exp(effect),
                "ci95_low": low,
                "ci95_high": high,
                "verdict": _verdict(effect, half_width, half_of_all),
                "emulated": cause.emulated,
                "in_the_issue": cause.in_the_issue,
            }
        )
    return pd.DataFrame(rows)


def _half_widths(rates: Sequence[Sequence[float]], confidences: Sequence[float]) -> list[float]:
    """Half of each interval of a difference of two settings' mean logarithms; NaN for one round or one setting.

    Raises:
        SettingError: settings were measured unequally often.
    """
    from scipy import stats

    if len({len(runs) for runs in rates}) != 1:
        raise SettingError(f"rounds differ: {[len(runs) for runs in rates]}; measure every setting equally often.")
    logs = np.log(np.asarray(rates, np.float64))
    settings, rounds = logs.shape
    freedom = (settings - 1) * (rounds - 1)
    if not freedom:
        return [math.nan for _ in confidences]
    left = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
    deviation = math.sqrt((left**2).sum() / freedom * 2 / rounds)
    return [float(stats.t.ppf((1 + confidence) / 2, freedom)) * deviation for confidence in confidences]


def _verdict(effect: float, half_width: float, half_of_all: float) -> str:
    """In words; all three are logarithms."""
    if math.isnan(half_width):
        return "one round, no interval"
    if abs(effect) > half_of_all:
        return "costs throughput here" if effect < 0 else "gains here"
    narrow = math.exp(effect - half_width) >= 1 - NO_EFFECT and math.exp(effect + half_width) <= 1 + NO_EFFECT
    return f"no effect seen, {NO_EFFECT:.0%} at most" if narrow else "not resolved"
