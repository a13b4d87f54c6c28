"""Panels over stored records: turn a control, the figure is drawn again from the same rows, no server needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbook.analysis.summaries import latency_table
from workbook.display.latency_plots import box_plot, trace_over_time, violin_plot
from workbook.display.panel import Panel, toggles
from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

QUANTITIES = {"one request or batch": "latency_ms", "one row": "ms_per_row"}
KINDS = ("box", "violin", "over time")


def latency_panel(*records: pd.DataFrame) -> LatencyPanel:
    """A panel over request or batch records; the last line of a notebook cell."""
    return LatencyPanel(latency_table(*records))


def draw_latencies(
    latencies: pd.DataFrame, labels: Sequence[str], quantity: str = "latency_ms", scale: str = "auto", kind: str = "box"
) -> go.Figure:
    """The figure that a position of the controls stands for.

    Raises:
        SettingError: no arm chosen, or no figure of that kind.
    """
    chosen = latencies[latencies["label"].isin(labels)]
    if chosen.empty:
        raise SettingError("Nothing is chosen. Choose at least one arm in the list on the left.")
    if kind == "box":
        return box_plot(chosen, quantity, scale)
    if kind == "violin":
        return violin_plot(chosen, quantity, scale)
    if kind == "over time":
        return trace_over_time(chosen.assign(latency_ms=chosen[quantity]), scale)
    raise SettingError(f"kind is {kind!r}: it must be one of {', '.join(KINDS)}.")


class LatencyPanel(Panel):
    """Which arms, which time, which axis, which figure.

    Attributes:
        arms, quantity, scale, kind: the controls; set `.value` to move one.
    """

    NAME = "latency"

    def __init__(self, latencies: pd.DataFrame) -> None:
        import ipywidgets as widgets

        self.latencies = latencies
        labels = list(latencies["label"].unique())
        self.arms = widgets.SelectMultiple(
            options=labels, value=labels, rows=max(2, min(6, len(labels))), description="arms"
        )
        self.quantity = widgets.Dropdown(options=list(QUANTITIES.items()), description="time for")
        self.scale = toggles(["auto", "linear", "log"], "axis")
        self.kind = toggles(list(KINDS), "figure")
        choices = widgets.VBox([self.quantity, self.scale, self.kind])
        self.arrange(widgets.HBox([self.arms, choices]), redrawn_by=(self.arms, self.quantity, self.scale, self.kind))

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        return draw_latencies(self.latencies, self.arms.value, self.quantity.value, self.scale.value, self.kind.value)
