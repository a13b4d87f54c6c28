"""Throughput from the moments at which answers ended, also where they end in bursts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbook.errors import SettingError


def completion_rate_per_s(ended_ns: Sequence[int]) -> float:
    """Answers per second: the slope of their count over time, by least squares.

    Counting what falls into a window goes wrong by a whole burst where a batcher releases 32 answers at once; the slope
    of the staircase does not. Bursts of 32 every 200 ms are 160/s, wherever the window begins and ends.

    Args:
        ended_ns: when each answer ended, in any order.

    Raises:
        SettingError: fewer than two answers, or all of them at one moment.
    """
    ended = np.sort(np.asarray(ended_ns, dtype=np.float64))
    if len(ended) < 2 or ended[-1] == ended[0]:
        raise SettingError(f"{len(ended)} answers at one moment make no rate: measure longer.")
    time_s = (ended - ended.mean()) / 1e9
    count = np.arange(len(ended)) - (len(ended) - 1) / 2
    return float((time_s @ count) / (time_s @ time_s))
