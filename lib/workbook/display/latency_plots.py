"""Figures of latencies; all take `summaries.latency_table`.

Quartiles and densities are worked out here, so that a figure stays small however many requests it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.display.drawing import dots, name_rows, new_figure, spread_out
from workbook.display.readings import reading_of_latencies, reading_of_trace
from workbook.display.scales import Axis, choose_axis, density
from workbook.display.theme import COLOURS, INK, SYMBOLS
from workbook.display.wording import milliseconds

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

AXIS_WORDS = {"latency_ms": "time from sending to decoded answer (ms)", "ms_per_row": "time for one row (ms)"}
MOST_DOTS = 200
MOST_TRACE_POINTS = 1200
SHOW_ALL_BELOW = 20


def box_plot(latencies: pd.DataFrame, quantity: str = "latency_ms", scale: str = "auto", title: str = "") -> go.Figure:
    """Middle half, median and tails of each arm.

    Args:
        latencies: from `summaries.latency_table`.
        quantity: `latency_ms` or `ms_per_row`.
        scale: `linear`, `log`, or `auto`: log where the slowest 1% is far from the fastest 5%. A linear axis ends
            near the 99th percentile and says how many points lie beyond.
        title: the question; a fitting one by default.
    """
    groups = _by_label(latencies, quantity)
    axis = choose_axis(list(groups.values()), scale)
    figure = new_figure(
        title or "How long does a request take, and how far do the slow ones stray?",
        "Box: middle half. Line: median. Whiskers: 5% to 95%. Dots: " + _dots_shown(groups) + axis.note,
        reading_of_latencies(latencies, quantity),
        height=150 + 90 * len(groups),
    )
    for place, values in enumerate(groups.values()):
        _add_box(figure, place, values)
    return _finish_latency(figure, groups, quantity, axis)


def violin_plot(
    latencies: pd.DataFrame, quantity: str = "latency_ms", scale: str = "auto", title: str = ""
) -> go.Figure:
    """Shape of each arm's latencies: wide where many requests lie; arguments as in `box_plot`."""
    groups = _by_label(latencies, quantity)
    axis = choose_axis(list(groups.values()), scale)
    figure = new_figure(
        title or "Where do most requests lie, and is there more than one hump?",
        "Wide: many requests. Bar: middle half. White dot: median. " + axis.note,
        reading_of_latencies(latencies, quantity),
        height=150 + 110 * len(groups),
    )
    for place, values in enumerate(groups.values()):
        _add_violin(figure, place, values, axis)
    return _finish_latency(figure, groups, quantity, axis)


def trace_over_time(latencies: pd.DataFrame, scale: str = "auto", title: str = "") -> go.Figure:
    """Latency in order of time, a panel each arm, a symbol each run: drift, warm-up and stalls show here."""
    from plotly.subplots import make_subplots

    groups = _by_label(latencies, "latency_ms")
    axis = choose_axis(list(groups.values()), scale)
    panels = make_subplots(
        rows=max(1, len(groups)), shared_xaxes=True, vertical_spacing=0.09, subplot_titles=list(groups)
    )
    figure = new_figure(
        title or "Does a request take the same time from the start of a run to its end?",
        "A dot is a request or a batch, a symbol is a run. " + axis.note,
        reading_of_trace(latencies),
        height=150 + 170 * max(1, len(groups)),
        figure=panels,
    )
    for row, (_, group) in enumerate(latencies.groupby("label", sort=False), start=1):
        for run, part in group.groupby("run"):
            figure.add_trace(_run_trace(part, row - 1, int(run), group["run"].nunique()), row=row, col=1)
    figure.update_annotations(x=0, xanchor="left", font={"size": 14, "color": INK})
    figure.update_yaxes(**axis.layout, title_text="latency (ms)")
    for row in range(2, len(groups) + 1):
        figure.update_yaxes(matches="y", row=row, col=1)
    return figure.update_xaxes(title_text="time since the start of the run (s)", row=max(1, len(groups)), col=1)


def _dots_shown(groups: Mapping[str, np.ndarray]) -> str:
    few = [len(values) < SHOW_ALL_BELOW for values in groups.values()]
    if all(few):
        return "every single one. "
    return "beyond. " + (f"Fewer than {SHOW_ALL_BELOW}: every single one. " if any(few) else "")


def _by_label(latencies: pd.DataFrame, quantity: str) -> dict[str, np.ndarray]:
    return {str(label): group[quantity].to_numpy() for label, group in latencies.groupby("label", sort=False)}


def _add_box(figure: go.Figure, place: int, values: np.ndarray) -> None:
    import plotly.graph_objects as go

    low, first, median, third, high = np.percentile(values, [5, 25, 50, 75, 95])
    figure.add_trace(
        go.Box(
            q1=[first],
            median=[median],
            q3=[third],
            lowerfence=[low],
            upperfence=[high],
            y=[place],
            orientation="h",
            width=0.42,
            line={"color": INK, "width": 1.5},
            fillcolor=COLOURS[place % len(COLOURS)],
            hoverinfo="x",
        )
    )
    beyond = values if len(values) < SHOW_ALL_BELOW else values[(values < low) | (values > high)]
    shown = np.sort(beyond)[np.linspace(0, len(beyond) - 1, min(len(beyond), MOST_DOTS)).astype(int)]
    figure.add_trace(dots(shown, place + 0.12 * spread_out(len(shown)), place, "%{x:.4g} ms"))


def _add_violin(figure: go.Figure, place: int, values: np.ndarray, axis: Axis) -> None:
    import plotly.graph_objects as go

    first, median, third = np.percentile(values, [25, 50, 75])
    x, width = density(values, axis)
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([x, x[::-1]]),
            y=place + 0.42 * np.concatenate([width, -width[::-1]]),
            fill="toself",
            fillcolor=COLOURS[place % len(COLOURS)],
            mode="lines",
            line={"color": INK, "width": 1},
            hoverinfo="skip",
        )
    )
    bar = go.Scatter(x=[first, third], y=[place, place], mode="lines", line={"color": INK, "width": 7}, hoverinfo="x")
    dot = {"color": "white", "size": 9, "line": {"color": INK, "width": 1.5}}
    figure.add_trace(bar)
    figure.add_trace(go.Scatter(x=[median], y=[place], mode="markers", marker=dot, hoverinfo="x"))


def _finish_latency(figure: go.Figure, groups: Mapping[str, np.ndarray], quantity: str, axis: Axis) -> go.Figure:
    medians = [f"{label}<br><b>median {milliseconds(float(np.median(v)))}</b>" for label, v in groups.items()]
    name_rows(figure, medians)
    return figure.update_xaxes(title_text=AXIS_WORDS.get(quantity, quantity), **axis.layout)


def _run_trace(part: pd.DataFrame, place: int, run: int, runs: int) -> Any:
    import plotly.graph_objects as go

    shown = _thin(part.sort_values("start_s"), max(50, MOST_TRACE_POINTS // runs))
    return go.Scatter(
        x=shown["start_s"].to_numpy(dtype=np.float32),
        y=shown["latency_ms"].to_numpy(dtype=np.float32),
        mode="markers",
        marker={
            "color": COLOURS[place % len(COLOURS)],
            "symbol": SYMBOLS[run % len(SYMBOLS)],
            "size": 7,
            "opacity": 0.8,
            "line": {"color": INK, "width": 0.5},
        },
        name=f"run {run + 1}",
        hovertemplate=f"run {run + 1}, %{{x:.3g}} s: %{{y:.4g}} ms<extra></extra>",
    )


def _thin(part: pd.DataFrame, most: int) -> pd.DataFrame:
    """So many points at most: half of them the slowest, which a regular pick would lose, half at a regular step."""
    if len(part) <= most:
        return part
    slowest = part["latency_ms"].nlargest(most // 2).index
    regular = part.index[:: max(1, 2 * len(part) // most)]
    return part.loc[part.index.isin(slowest.union(regular))]
