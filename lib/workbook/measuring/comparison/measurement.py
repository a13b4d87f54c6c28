"""Measures the comparison of batch and online: what it needs, the arms in their turns, what is found beside records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from workbook.analysis.split import split_latency
from workbook.analysis.summaries import as_json_values
from workbook.errors import SettingError
from workbook.measuring.comparison.bench import Bench, min_cosine_between, shares
from workbook.measuring.comparison.blocks import (
    ARRIVALS,
    CEILING,
    MAIN,
    PEER,
    PLAIN,
    REGIMES,
    REPEATS,
    SWITCHES,
    main_arms,
)
from workbook.measuring.comparison.protocol import SENTENCE, Protocol
from workbook.measuring.comparison.switches import Plan, State, make_plan
from workbook.measuring.comparison.time_limit import ArmRows, fit_rows
from workbook.measuring.corpus.batches import make_batches
from workbook.measuring.floor import Floor, encoder_flop, predict_floor
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter, read_records
from workbook.runs import Run

if TYPE_CHECKING:
    from workbook.measuring.corpus.reading import Corpus
    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.settings import Settings

_TYPICAL_TOKENS = 40
"""Length of a tweet, tokens; attention's share of the operations hardly depends on it."""


@dataclass(eq=False)
class Work:
    """What measuring needs.

    Attributes:
        settings: of the notebook.
        corpus: the rows of every arm.
        encoder, exported: the model, in PyTorch and as ONNX.
        depths: exports of the encoder cut to fewer layers, by their number.
        floor: what the work must cost at least on this machine.
        rows: through the main arms, all of the corpus, and of them through the switches.
        model_load_s: what a job waits for before its first batch, s.
    """

    settings: Settings
    corpus: Corpus
    encoder: Encoder
    exported: ExportedModel
    depths: dict[int, ExportedModel]
    floor: Floor
    rows: ArmRows
    model_load_s: float


def prepare(settings: Settings) -> Work:
    """Read the corpus, load and export the model, and predict the floor.

    Raises:
        SettingError: fewer rows than runs.
        CorpusError, ModelError: the corpus or the model cannot be read.
    """
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.models.e5 import first_layers, load_encoder
    from workbook.models.export import export_onnx
    from workbook.models.sessions import open_session

    corpus = load_corpus(settings.corpus, text_column=settings.text_column, rows=settings.rows, seed=settings.seed)
    if len(corpus.texts) < settings.repeats:
        raise SettingError(f"{len(corpus.texts)} rows for {settings.repeats} runs: give each run a row at least.")
    started_ns = time.perf_counter_ns()
    encoder = load_encoder(settings.model, layers=settings.layers, max_length=settings.max_length)
    loaded_ns = time.perf_counter_ns()
    exported = export_onnx(encoder)
    ready_ns = time.perf_counter_ns()
    open_session(exported.path, settings.compute_threads)
    load_s = (loaded_ns - started_ns + time.perf_counter_ns() - ready_ns) / 1e9  # a job loads both; export is kept
    depths = {}
    for layers in settings.depths:
        if layers < encoder.layers:
            depths[layers] = export_onnx(first_layers(encoder, layers))
    batches = make_batches(encoder, corpus.texts, settings.batch_size)
    floor = predict_floor(encoder, batches, settings.compute_threads, settings.device, seconds=settings.regime_s)
    rows = _rows_in_time(settings, encoder, floor)
    if rows.main < len(corpus.texts):
        corpus = load_corpus(settings.corpus, text_column=settings.text_column, rows=rows.main, seed=settings.seed)
        floor = floor.of(encoder, make_batches(encoder, corpus.texts, settings.batch_size))
    return Work(settings, corpus, encoder, exported, depths, floor, rows, load_s)


def _rows_in_time(settings: Settings, encoder: Encoder, floor: Floor) -> ArmRows:
    def flop_per_row(arm: Protocol) -> float:
        return encoder_flop(encoder, 1, arm.pad_to) if arm.pad_to else floor.flop / floor.rows

    return fit_rows(
        ArmRows(floor.rows, settings.switch_rows),
        make_plan(**_plan_options(settings, encoder)),
        flop_per_row,
        floor.ceiling_flop_per_s,
        limit_s=settings.arms_limit_s,
        step=settings.repeats * settings.batch_size,
    )


def facts_before(work: Work) -> dict[str, Any]:
    """What is known before anything is measured, as JSON values."""
    settings = work.settings
    return {
        "plan": _plan_options(settings, work.encoder),
        "batch_size": settings.batch_size,
        "repeats": settings.repeats,
        "rows": len(work.corpus.texts),
        "switch_rows": work.rows.switches,
        "corpus": work.corpus.source,
        "corpus_measures": as_json_values(work.corpus.describe()),
        "corpus_repairs": as_json_values(work.corpus.report),
        "flop": work.floor.flop,
        "flop_per_padded_token": encoder_flop(work.encoder, 1, _TYPICAL_TOKENS) / _TYPICAL_TOKENS,
        "ceiling_flop_per_s": work.floor.ceiling_flop_per_s,
        "model_load_s": work.model_load_s,
        "prediction": f"{work.floor.sentence} {work.rows.note}".strip(),
    }


def _plan_options(settings: Settings, encoder: Encoder) -> dict[str, Any]:
    from workbook.serving.server import resolve_kind

    on_gpu = _on_gpu(settings)
    pad_to = settings.article_pad_to
    streams = settings.compute_streams
    return {
        "on_gpu": on_gpu,
        "precision": _article_precision(settings, on_gpu),
        "pad_to": min(pad_to, encoder.max_length) if pad_to else 0,
        "streams": streams,
        "in_flight": streams + 1 if streams > 1 else 2,
        "batch_size": settings.batch_size,
        "shared_memory": resolve_kind(settings.server) == "embedded",
    }


def _on_gpu(settings: Settings) -> bool:
    if settings.device == "cpu":
        return False
    import torch

    return torch.cuda.is_available()


def _article_precision(settings: Settings, on_gpu: bool) -> str:
    from workbook.models.processor import has_bf16_instructions

    if settings.article_precision != "auto":
        return settings.article_precision
    return "bf16" if on_gpu or has_bf16_instructions() else "fp32"


def measure(work: Work, plan: Plan, run: Run, *, progress: bool) -> dict[str, Any]:
    """Measure every arm, in turn on the same rows, into the run's records; the rest comes back as facts.

    Raises:
        LoadError: an arm failed; the records so far are in the run directory.
        ServerError: the server died; the message holds the end of its log.
    """
    from workbook.measuring.comparison.regimes import make_regimes, measure_regimes
    from workbook.measuring.comparison.repeats_and_arrivals import measure_arrivals, measure_repeats
    from workbook.serving.arm_server import ROWS_MODEL, depth_model, start_arm_server
    from workbook.serving.encoder_server import ENCODER_MODEL

    settings, texts = work.settings, work.corpus.texts
    with start_arm_server(work.encoder, work.exported, settings, run, depths=work.depths) as server:
        bench = Bench(work.encoder, work.exported, server, settings, run)
        arms = main_arms(plan)
        whole = shares(texts, settings.repeats)
        peer_name, others, peer_embeddings = _others(bench, work, whole)
        bench.measure_block(MAIN, list(dict.fromkeys(arms.values())), whole, others, progress=progress)
        first = shares(texts, settings.repeats, work.rows.switches)
        plain = {PLAIN: partial(_plain, bench, plan.fair_state, first)}
        others = {}  # lets go of the library to beat and its copy of the weights
        bench.measure_block(SWITCHES, plan.arms(), first, plain, progress=progress)
        bench.close()
        models = {work.encoder.layers: (work.encoder, work.exported, ENCODER_MODEL)}
        models |= {
            layers: (replace(work.encoder, layers=layers), exported, depth_model(layers))
            for layers, exported in work.depths.items()
            if depth_model(layers) in server.models  # a remote server has no cut encoders
        }
        regimes = make_regimes(sorted(models), settings.regime_batches, settings.regime_lengths, settings.batch_size)
        measure_regimes(
            regimes, models, texts, server, threads=settings.compute_threads, seconds=settings.regime_s,
            rounds=settings.regime_rounds, progress=progress,
        ).to_csv(run.records_path(REGIMES), index=False)  # fmt: skip
        shallow = models[min(models)]
        measure_repeats(
            server, shallow[2], make_batches(work.encoder, texts[:64], 1), settings, run.records_path(REPEATS)
        )
        rows_model = ROWS_MODEL if ROWS_MODEL in server.models else ENCODER_MODEL
        arrivals = measure_arrivals(
            server, rows_model, make_batches(work.encoder, texts[:256], 1), settings, run.records_path(ARRIVALS)
        )
        split = _fair_split(bench, arms["fair online"], run)
    reference = bench.embeddings[MAIN, arms["fair PyTorch"]]
    cosines = {
        name: min_cosine_between(reference, bench.embeddings[MAIN, arm])
        for name, arm in arms.items()
        if arm.pooling == "mean"
    }
    return {
        "peer": peer_name,
        "cosines": {**cosines, peer_name: min_cosine_between(reference, peer_embeddings)},
        "arrivals": arrivals,
        "fair_split": split,
    }


def _others(
    bench: Bench, work: Work, whole: Sequence[tuple[str, ...]]
) -> tuple[str, Mapping[str, Callable[[int], None]], list[Any]]:
    """The arms that are no protocol: the library to beat, and the bare matrix product."""
    from workbook.measuring.offline.engines import torch_threads
    from workbook.measuring.offline.peers import open_peer

    name, encode = open_peer(work.encoder, work.settings.batch_size, "cuda" if _on_gpu(work.settings) else "cpu")
    embeddings: list[Any] = [None] * len(whole)

    def peer(run: int) -> None:
        with torch_threads(work.settings.compute_threads):
            started_ns = time.perf_counter_ns()
            embeddings[run] = encode(whole[run])
            seconds = (time.perf_counter_ns() - started_ns) / 1e9
        _append(bench.run, PEER, {"run": run, "rows": len(whole[run]), "seconds": seconds})

    def ceiling(run: int) -> None:
        _append(bench.run, CEILING, {"run": run, "flop_per_s": work.floor.measure()})

    with torch_threads(work.settings.compute_threads):
        encode(whole[0][: work.settings.batch_size])  # warm-up
    return name, {PEER: peer, CEILING: ceiling}, embeddings


def _plain(bench: Bench, fair: State, texts: Sequence[tuple[str, ...]], run: int) -> None:
    from workbook.measuring.online.plain_check import plain_client_seconds
    from workbook.serving.encoder_server import ENCODER_MODEL

    batches = make_batches(bench.encoder, texts[run], bench.settings.batch_size)
    seconds = plain_client_seconds(bench.server.grpc_url, ENCODER_MODEL, batches, SENTENCE)
    _append(bench.run, PLAIN, {"run": run, "rows": len(texts[run]), "seconds": seconds})


def _append(run: Run, name: str, row: Mapping[str, Any]) -> None:
    with RecordWriter(run.records_path(name), dict.fromkeys(row, "float64")) as writer:
        writer.append(row)


def _fair_split(bench: Bench, protocol: Protocol, run: Run) -> dict[str, Any]:
    records = read_records(run.records_path(f"{MAIN}-{protocol.key}"), REQUEST_COLUMNS)
    split = split_latency(records, reduce(add, bench.statistics[MAIN, protocol]))
    return {
        "mean_ms": split.mean_ms,
        "parts_ms": split.parts_ms,
        "requests": split.requests,
        "server_requests": split.server_requests,
        "note": split.note,
    }
