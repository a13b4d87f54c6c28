"""The timeline of an ensemble: each image's wait and work in both members, from Triton's trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbook.analysis.trace import describe_timeline
from workbook.display.drawing import new_figure
from workbook.display.theme import COLOURS, INK, PATTERNS
from workbook.display.wording import milliseconds

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_WAIT = "rgba(87, 96, 106, 0.22)"


def timeline_plot(timeline: pd.DataFrame, title: str = "") -> go.Figure:
    """A row each image; grey it waits, coloured it is worked on, first by A, then by B.

    Args:
        timeline: from `analysis.trace.read_trace`.
        title: the question; a fitting one by default.
    """
    figure = new_figure(
        title or "Where is each image, and when?",
        "A row is an image, in order of sending. Pale: waiting. Coloured: in an execution. "
        "<br>Equal bars of A below each other are one batch.",
        reading_of_timeline(timeline),
        height=max(420, min(900, 140 + 7 * timeline["image"].nunique())),
    )
    for place, (member, group) in enumerate(timeline.groupby("member", sort=False)):
        wait = group["queue_start_ms"], group["work_start_ms"]
        figure.add_trace(_bars(group, *wait, f"{member} waits", {"color": _WAIT}, place == 0))
        work = {
            "color": COLOURS[place],
            "pattern": {"shape": PATTERNS[place], "fgcolor": INK, "fgopacity": 0.3, "size": 6, "fillmode": "overlay"},
        }
        figure.add_trace(_bars(group, group["work_start_ms"], group["work_end_ms"], f"{member} works", work, True))
    figure.update_layout(barmode="overlay", bargap=0.1, showlegend=True, legend={"traceorder": "normal"})
    figure.update_yaxes(title_text="image", autorange="reversed", showgrid=False)
    return figure.update_xaxes(title_text="time since the first image (ms)")


def reading_of_timeline(timeline: pd.DataFrame) -> str:
    """Batches of the first member, the largest burst at the second, and the longest wait in each."""
    described = describe_timeline(timeline)
    a, b = described.iloc[0], described.iloc[-1]
    return (
        f"{a['member']} took {a['images']:.0f} images in {a['executions']:.0f} executions of up to "
        f"{a['largest_batch']:.0f}, each about {milliseconds(a['work_mean_ms'])}; up to {b['arrivals_in_5_ms']:.0f} "
        f"images then reached {b['member']} within 5 ms, which took {b['executions']:.0f} executions of "
        f"{milliseconds(b['work_mean_ms'])}. The longest wait was {milliseconds(a['wait_max_ms'])} for {a['member']} "
        f"and {milliseconds(b['wait_max_ms'])} for {b['member']}."
    )


def _bars(group: pd.DataFrame, start: pd.Series, end: pd.Series, name: str, marker: dict[str, Any], shown: bool) -> Any:
    import plotly.graph_objects as go

    return go.Bar(
        y=group["image"].to_numpy(),
        x=(end - start).to_numpy(),
        base=start.to_numpy(),
        orientation="h",
        name=name,
        marker={**marker, "line": {"width": 0}},
        showlegend=shown or "waits" not in name,
        hovertemplate=f"image %{{y}}: {name} for %{{x:.4g}} ms<extra></extra>",
    )
