"""Measures any protocol on any share of the rows, so that all arms of a block take turns on identical texts.

A run's share: the rows are split evenly over the runs, and in run i every arm gets the i-th share. Each row so goes
through each arm once, what is compared is compared on the same texts, and the run stays the unit of replication.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.measuring.alternation import alternate
from workbook.measuring.comparison.protocol import SENTENCE, Protocol
from workbook.measuring.corpus.batches import Batch, make_batches, restore_order
from workbook.measuring.offline.article_loop import run_article_loop
from workbook.measuring.offline.fast_batch import StreamPool, make_token_batches
from workbook.measuring.online.load import send_all
from workbook.measuring.online.scenario import Load
from workbook.measuring.online.shared_memory_client import send_through_shared_memory
from workbook.serving.arm_server import MOST_ROWS, served_models
from workbook.serving.encoder_server import ENCODER_MODEL

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.runs import Run
    from workbook.serving.handle import Server
    from workbook.serving.statistics import ModelStatistics
    from workbook.settings import Settings


def shares(texts: Sequence[str], runs: int, rows: int | None = None) -> list[tuple[str, ...]]:
    """The share of each run: consecutive rows, as even as possible; of each the first `rows` / `runs` where given."""
    whole = [tuple(texts[i] for i in part) for part in np.array_split(np.arange(len(texts)), runs)]
    most = len(texts) if rows is None else max(1, rows // runs)
    return [share[:most] for share in whole]


@dataclass(eq=False)
class Bench:
    """Everything arms are measured with.

    Attributes:
        encoder: with the prefix the model wants.
        exported: its ONNX file.
        server: serves the forms of `start_arm_server`.
        settings: threads, streams, batch size, device.
        run: where records go.
        embeddings: of each block and arm, one array a run, in the order of the share's rows.
        statistics: Triton's counters of each block and online arm, one a run.
    """

    encoder: Encoder
    exported: ExportedModel
    server: Server
    settings: Settings
    run: Run
    embeddings: dict[tuple[str, Protocol], list[NDArray[np.float32]]] = field(default_factory=dict, repr=False)
    statistics: dict[tuple[str, Protocol], list[ModelStatistics]] = field(default_factory=dict, repr=False)
    _warm: set[tuple[object, ...]] = field(default_factory=set, repr=False)
    _pools: dict[tuple[str, int], StreamPool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._without_prefix = replace(self.encoder, prefix="")

    def measure_block(
        self,
        block: str,
        protocols: Sequence[Protocol],
        texts: Sequence[tuple[str, ...]],
        others: Mapping[str, Callable[[int], None]] | None = None,
        *,
        progress: bool = True,
    ) -> None:
        """Measure every protocol on each run's share, in turn; records go to `records/<notebook>/<block>-<key>.csv`.

        Args:
            block: first part of the records' file names.
            protocols: the arms.
            texts: the share of each run.
            others: arms of another kind that take turns with them: name -> measures run i and keeps its own records.
            progress: show a progress bar.

        Raises:
            LoadError: an arm failed; records so far are kept.
            ServerError: the server died.
        """
        for protocol in protocols:
            self._warm_up(block, protocol, texts[0][: self.settings.batch_size])
        arms: dict[str, Callable[[int], None]] = {
            protocol.key: partial(self._measure_run, block, protocol, texts) for protocol in protocols
        }
        alternate({**arms, **(others or {})}, len(texts), progress=progress)

    def close(self) -> None:
        """Let go of the engines in this process, and of the memory they hold."""
        self._pools.clear()
        self.__dict__.pop("_session", None)
        self._warm.clear()

    def _warm_up(self, block: str, protocol: Protocol, texts: tuple[str, ...]) -> None:
        """A batch through the engine or served model that the arm uses, where none went through it yet."""
        used = (
            protocol.side,
            protocol.engine,
            protocol.precision,
            protocol.streams,
            protocol.way,
            protocol.single_rows,
        )
        if used not in self._warm:
            self._measure(block, protocol, texts, run=-1)
            self._warm.add(used)

    def _measure_run(self, block: str, protocol: Protocol, texts: Sequence[tuple[str, ...]], run: int) -> None:
        self._block = block
        found = self._measure(block, protocol, texts[run], run)
        self.embeddings.setdefault((block, protocol), [np.empty((0, 0), np.float32)] * len(texts))[run] = found

    def _measure(self, block: str, protocol: Protocol, texts: tuple[str, ...], run: int) -> NDArray[np.float32]:
        """One run of an arm; run -1 warms up what it needs and is recorded nowhere that counts."""
        path = self.run.records_path(f"{block}-{protocol.key}" if run >= 0 else "warm-up-" + protocol.side)
        if protocol.side == "online":
            batches = self._batches(texts, protocol)
            made = self._ask(protocol, batches, path, run)
        elif self._is_pooled(protocol):
            started_ns = time.perf_counter_ns()
            batches = self._batches(texts, protocol, cached=False)
            made = self._pool(protocol).run(batches, path, arm=protocol.label, run=run, started_ns=started_ns)
        else:
            batches = self._batches(texts, protocol)
            made = run_article_loop(
                self._encoder(protocol), batches, protocol, path, threads=self.settings.compute_threads,
                device=self.device(protocol), session=self._session, arm=protocol.label, run=run,
            )  # fmt: skip
        return restore_order([batch.row_index for batch in batches], made)

    def _ask(self, protocol: Protocol, batches: Sequence[Batch], path: Path, run: int) -> list[NDArray[np.float32]]:
        model = self._model(protocol)
        if protocol.way == "shared memory":
            return send_through_shared_memory(
                self.server, model, SENTENCE, self.exported.hidden_size, batches, path, arm=protocol.label, run=run
            )
        load = Load(model, concurrency=min(protocol.in_flight, 1024), outputs=protocol.outputs)
        result = send_all(
            self.server, load, batches, path, arm=protocol.label, run=run, keep_outputs=True, progress=False
        )
        if run >= 0:
            self.statistics.setdefault((self._block, protocol), []).append(result.statistics)
        return [outputs[protocol.outputs[-1]] for outputs in result.outputs or []]

    @cached_property
    def _session(self) -> InferenceSession:
        from workbook.models.sessions import open_session

        return open_session(self.exported.path, self.settings.compute_threads)

    def device(self, protocol: Protocol) -> str:
        """Where a batch arm computes: the exported model on the CPU, PyTorch on a GPU where it is asked to."""
        if protocol.engine != "torch" or self.settings.device == "cpu":
            return "cpu"
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    def _model(self, protocol: Protocol) -> str:
        streams, rows = served_models(self.server)
        if protocol.single_rows:
            return rows
        return streams if protocol.streams > 1 else ENCODER_MODEL

    def _encoder(self, protocol: Protocol) -> Encoder:
        return self.encoder if protocol.pooling == "mean" else self._without_prefix

    def _is_pooled(self, protocol: Protocol) -> bool:
        return protocol.engine == "openvino" or protocol.streams > 1 or protocol.cut == "tokens"

    def _pool(self, protocol: Protocol) -> StreamPool:
        wanted = protocol.engine, protocol.streams
        if wanted not in self._pools:
            self._pools[wanted] = StreamPool(
                protocol.engine, self.exported.path, protocol.streams, self.settings.compute_threads
            )
        return self._pools[wanted]

    def _batches(self, texts: tuple[str, ...], protocol: Protocol, *, cached: bool = True) -> list[Batch]:
        cut = _cut if cached else _cut.__wrapped__
        size = 1 if protocol.single_rows else self.settings.batch_size
        return cut(self._encoder(protocol), texts, protocol.cut, size, protocol.pad_to, self.settings.token_budget)


@lru_cache(maxsize=64)
def _cut(encoder: Encoder, texts: tuple[str, ...], cut: str, size: int, pad_to: int, token_budget: int) -> list[Batch]:
    if cut == "tokens":
        return make_token_batches(encoder, texts, token_budget, MOST_ROWS)
    return make_batches(encoder, texts, size, order="length" if cut == "length" else "file", pad_to=pad_to or None)


def min_cosine_between(left: Sequence[NDArray[np.float32]], right: Sequence[NDArray[np.float32]]) -> float:
    """Smallest cosine between rows of the same place over all runs; rows have length 1."""
    return min(float((a.astype(np.float64) * b).sum(axis=1).min()) for a, b in zip(left, right, strict=True) if len(a))
