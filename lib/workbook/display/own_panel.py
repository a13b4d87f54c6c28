"""Bring your own: a model and a text go through the comparison of batch and online."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from workbook.display.bar_plots import throughput_bars
from workbook.display.drawing import new_figure
from workbook.display.measuring_panel import MeasuringPanel
from workbook.own_comparison import LEAST_ROWS, MOST_ROWS, OwnComparison, OwnRequest

if TYPE_CHECKING:
    import plotly.graph_objects as go

QUESTION = "How much faster is batch with your model and your text?"
NOTHING_YET = "Nothing was measured yet. Name a model and a text, then press Measure."


class OwnPanel(MeasuringPanel):
    """Fields for model, text, column and rows, the buttons, and the answer.

    Attributes:
        comparison: what measures, without any widget.
        model, corpus, text_column, rows: the fields; set `.value` to fill one.
        answer: the headline of the last result, and the command that gives the same.
    """

    NAME = "bring-your-own"

    def __init__(self, comparison: OwnComparison | None = None, request: OwnRequest | None = None) -> None:
        """Make the panel; the fields start as `request` says."""
        import ipywidgets as widgets

        self.comparison = comparison or OwnComparison()
        self.job = self.comparison.job
        first = request or OwnRequest()
        wide = {"layout": {"width": "520px"}, "style": {"description_width": "110px"}}
        self.model = widgets.Text(
            value=first.model,
            placeholder="bundled, ORG/NAME of a hub, a folder, or an ONNX file in one",
            description="model",
            **wide,
        )
        self.corpus = widgets.Text(
            value=first.corpus, placeholder="sample, or a path to CSV, Parquet or JSONL", description="text", **wide
        )
        self.text_column = widgets.Text(value=first.text_column, description="text column", **wide)
        self.rows = widgets.BoundedIntText(value=first.rows, min=LEAST_ROWS, max=MOST_ROWS, description="rows", **wide)
        self.answer = widgets.HTML()
        fields = widgets.VBox([self.model, self.corpus, self.text_column, self.rows])
        self.arrange(fields, self.buttons(), redrawn_by=())
        self.widget.children = (*self.widget.children, self.answer)

    @property
    def request(self) -> OwnRequest:
        """What the fields say."""
        return OwnRequest(self.model.value, self.corpus.value, self.text_column.value, self.rows.value)

    def begin(self) -> bool:
        """Check what the fields name, then begin."""
        return self.comparison.measure(self.request)

    def drawn(self) -> go.Figure:
        """Rows per second of every main arm of the last result."""
        import pandas as pd

        found = self.job.result
        if found is None:
            return new_figure(QUESTION, NOTHING_YET, NOTHING_YET, height=150).update_layout(
                xaxis_visible=False, yaxis_visible=False
            )
        self.answer.value = self._answer_html()
        return throughput_bars(pd.DataFrame(found.results["runs"]), QUESTION)

    def _answer_html(self) -> str:
        found: Any = self.job.result
        headline = found.results["headline"]
        numbers = "".join(
            f"<li>{html.escape(number['label'])}: <b>{html.escape(number['value'])}</b>, "
            f"{html.escape(number['detail'])}</li>"
            for number in headline["numbers"]
        )
        return (
            f"<p>{html.escape(headline['answer'])}</p><ul>{numbers}</ul>"
            f"<p>Report, records and results: <code>{html.escape(str(found.directory))}</code>. "
            f"The same from a terminal: <code>{html.escape(found.request.command)}</code></p>"
        )
