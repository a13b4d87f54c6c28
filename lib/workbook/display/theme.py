"""One look for all figures, and the way a figure leaves a notebook.

A figure leaves as plotly's own JSON (mime `application/vnd.plotly.v1+json`): JupyterLab draws it with the extension
that comes with the plotly package, the report draws it with the one copy of plotly.js it holds, and the executed
notebook stays small, because no cell carries plotly.js.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

TEMPLATE = "workbook"
RENDERER = "plotly_mimetype"

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#999999")
"""Okabe and Ito's colours (Color Universal Design, 2008), told apart with any common colour blindness; grey in place of
their black, on which no whisker and no pattern shows."""

PATTERNS = ("", "/", ".", "x", "\\", "-", "+", "|")
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hourglass")
DASHES = ("solid", "dash", "dot", "dashdot")
"""Each arm has a pattern and a symbol beside its colour, so that a grey print can still be read."""

INK = "#1b1f24"
MUTED = "#57606a"
GRID = "#e4e8ec"
HALO = "0 0 3px white, 0 0 3px white, 0 0 5px white"
"""Behind words that stand on a pattern or a line."""
FONT = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


def use_theme() -> None:
    """Make the workbook's template and renderer the default; a notebook calls it once, before its first figure."""
    import plotly.io as pio

    pio.templates[TEMPLATE] = template()
    pio.templates.default = TEMPLATE
    pio.renderers.default = RENDERER


def template() -> go.layout.Template:
    """Fonts that read well at 900 pixels, light grid lines, titles on the left."""
    import plotly.graph_objects as go

    axis = {
        "gridcolor": GRID,
        "linecolor": MUTED,
        "ticks": "outside",
        "tickcolor": GRID,
        "zeroline": False,
        "automargin": True,
        "separatethousands": True,
        "title": {"standoff": 12, "font": {"size": 14}},
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 14, "color": INK},
            "title": {
                "x": 0,
                "xref": "container",
                "pad": {"l": 16, "t": 14},
                "yref": "container",
                "y": 1,
                "yanchor": "top",
                "font": {"size": 18},
                "subtitle": {"font": {"size": 13, "color": MUTED}},
            },
            "colorway": list(COLOURS),
            "paper_bgcolor": "white",
            "plot_bgcolor": "white",
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 16, "r": 24, "t": 92, "b": 48},
            "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
            "hoverlabel": {"font": {"family": FONT, "size": 13}},
            "bargap": 0.35,
        }
    )
