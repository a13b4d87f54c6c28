"""Two runs side by side, chosen from lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbook.analysis.run_comparison import compare_runs
from workbook.display.comparison_page import ratio_figure, tables_html
from workbook.display.drawing import new_figure
from workbook.display.panel import Panel
from workbook.past_runs import runs_with_results

if TYPE_CHECKING:
    import plotly.graph_objects as go

ONE_RUN = "There are no two runs to compare yet. Run a notebook once more, with other parameters or on another day."


class ComparePanel(Panel):
    """Choose run A and run B.

    Attributes:
        run_a, run_b: the lists; set `.value` to move one. At first the newest two runs.
        tables: headline numbers with ratio, and what changed in machine and parameters.
    """

    NAME = "compare"

    def __init__(self) -> None:
        import ipywidgets as widgets

        runs = runs_with_results()[::-1]
        choices = [(path.name, path) for path in runs]
        wide = {"layout": {"width": "420px"}, "style": {"description_width": "60px"}}
        self.run_a = widgets.Dropdown(options=choices, description="run A", **wide)
        self.run_b = widgets.Dropdown(options=choices, description="run B", **wide)
        self.run_a.value = runs[1] if len(runs) > 1 else self.run_a.value
        self.tables = widgets.HTML()
        self.arrange(widgets.HBox([self.run_a, self.run_b]), redrawn_by=(self.run_a, self.run_b))
        self.widget.children = (*self.widget.children, self.tables)

    def drawn(self) -> go.Figure:
        """The figure that the lists ask for; the tables follow."""
        if len(self.run_a.options) < 2:
            return new_figure("What changed from run A to run B?", ONE_RUN, ONE_RUN, height=150).update_layout(
                xaxis_visible=False, yaxis_visible=False
            )
        comparison = compare_runs(self.run_a.value, self.run_b.value)
        self.tables.value = tables_html(comparison)
        return ratio_figure(comparison)

    def complain(self, sentence: Any) -> None:
        """Show what went wrong; the tables would speak of another pair."""
        self.tables.value = ""
        super().complain(sentence)
