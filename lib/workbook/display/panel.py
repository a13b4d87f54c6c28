"""What every panel does: draw its figure again in place, say what to see, and leave a picture for the report."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from workbook.errors import WorkbookError

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH = 860
"""Pixels. A FigureWidget measures its place before it has one and would stay at 700."""
STATIC_FIGURE = "application/vnd.workbook.figure+json"
"""Mime type of the figure as it stands, for the report: JupyterLab knows no such type and draws the panel itself."""


class Panel:
    """Controls, a figure and its reading; a subclass makes the three and says what to draw.

    Attributes:
        widget: what JupyterLab shows.
        figure: the plotly FigureWidget that is drawn again in place.
        reading: the HTML widget under it: the sentence of the figure, or what went wrong.
    """

    widget: Any
    figure: Any
    reading: Any

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        raise NotImplementedError

    def redraw(self, change: Any = None) -> None:
        """Draw what the controls ask for; a mistake becomes a sentence in the panel, never a traceback."""
        try:
            drawn = self.drawn()
        except WorkbookError as error:
            self.reading.value = f"<p role='alert'>{html.escape(str(error))}</p>"
            return
        except Exception as error:  # a callback's traceback goes to a log that nobody reads
            sentence = html.escape(f"The figure cannot be drawn: {type(error).__name__}: {error}")
            self.reading.value = f"<p role='alert'>{sentence}</p>"
            return
        with self.figure.batch_update():
            self.figure.data = ()
            self.figure.layout = drawn.layout.update(width=WIDTH)
            self.figure.add_traces(drawn.data)
        self.reading.value = f"<p>{html.escape(drawn.layout.meta['reading'])}</p>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The panel for JupyterLab, and beside it the figure as it stands, for the report."""
        bundle = dict(self.widget._repr_mimebundle_(**options))
        standing = json.loads(self.figure.to_json())
        del standing["layout"]["width"]
        return {**bundle, STATIC_FIGURE: standing}
