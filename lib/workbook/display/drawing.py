"""What all figures share: the frame with its question and reading, rows named at the left, dots, fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.display.theme import COLOURS, INK, PATTERNS, SYMBOLS, template

if TYPE_CHECKING:
    import plotly.graph_objects as go


def new_figure(
    question: str, how_to_read: str, reading: str, height: int, figure: go.Figure | None = None
) -> go.Figure:
    """An empty figure, or the given one, in the workbook's look with its question as the title."""
    import plotly.graph_objects as go

    figure = figure or go.Figure()
    return figure.update_layout(
        template=template(),
        title={"text": question, "subtitle": {"text": how_to_read.strip()}},
        meta={"reading": reading},
        height=height,
        showlegend=False,
    )


def name_rows(figure: go.Figure, names: list[str]) -> None:
    """Names at the left of the rows, the first one on top."""
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5], showgrid=False, ticks=""
    )


def dots(x: np.ndarray, y: np.ndarray, place: int, hover: str) -> Any:
    """Single values as open dots."""
    import plotly.graph_objects as go

    marker = {
        "color": "white",
        "size": 7,
        "symbol": SYMBOLS[place % len(SYMBOLS)],
        "line": {"color": INK, "width": 1.2},
        "opacity": 0.75,
    }
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, hovertemplate=f"{hover}<extra></extra>")


def joined_labels(names: Sequence[str], x: np.ndarray, y: np.ndarray, near: tuple[float, float]) -> list[str]:
    """One label for points that lie on each other, at the first of them; the others' labels are empty.

    Args:
        names: of the points.
        x: their places, shape `(points,)`.
        y: likewise.
        near: distances in x and y within which two labels would overlap, in the units of `x` and `y`.
    """
    heads: list[int] = []
    labels = [""] * len(names)
    for place, name in enumerate(names):
        close = (h for h in heads if abs(x[h] - x[place]) < near[0] and abs(y[h] - y[place]) < near[1])
        head = next(close, None)
        if head is None:
            heads.append(place)
            labels[place] = name
        else:
            labels[head] += f"<br>{name}"
    return labels


def spread_out(count: int) -> np.ndarray:
    """Offsets between -1 and 1 that keep neighbouring dots apart: steps of the golden ratio, the same every time."""
    return 2 * ((np.arange(count) * 0.6180339887) % 1) - 1 if count > 1 else np.zeros(count)


def fill(place: int) -> dict[str, Any]:
    """Colour and pattern of the arm or part at this place."""
    shape = PATTERNS[place % len(PATTERNS)]
    pattern = {"shape": shape, "fgcolor": INK, "fgopacity": 0.35, "size": 9, "solidity": 0.2, "fillmode": "overlay"}
    return {"color": COLOURS[place % len(COLOURS)], "line": {"color": "white", "width": 1}, "pattern": pattern}
