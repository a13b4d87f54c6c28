"""The text that both arms embed: read from anywhere, cleaned once, every repair on record.

After this module a text is a Python string that any tokenizer and any transport takes: it has something in it, no NUL,
no half of a surrogate pair, and at most `MAX_CHARACTERS` characters. Nothing else is changed.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbook.errors import CorpusError, SettingError
from workbook.measuring.corpus.sample import build_sample
from workbook.measuring.corpus.sources import OTHER_WAYS, Row, Table, UnreadableRow, find_file, hub_table, open_table

if TYPE_CHECKING:
    import pandas as pd

# An encoder reads 512 tokens. A text longer than this is cut, so that tokenising one row stays quick.
MAX_CHARACTERS = 20_000
EXAMPLES = 5
KEPT_COLUMNS = ("id", "keyword", "location", "target")
NUMERIC_COLUMNS = ("id", "target")
# What the absence of a number or text looks like once pandas or NumPy has written it as text.
WRITTEN_MISSING = ("nan", "NaN")
LONE_SURROGATES = re.compile("[\ud800-\udfff]+")
ESCAPED_BYTES = re.compile("[\udc80-\udcff]")
REPORT_COLUMNS = ("kind", "action", "rows", "example_rows")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Text ready to be measured with.

    Attributes:
        frame: one row a text: `row` (int64, position in the source, from 0), `text` (str), and `id`, `keyword`,
            `location`, `target` where the source has them.
        source: what was asked for, the seed added where it matters.
        fingerprint: digest of the texts in their order; equal for equal text, whatever file it came from.
        report: one row a kind of damage: `kind`, `action` ("dropped" or "cleaned"), `rows`, `example_rows` (the first
            few positions in the source). With a row limit it covers the rows up to the last one needed.
    """

    frame: pd.DataFrame
    source: str
    fingerprint: str
    report: pd.DataFrame

    @property
    def texts(self) -> list[str]:
        """The texts in file order."""
        return list(self.frame["text"])

    def describe(self) -> pd.DataFrame:
        """What the texts are like: one row a `measure`, lengths in characters, shares from 0 to 1."""
        import pandas as pd

        texts = self.frame["text"]
        characters = texts.map(len)
        quartiles = {f"characters_p{percent}": characters.quantile(percent / 100) for percent in (25, 50, 75)}
        measures = {
            "rows": len(texts),
            "characters_mean": characters.mean(),
            **quartiles,
            "characters_max": characters.max(),
            **{f"{name}_share": texts.map(test).mean() for name, test in TEXT_FEATURES.items()},
            "repeated_rows": int(texts.duplicated().sum()),
        }
        return pd.DataFrame({"measure": list(measures), "value": [float(value) for value in measures.values()]})


TEXT_FEATURES: Mapping[str, Callable[[str], bool]] = {
    "link": lambda text: re.search(r"https?://", text) is not None,
    "hashtag": lambda text: re.search(r"#\w", text) is not None,
    "handle": lambda text: re.search(r"@\w", text) is not None,
    "non_ascii": lambda text: not text.isascii(),
    "line_break": lambda text: "\n" in text,
    "html_entity": lambda text: re.search(r"&\w+;", text) is not None,
}


@dataclass
class _Findings:
    """Kinds of damage met so far, with the rows they were met in."""

    rows: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, kind: str, action: str, row: int) -> None:
        self.rows.setdefault((kind, action), []).append(row)

    def sentence(self) -> str:
        return "; ".join(f"{len(rows)} rows {action} ({kind})" for (kind, action), rows in self.rows.items())

    def frame(self) -> pd.DataFrame:
        import pandas as pd

        records = [(*key, len(rows), rows[:EXAMPLES]) for key, rows in self.rows.items()]
        return pd.DataFrame(records, columns=list(REPORT_COLUMNS)).astype({"rows": "int64"})


def load_corpus(corpus: str, *, text_column: str = "text", rows: int | None = None, seed: int = 0) -> Corpus:
    """Read a corpus, drop or clean what no model could take, and keep a record of both.

    Args:
        corpus: `sample` (made here), `hub:ORG/NAME`, or the path of a .csv, .csv.gz, .jsonl, .jsonl.gz or .parquet
            file, looked for from the current folder, then from the project's.
        text_column: the column with the text.
        rows: how many usable rows to take, the first ones in file order as the article does; None takes all.
        seed: of the synthetic corpus; other sources have no chance in them.

    Raises:
        SettingError: `rows` is below 1.
        CorpusError: the source cannot be read, has no such column, or has fewer usable rows than asked for.
    """
    if rows is not None and rows < 1:
        raise SettingError(f"rows is {rows}: take 1 or more, or None for all.")
    findings = _Findings()
    with _open(corpus, text_column, seed) as table:
        if table.columns and text_column not in table.columns:
            raise CorpusError(_no_such_column(corpus, text_column, table.columns))
        seen: dict[str, None] = dict.fromkeys(table.columns)
        usable = (row for row in _usable(table.rows, text_column, findings, seen))
        records = list(itertools.islice(usable, rows))
    if seen and text_column not in seen:
        raise CorpusError(_no_such_column(corpus, text_column, tuple(seen)))
    _require_enough(corpus, text_column, len(records), rows, findings)
    source = f"{corpus} (seed {seed})" if corpus == "sample" else corpus
    return Corpus(_frame(records), source, _fingerprint(records), findings.frame())


def clean_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Repair what breaks tokenizers and transports.

    Returns:
        The text without NUL, each run of lone surrogates as one U+FFFD, cut to `MAX_CHARACTERS`; and the kinds of
        damage that were repaired, none for sound text.
    """
    repairs: list[str] = []
    if "\0" in text:
        text = text.replace("\0", "")
        repairs.append("NUL characters removed")
    if LONE_SURROGATES.search(text):
        is_bytes = ESCAPED_BYTES.search(text) is not None
        repairs.append("bytes that are not UTF-8 replaced" if is_bytes else "lone surrogates replaced")
        text = LONE_SURROGATES.sub("\ufffd", text)
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS]
        repairs.append(f"cut to {MAX_CHARACTERS} characters")
    return text, tuple(repairs)


def _open(corpus: str, text_column: str, seed: int) -> AbstractContextManager[Table]:
    if corpus == "sample":
        if text_column != "text":
            raise CorpusError(
                f"The sample has its text in the column 'text', not {text_column!r}: leave text_column out."
            )
        return open_table(build_sample(seed))
    if corpus.startswith("hub:"):
        return nullcontext(hub_table(corpus.removeprefix("hub:")))
    return open_table(find_file(corpus))


def _usable(
    rows: Iterable[Row], text_column: str, findings: _Findings, seen: dict[str, None]
) -> Iterable[dict[str, Any]]:
    """Yield the rows with text in them, cleaned; note the others, and every column met, on the way."""
    for position, row in enumerate(rows):
        if isinstance(row, UnreadableRow):
            findings.add(row.reason, "dropped", position)
            continue
        seen.update(dict.fromkeys(row))
        value = row.get(text_column)
        text, repairs = clean_text(value) if isinstance(value, str) else ("", ())
        damage = _damage(value, text)
        if damage:
            findings.add(damage, "dropped", position)
            continue
        for repair in repairs:
            findings.add(repair, "cleaned", position)
        yield {"row": position, "text": text, **{name: row.get(name) for name in KEPT_COLUMNS if name in row}}


def _damage(value: object, cleaned: str) -> str:
    """Why a value cannot be used as text; empty where it can."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or value in WRITTEN_MISSING:
        return "missing text"
    if not isinstance(value, str):
        return f"not text but {type(value).__name__}"
    return "" if cleaned.strip() else "empty text"


def _no_such_column(corpus: str, text_column: str, columns: tuple[str, ...]) -> str:
    separator = next((mark for mark in (";", "\t", "|") if len(columns) == 1 and mark in columns[0]), "")
    if separator:
        return f"{corpus} has its fields separated by {separator!r}, not by commas: save it as CSV with commas."
    close = difflib.get_close_matches(text_column.lower(), [name.lower() for name in columns], n=1, cutoff=0.0)
    closest = next(name for name in columns if name.lower() == close[0])
    names = ", ".join(repr(name) for name in columns[:20]) + (", ..." if len(columns) > 20 else "")
    return (
        f"{corpus} has no column {text_column!r}. It has {names}. The closest is {closest!r}: set text_column to it if"
        " it holds the text."
    )


def _require_enough(corpus: str, text_column: str, found: int, rows: int | None, findings: _Findings) -> None:
    notes = findings.sentence()
    if not found:
        raise CorpusError(
            f"{corpus} has no row with text in {text_column!r}. {notes or 'It has no rows'}. {OTHER_WAYS}"
        )
    if rows is not None and found < rows:
        aside = f" ({notes})" if notes else ""
        raise CorpusError(f"rows is {rows}, but {corpus} has {found} usable rows{aside}. Set rows to {found} or less.")


def _frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    data: dict[str, Any] = {"row": pd.Series([record["row"] for record in records], dtype="int64")}
    data["text"] = pd.Series([record["text"] for record in records], dtype=object)
    for name in KEPT_COLUMNS:
        if any(name in record for record in records):
            data[name] = _side_column(name, [record.get(name) for record in records])
    return pd.DataFrame(data)


def _side_column(name: str, values: list[Any]) -> pd.Series:
    """A kept column: numbers where all values are numbers, else text; what is missing is NaN or None."""
    import pandas as pd

    present = [None if value is None or value == "" else value for value in values]
    if name in NUMERIC_COLUMNS:
        try:
            return pd.to_numeric(pd.Series(present, dtype=object))
        except (ValueError, TypeError, OverflowError):
            pass
    texts = [None if value is None else clean_text(str(value))[0] for value in present]
    return pd.Series(texts, dtype=object)


def _fingerprint(records: list[dict[str, Any]]) -> str:
    texts = json.dumps([record["text"] for record in records])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]
