"""Figures of throughput, of where the time goes, and of how exact an export is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbook.analysis.intervals import Interval, runs_interval
from workbook.analysis.split import PARTS, LatencySplit
from workbook.analysis.summaries import arm_labels
from workbook.display.drawing import dots, fill, name_rows, new_figure, spread_out
from workbook.display.readings import reading_of_parity, reading_of_split, reading_of_throughput
from workbook.display.scales import powers_of_ten, ticks_for
from workbook.display.theme import COLOURS, DASHES, HALO, INK, SYMBOLS
from workbook.display.wording import milliseconds, number

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SEGMENT_LABEL_SHARE = 0.12
FEWEST_RUNS_FOR_WHISKERS = 3


def throughput_bars(runs: pd.DataFrame, title: str = "") -> go.Figure:
    """Mean throughput of each arm, every run as a dot, the mean's 95% interval where there is one.

    Args:
        runs: `label`, `rows_per_s`, a row each run.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    groups = {str(label): group["rows_per_s"].to_numpy() for label, group in runs.groupby("label", sort=False)}
    figure = new_figure(
        title or "How many rows a second does each way handle?",
        "Bar: mean. Dots: single runs. Whiskers, from three runs on: 95% interval of the mean.",
        reading_of_throughput(runs),
        height=140 + 80 * len(groups),
    )
    for place, values in enumerate(groups.values()):
        interval = runs_interval(values)
        whisker = _whisker(interval, len(values))
        figure.add_trace(
            go.Bar(
                x=[interval.estimate],
                y=[place],
                orientation="h",
                marker=fill(place),
                error_x=whisker,
                hovertemplate="%{x:.4g} rows/s<extra></extra>",
            )
        )
        figure.add_trace(dots(values, place + 0.16 * spread_out(len(values)), place, "%{x:.4g} rows/s"))
    means = [f"{label}<br><b>{number(values.mean())} rows/s</b>" for label, values in groups.items()]
    name_rows(figure, means)
    return figure.update_xaxes(title_text="throughput (rows per second)", rangemode="tozero")


def _whisker(interval: Interval, runs: int) -> dict[str, Any] | None:
    """The interval as a bar's whisker; with fewer than three runs it is so wide that it would only hide the dots."""
    if not interval.known or runs < FEWEST_RUNS_FOR_WHISKERS:
        return None
    up, down = interval.high - interval.estimate, interval.estimate - max(0.0, interval.low)
    return {"array": [up], "arrayminus": [down], "symmetric": False, "color": INK, "thickness": 2, "width": 8}


def latency_split_bars(splits: Mapping[str, LatencySplit], title: str = "") -> go.Figure:
    """Mean latency of each arm, cut into its parts in the order a request passes through them.

    Args:
        splits: one for each bar, by the label it gets.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        title or "Where does the time of a request go?",
        "Parts of the mean latency, from the client's clock and the server's own statistics. " + _split_notes(splits),
        reading_of_split(splits),
        height=230 + 80 * len(splits),
    )
    longest = max(split.mean_ms for split in splits.values())
    for place, (name, words) in enumerate(PARTS.items()):
        values = [split.parts_ms[name] for split in splits.values()]
        figure.add_trace(
            go.Bar(
                x=values,
                y=list(range(len(splits))),
                orientation="h",
                name=words,
                marker=fill(place),
                text=[number(value, 2) if value > SEGMENT_LABEL_SHARE * longest else "" for value in values],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": INK, "size": 14, "shadow": HALO},
                hovertemplate=f"{words}: %{{x:.4g}} ms<extra></extra>",
            )
        )
    name_rows(figure, [f"{label}<br><b>{milliseconds(split.mean_ms)}</b>" for label, split in splits.items()])
    figure.update_layout(barmode="relative", showlegend=True, legend={"traceorder": "normal"})
    return figure.update_xaxes(title_text="mean latency (ms)")


def parity_plot(parity: pd.DataFrame, title: str = "") -> go.Figure:
    """Largest difference to the reference by length, a line each batch size and output.

    Args:
        parity: `batch`, `sequence` (tokens), `output`, `max_abs_error`, `min_cosine`, a row each shape and output.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        title or "Does the exported model still answer as the original does?",
        "Largest absolute difference of any output value, by length; a line each output and batch size.",
        reading_of_parity(parity),
        height=420,
    )
    outputs, batches = list(parity["output"].unique()), list(parity["batch"].unique())
    for (output, batch), group in parity.groupby(["output", "batch"], sort=False):
        place = batches.index(batch)
        figure.add_trace(
            go.Scatter(
                x=group["sequence"].to_numpy(),
                y=group["max_abs_error"].to_numpy(),
                name=f"{output}, batch {batch}",
                mode="lines+markers",
                marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 10, "color": COLOURS[place % len(COLOURS)]},
                line={"dash": DASHES[outputs.index(output) % len(DASHES)], "color": COLOURS[place % len(COLOURS)]},
            )
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="length (tokens)", type="log", **ticks_for(parity["sequence"], every=True))
    errors = parity["max_abs_error"][parity["max_abs_error"] > 0]
    ticks = powers_of_ten(errors.min(), errors.max()) if len(errors) else {}
    return figure.update_yaxes(title_text="largest difference", type="log", **ticks)


def throughput_runs(*summaries: pd.DataFrame) -> pd.DataFrame:
    """Summaries by run, of either kind, as what `throughput_bars` takes: `label`, `run`, `rows_per_s`."""
    import pandas as pd

    frames = [
        pd.DataFrame(
            {"label": arm_labels(summary), "run": summary["run"], "rows_per_s": summary["throughput_rows_per_s"]}
        )
        for summary in summaries
    ]
    return pd.concat(frames, ignore_index=True).dropna(subset="rows_per_s")


def _split_notes(splits: Mapping[str, LatencySplit]) -> str:
    return " ".join(f"<br>{label}: {split.note}." for label, split in splits.items() if split.note)
