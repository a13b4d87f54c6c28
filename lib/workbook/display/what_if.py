"""What-if panel of the ensemble: the predicted rate for other instances, delays and batches, measured points on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbook.analysis.ensemble_search import VARIED, with_hop
from workbook.analysis.prediction import PipelineCosts, Prediction, predict
from workbook.display.drawing import new_figure
from workbook.display.panel import Panel, toggles
from workbook.display.theme import COLOURS, INK
from workbook.serving.ensemble_spec import EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

CURVE = (1, 2, 4, 8, 16, 32, 64, 128)


def draw_what_if(
    costs: PipelineCosts, variant: EnsembleVariant, measured: pd.DataFrame, bound_per_s: float
) -> go.Figure:
    """Predicted rate over connections in one configuration, with the points that were measured in just that one.

    Args:
        costs: calibrated from the members.
        variant: the configuration asked for.
        measured: rows of `ensemble_search.point_row`, with `b_stall_us` 0; they also tell what another `hop` costs.
        bound_per_s: the slower member's rate.
    """
    import plotly.graph_objects as go

    costs = with_hop(costs, measured, variant.hop)
    predictions = {count: predict(costs, variant, count) for count in CURVE}
    figure = new_figure(
        "What if?",
        f"Line: predicted for {_in_words(variant)}. Diamonds: measured there. Dashed: the slower member alone.",
        reading_of_what_if(predictions),
        height=430,
    )
    rates = [prediction.per_s for prediction in predictions.values()]
    line = {"color": COLOURS[0], "width": 3}
    figure.add_trace(go.Scatter(x=list(predictions), y=rates, mode="lines+markers", line=line, name="predicted"))
    same = measured[_is_same(measured, variant)]
    marker = {"size": 13, "color": COLOURS[4], "symbol": "diamond", "line": {"color": INK, "width": 1}}
    figure.add_trace(
        go.Scatter(
            x=same["connections"].to_numpy(),
            y=same["images_per_s"].to_numpy(),
            mode="markers",
            marker=marker,
            name="measured",
        )
    )
    figure.add_hline(y=bound_per_s, line={"color": INK, "dash": "dash", "width": 1.5})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="connections", type="log", tickvals=list(CURVE), ticktext=[str(n) for n in CURVE])
    return figure.update_yaxes(title_text="images per second", rangemode="tozero")


def reading_of_what_if(predictions: dict[int, Prediction]) -> str:
    """Predicted rate and limit for the most connections, and for 16."""
    most = max(predictions)
    parts = [
        f"with {count} connections {predictions[count].per_s:.0f}/s, limited by {predictions[count].bottleneck}"
        for count in (most, 16)
    ]
    return f"Predicted: {'; '.join(parts)}."


def _in_words(variant: EnsembleVariant) -> str:
    """The configuration, named in the figure: what does not limit the rate moves no line."""
    batches = f"batches of {variant.b_max_batch}" if variant.b_max_batch else "no batches"
    return (
        f"A in batches of {variant.a_max_batch}, delay {variant.a_delay_us / 1000:g} ms; B in {batches}, instances: "
        f"{variant.b_instances}, fed {variant.hop}"
    )


def _is_same(measured: pd.DataFrame, variant: EnsembleVariant) -> Any:
    same = measured["images_per_s"] > 0
    for name in VARIED:
        same &= measured[name] == getattr(variant, name)
    return same


class WhatIfPanel(Panel):
    """Sliders for instances, batches and delay, and what is predicted there.

    Attributes:
        b_instances, b_max_batch, a_delay_ms, a_max_batch, hop: the controls; set `.value` to move one.
    """

    NAME = "what-if"

    def __init__(self, costs: PipelineCosts, base: EnsembleVariant, measured: pd.DataFrame, bound_per_s: float) -> None:
        import ipywidgets as widgets

        self.costs, self.base, self.measured, self.bound_per_s = costs, base, measured, bound_per_s
        wide = {"description_width": "10em"}
        batches, delays = (0, 1, 4, 8, 16, 32), (0, 1, 2, 5, 10, 20, 50, 100, 150)
        self.b_instances = widgets.IntSlider(
            value=base.b_instances, min=1, max=8, description="instances of B", style=wide
        )
        self.b_max_batch = widgets.SelectionSlider(options=batches, value=0, description="batch of B", style=wide)
        self.a_max_batch = widgets.SelectionSlider(
            options=batches[1:],
            value=base.a_max_batch if base.a_max_batch in batches else 32,
            description="batch of A",
            style=wide,
        )
        delay_ms = base.a_delay_us // 1000
        self.a_delay_ms = widgets.SelectionSlider(
            options=delays, value=delay_ms if delay_ms in delays else 150, description="delay of A (ms)", style=wide
        )
        self.hop = toggles(["logits", "mask"], "B is fed", value=base.hop)
        controls = (self.b_instances, self.b_max_batch, self.a_max_batch, self.a_delay_ms, self.hop)
        self.arrange(widgets.VBox(list(controls)), redrawn_by=controls)

    @property
    def variant(self) -> EnsembleVariant:
        """The configuration that the controls stand for."""
        return replace(
            self.base,
            b_instances=self.b_instances.value,
            b_max_batch=self.b_max_batch.value,
            a_max_batch=self.a_max_batch.value,
            a_delay_us=1000 * self.a_delay_ms.value,
            hop=self.hop.value,
        )

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        return draw_what_if(self.costs, self.variant, self.measured, self.bound_per_s)
