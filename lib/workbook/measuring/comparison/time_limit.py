"""How many rows the arms can take in the time they may take, from the operations they cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbook.measuring.comparison.blocks import main_arms

if TYPE_CHECKING:
    from workbook.measuring.comparison.protocol import Protocol
    from workbook.measuring.comparison.switches import Plan

EXPECTED_SHARE = 0.7
"""Of a bare matrix product's rate, what an arm reaches on rows in file order: 0.69 to 0.79 measured on two machines."""


@dataclass(frozen=True)
class ArmRows:
    """How many rows are measured.

    Attributes:
        main: rows through each main arm.
        switches: rows through each arm of the waterfall, of those.
        note: what was cut and why, in words; empty where nothing was.
    """

    main: int
    switches: int
    note: str = ""


def fit_rows(
    asked: ArmRows,
    plan: Plan,
    flop_per_row: Callable[[Protocol], float],
    ceiling_flop_per_s: float,
    *,
    limit_s: float,
    step: int,
) -> ArmRows:
    """Cut the rows to what fits; the waterfall gets half of the time at most, the main arms what it leaves.

    Args:
        asked: the rows that were asked for.
        plan: the arms.
        flop_per_row: operations of a row in an arm, padding included.
        ceiling_flop_per_s: rate of a bare matrix product.
        limit_s: time for all arms together, s; 0: no limit.
        step: rows of one batch in every run; so many are measured at least, and a multiple of it where rows are cut.
    """
    if not limit_s:
        return asked
    rate = EXPECTED_SHARE * ceiling_flop_per_s
    main_arm, *_ = main = list(dict.fromkeys(main_arms(plan).values()))
    main_s = (_sum(flop_per_row, main) + flop_per_row(main_arm)) / rate  # and the library to beat, fed the same
    switches_s = _sum(flop_per_row, plan.arms()) / rate
    switches = _cut(min(asked.switches, asked.main), limit_s / 2 / switches_s, step)
    rows = _cut(asked.main, (limit_s - switches * switches_s) / main_s, step)
    if (rows, switches) == (asked.main, min(asked.switches, asked.main)):
        return asked
    minutes = (asked.main * main_s + asked.switches * switches_s) / 60
    return ArmRows(
        rows,
        switches,
        f"All {asked.main:,} rows through every arm, and {asked.switches:,} through every switch, would take about "
        f"{minutes:.0f} minutes here: the first {rows:,} and {switches:,} are measured. `arms_limit_s: 0` takes all.",
    )


def _sum(flop_per_row: Callable[[Protocol], float], arms: Iterable[Protocol]) -> float:
    return sum(flop_per_row(arm) for arm in arms)


def _cut(asked: int, fitting: float, step: int) -> int:
    """What was asked for where it fits, else the largest multiple of `step` that does, one at least."""
    return asked if asked <= fitting else min(asked, max(1, int(fitting // step)) * step)
