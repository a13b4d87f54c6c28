"""Figures of speed against quality, and of size against quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.analysis.ranking import cosine_floor
from workbook.display.drawing import joined_labels, new_figure
from workbook.display.scales import powers_of_ten
from workbook.display.theme import COLOURS, INK, MUTED, SYMBOLS
from workbook.display.variant_readings import reading_of_costs, reading_of_quality

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

GREY = "#b8bec5"


def quality_plot(ranked: pd.DataFrame, title: str = "") -> go.Figure:
    """Throughput against closeness to fp32; grey: loses more than the tolerance, hollow: another is better in both.

    Args:
        ranked: from `rank_variants`.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    figure = new_figure(
        title or "Is a faster variant still the same model?",
        "Right: faster. Up: closer to fp32. Grey: loses more than the tolerance. Hollow: another is at least as good.",
        reading_of_quality(ranked),
        height=460,
    )
    rates, kept = ranked["throughput_rows_per_s"].to_numpy(), ranked["neighbour_agreement"].to_numpy()
    labels = joined_labels(list(ranked["variant"]), rates, kept, near=(0.03 * rates.max(), 0.01))
    for place, (_, row) in enumerate(ranked.iterrows()):
        colour = COLOURS[place % len(COLOURS)] if row["acceptable"] else GREY
        hollow = bool(row["dominated_by"]) and bool(row["acceptable"])
        marker = {
            "symbol": SYMBOLS[place % len(SYMBOLS)] + ("-open" if hollow else ""),
            "size": 15,
            "color": colour,
            "line": {"color": colour if hollow else INK, "width": 2 if hollow else 1},
        }
        why = row["why"] or (f"dominated by {row['dominated_by']}" if hollow else "")
        figure.add_trace(
            go.Scatter(
                x=[row["throughput_rows_per_s"]],
                y=[row["neighbour_agreement"]],
                mode="markers+text",
                text=[labels[place]],
                textposition=f"{_side(place, rates, kept)} center",
                textfont={"color": INK if row["acceptable"] else MUTED},
                marker=marker,
                cliponaxis=False,
                hovertemplate=f"{row['variant']}: %{{x:.4g}} rows/s, %{{y:.1%}} of neighbours, lowest cosine "
                f"{cosine_floor(row['min_cosine'], 5)}{', ' + why if why else ''}<extra></extra>",
            )
        )
    lowest = float(ranked["neighbour_agreement"].min())
    figure.update_yaxes(title_text="nearest neighbours kept", tickformat=".0%", range=[lowest - 0.03, 1.012])
    return figure.update_xaxes(
        title_text="throughput (rows per second)", range=[0, 1.15 * float(ranked["throughput_rows_per_s"].max())]
    )


def _side(place: int, rates: NDArray[np.float64], kept: NDArray[np.float64]) -> str:
    """Where a point's name goes: away from a neighbour that lies higher or lower, else above and below in turn."""
    near = np.abs(rates - rates[place]) < 0.12 * rates.max()
    higher, lower = (kept[near] > kept[place] + 0.003).any(), (kept[near] < kept[place] - 0.003).any()
    if higher != lower:
        return "bottom" if higher else "top"
    return "top" if place % 2 == 0 else "bottom"


def cost_plot(costs: pd.DataFrame, quality: pd.DataFrame, title: str = "") -> go.Figure:
    """Size on disk against what is lost: 1 - lowest cosine to fp32, on a logarithmic axis.

    Args:
        costs: from `cost_table`.
        quality: from `quality_table`.
        title: the question; a fitting one by default.
    """
    import plotly.graph_objects as go

    both = costs.merge(quality, on="variant")
    figure = new_figure(
        title or "What does a smaller number cost?",
        "Left: smaller file. Down: closer to fp32. Grey: loses more than the tolerance.",
        reading_of_costs(costs, quality),
        height=440,
    )
    loss = (1 - both["min_cosine"]).clip(lower=1e-8)
    megabytes = both["bytes"].to_numpy() / 1e6
    near = (0.12 * megabytes.max(), 0.5)
    labels = joined_labels(list(both["variant"]), megabytes, np.log10(loss.to_numpy()), near)
    for place, (index, row) in enumerate(both.iterrows()):
        figure.add_trace(
            go.Scatter(
                x=[row["bytes"] / 1e6],
                y=[loss.loc[index]],
                mode="markers+text",
                text=[labels[place]],
                textposition="top center" if "<br>" in labels[place] else "middle left",
                marker={
                    "symbol": SYMBOLS[place % len(SYMBOLS)],
                    "size": 13,
                    "color": COLOURS[place % len(COLOURS)] if row["acceptable"] else GREY,
                    "line": {"color": INK, "width": 1},
                },
                cliponaxis=False,
                hovertemplate=f"{row['variant']}: %{{x:.4g}} MB, 1 - cosine %{{y:.2e}}<extra></extra>",
            )
        )
    figure.update_xaxes(title_text="size of its files (MB)", range=[0, 1.15 * float(both["bytes"].max()) / 1e6])
    return figure.update_yaxes(
        title_text="1 - lowest cosine to fp32", type="log", range=[-8.5, -1], **powers_of_ten(1e-8, 0.1)
    )
