"""Arms measured in turn, A B B A, so that a machine that drifts slows all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from workbook.errors import SettingError

Result = TypeVar("Result")


def alternate(
    arms: Mapping[str, Callable[[int], Result]], repeats: int, *, progress: bool = True
) -> dict[str, list[Result]]:
    """Run every arm `repeats` times: forwards in even rounds, backwards in odd ones.

    With arms A and B and four repeats the order is A B, B A, A B, B A. A steady drift of the machine then weighs
    equally on each arm, and run i of one arm stands beside run i of the other: they may be compared as a pair.

    Args:
        arms: name -> function that measures it once, given the number of the run from 0.
        repeats: runs of each arm; even, at least 2.
        progress: show a progress bar with an estimate.

    Returns:
        The results of each arm, in order of its runs.

    Raises:
        SettingError: no arms, or a number of repeats that cannot alternate.
    """
    from tqdm.auto import tqdm

    if not arms:
        raise SettingError("there is no arm to measure: give at least one.")
    if repeats < 2 or repeats % 2:
        raise SettingError(f"repeats is {repeats}: it must be even and at least 2, because the arms alternate A B B A.")
    results: dict[str, list[Result]] = {name: [] for name in arms}
    with tqdm(total=repeats * len(arms), unit="run", disable=not progress) as bar:
        for run, name in order_of_runs(tuple(arms), repeats):
            bar.set_description(f"{name}, run {run + 1} of {repeats}")
            results[name].append(arms[name](run))
            bar.update()
    return results


def order_of_runs(names: tuple[str, ...], repeats: int) -> Iterator[tuple[int, str]]:
    """Number of the run and name of the arm, in the order they are measured."""
    for run in range(repeats):
        for name in names if run % 2 == 0 else reversed(names):
            yield run, name
