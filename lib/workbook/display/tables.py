"""DataFrames as tables a reader can read: headings in words, units, sensible decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.analysis.summaries import arm_labels
from workbook.display.wording import heading, number

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


def readable_table(frame: pd.DataFrame, caption: str = "", transpose: bool = False) -> Styler:
    """A frame as a table with headings in words and three significant digits; a missing value is a dash.

    A column that holds nothing at all, such as the note of a summary that misses nothing, is left out; a table without
    rows says "none". Names in a column `measure` are put into words as the headings are.

    Args:
        frame: column names end in their unit (`_ms`, `_per_s`, `_percent`).
        caption: what the table shows, one line above it.
        transpose: quantities as rows; easier to read where there are many of them and few arms.
    """
    import pandas as pd

    if frame.empty:
        frame = pd.DataFrame({caption or "rows": ["none"]})
        caption = ""
    numbered = list(frame.index) == list(range(len(frame)))
    filled = frame.loc[:, [name for name in frame if not _says_nothing(frame[name])]]
    if transpose and numbered and "arm" in filled:
        filled = filled.set_index(arm_labels(filled).rename(None)).drop(columns="arm")
    shown = filled.rename(columns=lambda name: heading(str(name)))
    if "measure" in shown:
        shown = shown.assign(measure=shown["measure"].map(heading))
    exact = [name for name in shown if "cosine" in str(name)]
    shown = shown.assign(**{name: shown[name].map(_cosine_text) for name in exact})
    styler = (shown.T if transpose else shown).style.format(cell_text).set_caption(caption)
    return styler.hide(axis="index") if numbered and not transpose else styler


def _says_nothing(column: pd.Series) -> bool:
    return bool((column == "").all() or column.isna().all())


def _cosine_text(value: Any) -> str:
    """A cosine near 1 says nothing with three digits."""
    return f"{value:.7f}" if isinstance(value, (float, np.floating)) else cell_text(value)


def cell_text(value: Any) -> str:
    """One cell: whole numbers whole, other numbers with three significant digits, missing ones a dash."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        plain = float(value)
        return f"{plain:,.0f}" if plain.is_integer() and abs(plain) < 1e15 else number(plain)
    return "–" if value is None else str(value)
