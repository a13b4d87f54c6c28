"""Measure again with a button: a closed loop on the live server, drawn beside what the notebook measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbook.analysis.stored import QUANTITIES, stored_measurements
from workbook.display.measuring_panel import MeasuringPanel
from workbook.display.records_panel import draw_measurements
from workbook.measuring.online.live import LIVE, TRANSPORTS, LiveLoad, LiveRequest

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SHOWN = ("throughput_rows_per_s", "latency_mean_ms", "latency_p50_ms", "latency_p95_ms", "queue_ms", "compute_infer_ms")


class LivePanel(MeasuringPanel):
    """Controls for the load, the buttons, and every measurement of this notebook so far.

    Attributes:
        live: what measures, without any widget.
        beside: measurement of the notebook that is drawn with it, a name in `stored_measurements`.
        target, concurrency, transport, seconds, quantity: the controls; set `.value` to move one.
    """

    NAME = "live"

    def __init__(self, live: LiveLoad, beside: str = "closed_loop") -> None:
        import ipywidgets as widgets

        self.live, self.job, self.beside = live, live.job, beside
        wide = {"layout": {"width": "330px"}, "style": {"description_width": "120px"}}
        self.target = widgets.Dropdown(options=list(live.targets), description="ask", **wide)
        self.transport = widgets.Dropdown(options=list(TRANSPORTS), description="transport", **wide)
        self.concurrency = widgets.BoundedIntText(value=1, min=1, max=1024, description="requests in flight", **wide)
        self.seconds = widgets.FloatLogSlider(
            value=3.0, base=10, min=-0.5, max=2, step=0.05, readout_format=".1f", description="seconds", **wide
        )
        self.quantity = widgets.Dropdown(
            options=[(QUANTITIES[name], name) for name in SHOWN], description="quantity", **wide
        )
        left = widgets.VBox([self.target, self.transport, self.quantity])
        controls = widgets.HBox([left, widgets.VBox([self.concurrency, self.seconds])])
        self.arrange(controls, self.buttons(), redrawn_by=(self.quantity,))

    @property
    def request(self) -> LiveRequest:
        """What the controls ask for."""
        return LiveRequest(self.target.value, self.concurrency.value, self.transport.value, self.seconds.value)

    def begin(self) -> bool:
        """Begin the measurement that the controls ask for."""
        return self.live.measure(self.request)

    def drawn(self) -> go.Figure:
        """Everything that this run holds of the target: what the notebook measured, and what the button did."""
        table = stored_measurements(self.live.run.directory, self.live.run.notebook)
        figure = draw_measurements(_together(table, self.beside), self.quantity.value)
        return figure.update_layout(title_text="What does the server do under the load you choose?")


def _together(table: pd.DataFrame, beside: str) -> pd.DataFrame:
    """What the button measured as arms of their own beside those of the notebook."""
    live = table["measurement"] == LIVE
    shown = table[live | (table["measurement"] == beside)]
    return shown.assign(arm=shown["arm"].where(shown["measurement"] != LIVE, shown["arm"] + ", by the button"))
