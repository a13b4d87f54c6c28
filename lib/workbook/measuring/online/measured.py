"""The records that a finished load hands over."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from workbook.errors import LoadError
from workbook.measuring.online.journal import Journal
from workbook.measuring.records import REQUEST_COLUMNS

if TYPE_CHECKING:
    import pandas as pd


def measured_records(journal: Journal, windows: Container[int], too_short: str) -> pd.DataFrame:
    """Records of the measured windows, REQUEST_COLUMNS, in order of sending.

    Args:
        journal: of the load.
        windows: numbers of the measured windows.
        too_short: said where not one request ended in them.

    Raises:
        LoadError: none of them was answered.
    """
    import pandas as pd

    kept = [record for record in journal.records if record["window"] in windows]
    if all(record["error"] for record in kept):
        why = f"The first failure: {journal.first_error}" if journal.first_error else too_short
        raise LoadError(f"no request was answered in the measured time. {why}")
    frame = pd.DataFrame(kept, columns=list(REQUEST_COLUMNS)).astype(dict(REQUEST_COLUMNS))
    return frame.sort_values("request", ignore_index=True)
