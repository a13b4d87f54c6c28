"""Figures of the way to the bound: latency against throughput, and the search for a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbook.analysis.ensemble_search import pareto
from workbook.display.drawing import new_figure
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, INK, SYMBOLS
from workbook.display.wording import milliseconds, number

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def curve_plot(curve: pd.DataFrame, bound_per_s: float, title: str = "") -> go.Figure:
    """Latency against throughput, a point each number of connections.

    Args:
        curve: rows of `ensemble_search.point_row`, by connections.
        bound_per_s: the slower member's rate.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        title or "How many connections does it take, and what do they pay?",
        "A point is a number of connections. Dashed: the slower member alone.",
        reading_of_curve(curve, bound_per_s),
        height=460,
    )
    for place, (column, words) in enumerate((("latency_p50_ms", "median"), ("latency_p99_ms", "99% within"))):
        figure.add_trace(
            go.Scatter(
                x=curve["images_per_s"].to_numpy(),
                y=curve[column].to_numpy(),
                mode="lines+markers+text" if place == 0 else "lines+markers",
                text=[f"{count:.0f}" for count in curve["connections"]],
                textposition="bottom center",
                name=words,
                marker={"symbol": SYMBOLS[place], "size": 10, "color": COLOURS[place]},
                line={"color": COLOURS[place]},
                hovertemplate="%{text} connections: %{x:.4g}/s, %{y:.4g} ms<extra></extra>",
            )
        )
    figure.add_vline(x=bound_per_s, line={"color": INK, "dash": "dash", "width": 2})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="throughput (images per second)", rangemode="tozero")
    return figure.update_yaxes(title_text="latency (ms)", type="log", **ticks_for(curve["latency_p50_ms"]))


def reading_of_curve(curve: pd.DataFrame, bound_per_s: float) -> str:
    """Fewest connections that come near the best rate, and what more of them cost."""
    best = curve["images_per_s"].max()
    enough = curve[curve["images_per_s"] >= 0.95 * best].iloc[0]
    last = curve.iloc[-1]
    if enough.name == last.name:
        return (
            f"It takes all {last['connections']:.0f} connections to reach {number(last['images_per_s'])}/s "
            f"({last['images_per_s'] / bound_per_s:.0%} of the slower member); an image then waits "
            f"{milliseconds(last['latency_p50_ms'])}, nearly all of it in a queue."
        )
    return (
        f"{enough['connections']:.0f} connections reach {number(enough['images_per_s'])}/s "
        f"({enough['images_per_s'] / bound_per_s:.0%} of the slower member) with a median of "
        f"{milliseconds(enough['latency_p50_ms'])}; {last['connections']:.0f} give {number(last['images_per_s'])}/s "
        f"and wait {milliseconds(last['latency_p50_ms'])}: nearly all of it is queue."
    )


def search_plot(found: pd.DataFrame, chosen: pd.Series, bound_per_s: float, title: str = "") -> go.Figure:
    """Every configuration of the search, those that no other beats joined, the chosen one marked.

    Args:
        found: rows of `ensemble_search.point_row`.
        chosen: one of them.
        bound_per_s: the slower member's rate.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    best = pareto(found)
    figure = new_figure(
        title or "Which configuration is fastest, and which keeps the slowest request short?",
        "A dot is a configuration. Line: those that no other beats in both. Star: the chosen one. "
        "Dashed: the slower member.",
        f"Of {len(found)} configurations {len(best)} are not beaten in both rate and p99; the chosen one makes "
        f"{number(chosen['images_per_s'])}/s with p99 {milliseconds(chosen['latency_p99_ms'])}.",
        height=460,
    )
    hover = [_configuration(row) for row in found.to_dict("records")]
    for place, hop in enumerate(found["hop"].unique()):
        part = found["hop"] == hop
        figure.add_trace(
            go.Scatter(
                x=found.loc[part, "images_per_s"].to_numpy(),
                y=found.loc[part, "latency_p99_ms"].to_numpy(),
                mode="markers",
                name=f"B fed {hop}",
                text=[words for words, here in zip(hover, part, strict=True) if here],
                marker={"size": 11, "color": COLOURS[place], "symbol": SYMBOLS[place]},
                hovertemplate="%{text}<br>%{x:.4g}/s, p99 %{y:.4g} ms<extra></extra>",
            )
        )
    line = {"color": INK, "width": 1.5}
    figure.add_trace(
        go.Scatter(
            x=best["images_per_s"].to_numpy(),
            y=best["latency_p99_ms"].to_numpy(),
            mode="lines",
            line=line,
            name="not beaten",
        )
    )
    star = {"size": 20, "symbol": "star", "color": COLOURS[4], "line": {"color": INK, "width": 1}}
    figure.add_trace(
        go.Scatter(x=[chosen["images_per_s"]], y=[chosen["latency_p99_ms"]], mode="markers", marker=star, name="chosen")
    )
    figure.add_vline(x=bound_per_s, line={"color": INK, "dash": "dash", "width": 2})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="throughput (images per second)")
    return figure.update_yaxes(title_text="99% of requests within (ms)", rangemode="tozero")


def reading_of_open_loops(
    open_loops: Mapping[str, Mapping[str, float]], service_ms: float, reported_per_s: float, tuned_per_s: float
) -> str:
    """Whether the tuned configuration keeps its slowest requests short, and at what price in throughput.

    Args:
        open_loops: `as reported` and `tuned` -> from `open_loop_at`, both at the same rate.
        service_ms: what the members need for one image, added up.
        reported_per_s: the ensemble's rate in the closed loop, as reported.
        tuned_per_s: the same in the tuned configuration.
    """
    reported, tuned = open_loops["as reported"], open_loops["tuned"]
    p99_ms = tuned["latency_p99_ms"]
    limit = f"five times the members' own {milliseconds(service_ms)} are {milliseconds(5 * service_ms)}"
    if p99_ms != p99_ms:
        return f"Too few requests for a p99; {limit}."
    return (
        f"At {number(tuned['rate_per_s'])}/s the tuned configuration answers {number(tuned['answered_per_s'])}/s, the "
        f"median in {milliseconds(tuned['latency_p50_ms'])} and 99% in {milliseconds(p99_ms)}{_over_runs(tuned)}, "
        f"{'within' if p99_ms <= 5 * service_ms else 'NOT within'} the objective: {limit}. As reported it answers "
        f"{number(reported['answered_per_s'])}/s, 99% in {milliseconds(reported['latency_p99_ms'])}. In the closed "
        f"loop tuned makes {number(tuned_per_s)}/s, as reported {number(reported_per_s)}/s."
    )


def _over_runs(loop: Mapping[str, float]) -> str:
    if loop.get("runs", 1) < 2:
        return ""
    lowest, highest = milliseconds(loop["lowest_p99_ms"]), milliseconds(loop["highest_p99_ms"])
    return f" (median of {loop['runs']:.0f} runs, {lowest} to {highest})"


def _configuration(row: dict[str, Any]) -> str:
    batch = f"batches of {row['b_max_batch']:.0f}" if row["b_max_batch"] else "unbatched"
    return (
        f"{row['b_instances']:.0f} x B {batch}, A up to {row['a_max_batch']:.0f}, "
        f"delay {row['a_delay_us'] / 1e3:g} ms, {row['hop']}"
    )
