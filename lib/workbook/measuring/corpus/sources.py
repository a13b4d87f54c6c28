"""Where text comes from: CSV, JSONL and Parquet files and the hub, each read as one stream of rows.

A source never decides what a bad text is. It yields every row it finds, and for a row it cannot read, the reason.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from workbook.artifacts import PROJECT_DIR
from workbook.errors import CorpusError

HUB_TIMEOUT_S = 5.0
PARQUET_BATCH_ROWS = 4096
OTHER_WAYS = "Set corpus to a .csv, .jsonl or .parquet file, or to sample, which needs neither file nor network."
# The csv module of Python 3.10 refuses NUL. No decoded file holds this half of a surrogate pair, so it can stand in.
NUL_STAND_IN = "\ud800"


@dataclass(frozen=True)
class UnreadableRow:
    """A row whose values cannot be told: `reason` names the kind of damage."""

    reason: str


Row = Mapping[str, Any] | UnreadableRow


@dataclass(frozen=True)
class Table:
    """An opened source.

    Attributes:
        columns: names in the source's order; empty where only the rows tell (JSONL).
        rows: every row in order, to be walked once.
    """

    columns: tuple[str, ...]
    rows: Iterator[Row]


def find_file(corpus: str) -> Path:
    """Return the regular file that a path names, from the current folder first, then from the project's.

    Raises:
        CorpusError: there is no such file, or it is a folder or a device.
    """
    if not corpus.strip():
        raise CorpusError(f"The corpus has no name. {OTHER_WAYS}")
    try:
        tried = [Path(corpus).expanduser(), PROJECT_DIR / corpus]
        found = next((path for path in tried if path.exists()), None)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~ of a user who is not there
        raise CorpusError(f"The corpus {corpus!r} cannot be looked up: {error}. {OTHER_WAYS}") from error
    if found is None:
        places = " and ".join(dict.fromkeys(str(path.absolute()) for path in tried))
        raise CorpusError(f"The corpus {corpus!r} is not there; looked for {places!r}. {OTHER_WAYS}")
    if not found.is_file():
        kind = "a folder" if found.is_dir() else "not a regular file"
        raise CorpusError(f"The corpus {corpus!r} is {kind}. {OTHER_WAYS}")
    return found


@contextmanager
def open_table(path: Path) -> Iterator[Table]:
    """Open a file as a table for the length of a `with` block, reading it by its extension.

    Raises:
        CorpusError: unknown extension, or a file that cannot be read or is not what its extension says; also while the
            rows are walked.
    """
    suffixes = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    opener = OPENERS.get(suffixes)
    if opener is None:
        known = ", ".join(OPENERS)
        raise CorpusError(f"{path.name} ends in {suffixes or 'no extension'}; a corpus file ends in one of {known}.")
    try:
        _refuse_other_content(path, suffixes)
        with opener(path) as table:
            yield table
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path.name} is not whole gzip data: {error}. Compress it again or unpack it.") from error
    except OSError as error:
        raise CorpusError(
            f"{path} cannot be read: {error.strerror or error}. Check that it is whole and that you may read it."
        ) from error


def _refuse_other_content(path: Path, suffixes: str) -> None:
    """Name the mistake where the first bytes show another format than the extension says."""
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise CorpusError(f"{path.name} is an empty file: a corpus has at least one row of text.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CorpusError(f"{path.name} is written in UTF-16: save it as UTF-8.")
    formats = {b"PAR1": ("Parquet", ".parquet"), b"\x1f\x8b": ("gzip", ".gz"), b"PK\x03\x04": ("a zip archive", ".zip")}
    for magic, (name, ending) in formats.items():
        if start.startswith(magic) and not suffixes.endswith(ending):
            raise CorpusError(f"{path.name} holds {name} data, not what its extension says: unpack it or rename it.")


def _open_text(path: Path, newline: str) -> IO[str]:
    """Open as UTF-8; a byte order mark is dropped, a byte that is not UTF-8 becomes a lone surrogate."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=newline)
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline)


@contextmanager
def _csv_table(path: Path) -> Iterator[Table]:
    limit = csv.field_size_limit(sys.maxsize)
    try:
        with _open_text(path, newline="") as file:
            records = _csv_records(file, path.name)
            columns = tuple(next(records, ()))
            twice = sorted({name for name in columns if name and columns.count(name) > 1})
            if twice:
                raise CorpusError(f"The header of {path.name} has {', '.join(map(repr, twice))} more than once.")
            yield Table(columns, (_csv_row(columns, record) for record in records))
    finally:
        csv.field_size_limit(limit)


def _csv_records(lines: Iterable[str], name: str) -> Iterator[list[str]]:
    reader = csv.reader((line.replace("\0", NUL_STAND_IN) for line in lines), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CorpusError(
                f"{name} cannot be read from line {line} on: {error}. A quote that opens a field must close it, and a"
                " quote inside a quoted field is written twice."
            ) from error
        yield [field.replace(NUL_STAND_IN, "\0") for field in record]


def _csv_row(columns: tuple[str, ...], record: list[str]) -> Row:
    if not record:
        return UnreadableRow("empty line")
    if len(record) != len(columns):
        return UnreadableRow("wrong number of fields")
    return dict(zip(columns, record, strict=True))


@contextmanager
def _jsonl_table(path: Path) -> Iterator[Table]:
    with _open_text(path, newline="\n") as file:
        yield Table((), (_json_row(line) for line in file))


def _json_row(line: str) -> Row:
    if not line.strip():
        return UnreadableRow("empty line")
    try:
        value = json.loads(line, strict=False)
    except (ValueError, RecursionError):
        return UnreadableRow("not JSON")
    return value if isinstance(value, dict) else UnreadableRow("not a JSON object")


@contextmanager
def _parquet_table(path: Path) -> Iterator[Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = tuple(file.schema_arrow.names)
            twice = sorted({name for name in columns if columns.count(name) > 1})
            if twice:
                raise CorpusError(f"{path.name} has the column {', '.join(map(repr, twice))} more than once.")
            batches = file.iter_batches(batch_size=PARQUET_BATCH_ROWS)
            yield Table(columns, (row for batch in batches for row in _arrow_rows(batch)))
    except pa.ArrowException as error:
        raise CorpusError(f"{path.name} is not a Parquet file that can be read: {error}") from error


def _arrow_rows(batch: Any) -> Iterator[Row]:
    values = [_arrow_values(column) for column in batch.columns]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*values, strict=True))


def _arrow_values(column: Any) -> list[Any]:
    """Values as Python objects; text is decoded here, because Arrow does not check that it is UTF-8."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        try:
            return list(column.to_pylist())
        except (
            OverflowError,
            ValueError,
        ):  # a date no Python date can hold; it is not text, so nothing of ours is lost
            return [None] * len(column)
    raw = column.cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]


OPENERS: Mapping[str, Callable[[Path], Any]] = {
    ".csv": _csv_table,
    ".csv.gz": _csv_table,
    ".jsonl": _jsonl_table,
    ".jsonl.gz": _jsonl_table,
    ".parquet": _parquet_table,
}


def hub_table(name: str) -> Table:
    """Open a dataset of the hub: all its splits, one after the other, in the order the hub lists them.

    A dataset fetched before is read from its cache where the hub cannot be reached.

    Raises:
        CorpusError: the name is malformed or unknown, or the hub cannot be reached and nothing is cached.
    """
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        raise CorpusError(f"hub:{name} is not a dataset of the hub: write hub:ORG/NAME. {OTHER_WAYS}")
    if Path(name).exists():
        raise CorpusError(f"hub:{name} would be read from a folder of that name here: start from another folder.")
    import datasets

    reached = _reach_hub(name)
    try:
        with nullcontext() if reached else _offline():
            splits = datasets.load_dataset(name)
    except Exception as error:  # the library raises whatever its many readers raise
        state = "cannot be read" if reached else "cannot be fetched: the hub is out of reach and no copy is kept here"
        raise CorpusError(f"hub:{name} {state} ({_first_line(error)}). {OTHER_WAYS}") from error
    tables = list(splits.values())
    columns = tuple(dict.fromkeys(column for table in tables for column in table.column_names))
    return Table(columns, (row for table in tables for row in table))


def _reach_hub(name: str) -> bool:
    """Ask once, briefly: the library itself would try for half a minute before it says that there is no network."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        HfApi().dataset_info(name, timeout=HUB_TIMEOUT_S)
    except RepositoryNotFoundError as error:
        raise CorpusError(f"hub:{name} is not on the hub, or not open to you. {OTHER_WAYS}") from error
    except Exception:  # what it raises without a network depends on the HTTP library it was built on
        return False
    return True


@contextmanager
def _offline() -> Iterator[None]:
    """Make the hub's libraries look in their caches only; what `HF_HUB_OFFLINE` does, they read it once at import."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
