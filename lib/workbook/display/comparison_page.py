"""Two runs side by side as a figure, as text for a terminal, and as one HTML file that needs no network."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.run_comparison import RunComparison, compare_runs
from workbook.display.drawing import new_figure
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, INK
from workbook.display.wording import number
from workbook.past_runs import find_past_run

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

PAGE = "compare.html"
NEAR_ONE = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2, 2.5)
"""Ticks of ratios that are not far from 1."""
HEADINGS = {
    "notebook": "notebook",
    "number": "number",
    "what": "what",
    "name": "name",
    "ratio": "B / A",
    "a": "A",
    "b": "B",
    "interval_a": "A in its own words",
    "interval_b": "B in its own words",
    "note": "note",
}


def print_comparison(name_a: str, name_b: str) -> None:
    """Print the tables of two runs and write the page next to the second one.

    Raises:
        SettingError: a name that is no run, or a run without results.
    """
    a, b = find_past_run(name_a), find_past_run(name_b)
    comparison = compare_runs(a, b)
    print(f"A  {comparison.a}\nB  {comparison.b}\n")
    print(_as_text(comparison.numbers.drop(columns=["interval_a", "interval_b"])))
    print("\nChanged in machine, parameters or rows measured:")
    print(_as_text(comparison.changed) if len(comparison.changed) else "nothing")
    print(f"\n{comparison.sentence}\n{only_words(comparison)}".rstrip())
    print(f"\nPage: {write_page(comparison, b)}")


def write_page(comparison: RunComparison, directory: Path) -> Path:
    """Write `compare.html` into a run directory; the last comparison with this run replaces an earlier one."""
    path = directory / PAGE
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    title = f"{comparison.a} and {comparison.b}"
    path.write_text(
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
        f"<style>{style}</style></head><body><header><h1>What changed from run A to run B?</h1>"
        f'<p class="answer">{html.escape(comparison.sentence)}</p></header><main>'
        f"<p>A: {html.escape(comparison.a)}<br>B: {html.escape(comparison.b)}</p>{tables_html(comparison)}"
        "</main></body></html>\n",
        encoding="utf-8",
    )
    return path


def tables_html(comparison: RunComparison) -> str:
    """Headline numbers, and what changed, as HTML."""
    changed = _table(comparison.changed) if len(comparison.changed) else "<p>Nothing.</p>"
    only = only_words(comparison)
    return (
        f"<h2>Headline numbers</h2>{_table(comparison.numbers)}"
        f"{f'<p>{html.escape(only)}</p>' if only else ''}"
        f"<h2>Changed in machine, parameters or rows measured</h2>{changed}"
    )


def only_words(comparison: RunComparison) -> str:
    """Which notebooks only one of the runs has; empty where both have all."""
    parts = [
        f"Only in {letter.upper()}: {', '.join(names)}."
        for letter in ("a", "b")
        if (names := [name for name, where in comparison.only.items() if where == letter])
    ]
    return " ".join(parts)


def ratio_figure(comparison: RunComparison) -> go.Figure:
    """Ratio B / A of every headline number that both runs have, on a logarithmic axis around 1."""
    import plotly.graph_objects as go

    both = comparison.numbers[np.isfinite(comparison.numbers["ratio"]) & (comparison.numbers["ratio"] > 0)]
    names = [f"{row.notebook[:2]} · {row.number}<br><b>{row.a} → {row.b}</b>" for row in both.itertuples()]
    figure = new_figure(
        "What changed from run A to run B?",
        f"A: {html.escape(comparison.a)}. B: {html.escape(comparison.b)}. Line at 1: no change.",
        reading_of_comparison(comparison),
        height=170 + 56 * max(1, len(names)),
    )
    ratios = both["ratio"].to_list()
    marker = {"size": 13, "color": COLOURS[0], "line": {"color": INK, "width": 1}}
    figure.add_trace(
        go.Scatter(x=ratios, y=list(range(len(names))), mode="markers+text", marker=marker,
                   text=[f"{number(ratio)} x" for ratio in ratios], textposition="middle right",
                   hovertemplate="%{x:.4g} x<extra></extra>")
    )  # fmt: skip
    figure.add_vline(x=1, line={"color": INK, "dash": "dash", "width": 1.5})
    reach = max([1.5, *(max(ratio, 1 / ratio) for ratio in ratios)]) * 1.3
    ticks = ticks_for(NEAR_ONE, every=True) if reach <= NEAR_ONE[-1] else ticks_for([1 / reach, reach])
    figure.update_xaxes(title_text="B / A", type="log", range=[-np.log10(reach), np.log10(reach)], **ticks)
    return figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.7], showgrid=False, ticks=""
    )


def reading_of_comparison(comparison: RunComparison) -> str:
    """The number that moved most, and what to know before believing it."""
    both = comparison.numbers[np.isfinite(comparison.numbers["ratio"]) & (comparison.numbers["ratio"] > 0)]
    if both.empty:
        return f"The two runs share no headline number. {comparison.sentence}"
    most = both.loc[np.abs(np.log(both["ratio"])).idxmax()]
    change = f"from {most['a']} to {most['b']} (x {number(most['ratio'])})"
    return f"Most changed: {most['number']}, {change}. {comparison.sentence}"


def _table(frame: pd.DataFrame) -> str:
    head = "".join(f'<th scope="col">{HEADINGS[name]}</th>' for name in frame)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in frame.itertuples(index=False)
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _as_text(frame: pd.DataFrame) -> str:
    rows = [
        [HEADINGS[name] for name in frame],
        *([_cell(value) for value in row] for row in frame.itertuples(index=False)),
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
