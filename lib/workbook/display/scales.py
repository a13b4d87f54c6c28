"""Axes for values with long tails: where to cut, when to go logarithmic, which ticks to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbook.display.wording import milliseconds
from workbook.errors import SettingError

SCALES = ("auto", "linear", "log")
LOG_FROM_RATIO = 12.0
"""`auto` goes logarithmic where the largest 99th percentile is so many times the smallest 5th."""
CUT_FROM_RATIO = 1.6
"""A linear axis is cut where the largest value is so many times the largest 99th percentile."""
DENSITY_POINTS = 160


@dataclass(frozen=True)
class Axis:
    """An axis worked out from its values.

    Attributes:
        log: whether it is logarithmic.
        low: its start, in the values' unit.
        high: its end.
        note: what a reader has to know about it, in a sentence; empty where nothing.
        layout: keywords for plotly's `update_xaxes` or `update_yaxes`.
    """

    log: bool
    low: float
    high: float
    note: str = ""
    layout: dict[str, Any] = field(default_factory=dict)


def choose_axis(groups: Sequence[np.ndarray], scale: str = "auto") -> Axis:
    """An axis on which every group can be read.

    Raises:
        SettingError: no such scale.
    """
    if scale not in SCALES:
        raise SettingError(f"scale is {scale!r}: it must be one of {', '.join(SCALES)}.")
    filled = [values for values in groups if len(values)]
    if not filled:
        return Axis(False, 0, 1)
    fast = min(float(np.percentile(values, 5)) for values in filled)
    slow = max(float(np.percentile(values, 99)) for values in filled)
    if scale == "log" or (scale == "auto" and fast > 0 and slow > LOG_FROM_RATIO * fast):
        return _log_axis(np.concatenate(filled))
    return _linear_axis(np.concatenate(filled), slow)


def ticks_for(values: Iterable[float], every: bool = False) -> dict[str, Any]:
    """Ticks of a logarithmic axis: 1, 2, 5, 10, ... over the values, or each value itself where there are few."""
    numbers = sorted({float(value) for value in values})
    if every:
        return {"tickvals": numbers, "ticktext": [f"{value:g}" for value in numbers]}
    decades = range(int(np.floor(np.log10(numbers[0]))), int(np.ceil(np.log10(numbers[-1]))) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" if tick < 1000 else f"{tick:,.0f}" for tick in ticks]}


def powers_of_ten(low: float, high: float) -> dict[str, Any]:
    """Ticks of a logarithmic axis over many decades, as 10⁻⁶; plotly's own set the exponent in a larger font."""
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    texts = ["10" + str(exponent).translate(raised) for exponent in exponents]
    return {"tickvals": [10.0**exponent for exponent in exponents], "ticktext": texts}


def density(values: np.ndarray, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Kernel density of the values on the axis, scaled to a largest value of 1.

    Gaussian kernels with Scott's bandwidth, on the logarithm where the axis is logarithmic.

    Returns:
        Positions in the values' unit and the density there, both of shape `(points,)`.
    """
    from scipy import stats

    placed = np.log10(values) if axis.log else values
    spread = float(np.ptp(placed)) if len(placed) else 0.0
    middle = float(np.median(placed)) if len(placed) else 0.0
    if len(placed) < 3 or spread < 1e-9 * max(1.0, abs(middle)):
        return values[[0, 0]] if len(values) else np.zeros(2), np.ones(2)
    end = np.log10(axis.high) if axis.log else axis.high
    grid = np.linspace(placed.min(), min(placed.max(), end), DENSITY_POINTS)
    heights = stats.gaussian_kde(placed)(grid)
    return (10**grid if axis.log else grid), heights / heights.max()


def _log_axis(values: np.ndarray) -> Axis:
    positive = values[values > 0]
    if not len(positive):
        return Axis(False, 0, 1, "No value is above 0, so the axis is not logarithmic.")
    low, high = float(positive.min()) / 1.15, float(positive.max()) * 1.15
    layout = {"type": "log", "range": [float(np.log10(low)), float(np.log10(high))], **ticks_for([low, high])}
    return Axis(True, low, high, "Logarithmic axis: each step is a factor.", layout)


def _linear_axis(values: np.ndarray, slow: float) -> Axis:
    largest = float(values.max())
    if largest <= CUT_FROM_RATIO * slow:
        high = largest * 1.05 or 1.0
        return Axis(False, 0, high, layout={"type": "linear", "range": [0, high]})
    high = slow * 1.15
    beyond = int((values > high).sum())
    note = f"{beyond:,} of {len(values):,} points lie beyond the end of the axis, up to {milliseconds(largest)}."
    return Axis(False, 0, high, note, {"type": "linear", "range": [0, high]})
