"""Figures of what limits an ensemble: cases, their predictions, causes of loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.display.drawing import dots, fill, name_rows, new_figure, spread_out
from workbook.display.theme import COLOURS, INK
from workbook.display.wording import number

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from workbook.measuring.ensemble.study import Case


def prediction_plot(predictions: pd.DataFrame, title: str = "") -> go.Figure:
    """Predicted and measured rate of each case, side by side.

    Args:
        predictions: `case`, `predicted_per_s`, `measured_per_s`, `error_percent`, `bottleneck`.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        title or "Does the prediction hold?",
        "Bar: measured. Diamond: predicted before. Shaded: predicted, give or take 10%.",
        reading_of_predictions(predictions),
        height=150 + 62 * len(predictions),
    )
    places = list(range(len(predictions)))
    for place, row in zip(places, predictions.to_dict("records"), strict=True):
        low, high = 0.9 * row["predicted_per_s"], 1.1 * row["predicted_per_s"]
        figure.add_shape(
            type="rect",
            x0=low,
            x1=high,
            y0=place - 0.38,
            y1=place + 0.38,
            fillcolor=COLOURS[1],
            opacity=0.3,
            line_width=0,
        )
    measured = predictions["measured_per_s"].to_numpy()
    figure.add_trace(
        go.Bar(
            x=measured, y=places, orientation="h", marker=fill(0), width=0.45, hovertemplate="%{x:.4g}/s<extra></extra>"
        )
    )
    marker = {"symbol": "diamond", "size": 13, "color": COLOURS[4], "line": {"color": INK, "width": 1}}
    predicted = predictions["predicted_per_s"].to_numpy()
    figure.add_trace(
        go.Scatter(
            x=predicted, y=places, mode="markers", marker=marker, hovertemplate="predicted %{x:.4g}/s<extra></extra>"
        )
    )
    names = [
        f"{row['case']}<br><b>{number(row['measured_per_s'])}/s</b>, {row['bottleneck']}"
        for row in predictions.to_dict("records")
    ]
    name_rows(figure, names)
    return figure.update_xaxes(title_text="throughput (images per second)", rangemode="tozero")


def reading_of_predictions(predictions: pd.DataFrame) -> str:
    """How many cases lie within 10%, and the worst."""
    errors = predictions["error_percent"].abs()
    worst = predictions.loc[errors.idxmax()]
    return (
        f"{(errors <= 10).sum()} of {len(predictions)} predictions lie within 10% of the measured rate; furthest is "
        f"“{worst['case']}”, predicted {number(worst['predicted_per_s'])}/s, measured "
        f"{number(worst['measured_per_s'])}/s ({worst['error_percent']:+.0f}%)."
    )


def case_bars(case: Case, title: str = "") -> go.Figure:
    """Both members and the ensemble as reported, every round as a dot, the bound as a line."""
    import plotly.graph_objects as go

    bound = case.bound
    figure = new_figure(
        title or "Is the ensemble as fast as its slower member?",
        "Bar: mean. Dots: single rounds. Line: the slower member, what the reporter expected.",
        reading_of_case(case),
        height=330,
    )
    for place, model in enumerate(case.points):
        rates = np.array(case.rates(model))
        hover = "%{x:.4g} images/s"
        figure.add_trace(
            go.Bar(
                x=[rates.mean()],
                y=[place],
                orientation="h",
                marker=fill(place),
                hovertemplate=f"{hover}<extra></extra>",
            )
        )
        figure.add_trace(dots(rates, place + 0.16 * spread_out(len(rates)), place, hover))
    figure.add_vline(x=bound.per_s, line={"color": INK, "dash": "dash", "width": 2})
    name_rows(figure, [f"{model}<br><b>{number(case.rate(model))}/s</b>" for model in case.points])
    return figure.update_xaxes(title_text="throughput (images per second)", rangemode="tozero")


def reading_of_case(case: Case) -> str:
    """The three rates and the ratio."""
    rates = ", ".join(f"{model} {number(case.rate(model))}/s" for model in case.points)
    return f"{rates}: the ensemble reaches {case.ratio:.0%} of {case.bound.name}, its slower member."


def causes_plot(causes: pd.DataFrame, title: str = "") -> go.Figure:
    """Effect of each cause on the ensemble's rate, with its interval; 1 is no effect.

    Args:
        causes: from `loss_causes.effects`.
        title: the question; a fitting one by default.
    """
    figure = new_figure(
        title or "Where does this ensemble lose throughput, and where not?",
        "Dot: rate with the cause over rate without it. Line: 95% interval, where there are rounds enough.",
        reading_of_causes(causes),
        height=150 + 64 * len(causes),
    )
    for place, row in enumerate(causes.to_dict("records")):
        figure.add_trace(_effect(row, place))
    figure.add_vline(x=1, line={"color": INK, "dash": "dash", "width": 1.5})
    words = [f"{_wrap(row['cause'])}<br><b>x {row['effect']:.2f}</b>" for row in causes.to_dict("records")]
    name_rows(figure, words)
    high = max(1.3, float(causes[["effect", "ci95_high"]].max(axis=None)) * 1.05)
    return figure.update_xaxes(title_text="rate with the cause / rate without it", range=[0, high])


def _effect(row: dict[str, Any], place: int) -> Any:
    import plotly.graph_objects as go

    known = np.isfinite(row["ci95_low"])
    error = {
        "type": "data",
        "symmetric": False,
        "array": [row["ci95_high"] - row["effect"]],
        "arrayminus": [row["effect"] - row["ci95_low"]],
        "color": INK,
        "thickness": 2,
    }
    colour = COLOURS[3] if row["emulated"] else COLOURS[0]
    return go.Scatter(
        x=[row["effect"]],
        y=[place],
        mode="markers",
        marker={"size": 13, "color": colour, "symbol": "diamond" if row["emulated"] else "circle"},
        error_x=error if known else None,
        hovertemplate="x %{x:.3f}<extra></extra>",
    )


def reading_of_causes(causes: pd.DataFrame) -> str:
    """The strongest cause of this machine's own, and the strongest that had to be emulated."""
    own = causes[~causes["emulated"]].sort_values("effect")
    text = f"On this machine “{own.iloc[0]['cause']}” costs most: x {own.iloc[0]['effect']:.2f}." if len(own) else ""
    emulated = causes[causes["emulated"]].sort_values("effect")
    if len(emulated):
        text += f" With a stand-in: “{emulated.iloc[0]['cause']}” x {emulated.iloc[0]['effect']:.2f}."
    return text.strip()


def _wrap(text: str, width: int = 44) -> str:
    import textwrap

    return "<br>".join(textwrap.wrap(text, width))
