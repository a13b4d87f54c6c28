"""The fastest exact batch job: rows sorted by length, batches of equal tokens, one stream for each processor.

Three things cost a plain loop its speed. Padding: sorted rows need next to none. Threads that wait for one another
inside each operator: two models on one thread each never wait. Batches of unequal work: cut by tokens, each fits the
processor's cache and takes about as long as the next. None of them changes the answer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError, SettingError
from workbook.measuring.comparison.protocol import SENTENCE
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.records import BATCH_COLUMNS, RecordWriter, batch_record

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder

Compute = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""Ids and mask, `batch sequence` -> sentence embeddings, `batch hidden`."""

_TEXTS_AT_ONCE = 2048


def cut_by_tokens(
    lengths: Sequence[int] | NDArray[np.int64], token_budget: int, most_rows: int
) -> list[NDArray[np.int64]]:
    """Positions of the rows of each batch: sorted by length, longest first, at most so many padded tokens in each.

    The longest first, so that the streams end together: the last batches are the quickest. A single row longer than the
    budget is a batch of its own.

    Args:
        lengths: tokens of each row.
        token_budget: most rows x longest row in a batch.
        most_rows: most rows in a batch.

    Raises:
        SettingError: a budget or a number of rows below 1, or no rows.
    """
    counts = np.asarray(lengths)
    if token_budget < 1 or most_rows < 1 or not len(counts):
        raise SettingError(
            f"{len(counts)} rows, {token_budget} tokens, {most_rows} rows a batch: each must be at least 1."
        )
    ordered = np.argsort(-counts, kind="stable").astype(np.int64)
    batches, start = [], 0
    while start < len(ordered):
        rows = min(most_rows, max(1, token_budget // int(counts[ordered[start]])))
        batches.append(ordered[start : start + rows])
        start += rows
    return batches


def make_token_batches(encoder: Encoder, texts: Sequence[str], token_budget: int, most_rows: int) -> list[Batch]:
    """Batches of `cut_by_tokens`; every text is tokenised once, for both its length and its ids.

    Raises:
        SettingError: as `cut_by_tokens`.
    """
    parts = [encoder.tokenize(texts[start : start + _TEXTS_AT_ONCE]) for start in range(0, len(texts), _TEXTS_AT_ONCE)]
    ids = [row for part in parts for row in part.input_ids]
    masks = [row for part in parts for row in part.attention_mask]
    lengths = np.array([int(mask.sum()) for mask in masks])
    batches = []
    for rows in cut_by_tokens(lengths, token_budget, most_rows):
        longest = int(lengths[rows[0]])
        batches.append(
            Batch(
                np.stack([ids[row][:longest] for row in rows]),
                np.stack([masks[row][:longest] for row in rows]),
                rows,
                tuple(texts[row] for row in rows),
            )
        )
    return batches


class StreamPool:
    """Copies of the exported model in this process, each with its share of the threads.

    Args:
        engine: `onnxruntime` or `openvino`.
        path: the exported model.
        streams: copies that compute side by side.
        threads: of all streams together, at least one each.
        output: which output they make.
    """

    def __init__(self, engine: str, path: Path, streams: int, threads: int, output: str = SENTENCE) -> None:
        if engine not in _OPENERS:
            raise SettingError(f"engine is {engine!r}: streams compute with {' or '.join(_OPENERS)}.")
        self.computes = _OPENERS[engine](path, streams, max(1, threads // streams), output)

    def run(
        self,
        batches: Sequence[Batch],
        records_path: Path,
        *,
        arm: str = "batch",
        run: int = 0,
        started_ns: int | None = None,
    ) -> list[NDArray[np.float32]]:
        """Compute all batches, whichever stream is free taking the next one; a record a batch is appended.

        Args:
            batches: in the order they are taken.
            records_path: CSV file of BATCH_COLUMNS; `start_ns` of the first record is `started_ns`.
            arm: written into the records.
            run: written into the records.
            started_ns: when the job began, with tokenising before the first batch; None: now.

        Returns:
            The embeddings of each batch: float32, `batch hidden`.

        Raises:
            LoadError: a batch failed.
        """
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(batches)):
            waiting.put(number)
        embeddings: list[NDArray[np.float32] | None] = [None] * len(batches)
        failures: list[str] = []

        def work(compute: Compute) -> None:
            while not failures:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                batch = batches[number]
                taken_ns = time.perf_counter_ns()
                try:
                    embeddings[number] = compute(batch.input_ids, batch.attention_mask)
                except Exception as error:  # each library has its own classes
                    failures.append(f"batch {number} failed: {type(error).__name__}: {error}")
                    return
                done_ns = time.perf_counter_ns()
                began_ns = taken_ns if number or started_ns is None else started_ns
                times_ns = (began_ns, taken_ns, done_ns, done_ns)
                writer.append(batch_record(arm, run, number, batch.first_row, times_ns, batch))

        with RecordWriter(records_path, BATCH_COLUMNS) as writer:
            threads = [threading.Thread(target=work, args=(compute,), daemon=True) for compute in self.computes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise LoadError(f"{failures[0]}. Records so far are kept.")
        return cast("list[NDArray[np.float32]]", embeddings)


def _open_onnxruntime(path: Path, streams: int, threads: int, output: str) -> list[Compute]:
    from workbook.models.sessions import open_session

    def compute_with(session: Any) -> Compute:
        return lambda ids, mask: session.run([output], {"input_ids": ids, "attention_mask": mask})[0]

    if threads == 1:  # a session without threads of its own computes on the thread that asks: all can share its weights
        return [compute_with(open_session(path, 1))] * streams
    return [compute_with(open_session(path, threads)) for _ in range(streams)]


def _open_openvino(path: Path, streams: int, threads: int, output: str) -> list[Compute]:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",  # left to itself it computes in bf16 where the processor can
        "INFERENCE_NUM_THREADS": threads * streams,
        "NUM_STREAMS": streams,
    }
    compiled = openvino.Core().compile_model(path, "CPU", settings)

    def compute_with(request: Any) -> Compute:
        # copied: the next batch computes into the same memory
        return lambda ids, mask: np.array(
            request.infer({"input_ids": ids, "attention_mask": mask}, share_inputs=True)[output]
        )

    computes = [compute_with(compiled.create_infer_request()) for _ in range(streams)]
    token = np.ones((1, 2), np.int64)
    for compute in computes:  # one after the other: first calls from two threads at once can block each other for ever
        compute(token, token)
    return computes


_OPENERS = {"onnxruntime": _open_onnxruntime, "openvino": _open_openvino}
