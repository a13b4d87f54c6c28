"""The arms of the comparison: the same rows through a batch job and through a server, in turn, on equal conditions.

Every arm starts from token ids in this process's memory and ends with sentence embeddings as a NumPy array in this
process's memory. Tokenising is the same work in each arm and is timed apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from workbook.analysis.split import LatencySplit, split_latency
from workbook.analysis.summaries import latency_table
from workbook.measuring.alternation import alternate
from workbook.measuring.batch import BatchJob, BatchResult, Device, EngineName, run_batch
from workbook.measuring.batches import Batch, make_batches, restore_order
from workbook.measuring.conditions import Arm, Conditions
from workbook.measuring.load import send_all
from workbook.measuring.scenario import Load, LoadResult
from workbook.serving.encoder_server import ENCODER_MODEL

if TYPE_CHECKING:
    import pandas as pd

    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.runs import Run
    from workbook.serving.handle import Server
    from workbook.settings import Settings

BATCH_TORCH = "PyTorch batch"
BATCH_ONNX = "ONNX Runtime batch"
ONLINE = "Triton online"
SCOPE = "token ids in memory -> sentence embeddings as a NumPy array in the client"
_WARM_UP_BATCHES = 2


@dataclass(frozen=True, eq=False)
class ArmRuns:
    """All runs of one arm.

    Attributes:
        arm: name, throughput of each run and conditions, as `analysis.comparison` takes them.
        records: raw records of all runs, BATCH_COLUMNS or REQUEST_COLUMNS.
        embeddings: of the first run, float32, `rows hidden`, in file order.
        results: what each run gave, in order.
    """

    arm: Arm
    records: pd.DataFrame
    embeddings: NDArray[np.float32] = field(repr=False)
    results: tuple[BatchResult | LoadResult, ...] = field(repr=False)


def measure_arms(
    encoder: Encoder,
    exported: ExportedModel,
    texts: Sequence[str],
    server: Server,
    settings: Settings,
    run: Run,
    *,
    progress: bool = True,
) -> dict[str, ArmRuns]:
    """Send the same rows through three arms, `settings.repeats` times each, alternating.

    The arms: the PyTorch loop, the same loop around the exported model (so that the engine's share of the difference
    shows), and Triton serving that model to one client. Batch size, padding, precision, threads and outputs are equal.

    Returns:
        The runs of each arm by its name: BATCH_TORCH, BATCH_ONNX, ONLINE.

    Raises:
        LoadError: a batch or all requests failed; the records so far are in the run directory.
        ServerError: the server died; the message holds the end of its log.
    """
    batches = make_batches(encoder, texts, settings.batch_size)
    load = Load(ENCODER_MODEL, concurrency=1, outputs=("sentence_embedding",))
    send_all(server, load, batches[:_WARM_UP_BATCHES], run.records_path("warm_up"), arm="warm-up", progress=False)

    def batch(engine: EngineName, name: str, number: int) -> BatchResult:
        job = BatchJob(engine, settings.batch_size, threads=settings.compute_threads, device=_device(settings, engine))
        path = run.records_path(f"batch_{engine}")
        return run_batch(encoder, texts, job, path, model_path=exported.path, arm=name, run=number, progress=progress)

    def online(number: int) -> LoadResult:
        path = run.records_path("online")
        return send_all(
            server, load, batches, path, arm=ONLINE, run=number, keep_outputs=number == 0, progress=progress
        )

    arms: dict[str, Callable[[int], BatchResult | LoadResult]] = {
        BATCH_TORCH: partial(batch, "torch", BATCH_TORCH),
        ONLINE: online,
        BATCH_ONNX: partial(batch, "onnxruntime", BATCH_ONNX),
    }
    results = alternate(arms, settings.repeats, progress=progress)
    conditions = partial(_conditions, encoder, batches, settings)
    return {
        BATCH_TORCH: _batch_runs(BATCH_TORCH, results[BATCH_TORCH], conditions(engine="torch", serving="loop")),
        BATCH_ONNX: _batch_runs(BATCH_ONNX, results[BATCH_ONNX], conditions(engine="onnxruntime", serving="loop")),
        ONLINE: _online_runs(results[ONLINE], batches, conditions(engine="onnxruntime", serving="triton")),
    }


def throughput_table(arms: Mapping[str, ArmRuns]) -> pd.DataFrame:
    """Throughput over `SCOPE`: `label`, `run`, `rows_per_s`, a row each run, as `plots.throughput_bars` takes it."""
    import pandas as pd

    rows = [(name, run, rate) for name, runs in arms.items() for run, rate in enumerate(runs.arm.rows_per_s)]
    return pd.DataFrame(rows, columns=["label", "run", "rows_per_s"])


def latencies_from_tokens(arms: Mapping[str, ArmRuns]) -> pd.DataFrame:
    """Time a batch or request over `SCOPE`, in the columns of `summaries.latency_table`.

    A batch record's clock starts before tokenising; it is set to where the token ids are ready, as in a request.
    """
    frames = [runs.records for runs in arms.values()]
    return latency_table(
        *(frame.assign(start_ns=frame["tokenised_ns"]) if "tokenised_ns" in frame else frame for frame in frames)
    )


def online_split(runs: ArmRuns) -> LatencySplit:
    """Where the mean latency of the online arm went, all its runs together."""
    statistics = [result.statistics for result in runs.results if isinstance(result, LoadResult)]
    return split_latency(runs.records, reduce(add, statistics))


def rows_per_s_from_tokens(records: pd.DataFrame) -> float:
    """Throughput of a batch job over `SCOPE`: rows / sum of (pooled - tokenised), tokenising left out."""
    computing_ns = (records["pooled_ns"] - records["tokenised_ns"]).sum()
    return float(records["rows"].sum() / computing_ns * 1e9)


def min_cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """Smallest cosine between rows of the same position; both `rows hidden`, each row of length 1."""
    return float((left.astype(np.float64) * right).sum(axis=1).min())


def _device(settings: Settings, engine: EngineName) -> Device:
    return cast("Device", settings.device) if engine == "torch" else "cpu"


def _conditions(
    encoder: Encoder, batches: Sequence[Batch], settings: Settings, *, engine: str, serving: str
) -> Conditions:
    return Conditions(
        model=encoder.fingerprint,
        rows=sum(batch.rows for batch in batches),
        real_tokens=sum(batch.real_tokens for batch in batches),
        padded_tokens=sum(batch.padded_tokens for batch in batches),
        batch_size=settings.batch_size,
        padding="longest of the batch",
        precision="fp32",
        engine=engine,
        outputs="sentence_embedding",
        transport="grpc" if serving == "triton" else "in-process",
        concurrency=1,
        threads=settings.compute_threads,
        scope=SCOPE,
        serving=serving,
    )


def _batch_runs(name: str, results: Sequence[BatchResult | LoadResult], conditions: Conditions) -> ArmRuns:
    done = [result for result in results if isinstance(result, BatchResult)]
    rates = tuple(rows_per_s_from_tokens(result.records) for result in done)
    return ArmRuns(Arm(name, rates, conditions), _all_records(results), done[0].embeddings, tuple(results))


def _online_runs(
    results: Sequence[BatchResult | LoadResult], batches: Sequence[Batch], conditions: Conditions
) -> ArmRuns:
    done = [result for result in results if isinstance(result, LoadResult)]
    rates = tuple(result.throughput_rows_per_s for result in done)
    kept = [outputs["sentence_embedding"] for outputs in done[0].outputs or []]
    embeddings = restore_order([batch.row_index for batch in batches], kept)
    return ArmRuns(Arm(ONLINE, rates, conditions), _all_records(results), embeddings, tuple(results))


def _all_records(results: Sequence[BatchResult | LoadResult]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([result.records for result in results], ignore_index=True)
