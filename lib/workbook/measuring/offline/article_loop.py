"""The article's batch loop, with each of its habits as a switch: where the clock stops, what the result ends as.

The article's code tokenises, calls the model under bf16 autocast, takes the first token's hidden state, moves it to
the CPU, makes Python lists of it, and reads the clock in between without waiting for the GPU. Here the same loop can be
run with any of that changed, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import LoadError
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.offline.engines import torch_threads
from workbook.measuring.records import BATCH_COLUMNS, RecordWriter, batch_record

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from workbook.models.e5 import Encoder, Tokens

Infer = Callable[["Tokens"], Any]
Pool = Callable[[Any], Any]


def run_article_loop(
    encoder: Encoder,
    batches: Sequence[Batch],
    protocol: Protocol,
    records_path: Path,
    *,
    threads: int,
    device: str = "cpu",
    session: InferenceSession | None = None,
    arm: str = "batch",
    run: int = 0,
) -> list[NDArray[np.float32]]:
    """Run the loop over the texts of the batches; a record a batch is appended to the file.

    Args:
        encoder: with the prefix the protocol wants.
        batches: give the texts of each batch; they are tokenised anew, inside the loop.
        protocol: a batch arm that computes in one stream.
        records_path: CSV file of BATCH_COLUMNS.
        threads: to compute with.
        device: `cpu` or `cuda`.
        session: of the exported model, for onnxruntime.
        arm: written into the records.
        run: written into the records.

    Returns:
        The embeddings of each batch: float32, `batch hidden`.

    Raises:
        LoadError: a batch failed; the records so far are in the file.
    """
    embeddings: list[NDArray[np.float32]] = []
    with (
        _stages(encoder, protocol, threads, device, session) as (infer, pool),
        RecordWriter(records_path, BATCH_COLUMNS) as writer,
    ):
        for number, batch in enumerate(batches):
            start_ns = time.perf_counter_ns()
            try:
                tokens = encoder.tokenize(batch.texts, pad_to=protocol.pad_to or None)
                tokenised_ns = time.perf_counter_ns()
                inferred = infer(tokens)
                inferred_ns = time.perf_counter_ns()
                pooled = pool(inferred)
                pooled_ns = time.perf_counter_ns()
            except Exception as error:
                raise LoadError(
                    f"batch {number} failed: {type(error).__name__}: {error}. Records so far are kept."
                ) from error
            times_ns = (start_ns, tokenised_ns, inferred_ns, pooled_ns)
            writer.append(batch_record(arm, run, number, batch.first_row, times_ns, tokens))
            embeddings.append(np.asarray(pooled, np.float32))
    return embeddings


@contextmanager
def _stages(
    encoder: Encoder, protocol: Protocol, threads: int, device: str, session: InferenceSession | None
) -> Iterator[tuple[Infer, Pool]]:
    """The two stages after tokenising, as the protocol has them."""
    if protocol.engine != "torch":
        assert session is not None  # who measures has opened it
        yield _exported_stages(session, protocol)
        return
    with torch_threads(threads), _moved(encoder, device):
        yield _torch_stages(encoder, protocol, device)


def _torch_stages(encoder: Encoder, protocol: Protocol, device: str) -> tuple[Infer, Pool]:
    import torch

    from workbook.models.e5 import mean_pool

    waits = device == "cuda" and protocol.clock == "in memory"

    def infer(tokens: Tokens) -> Any:
        ids = torch.from_numpy(tokens.input_ids).to(device)
        mask = torch.from_numpy(tokens.attention_mask).to(device)
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=protocol.precision == "bf16"):
            hidden = encoder.module(ids, mask).last_hidden_state
        if waits:
            torch.cuda.synchronize()
        return hidden, mask

    def pool(inferred: Any) -> Any:
        hidden, mask = inferred
        with torch.inference_mode():
            pooled = mean_pool(hidden, mask) if protocol.pooling == "mean" else hidden[:, 0, :]
            on_cpu = pooled.detach().cpu()
        return on_cpu.tolist() if protocol.as_list else on_cpu.float().numpy()

    return infer, pool


def _exported_stages(session: InferenceSession, protocol: Protocol) -> tuple[Infer, Pool]:
    names = list(protocol.outputs)

    def infer(tokens: Tokens) -> Any:
        return session.run(names, tokens.inputs)[-1]

    return infer, (lambda inferred: inferred.tolist()) if protocol.as_list else (lambda inferred: inferred)


@contextmanager
def _moved(encoder: Encoder, device: str) -> Iterator[None]:
    before = next(encoder.module.parameters()).device
    encoder.module.to(device)
    try:
        yield
    finally:
        encoder.module.to(before)
