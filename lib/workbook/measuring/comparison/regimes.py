"""The same comparison where it may come out otherwise: other batches, lengths, depths, outputs.

What decides is how much is computed for each byte that is sent. A shallow encoder that returns hidden states stands
here for the article's fast GPU, where a batch is done before its answer has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.measuring.alternation import order_of_runs
from workbook.measuring.comparison.protocol import HIDDEN, SENTENCE
from workbook.measuring.corpus.batches import Batch, make_batches
from workbook.measuring.floor import encoder_flop
from workbook.measuring.online.requests import prepare_requests
from workbook.measuring.online.transports import GrpcTransport

if TYPE_CHECKING:
    import pandas as pd

    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.serving.handle import Server

REGIME_COLUMNS = (
    "layers", "batch", "tokens", "output", "run", "flop_per_row", "bytes_per_row", "batch_ms", "online_ms", "batches"
)  # fmt: skip
LONG_ROWS = 4
"""Rows of a batch of long texts: the time for one is set by its tokens."""
_MOST_BATCHES = 200


@dataclass(frozen=True)
class Regime:
    """One point of the map.

    Attributes:
        layers: encoder layers.
        batch: rows a batch.
        length: tokens each row is padded to; 0: tweets as they are, padded to the longest.
        output: what comes back.
    """

    layers: int
    batch: int
    length: int = 0
    output: str = SENTENCE


def make_regimes(
    depths: Sequence[int], batches: Sequence[int], lengths: Sequence[int], batch_size: int
) -> list[Regime]:
    """Every depth with each batch of tweets, with each length at 4 rows, and with hidden states of both kinds."""
    found = []
    for layers in depths:
        found += [Regime(layers, batch) for batch in batches]
        found += [Regime(layers, min(LONG_ROWS, batch_size), length) for length in lengths]
        found += [Regime(layers, batch_size, 0, HIDDEN)]
        found += [Regime(layers, min(LONG_ROWS, batch_size), length, HIDDEN) for length in lengths[:1]]
    return list(dict.fromkeys(found))


def measure_regimes(
    regimes: Sequence[Regime],
    models: Mapping[int, tuple[Encoder, ExportedModel, str]],
    texts: Sequence[str],
    server: Server,
    *,
    threads: int,
    seconds: float,
    rounds: int,
    progress: bool = True,
) -> pd.DataFrame:
    """Both sides of each regime in turn, A B B A: the exported model in this process, and served, one in flight.

    Args:
        regimes: from `make_regimes`.
        models: layers -> encoder, its export, its name on the server.
        texts: where rows are taken from.
        server: serves those names.
        threads: of the session in this process.
        seconds: of each run, at least one batch.
        rounds: runs of each side.
        progress: show a progress bar.

    Returns:
        A row a regime and run with REGIME_COLUMNS: mean time of a batch on each side, ms, operations a row, and bytes a
        row there and back.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    session, opened = None, 0
    rows: list[dict[str, Any]] = []
    for regime in tqdm(regimes, unit="regime", disable=not progress, leave=False):
        encoder, exported, name = models[regime.layers]
        if opened != regime.layers:  # one at a time: each holds the whole vocabulary
            session, opened = _open(exported, threads), regime.layers
        batch = _batch(encoder, texts, regime)
        rows += _measure(regime, encoder, batch, session, server, name, seconds, rounds)
    return pd.DataFrame(rows, columns=list(REGIME_COLUMNS))


def _batch(encoder: Encoder, texts: Sequence[str], regime: Regime) -> Batch:
    """One batch of the regime; longer rows are made by putting texts one after the other."""
    needed = [texts[i % len(texts)] for i in range(regime.batch)]
    if regime.length:
        needed = [" ".join(texts[(i + j) % len(texts)] for j in range(regime.length // 8)) for i in range(regime.batch)]
    return make_batches(encoder, needed, regime.batch, pad_to=min(regime.length, encoder.max_length) or None)[0]


def _measure(
    regime: Regime, encoder: Encoder, batch: Batch, session: Any, server: Server, name: str, seconds: float, rounds: int
) -> list[dict[str, Any]]:
    prepared = prepare_requests(name, [batch], (regime.output,), "grpc")[0]
    transport = GrpcTransport(server.grpc_url, 120.0)
    transport.connect()
    try:
        answer = transport.send(prepared.message)
        sides: dict[str, Callable[[], Any]] = {
            "batch_ms": partial(session.run, [regime.output], dict(batch.inputs)),
            "online_ms": lambda: transport.send(prepared.message).decode(),
        }
        sides["batch_ms"]()  # warm-up; the server had its own above
        found: dict[int, dict[str, Any]] = {run: {} for run in range(rounds)}
        for run, side in order_of_runs(tuple(sides), rounds):
            found[run][side], found[run]["batches"] = _mean_ms(sides[side], seconds)
    finally:
        transport.close()
    same = {
        "layers": regime.layers,
        "batch": regime.batch,
        "tokens": int(batch.input_ids.shape[1]),
        "output": regime.output,
        "flop_per_row": encoder_flop(encoder, *batch.input_ids.shape) / batch.rows,
        "bytes_per_row": (prepared.body_bytes + answer.bytes) / batch.rows,
    }
    return [{**same, "run": run, **values} for run, values in found.items()]


def _mean_ms(call: Callable[[], Any], seconds: float) -> tuple[float, int]:
    """Mean time of a call, ms, and how many there were."""
    times_ns: list[int] = []
    started_ns = time.perf_counter_ns()
    while (not times_ns or time.perf_counter_ns() - started_ns < seconds * 1e9) and len(times_ns) < _MOST_BATCHES:
        before_ns = time.perf_counter_ns()
        call()
        times_ns.append(time.perf_counter_ns() - before_ns)
    return float(np.mean(times_ns) / 1e6), len(times_ns)


def _open(exported: ExportedModel, threads: int) -> Any:
    from workbook.models.sessions import open_session

    return open_session(exported.path, threads)
