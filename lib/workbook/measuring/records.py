"""Raw records: one row a request or a batch, written while measuring, read back as a DataFrame.

Every figure can be made again from these files, without a server. All times are integers in nanoseconds on the clock of
`time.perf_counter_ns`, which is the same for all processes of one machine and means nothing on another.
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from workbook.models.e5 import Tokens

REQUEST_COLUMNS: Mapping[str, str] = {
    "arm": "str",  # what is compared: "online", "batch", ...
    "run": "int64",  # replicate number of the arm, from 0
    "concurrency": "int64",  # requests kept in flight
    "client": "int64",  # which of the concurrent clients sent it, from 0
    "request": "int64",  # order of sending within the run, from 0
    "window": "int64",  # measurement window in which it ended, from 0; -1 during warm-up and after the last window
    "first_row": "int64",  # position in the corpus of the request's first row
    "intended_ns": "int64",  # when it should have been sent; closed loop: when the client became free
    "sent_ns": "int64",  # when the client handed it to the transport
    "received_ns": "int64",  # when the whole answer was in the client's memory
    "decoded_ns": "int64",  # when the outputs were NumPy arrays
    "rows": "int64",  # batch elements, what Triton calls inferences
    "real_tokens": "int64",
    "padded_tokens": "int64",  # tokens computed, padding included
    "bytes_in": "int64",  # request body
    "bytes_out": "int64",  # answer body
    "error": "str",  # empty where it succeeded
}

BATCH_COLUMNS: Mapping[str, str] = {
    "arm": "str",
    "run": "int64",
    "batch": "int64",  # order within the run, from 0
    "first_row": "int64",
    "start_ns": "int64",  # before tokenisation
    "tokenised_ns": "int64",  # token ids are NumPy arrays
    "inferred_ns": "int64",  # the model's forward pass is done; synchronised where there is a GPU
    "pooled_ns": "int64",  # the embedding is a NumPy array
    "rows": "int64",
    "real_tokens": "int64",
    "padded_tokens": "int64",
    "error": "str",
}

FLUSH_AFTER_NS = 1_000_000_000


class RecordWriter:
    """Appends records to a CSV file, on disk at least once a second: a crash loses no more than that.

    Safe to use from several threads.
    """

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        self._columns = tuple(columns)
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists() or path.stat().st_size == 0
        self._file = path.open("a", newline="", encoding="utf-8")
        self._csv = csv.writer(self._file)
        self._flushed_ns = time.perf_counter_ns()
        if is_new:
            self._csv.writerow(self._columns)
            self._file.flush()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record, which has exactly the columns the writer was made with."""
        row = [record[name] for name in self._columns]
        with self._lock:
            self._csv.writerow(row)
            if time.perf_counter_ns() - self._flushed_ns > FLUSH_AFTER_NS:
                self._file.flush()
                self._flushed_ns = time.perf_counter_ns()

    def close(self) -> None:
        """Write what is left and close the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def batch_record(
    arm: str, run: int, batch: int, first_row: int, times_ns: tuple[int, int, int, int], tokens: Tokens
) -> dict[str, Any]:
    """One row of BATCH_COLUMNS, of a batch that did not fail; `times_ns` are start, tokenised, inferred and pooled."""
    start_ns, tokenised_ns, inferred_ns, pooled_ns = times_ns
    return {
        "arm": arm,
        "run": run,
        "batch": batch,
        "first_row": first_row,
        "start_ns": start_ns,
        "tokenised_ns": tokenised_ns,
        "inferred_ns": inferred_ns,
        "pooled_ns": pooled_ns,
        "rows": tokens.rows,
        "real_tokens": tokens.real_tokens,
        "padded_tokens": tokens.padded_tokens,
        "error": "",
    }


def read_records(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """Read a records file; a last line cut off by a crash is left out."""
    import pandas as pd

    frame = pd.read_csv(path, dtype="str", keep_default_na=False, on_bad_lines="skip")
    whole = (frame.loc[:, [name for name, kind in columns.items() if kind == "int64"]] != "").all(axis=1)
    return frame.loc[whole, list(columns)].astype(dict(columns)).reset_index(drop=True)
