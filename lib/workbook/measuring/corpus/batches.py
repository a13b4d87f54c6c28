"""Texts cut into batches once, so that every arm computes on identical inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.models.e5 import Encoder, Tokens

Order = Literal["file", "length"]
_TEXTS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Batch(Tokens):
    """One batch of a corpus: its tokens, and which rows they are.

    Attributes:
        row_index: int64, `batch`: position in the corpus of each row.
        texts: the rows, without prefix.
    """

    row_index: NDArray[np.int64]
    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.row_index) != len(self.input_ids) or self.input_ids.shape != self.attention_mask.shape:
            raise SettingError(
                f"{len(self.row_index)} rows do not fit ids {self.input_ids.shape} and mask {self.attention_mask.shape}"
            )

    @property
    def first_row(self) -> int:
        """Position in the corpus of the first row."""
        return int(self.row_index[0])


def make_batches(
    encoder: Encoder, texts: Sequence[str], batch_size: int, *, order: Order = "file", pad_to: int | None = None
) -> list[Batch]:
    """Cut the texts into batches and tokenise each one; the last batch may be smaller.

    Args:
        encoder: whose tokenizer and prefix are used.
        texts: the corpus, in file order.
        batch_size: rows in a batch, at least 1.
        order: `file` keeps the order of the texts; `length` sorts by token count, which leaves little padding.
        pad_to: length every row gets; by default the longest row of its batch sets it.

    Raises:
        SettingError: no texts, an unknown order, or a batch size below 1.
    """
    return [_make_batch(encoder, texts, rows, pad_to) for rows in cut_rows(encoder, texts, batch_size, order)]


def _make_batch(encoder: Encoder, texts: Sequence[str], rows: NDArray[np.int64], pad_to: int | None) -> Batch:
    chosen = tuple(texts[row] for row in rows)
    tokens = encoder.tokenize(chosen, pad_to=pad_to)
    return Batch(tokens.input_ids, tokens.attention_mask, rows, chosen)


def cut_rows(encoder: Encoder, texts: Sequence[str], batch_size: int, order: Order = "file") -> list[NDArray[np.int64]]:
    """Positions of the rows of each batch; arguments and errors as for `make_batches`."""
    if batch_size < 1:
        raise SettingError(f"batch_size is {batch_size}: it must be at least 1.")
    if not len(texts):
        raise SettingError("there are no texts to cut into batches: give at least one row.")
    if order not in get_args(Order):
        raise SettingError(f"order is {order!r}: it must be one of {', '.join(get_args(Order))}.")
    rows = np.arange(len(texts), dtype=np.int64)
    if order == "length":
        rows = np.argsort(count_tokens(encoder, texts), kind="stable").astype(np.int64)
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def count_tokens(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.int64]:
    """Real tokens of each text, prefix and special tokens included: int64, `rows`."""
    counts = [
        encoder.tokenize(texts[start : start + _TEXTS_AT_ONCE]).attention_mask.sum(axis=1)
        for start in range(0, len(texts), _TEXTS_AT_ONCE)
    ]
    return cast("NDArray[np.int64]", np.concatenate(counts))


def restore_order(
    row_indices: Sequence[NDArray[np.int64]], values: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Put the batches' rows back into file order.

    Args:
        row_indices: `batch` of each batch, together a permutation of 0..rows-1.
        values: `batch ...` of each batch, in the same order of batches.

    Returns:
        `rows ...`.

    Raises:
        SettingError: the indices are no permutation, or a batch has more or fewer values than rows.
    """
    if [len(rows) for rows in row_indices] != [len(value) for value in values]:
        raise SettingError("cannot restore the order: the batches of values do not match the batches of rows.")
    positions = np.concatenate(row_indices)
    if not np.array_equal(np.sort(positions), np.arange(len(positions))):
        raise SettingError(f"cannot restore the order: {len(positions)} positions are no permutation of the rows.")
    ordered = np.concatenate(values)
    restored = np.empty_like(ordered)
    restored[positions] = ordered
    return restored
