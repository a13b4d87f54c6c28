"""What the benchmark sends: requests of one shape, and how many of them a cell of its table takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbook.errors import SettingError
from workbook.measuring.corpus.batches import Batch, make_batches

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder
    from workbook.settings import Settings

_TWEET_REQUESTS = 64
_SHAPE_REQUESTS = 8


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests of one shape.

    Attributes:
        name: as tables and figures call it.
        batches: sent in turn, again and again.
        timed: a cell is measured for a time; else it takes a few requests, since each takes long.
    """

    name: str
    batches: tuple[Batch, ...] = field(repr=False)
    timed: bool

    @property
    def batch_size(self) -> int:
        """Rows of a request."""
        return self.batches[0].rows

    @property
    def sequence_length(self) -> int:
        """Tokens of a row, padding included: the median over requests."""
        return int(np.median([batch.input_ids.shape[1] for batch in self.batches]))

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.batches)

    def requests_for(self, concurrency: int) -> list[Batch]:
        """Batches of a cell that is not timed: each client's first, and one more of the first client."""
        return [self.batches[number % len(self.batches)] for number in range(concurrency + 1)]


def tweets_workload(encoder: Encoder, texts: Sequence[str], rows: int) -> Workload:
    """Short tweets, `rows` in a request, padded to the longest of it: what an online service gets.

    Raises:
        SettingError: there are fewer texts than rows in a request.
    """
    if len(texts) < rows:
        raise SettingError(f"request_rows is {rows} and there are {len(texts)} texts: lower it, or raise rows.")
    requests = min(_TWEET_REQUESTS, len(texts) // rows)
    batches = make_batches(encoder, texts[: requests * rows], rows)
    return Workload("1 tweet" if rows == 1 else f"{rows} tweets", tuple(batches), timed=True)


def shape_workload(encoder: Encoder, texts: Sequence[str], rows: int, sequence_length: int) -> Workload:
    """Requests of one fixed shape, as the article's: every row padded (or cut) to the same length.

    Raises:
        SettingError: the encoder takes no rows of this length, or there are too few texts.
    """
    if sequence_length > encoder.max_length:
        raise SettingError(
            f"sequence_length is {sequence_length} and {encoder.name} takes {encoder.max_length} tokens: lower it."
        )
    if len(texts) < rows:
        raise SettingError(f"batch_size is {rows} and there are {len(texts)} texts: lower it, or raise rows.")
    whole = min(_SHAPE_REQUESTS, len(texts) // rows) * rows
    batches = make_batches(encoder, texts[:whole], rows, pad_to=sequence_length)
    return Workload(f"{rows} x {sequence_length}", tuple(batches), timed=False)


def workloads_of(encoder: Encoder, texts: Sequence[str], settings: Settings) -> tuple[Workload, Workload]:
    """The two workloads of the benchmark: tweets, and the fixed shape."""
    return (
        tweets_workload(encoder, texts, settings.request_rows),
        shape_workload(encoder, texts, settings.batch_size, settings.sequence_length),
    )
