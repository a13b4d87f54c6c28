"""Compare two arms, but only where nothing differs except what was declared to differ."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from workbook.analysis.intervals import Interval, ratio_interval
from workbook.errors import NotComparableError, SettingError
from workbook.measuring.conditions import Arm, Conditions


@dataclass(frozen=True)
class Comparison:
    """How much faster the first arm is.

    Attributes:
        first: name of the arm above the line.
        second: name of the arm below it.
        ratio: throughput of the first over that of the second.
        ci95: bounds of its interval; None where the runs give none.
        per_run: ratio of each pair of runs; empty where the arms were not paired.
        differences: declared fields that do differ, with both values.
        verdict: the answer in one sentence.
        note: why there is no interval; empty where there is one.
    """

    first: str
    second: str
    ratio: float
    ci95: tuple[float, float] | None
    per_run: tuple[float, ...]
    differences: dict[str, tuple[Any, Any]]
    verdict: str
    note: str = ""


def differences(a: Conditions, b: Conditions) -> dict[str, tuple[Any, Any]]:
    """Fields in which the conditions differ, with both values, in the order of `Conditions`."""
    pairs = {f.name: (getattr(a, f.name), getattr(b, f.name)) for f in fields(Conditions)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def check_comparable(a: Conditions, b: Conditions, declared: Collection[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Refuse to compare arms that differ in anything but the declared fields.

    Returns:
        The declared fields that do differ, with both values.

    Raises:
        NotComparableError: names each undeclared field that differs, with both values.
        SettingError: a declared name is no field of `Conditions`.
    """
    known = [f.name for f in fields(Conditions)]
    for name in declared:
        if name not in known:
            raise SettingError(
                f"{name!r} is declared as the difference but is no condition. Known: {', '.join(known)}."
            )
    found = differences(a, b)
    undeclared = {name: pair for name, pair in found.items() if name not in declared}
    if undeclared:
        listed = "; ".join(f"{name} is {x!r} in one and {y!r} in the other" for name, (x, y) in undeclared.items())
        raise NotComparableError(
            f"the arms cannot be compared: {listed}. Make them equal, or declare the field as the difference."
        )
    return found


def compare_arms(
    first: Arm,
    second: Arm,
    declared: Collection[str],
    smallest_difference_percent: float = 5.0,
    paired: bool = True,
) -> Comparison:
    """Ratio of two arms' throughput with its 95% interval and the answer in one sentence.

    Args:
        first: the arm above the line.
        second: the arm below it.
        declared: fields of `Conditions` that are the difference under test.
        smallest_difference_percent: a smaller one is called none, whatever the interval says.
        paired: whether run i of one arm was measured beside run i of the other.

    Raises:
        NotComparableError: the arms differ in a field that was not declared.
    """
    found = check_comparable(first.conditions, second.conditions, declared)
    interval = ratio_interval(first.rows_per_s, second.rows_per_s, paired=paired)
    pairs = zip(first.rows_per_s, second.rows_per_s, strict=True) if paired else ()
    return Comparison(
        first=first.name,
        second=second.name,
        ratio=interval.estimate,
        ci95=(interval.low, interval.high) if interval.known else None,
        per_run=tuple(a / b for a, b in pairs),
        differences=found,
        verdict=verdict_of(first.name, second.name, interval, smallest_difference_percent),
        note=interval.note,
    )


def verdict_of(first: str, second: str, ratio: Interval, smallest_difference_percent: float) -> str:
    """The answer in one sentence, with the faster arm named first.

    Let m = 1 + smallest difference. The interval inside (1/m, m), or a ratio inside it with an interval that excludes
    1: no difference that matters. Ratio beyond m and an interval that excludes 1: faster. Anything else is undecided.
    """
    if ratio.estimate < 1:
        first, second = second, first
        ratio = Interval(
            1 / ratio.estimate, 1 / ratio.high, 1 / ratio.low, ratio.confidence, ratio.n, ratio.note
        )  # NaN bounds stay NaN
    margin = 1 + smallest_difference_percent / 100
    if not ratio.known:
        return f"{first} was {ratio.estimate:.2f} times as fast as {second}; {ratio.note}."
    bounds = f"{ratio.confidence:.0%} interval {ratio.low:.2f} to {ratio.high:.2f}"
    told_apart, small = ratio.low > 1, ratio.estimate < margin
    if (ratio.low > 1 / margin and ratio.high < margin) or (told_apart and small):
        return (
            f"No difference that matters between {first} and {second}: "
            f"ratio {ratio.estimate:.2f}, {bounds}, and less than {smallest_difference_percent:g}% is called equal."
        )
    if told_apart:
        return f"{first} is {ratio.estimate:.2f} times as fast as {second} ({bounds})."
    return (
        f"Undecided: {first} came out {ratio.estimate:.2f} times as fast as {second}, but the runs do not settle it "
        f"({bounds}); more runs would narrow it."
    )
