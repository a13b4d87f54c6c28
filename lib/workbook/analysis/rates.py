"""Throughput from the moments at which answers ended, also where they end in bursts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from workbook.errors import SettingError


def completion_rate_per_s(ended_ns: Sequence[int], window_s: float = math.inf, burst: int = 0) -> float:
    """Answers per second: the slope of their count over time, by least squares.

    Counting what falls into a window goes wrong by a whole burst where a batcher releases 32 answers at once; the slope
    of the staircase does not. Bursts of 32 every 200 ms are 160/s, wherever the window begins and ends.

    A single burst has a slope too, but that says nothing: with a window given, the rate is kept within what the count
    alone allows, (answers - burst) / window to (answers + burst) / window.

    Args:
        ended_ns: when each answer ended, in any order.
        window_s: length of the time in which they were counted, s; infinite: not known.
        burst: answers that may end at once.

    Raises:
        SettingError: fewer than two answers, or all of them at one moment.
    """
    ended = np.sort(np.asarray(ended_ns, dtype=np.float64))
    if len(ended) < 2 or ended[-1] == ended[0]:
        raise SettingError(f"{len(ended)} answers at one moment make no rate: measure longer.")
    time_s = (ended - ended.mean()) / 1e9
    count = np.arange(len(ended)) - (len(ended) - 1) / 2
    slope = float((time_s @ count) / (time_s @ time_s))
    if math.isinf(window_s):
        return slope
    return min(max(slope, (len(ended) - burst) / window_s), (len(ended) + burst) / window_s)
