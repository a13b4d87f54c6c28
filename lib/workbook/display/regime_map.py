"""The map of regimes: how much slower online is, by what is computed and what is sent for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbook.display.drawing import new_figure
from workbook.display.scales import ticks_for
from workbook.display.theme import DASHES, HALO, INK, MUTED, SYMBOLS
from workbook.display.wording import number, plural

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

KEYS = ["layers", "batch", "tokens", "output"]


def regime_ratios(regimes: pd.DataFrame) -> pd.DataFrame:
    """One row a regime: the measured runs put together.

    Args:
        regimes: from `regimes.measure_regimes`.

    Returns:
        `layers`, `batch`, `tokens`, `output`, `flop_per_row`, `bytes_per_row`, `batch_ms`, `online_ms`, `ratio`
        (geometric mean over runs of online / batch), `ratio_low` and `ratio_high` (lowest and highest run),
        `flop_per_byte`.
    """
    framed = regimes.assign(ratio=regimes["online_ms"] / regimes["batch_ms"])
    grouped = framed.groupby(KEYS, sort=False)
    table = grouped.agg(
        flop_per_row=("flop_per_row", "first"),
        bytes_per_row=("bytes_per_row", "first"),
        batch_ms=("batch_ms", "mean"),
        online_ms=("online_ms", "mean"),
        ratio=("ratio", lambda values: float(np.exp(np.log(values).mean()))),
        ratio_low=("ratio", "min"),
        ratio_high=("ratio", "max"),
    ).reset_index()
    return table.assign(flop_per_byte=table["flop_per_row"] / table["bytes_per_row"])


def regime_map(ratios: pd.DataFrame) -> go.Figure:
    """Each measured regime as a dot: bytes a row to the right, computing a row upwards, its ratio as colour and number.

    Args:
        ratios: from `regime_ratios`.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        "When does it matter whether a server stands between?",
        "A dot is one measured regime, its number online time / batch time. Lower right: much sent, little computed."
        "<br>Dotted: equal computing for each byte.",
        reading_of_regimes(ratios),
        height=560,
    )
    highest = max(1.5, float(ratios["ratio"].max()))
    depths = list(ratios["layers"].unique())
    for place, (layers, group) in enumerate(ratios.groupby("layers", sort=False)):
        figure.add_trace(
            go.Scatter(
                x=group["bytes_per_row"].to_numpy(),
                y=(group["flop_per_row"] / 1e6).to_numpy(),
                mode="markers+text",
                text=[number(value, 2) for value in group["ratio"]],
                textposition="middle right",
                textfont={"size": 12, "shadow": HALO},
                showlegend=False,
                marker={
                    "size": 15,
                    "symbol": SYMBOLS[depths.index(layers) % len(SYMBOLS)],
                    "color": np.log10(group["ratio"].to_numpy()),
                    "cmin": 0,
                    "cmax": float(np.log10(highest)),
                    "colorscale": "Cividis",
                    "reversescale": True,
                    "showscale": place == 0,
                    "line": {"color": INK, "width": 1},
                    "colorbar": {
                        "title": {"text": "online /<br>batch", "font": {"size": 14}},
                        "tickvals": [float(np.log10(v)) for v in (1, 1.2, 1.5, 2, 3, 5, 10, 20) if v <= highest],
                        "ticktext": [f"{v:g}" for v in (1, 1.2, 1.5, 2, 3, 5, 10, 20) if v <= highest],
                        "thickness": 12,
                    },
                },
                customdata=group[["batch", "tokens", "output", "batch_ms", "online_ms"]].to_numpy(),
                hovertemplate="%{customdata[0]} rows x %{customdata[1]} tokens, %{customdata[2]}<br>"
                "batch %{customdata[3]:.3g} ms, online %{customdata[4]:.3g} ms<extra></extra>",
            )
        )
    _add_isolines(figure, ratios)
    _name_symbols(figure, depths)
    figure.update_layout(showlegend=True, margin={"t": 112, "r": 40})
    bytes_span = [ratios["bytes_per_row"].min() / 1.5, ratios["bytes_per_row"].max() * 3]
    flop_span = [ratios["flop_per_row"].min() / 2e6, ratios["flop_per_row"].max() * 2 / 1e6]
    figure.update_xaxes(
        title_text="bytes sent and received for a row", type="log", range=np.log10(bytes_span), **ticks_for(bytes_span)
    )
    return figure.update_yaxes(
        title_text="computing for a row (million operations)",
        type="log",
        range=np.log10(flop_span),
        **ticks_for(flop_span),
    )


def reading_of_regimes(ratios: pd.DataFrame) -> str:
    """The regimes where online costs most and least, and what they have in common."""
    worst, best = ratios.loc[ratios["ratio"].idxmax()], ratios.loc[ratios["ratio"].idxmin()]
    return (
        f"Online takes between {number(best['ratio'])} times as long as batch ({_name(best)}, "
        f"{number(best['flop_per_byte'])} operations a byte) and {number(worst['ratio'])} times ({_name(worst)}, "
        f"{number(worst['flop_per_byte'])} operations a byte)."
    )


def _name(regime: pd.Series) -> str:
    output = "hidden state" if regime["output"] == "last_hidden_state" else "vector"
    return (
        f"{plural(regime['layers'], 'layer')}, {plural(regime['batch'], 'row')} of {regime['tokens']} tokens, {output}"
    )


def _name_symbols(figure: go.Figure, depths: list[int]) -> None:
    """A legend of the symbols alone: a colour there would seem to belong to a depth, and it is the ratio's."""
    import plotly.graph_objects as go

    for place, layers in enumerate(depths):
        marker = {
            "size": 13,
            "symbol": SYMBOLS[place % len(SYMBOLS)],
            "color": "white",
            "line": {"color": INK, "width": 1},
        }
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=plural(layers, "layer")))


def _add_isolines(figure: go.Figure, ratios: pd.DataFrame) -> None:
    """Lines of equal operations a byte: straight, of slope 1, on two logarithmic axes."""
    import plotly.graph_objects as go

    x = np.array([ratios["bytes_per_row"].min() / 2, ratios["bytes_per_row"].max() * 4])
    low, high = np.log10(ratios["flop_per_byte"].min()), np.log10(ratios["flop_per_byte"].max())
    for exponent in range(int(np.floor(low)), int(np.ceil(high)) + 1):
        figure.add_trace(
            go.Scatter(
                x=x, y=x * 10.0**exponent / 1e6, mode="lines", line={"color": MUTED, "width": 1, "dash": DASHES[2]},
                hoverinfo="skip", showlegend=False,
            )
        )  # fmt: skip
