"""What every panel does: draw its figure again in place, say what to see, and leave a picture for the report."""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from workbook.display.wording import as_sentence
from workbook.errors import WorkbookError

if TYPE_CHECKING:
    import plotly.graph_objects as go

DEFAULT_HEIGHT = 450
"""Pixels, of a figure that does not say: plotly's own."""
FAULT = "#a40e26"
"""Colour of the line that says what went wrong; dark enough to be read on white."""
STATIC_FIGURE = "application/vnd.workbook.figure+json"
"""Mime type of the figure as it stands, for the report: JupyterLab knows no such type and draws the panel itself."""

PLOTLY_FIGURE = "application/vnd.plotly.v1+json"
"""Mime type that JupyterLab draws with plotly, as it draws a figure that is a cell's output."""

_DRAWING = threading.RLock()
"""Held while a panel is drawn: a measurement that ends may draw in the moment in which a reader moves a control."""


class Panel:
    """Controls, a figure and its reading; a subclass makes the controls and says what to draw.

    Attributes:
        NAME: of the kind of panel, in the CSS class `workbook-panel-NAME` of its box.
        widget: what JupyterLab shows.
        figure: the plotly figure that is shown; None where none could be drawn yet.
        error: the line that says what went wrong; empty where nothing did.
        reading: the sentence under the figure that says what to see.
    """

    NAME: ClassVar[str]

    widget: Any
    figure: go.Figure | None = None
    error: Any
    reading: Any
    _view: Any
    _standing: dict[str, Any] | None = None

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        raise NotImplementedError

    def arrange(self, *controls: Any, redrawn_by: Sequence[Any]) -> None:
        """Put the controls above the figure, let it follow those of them that change it, and draw it.

        Args:
            controls: boxes and widgets, from top to bottom.
            redrawn_by: widgets whose value the figure depends on.
        """
        import ipywidgets as widgets

        self.error = named(widgets.HTML(), "workbook-panel-error")
        self.reading = named(widgets.HTML(), "workbook-panel-reading")
        # not a FigureWidget: what that is sent before the browser has loaded plotly is lost, and its axes stay empty
        self._view = named(widgets.Output(), "workbook-panel-figure")
        self.redraw()
        box = widgets.VBox([*controls, self._view, self.error, self.reading], layout={"grid_gap": "8px"})
        self.widget = named(box, "workbook-panel", f"workbook-panel-{self.NAME}")
        for control in redrawn_by:
            control.observe(self.redraw, names="value")

    def redraw(self, change: Any = None) -> None:
        """Draw what the controls ask for; a mistake becomes a sentence in the panel, never a traceback."""
        with _DRAWING:
            try:
                self._show(self.drawn())
            except WorkbookError as error:
                self.complain(str(error))
            except Exception as error:  # a callback's traceback goes to a log that nobody reads
                self.complain(f"The figure cannot be drawn: {type(error).__name__}: {error}")

    def _show(self, drawn: go.Figure) -> None:
        self.error.value = ""
        self.reading.value = f"<p>{html.escape(drawn.layout.meta['reading'])}</p>"
        self.figure, self._standing = drawn, json.loads(drawn.to_json())
        # as high as the figure from the start, so that the page below does not jump while it is drawn anew
        self._view.layout.min_height = f"{drawn.layout.height or DEFAULT_HEIGHT}px"
        self._view.outputs = ({"output_type": "display_data", "data": {PLOTLY_FIGURE: self._standing}, "metadata": {}},)

    def complain(self, sentence: str) -> None:
        """Show what went wrong in the place of the reading, which would speak of an older figure."""
        sentence = as_sentence(sentence)
        self.error.value = f"<p role='alert' style='color:{FAULT}'>{html.escape(sentence)}</p>"
        self.reading.value = ""
        if self._standing is None:  # the report shows why there is no figure
            hidden = {"visible": False}
            words = {"title": {"text": html.escape(sentence)}, "meta": {"reading": sentence}, "height": 120}
            self._standing = {"data": [], "layout": {**words, "xaxis": hidden, "yaxis": hidden}}

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The panel for JupyterLab, and beside it the figure as it stands, for the report."""
        return {**self.widget._repr_mimebundle_(**options), STATIC_FIGURE: self._standing}


def toggles(options: Sequence[str], description: str, **more: Any) -> Any:
    """Buttons of which one is pressed; their label stands beside them, as that of every other control does."""
    import ipywidgets as widgets

    buttons = widgets.ToggleButtons(options=options, description=description, layout={"width": "max-content"}, **more)
    return named(buttons, "jupyter-widgets", "widget-inline-hbox")


def named(widget: Any, *classes: str) -> Any:
    """The widget, with CSS classes by which style sheets and tests find it."""
    for name in classes:
        widget.add_class(name)
    return widget
