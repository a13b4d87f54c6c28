"""Throughput from the moments at which answers ended, also where they end in bursts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError


def completion_rate_per_s(ended_ns: Sequence[int] | NDArray[np.int64]) -> float:
    """Answers per second: the slope of their count over time, by least squares.

    Counting what falls into a window goes wrong by a whole burst where a batcher releases 32 answers at once; the slope
    of the staircase does not. Bursts of 32 every 200 ms are 160/s, wherever the window begins and ends. Where a burst
    takes a tenth of the time to the next, the slope is 3% too steep with two of them, 1% with three.

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
