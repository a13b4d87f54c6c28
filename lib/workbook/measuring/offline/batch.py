"""The offline arm: the article's loop over a PyTorch DataLoader, each stage timed apart, a record a batch.

The loop is that of the article the workbook re-measures: tokenise, infer, pool, in batches of 32. Unlike there, every
stage waits for the GPU before the clock is read, and the embedding ends as a NumPy array in this process's memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError, SettingError
from workbook.measuring.corpus.batches import Order, cut_rows, restore_order
from workbook.measuring.offline.engines import Engine, OnnxEngine, Pooling, Precision, torch_engine
from workbook.measuring.records import BATCH_COLUMNS, RecordWriter

if TYPE_CHECKING:
    import pandas as pd

    from workbook.models.e5 import Encoder

EngineName = Literal["torch", "onnxruntime"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class BatchJob:
    """How a batch job computes. Making one touches nothing.

    Attributes:
        engine: `torch` or `onnxruntime`.
        batch_size: rows in a batch, at least 1.
        order: `file`, or `length` to put rows of like length together.
        pad_to: length every row gets; None: the longest row of its batch.
        threads: threads to compute with, at least 1.
        device: `cpu`, `cuda`, or `auto`: a GPU where PyTorch sees one.
        precision: `fp32`, or `bf16` for PyTorch's autocast.
        pooling: `mean` (masked mean, L2 norm) or `cls` (the first token, as the article has it).
        warmup_batches: batches computed first and not recorded, at least 0.
    """

    engine: EngineName = "torch"
    batch_size: int = 32
    order: Order = "file"
    pad_to: int | None = None
    threads: int = 1
    device: Device = "cpu"
    precision: Precision = "fp32"
    pooling: Pooling = "mean"
    warmup_batches: int = 1

    def __post_init__(self) -> None:
        """Refuse values no job could have, naming the value and the bound."""
        choices = {"engine": EngineName, "order": Order, "device": Device, "precision": Precision, "pooling": Pooling}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise SettingError(f"{name} is {getattr(self, name)!r}: it must be one of {', '.join(get_args(kind))}.")
        for name, least in {"batch_size": 1, "threads": 1, "warmup_batches": 0}.items():
            if getattr(self, name) < least:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least {least}.")
        if self.engine == "onnxruntime" and self.precision != "fp32":
            raise SettingError("precision is 'bf16' and the exported model computes in fp32: set engine to torch.")


@dataclass(frozen=True, eq=False)
class BatchResult:
    """A finished batch job.

    Attributes:
        job: what was asked for, with the device it ran on.
        arm, run: as in the records.
        records: a row a batch, BATCH_COLUMNS, in order of computation.
        records_path: file the same records were appended to.
        embeddings: float32, `rows hidden`, in file order.
        ordering_s: time to sort by length before the first batch, s; 0 in file order.
        duration_s: from the start of the first batch to the last embedding, s.
    """

    job: BatchJob
    arm: str
    run: int
    records: pd.DataFrame
    records_path: Path
    embeddings: NDArray[np.float32] = field(repr=False)
    ordering_s: float
    duration_s: float

    @property
    def throughput_rows_per_s(self) -> float:
        """Rows per second, ordering and the DataLoader included."""
        return len(self.embeddings) / (self.duration_s + self.ordering_s)


def run_batch(
    encoder: Encoder,
    texts: Sequence[str],
    job: BatchJob,
    records_path: Path,
    *,
    model_path: Path | None = None,
    arm: str = "batch",
    run: int = 0,
    progress: bool = True,
) -> BatchResult:
    """Embed all texts, batch by batch.

    Args:
        encoder: tokenizer, and the model itself for `torch`.
        texts: the corpus, in file order.
        job: how to compute.
        records_path: CSV file of BATCH_COLUMNS that the records are appended to.
        model_path: the exported ONNX file; needed for `onnxruntime`.
        arm: written into the records.
        run: written into the records.
        progress: show a progress bar.

    Raises:
        SettingError: no texts, a GPU asked for where there is none, or no `model_path` for onnxruntime.
        LoadError: a batch failed; the records so far, and one of the failure, are in the file.
    """
    import pandas as pd

    job = _resolve_device(job)
    began_ns = time.perf_counter_ns()
    row_indices = cut_rows(encoder, texts, job.batch_size, job.order)
    ordering_ns = time.perf_counter_ns() - began_ns if job.order == "length" else 0
    with _engine(encoder, job, model_path) as engine, RecordWriter(records_path, BATCH_COLUMNS) as writer:
        loop = _Loop(encoder, engine, job, arm, run)
        for rows in row_indices[: job.warmup_batches]:
            loop.embed([texts[row] for row in rows])
        records, embeddings = loop.run(texts, row_indices, writer, progress)
    return BatchResult(
        job=job,
        arm=arm,
        run=run,
        records=pd.DataFrame(records, columns=list(BATCH_COLUMNS)).astype(dict(BATCH_COLUMNS)),
        records_path=records_path,
        embeddings=restore_order(row_indices, embeddings),
        ordering_s=ordering_ns / 1e9,
        duration_s=(records[-1]["pooled_ns"] - records[0]["start_ns"]) / 1e9,
    )


class _Loop:
    """The loop itself: batches in turn through the stages of one engine."""

    def __init__(self, encoder: Encoder, engine: Engine, job: BatchJob, arm: str, run: int) -> None:
        self._encoder = encoder
        self._engine = engine
        self._job = job
        self._same = {"arm": arm, "run": run}

    def run(
        self, texts: Sequence[str], row_indices: Sequence[NDArray[np.int64]], writer: RecordWriter, progress: bool
    ) -> tuple[list[dict[str, Any]], list[NDArray[np.float32]]]:
        """All batches in turn: the record and the embeddings of each."""
        from torch.utils.data import DataLoader
        from tqdm.auto import tqdm

        sampler: Any = [rows.tolist() for rows in row_indices]
        loader: Any = DataLoader(list(texts), batch_sampler=sampler, collate_fn=list)  # type: ignore[arg-type]
        records, embeddings = [], []
        title = f"{self._same['arm']} ({self._job.engine})"
        with tqdm(total=len(texts), unit="row", desc=title, leave=False, disable=not progress) as bar:
            for number, batch_texts in enumerate(loader):
                record, embedding = self._embed_recorded(number, row_indices[number], batch_texts, writer)
                records.append(record)
                embeddings.append(embedding)
                bar.update(len(batch_texts))
        return records, embeddings

    def embed(self, texts: Sequence[str]) -> tuple[dict[str, int], NDArray[np.float32]]:
        """One batch: what its record says of times and sizes, and its embeddings, float32 `batch hidden`."""
        start_ns = time.perf_counter_ns()
        tokens = self._encoder.tokenize(texts, pad_to=self._job.pad_to)
        tokenised_ns = time.perf_counter_ns()
        inferred = self._engine.infer(tokens)
        inferred_ns = time.perf_counter_ns()
        embedding = self._engine.pool(inferred)
        pooled_ns = time.perf_counter_ns()
        times = {"start_ns": start_ns, "tokenised_ns": tokenised_ns, "inferred_ns": inferred_ns, "pooled_ns": pooled_ns}
        return {**times, "real_tokens": tokens.real_tokens, "padded_tokens": tokens.padded_tokens}, embedding

    def _embed_recorded(
        self, number: int, rows: NDArray[np.int64], texts: Sequence[str], writer: RecordWriter
    ) -> tuple[dict[str, Any], NDArray[np.float32]]:
        batch = {**self._same, "batch": number, "first_row": int(rows[0]), "rows": len(rows)}
        start_ns = time.perf_counter_ns()
        try:
            measured, embedding = self.embed(texts)
        except Exception as error:  # out of memory, a damaged model, a bad text: the record says which batch it was
            text = f"{type(error).__name__}: {error}"
            ended = dict.fromkeys(("tokenised_ns", "inferred_ns", "pooled_ns"), time.perf_counter_ns())
            writer.append({**batch, **ended, "start_ns": start_ns, "real_tokens": 0, "padded_tokens": 0, "error": text})
            raise LoadError(
                f"batch {number} ({len(rows)} rows, from row {rows[0]}) failed: {text}. Records so far are kept."
            ) from error
        record = {**batch, **measured, "error": ""}
        writer.append(record)
        return record, embedding


def _resolve_device(job: BatchJob) -> BatchJob:
    if job.device != "auto":
        return job
    import torch

    return replace(job, device="cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def _engine(encoder: Encoder, job: BatchJob, model_path: Path | None) -> Iterator[Engine]:
    if job.engine == "torch":
        with torch_engine(encoder, job.threads, job.device, job.precision, job.pooling) as engine:
            yield engine
        return
    if model_path is None:
        raise SettingError("engine is 'onnxruntime' and there is no model_path: give the path of the exported model.")
    yield OnnxEngine(model_path, job.threads, job.device, job.pooling)
