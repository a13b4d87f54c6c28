"""Figures that others published, kept beside ours and never in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED_DIR = PROJECT_DIR / "data" / "published"


def published_names() -> tuple[str, ...]:
    """Names that `published_figures` takes, sorted."""
    return tuple(sorted(path.stem for path in PUBLISHED_DIR.glob("*.csv")))


def published_figures(name: str) -> pd.DataFrame:
    """Read one table of published figures.

    Args:
        name: one of `published_names()`; data/README.md has their columns.

    Returns:
        The figures as they were stated, nothing derived; units in the column names, and a `source` in each row.

    Raises:
        SettingError: there is no such table.
    """
    import pandas as pd

    if name not in published_names():
        raise SettingError(f"There are no published figures {name!r}; there are {', '.join(published_names())}.")
    return pd.read_csv(PUBLISHED_DIR / f"{name}.csv")
