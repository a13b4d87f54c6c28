"""What-if panel of the arrangements: tensor size, stage times and instances against latency and throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbook.analysis.arrangement_choice import Situation, expect
from workbook.analysis.copy_costs import HopCost
from workbook.display.copies_plots import expectation_plot
from workbook.display.panel import Panel

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

OWN = "my own"


class ArrangementPanel(Panel):
    """Tensor, stages and instances, and what each arrangement is expected to do there.

    Attributes:
        pipeline: a measured pipeline, whose sizes and times the sliders then take, or "my own".
        megabytes: of the tensor, a logarithmic slider; `.value` is in MB.
        stages: a slider each stage, ms.
        instances, processors: sliders.
    """

    NAME = "arrangement"

    def __init__(
        self,
        costs: Mapping[str, HopCost],
        measured: Mapping[str, Situation],
        points: pd.DataFrame,
        base_ms: float,
    ) -> None:
        """Make the panel.

        Args:
            costs: of `analysis.copy_costs.hop_costs`.
            measured: by pipeline, the size and stage times that were measured.
            points: of `display.copies_plots.arrangement_points`.
            base_ms: latency of a request to a model that does nothing, ms.
        """
        import ipywidgets as widgets

        self.costs, self.measured, self.base_ms = costs, measured, base_ms
        self.points = points
        first = next(iter(measured.values()))
        wide = {"style": {"description_width": "130px"}, "layout": {"width": "420px"}}
        self.pipeline = widgets.Dropdown(options=[*measured, OWN], description="pipeline", **wide)
        self.megabytes = widgets.FloatLogSlider(
            value=max(0.01, first.megabytes), min=-2, max=2, step=0.05, description="tensor (MB)", **wide
        )
        self.stages = [
            widgets.FloatSlider(value=time, min=0, max=max(200.0, 2 * time), step=0.1, description=name, **wide)
            for name, time in zip(("first stage (ms)", "second stage", "third stage"), first.stage_ms, strict=True)
        ]
        self.instances = widgets.IntSlider(value=first.instances, min=1, max=8, description="monolith's copies", **wide)
        self.processors = widgets.IntSlider(value=first.processors, min=1, max=32, description="processors", **wide)
        left = widgets.VBox([self.pipeline, self.megabytes, self.instances, self.processors])
        self.pipeline.observe(self.take_over, names="value")
        self.arrange(
            widgets.HBox([left, widgets.VBox(self.stages)]),
            redrawn_by=(self.megabytes, *self.stages, self.instances, self.processors),
        )

    @property
    def situation(self) -> Situation:
        """What the sliders stand for."""
        times = tuple(float(stage.value) for stage in self.stages)
        return Situation(self.megabytes.value, times, self.instances.value, self.processors.value)

    def take_over(self, change: Any = None) -> None:
        """Put the sliders where the chosen pipeline was measured."""
        chosen = self.measured.get(self.pipeline.value)
        if chosen is not None:
            for stage, time in zip(self.stages, chosen.stage_ms, strict=True):
                stage.max = max(stage.max, 2 * time)
                stage.value = time
            self.megabytes.value = max(0.01, chosen.megabytes)
            self.instances.value, self.processors.value = chosen.instances, chosen.processors
        self.redraw()

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        situation = self.situation
        return expectation_plot(expect(situation, self.costs, self.base_ms), self._measured(), situation)

    def _measured(self) -> dict[str, tuple[float, float]]:
        here = self.points[self.points["pipeline"] == self.pipeline.value]
        means = here.groupby("arrangement")[["latency_ms", "requests_per_s"]].mean()
        return {str(name): (row["latency_ms"], row["requests_per_s"]) for name, row in means.iterrows()}
