"""Figures of what tensors cost on their way: per size, per transport, per arrangement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbook.analysis.arrangement_choice import Expectation, Situation
from workbook.analysis.copies import BYTES_PER_MB
from workbook.analysis.copy_costs import CONTROL, HopCost, count_held
from workbook.analysis.intervals import Interval
from workbook.display.drawing import new_figure
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, DASHES, INK, SYMBOLS
from workbook.display.wording import interval_words, milliseconds, number

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def copy_cost_plot(
    comparison: pd.DataFrame, costs: Mapping[str, HopCost], overall: Mapping[str, Interval]
) -> go.Figure:
    """Copy time by size: measured as points, the ledger's prediction as lines; both axes logarithmic.

    Args:
        comparison: of `analysis.copy_costs.compare_sizes`.
        costs: of `analysis.copy_costs.hop_costs`.
        overall: of `analysis.copy_costs.measured_over_predicted`.
    """
    shown = comparison[(comparison["copies"] > 0) & (comparison["measured_copy_ms"] > 0)]
    figure = new_figure(
        "What do the copies between three stages cost a request?",
        "Points: what latency grows by with the tensor, beyond the handle's, which copies nothing; bars: 95%. "
        "Lines: predicted from the ledger.",
        reading_of_copy_costs(comparison, costs, overall),
        height=460,
    )
    for place, (name, group) in enumerate(shown.groupby("arrangement", sort=False)):
        megabytes = group["bytes"].to_numpy() / BYTES_PER_MB
        trace = _points(megabytes, group["measured_copy_ms"], str(name), place)
        figure.add_trace(trace.update(error_y=_bars(group)))
        figure.add_trace(_line(megabytes, group["predicted_copy_ms"], f"{name}, predicted", place))
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="tensor handed on (MB)", type="log", **_ticks(shown["bytes"] / BYTES_PER_MB, True))
    return figure.update_yaxes(title_text="copy time (ms)", type="log", **_ticks(shown["measured_copy_ms"]))


def reading_of_copy_costs(
    comparison: pd.DataFrame, costs: Mapping[str, HopCost], overall: Mapping[str, Interval]
) -> str:
    """Cost of a hop and of a MB for each arrangement, and how often the prediction held."""
    parts = [
        f"{name}: {number(cost.per_mb_ms.estimate, 2)} ms per MB and hop ({interval_words(cost.per_mb_ms, 'ms')})"
        + (
            f", of it copying {number(cost.copying_per_mb_ms.estimate, 2)}, predicted "
            f"{number(cost.predicted_per_mb_ms, 2)}"
            if name != CONTROL
            else ""
        )
        + f"; {number(cost.per_hop_ms.estimate, 2)} ms for each hop ({interval_words(cost.per_hop_ms, 'ms')})"
        for name, cost in costs.items()
    ]
    judged = count_held(comparison)
    ending = f" The prediction is within 20% of the measured copy time in {judged['held']} of {judged['of']} cases."
    unsteady = int(comparison["undecided"].sum())
    if unsteady:
        ending += f" In {unsteady} of the others it lies in the 95% interval: the machine was too unsteady to tell."
    multiples = [
        f"{name} {multiple.estimate:.2f} "
        + (f"({multiple.low:.2f} to {multiple.high:.2f})" if multiple.known else f"({interval_words(multiple)})")
        for name, multiple in overall.items()
    ]
    if multiples:
        ending += f" All sizes together, measured as a multiple of predicted: {'; '.join(multiples)}."
    return ". ".join(parts) + "." + (ending if judged["of"] else "")


def ladder_plot(table: pd.DataFrame) -> go.Figure:
    """Time to get a tensor, by its size, a line a transport; both axes logarithmic.

    Args:
        table: of `measuring.online.transport_ladder.ladder_table`.
    """
    figure = new_figure(
        "How long does an answer take to arrive, over which transport?",
        "The model computes nothing; every way ends with a NumPy array in the client.",
        reading_of_ladder(table),
        height=460,
    )
    for place, (rung, group) in enumerate(table.groupby("rung", sort=False)):
        ordered = group.sort_values("bytes")
        megabytes = ordered["bytes"].to_numpy() / BYTES_PER_MB
        trace = _points(megabytes, ordered["latency_ms"], str(rung), place)
        figure.add_trace(trace.update(mode="lines+markers", line={"color": COLOURS[place], "dash": DASHES[place % 4]}))
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="size of the answer (MB)", type="log", **_ticks(table["bytes"] / BYTES_PER_MB, True))
    return figure.update_yaxes(title_text="time (ms)", type="log", **_ticks(table["latency_ms"]))


def reading_of_ladder(table: pd.DataFrame) -> str:
    """The largest size's times, fastest first, with the client's share."""
    largest = table[table["bytes"] == table["bytes"].max()].sort_values("latency_ms")
    parts = [
        f"{row.rung} {milliseconds(row.latency_ms)} ({number(row.mb_per_s)} MB/s, client busy {row.client_share:.0%})"
        for row in largest.itertuples()
    ]
    return f"For {number(table['bytes'].max() / BYTES_PER_MB)} MB: " + "; ".join(parts) + "."


def arrangement_plot(points: pd.DataFrame) -> go.Figure:
    """Latency of a lone request against throughput under load, a point a run; up and to the left is better.

    Args:
        points: of `arrangement_points`, any number of pipelines.
    """
    from plotly.subplots import make_subplots

    pipelines = list(points["pipeline"].unique())
    figure = make_subplots(cols=len(pipelines), rows=1, subplot_titles=pipelines, horizontal_spacing=0.12)
    figure = new_figure(
        "Which arrangement answers fast, and which answers much?",
        "Each point is a run under load. Up and to the left is better.",
        reading_of_arrangements(points),
        height=460,
        figure=figure,
    )
    for column, pipeline in enumerate(pipelines, start=1):
        here = points[points["pipeline"] == pipeline]
        for place, (name, group) in enumerate(here.groupby("arrangement", sort=False)):
            trace = _points(group["latency_ms"], group["requests_per_s"], str(name), place)
            figure.add_trace(trace.update(showlegend=column == 1, legendgroup=str(name)), row=1, col=column)
    figure.update_layout(showlegend=True, margin={"t": 124}, modebar={"orientation": "v"})  # clear of the titles
    figure.update_xaxes(title_text="median latency alone (ms)", rangemode="tozero")
    return figure.update_yaxes(title_text="requests per second under load", rangemode="tozero")


def arrangement_points(alone: pd.DataFrame, loads: pd.DataFrame) -> pd.DataFrame:
    """Throughput of each run under load beside the median latency of the lone requests.

    Args:
        alone: of `measuring.copies.measure_alone`, any number of pipelines.
        loads: of `measuring.copies.measure_arrangements`, the same ones.

    Returns:
        `pipeline`, `arrangement`, `latency_ms`, `requests_per_s`.
    """
    keys = ["pipeline", "arrangement"]
    medians = alone.groupby(keys, sort=False)["latency_ms"].median().reset_index()
    return medians.merge(loads[[*keys, "requests_per_s"]], on=keys)


def reading_of_arrangements(points: pd.DataFrame) -> str:
    """The fastest and the most productive arrangement of each pipeline."""
    sentences = []
    for pipeline, group in points.groupby("pipeline", sort=False):
        means = group.groupby("arrangement", sort=False)[["latency_ms", "requests_per_s"]].mean()
        fast, much = means["latency_ms"].idxmin(), means["requests_per_s"].idxmax()
        sentences.append(
            f"{pipeline}: {fast} answers a lone request fastest ({milliseconds(means.loc[fast, 'latency_ms'])}), "
            f"{much} answers most under load ({number(means.loc[much, 'requests_per_s'])} requests/s)."
        )
    return " ".join(sentences)


def expectation_plot(
    expected: Mapping[str, Expectation], measured: Mapping[str, tuple[float, float]], situation: Situation
) -> go.Figure:
    """Expected latency and throughput of each arrangement, measured ones beside them.

    Args:
        expected: of `analysis.arrangement_choice.expect`.
        measured: arrangement -> latency (ms) and throughput (requests/s) of a measured pipeline; may be empty.
        situation: for which it is expected; the figure names it, since not every part of it moves a point.
    """
    stages = ", ".join(number(time) for time in situation.stage_ms)
    figure = new_figure(
        "What would each arrangement do with your pipeline?",
        f"Filled: expected for {number(situation.megabytes)} MB, stages of {stages} ms, processors: "
        f"{situation.processors}. Open: measured.",
        reading_of_expectation(expected, situation.megabytes),
        height=460,
    )
    names = list(expected)
    for place, name in enumerate(names):
        one = expected[name]
        figure.add_trace(_points([one.latency_ms], [one.throughput_per_s], name, place))
        if name in measured:
            latency, throughput = measured[name]
            trace = _points([latency], [throughput], f"{name}, measured", place).update(showlegend=False)
            trace.marker.update(color="white", line={"color": COLOURS[place % len(COLOURS)], "width": 2})
            figure.add_trace(trace)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="latency alone (ms)", rangemode="tozero")
    return figure.update_yaxes(title_text="requests per second under load", rangemode="tozero")


def reading_of_expectation(expected: Mapping[str, Expectation], megabytes: float) -> str:
    """The arrangement with the lowest latency and the one with the highest throughput."""
    fast = min(expected, key=lambda name: expected[name].latency_ms)
    much = max(expected, key=lambda name: expected[name].throughput_per_s)
    return (
        f"With {number(megabytes)} MB from stage to stage {fast} should answer a lone request fastest "
        f"({milliseconds(expected[fast].latency_ms)}) and {much} most under load "
        f"({number(expected[much].throughput_per_s)} requests/s, limited by {expected[much].limit})."
    )


def _points(x: Sequence[float] | Any, y: Sequence[float] | Any, name: str, place: int) -> Any:
    import plotly.graph_objects as go

    marker = {
        "color": COLOURS[place % len(COLOURS)],
        "symbol": SYMBOLS[place % len(SYMBOLS)],
        "size": 11,
        "line": {"color": INK, "width": 0.8},
    }
    hover = f"{name}: %{{x:.3g}}, %{{y:.3g}}<extra></extra>"
    return go.Scatter(x=list(x), y=list(y), name=name, mode="markers", marker=marker, hovertemplate=hover)


def _bars(group: pd.DataFrame) -> dict[str, Any]:
    """The intervals as error bars; a logarithmic axis has no room for what lies at 0 or below."""
    middle = group["measured_copy_ms"]
    return {
        "type": "data",
        "symmetric": False,
        "array": list((group["measured_high_ms"] - middle).fillna(0)),
        "arrayminus": list((middle - group["measured_low_ms"].clip(lower=middle / 10)).fillna(0)),
        "thickness": 1.2,
        "width": 4,
    }


def _line(x: Sequence[float] | Any, y: Sequence[float] | Any, name: str, place: int) -> Any:
    import plotly.graph_objects as go

    line = {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place % len(DASHES)], "width": 2}
    return go.Scatter(x=list(x), y=list(y), name=name, mode="lines", line=line, showlegend=False, hoverinfo="skip")


def _ticks(values: Any, every: bool = False) -> dict[str, Any]:
    positive = [float(value) for value in values if value > 0]
    return ticks_for(sorted(set(positive)) if every else [min(positive), max(positive)], every=every)
