"""Break-even of a server, as a figure and as a panel whose controls redraw it from measured rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.breakeven import (
    WAYS,
    BreakEven,
    Costs,
    added_latency_s,
    break_even,
    price_per_million,
    rate_grid,
    recommendation,
)
from workbook.display.drawing import new_figure
from workbook.display.panel import Panel
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, DASHES, HALO, INK
from workbook.display.wording import number

if TYPE_CHECKING:
    import plotly.graph_objects as go


def break_even_plot(costs: Costs, flip: BreakEven, rate_rows_per_s: float | None = None) -> go.Figure:
    """Price of a million rows above, wait for an answer below, over arrival rate; a line a way.

    Args:
        costs: measured rates and assumptions.
        flip: where the choice turns to online.
        rate_rows_per_s: a rate to mark; None: none.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    panels = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.58, 0.42])
    figure = new_figure(
        "From which arrival rate on is a server worth its price?",
        f"Prices at {number(costs.price_per_hour)} an hour a machine, an assumption. Dashed across: the objective. "
        "Shaded: where the<br>choice turns to online, 95% of draws of the measured runs.",
        f"{flip_sentence(flip)} " + (recommendation(costs, rate_rows_per_s) if rate_rows_per_s else ""),
        height=640,
        figure=panels,
    )
    rates = rate_grid(costs)
    price, latency = price_per_million(costs, rates), added_latency_s(costs, rates)
    for place, way in enumerate(WAYS):
        line = {"color": COLOURS[place], "dash": DASHES[place], "width": 3}
        for row, values in ((1, price[way]), (2, latency[way])):
            shown = np.where(np.isfinite(values), values, np.nan)
            figure.add_trace(
                go.Scatter(x=rates, y=shown, mode="lines", line=line, name=way, showlegend=row == 1,
                           hovertemplate=f"{way}: %{{y:.3g}} at %{{x:.3g}} rows/s<extra></extra>"),
                row=row, col=1,
            )  # fmt: skip
    figure.add_hline(y=costs.objective_s, line={"color": INK, "dash": "dash", "width": 1.5}, row=2, col=1)
    if flip.band:
        figure.add_vrect(*flip.band, fillcolor=COLOURS[2], opacity=0.25, line_width=0)
    if flip.rows_per_s:
        figure.add_vline(x=flip.rows_per_s, line={"color": COLOURS[2], "width": 2})
    if rate_rows_per_s:
        figure.add_vline(x=rate_rows_per_s, line={"color": INK, "width": 2, "dash": "dot"})
    figure.update_layout(margin={"t": 116})
    for way in WAYS:
        _name_line(figure, way, rates[0], price[way][0], 1)
        _name_line(figure, way, rates[0], latency[way][0], 2)
    figure.update_xaxes(type="log", **ticks_for([rates[0], rates[-1]]))
    figure.update_xaxes(title_text="arrivals (rows per second)", row=2, col=1)
    figure.update_yaxes(title_text="price of a million rows", type="log", row=1, col=1, dtick=1, exponentformat="none")
    return figure.update_yaxes(
        title_text="longest wait", type="log", row=2, col=1, tickvals=[1e-3, 1e-1, 1, 10, 60, 600, 3600, 86_400],
        ticktext=["1 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min", "1 h", "1 day"],
    )  # fmt: skip


def _name_line(figure: go.Figure, way: str, rate: float, value: float, row: int) -> None:
    """A line's name at its left end, where the lines lie apart; nothing where it starts nowhere."""
    import plotly.graph_objects as go

    if np.isfinite(value) and value > 0:
        font = {"color": INK, "shadow": HALO}
        name = go.Scatter(
            x=[rate],
            y=[value],
            text=[way],
            mode="text",
            textposition="top right",
            textfont=font,
            hoverinfo="skip",
            cliponaxis=False,
        )
        figure.add_trace(name, row=row, col=1)


def flip_sentence(flip: BreakEven) -> str:
    """Where the choice turns to online, in words."""
    if flip.rows_per_s is None:
        return "Online never is the choice at this objective: a job on demand answers in time and costs less."
    band = f" (95% of draws: {number(flip.band[0])} to {number(flip.band[1])})" if flip.band else ""
    unsure = f", though in {flip.never_share:.0%} of draws it never does" if flip.never_share else ""
    return (
        f"At {number(flip.rows_per_s)} rows/s{band} online becomes the choice{unsure}. Above that, each time one more "
        "server has to be added, jobs are cheaper again for a while."
    )


class BreakEvenPanel(Panel):
    """Controls for rate, objective, price and start, the figure, and the recommendation as its reading.

    Attributes:
        rate, objective, price, start: the controls; set `.value` to move one.
    """

    NAME = "breakeven"

    def __init__(
        self, costs: Costs, batch_runs: Sequence[float], online_runs: Sequence[float], rate_rows_per_s: float = 1.0
    ) -> None:
        import ipywidgets as widgets

        self.costs, self._runs = costs, (tuple(batch_runs), tuple(online_runs))
        wide = {"layout": {"width": "430px"}, "style": {"description_width": "150px"}, "continuous_update": False}
        self.rate = widgets.FloatLogSlider(
            rate_rows_per_s, min=-2, max=3, step=0.05, description="arrivals, rows/s", **wide
        )
        self.objective = widgets.FloatLogSlider(
            costs.objective_s, min=-2, max=5, step=0.1, description="objective, s", **wide
        )
        self.start = widgets.FloatLogSlider(
            costs.start_s, min=-1, max=3, step=0.1, description="start of a job, s", **wide
        )
        self.price = widgets.FloatLogSlider(
            costs.price_per_hour, min=-2, max=2, step=0.05, description="price of an hour", **wide
        )
        controls = widgets.HBox([widgets.VBox([self.rate, self.objective]), widgets.VBox([self.start, self.price])])
        self.arrange(controls, redrawn_by=(self.rate, self.objective, self.start, self.price))

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        costs = replace(
            self.costs,
            objective_s=self.objective.value,
            start_s=self.start.value,
            price_per_hour=self.price.value,
        )
        return break_even_plot(costs, break_even(costs, *self._runs), self.rate.value)
