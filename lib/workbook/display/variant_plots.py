"""Figures of the variants under load: throughput by concurrency, where the time goes, the open loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbook.analysis.split import PARTS, LatencySplit
from workbook.display.drawing import fill, new_figure
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, DASHES, INK, MUTED, SYMBOLS
from workbook.display.variant_readings import (
    reading_of_benchmark,
    reading_of_open_loop,
    reading_of_splits,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def benchmark_plot(table: pd.DataFrame, title: str = "") -> go.Figure:
    """Throughput by requests in flight, a panel a workload, a line a variant; a whisker spans its rounds.

    Args:
        table: from `benchmark_table`.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    workloads = list(table["workload"].unique())
    titles = [f"{workload} a request" for workload in workloads]
    panels = make_subplots(rows=1, cols=len(workloads), subplot_titles=titles, horizontal_spacing=0.1)
    figure = new_figure(
        title or "Which variant serves fastest, and does it gain from more requests in flight?",
        "A line a variant, over gRPC, pooled embeddings. Whiskers: slowest and fastest round, where there are several.",
        reading_of_benchmark(table),
        height=460,
        figure=panels,
    )
    for place, variant in enumerate(table["variant"].unique()):
        for column, workload in enumerate(workloads, start=1):
            here = table[(table["variant"] == variant) & (table["workload"] == workload)].sort_values("concurrency")
            rate = here["throughput_rows_per_s"]
            whiskers = {
                "array": (here["highest_rows_per_s"] - rate).clip(lower=0),
                "arrayminus": (rate - here["lowest_rows_per_s"]).clip(lower=0),
                "symmetric": False,
                "thickness": 1,
                "width": 4,
            }
            trace = go.Scatter(
                x=here["concurrency"].to_numpy(),
                y=rate.to_numpy(),
                error_y={name: _plain(value) for name, value in whiskers.items()},
                name=variant,
                legendgroup=variant,
                showlegend=column == 1,
                hovertemplate=f"{variant}, %{{x}} in flight: %{{y:.4g}} rows/s<extra></extra>",
                **_line(place),
            )
            figure.add_trace(trace, row=1, col=column)
    for column, title_of_panel in enumerate(figure.layout.annotations[: len(workloads)], start=1):
        left = figure.get_subplot(1, column).xaxis.domain[0]  # centred, the last would lie under the buttons
        title_of_panel.update(x=left, xanchor="left")
    figure.update_layout(showlegend=True, margin={"t": 120, "b": 90})
    figure.update_xaxes(title_text="requests in flight", dtick=1)
    figure.update_yaxes(rangemode="tozero")
    return figure.update_yaxes(title_text="throughput (rows per second)", col=1)


def split_grid(splits: Mapping[str, Mapping[int, LatencySplit]], title: str = "") -> go.Figure:
    """Parts of the mean latency: a panel a variant, a bar a concurrency.

    Args:
        splits: variant -> concurrency -> split, from `splits_of`.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    panels = make_subplots(
        rows=len(splits), cols=1, shared_xaxes=True, subplot_titles=list(splits), vertical_spacing=0.25 / len(splits)
    )
    figure = new_figure(
        title or "Where does the time of a request go?",
        "Parts of the mean latency, from the client's clock and the server's own statistics; a bar a concurrency.",
        reading_of_splits(splits),
        height=190 + sum(48 + 26 * len(by) for by in splits.values()),
        figure=panels,
    )
    for row, by_concurrency in enumerate(splits.values(), start=1):
        for place, (part, words) in enumerate(PARTS.items()):
            bar = go.Bar(
                x=[split.parts_ms[part] for split in by_concurrency.values()],
                y=[f"{concurrency} in flight" for concurrency in by_concurrency],
                orientation="h",
                name=words,
                legendgroup=words,
                showlegend=row == 1,
                marker=fill(place),
                hovertemplate=f"{words}: %{{x:.4g}} ms<extra></extra>",
            )
            figure.add_trace(bar, row=row, col=1)
    figure.update_annotations(x=0, xanchor="left", font={"size": 14, "color": INK})
    figure.update_layout(barmode="relative", bargap=0.2, showlegend=True, legend={"traceorder": "normal"})
    figure.update_layout(margin={"t": 120, "b": 110})
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return figure.update_xaxes(title_text="mean latency (ms)", row=len(splits), col=1)


def open_loop_plot(summary: pd.DataFrame, objective_ms: float, title: str = "") -> go.Figure:
    """Latency from the intended send by request rate, with the objective as a line.

    Args:
        summary: a row a measurement: `arrivals` and the fields of `summarise_open_loop`.
        objective_ms: drawn as a line.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        title or "How fast may users ask before they wait too long?",
        "Latency from the moment a request should have been sent. Line: 95% within. Dotted: median. Dashed: objective.",
        reading_of_open_loop(summary, objective_ms),
        height=430,
    )
    for place, (arrivals, group) in enumerate(summary.groupby("arrivals", sort=False)):
        ordered = group.sort_values("offered_per_s")
        for column, dash, words in (("latency_p95_ms", "solid", "95% within"), ("latency_p50_ms", "dot", "median")):
            figure.add_trace(
                go.Scatter(
                    x=ordered["offered_per_s"].to_numpy(),
                    y=ordered[column].to_numpy(),
                    name=f"{arrivals}, {words}",
                    mode="lines+markers",
                    marker={"symbol": SYMBOLS[place], "size": 10, "color": COLOURS[place]},
                    line={"color": COLOURS[place], "dash": dash},
                    hovertemplate="%{x:.3g} requests/s: %{y:.4g} ms<extra></extra>",
                )
            )
    figure.add_hline(y=objective_ms, line={"dash": "dash", "color": MUTED, "width": 1.5})
    values = [objective_ms, *summary["latency_p50_ms"].dropna(), *summary["latency_p95_ms"].dropna()]
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="requests offered per second", rangemode="tozero")
    return figure.update_yaxes(title_text="latency (ms)", type="log", **ticks_for([min(values), max(values)]))


def _line(place: int) -> dict[str, Any]:
    colour = COLOURS[place % len(COLOURS)]
    return {
        "mode": "lines+markers",
        "marker": {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 9, "color": colour},
        "line": {"color": colour, "dash": DASHES[place % len(DASHES)]},
    }


def _plain(value: Any) -> Any:
    return value.to_numpy() if hasattr(value, "to_numpy") else value
