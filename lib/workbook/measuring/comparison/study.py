"""The whole comparison of batch and online: measured once, kept as records and facts, read back without a server.

`open_study` either prepares a measurement or, with the parameter `replay`, opens an earlier one. What comes after reads
the records in either case, so a figure drawn again is the same figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.analysis.split import LatencySplit, split_latency
from workbook.analysis.summaries import as_json_values
from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.measuring.comparison.bench import Bench, min_cosine_between, shares
from workbook.measuring.comparison.protocol import SENTENCE, Protocol
from workbook.measuring.comparison.switches import Plan, State, make_plan
from workbook.measuring.corpus.batches import make_batches
from workbook.measuring.floor import Floor, encoder_flop, predict_floor
from workbook.measuring.records import BATCH_COLUMNS, REQUEST_COLUMNS, RecordWriter, read_records
from workbook.runs import Run, read_json, runs_dir, write_json

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.corpus.reading import Corpus
    from workbook.models.e5 import Encoder
    from workbook.models.export import ExportedModel
    from workbook.settings import Settings

MAIN, SWITCHES = "main", "switch"
PEER, CEILING, PLAIN, REGIMES, ARRIVALS, REPEATS = "peer", "ceiling", "plain", "regimes", "arrivals", "repeats"
_FACTS = "study.json"
_TYPICAL_TOKENS = 40
"""Length of a tweet, tokens; attention's share of the operations hardly depends on it."""


@dataclass(eq=False)
class Study:
    """A measured comparison, or one that is about to be measured.

    Attributes:
        source: where records are read from.
        facts: what was found beside records, JSON values.
        plan: the arms and the switches between them.
        work: what measuring needs; None where a study was opened from its records.
    """

    source: Run
    facts: dict[str, Any] = field(repr=False)
    plan: Plan = field(repr=False)
    work: _Work | None = field(default=None, repr=False)

    @property
    def replayed_from(self) -> str:
        """Name of the run whose records are shown; empty where this run measured them."""
        return "" if self.work else self.source.directory.resolve().name

    @property
    def batch_size(self) -> int:
        """Rows of a batch: times are given for so many."""
        return int(self.facts["batch_size"])

    @property
    def runs(self) -> int:
        """Runs of each arm."""
        return int(self.facts["repeats"])

    def measure(self, *, progress: bool = True) -> None:
        """Measure everything and keep it; of an opened study nothing is measured.

        Raises:
            LoadError: an arm failed; the records so far are in the run directory.
            ServerError: the server died; the message holds the end of its log.
        """
        if self.work:
            for earlier in _facts_path(self.source).parent.glob("*.csv"):  # the cell was run before: measure afresh
                earlier.unlink()
            self.facts.update(_measure(self.work, self.plan, self.source, progress))
            self.keep_facts()

    def keep_facts(self) -> None:
        """Write the facts beside the records."""
        write_json(_facts_path(self.source), self.facts)

    def corpus_table(self, name: str) -> pd.DataFrame:
        """What was read: its `measures`, or the `repairs` that rows needed."""
        import pandas as pd

        return pd.DataFrame(self.facts[f"corpus_{name}"])

    def records(self, block: str, protocol: Protocol) -> pd.DataFrame:
        """Raw records of an arm: BATCH_COLUMNS or REQUEST_COLUMNS."""
        columns = REQUEST_COLUMNS if protocol.side == "online" else BATCH_COLUMNS
        return read_records(self.source.records_path(f"{block}-{protocol.key}"), columns)

    def batch_ms(self, block: str, protocol: Protocol) -> tuple[float, ...]:
        """Time for `batch_size` rows in each run, ms, by the protocol's own clock."""
        records = self.records(block, protocol)
        return tuple(
            busy_ms(run, protocol) / int(run["rows"].sum()) * self.batch_size
            for _, run in records.groupby("run", sort=True)
        )

    def rows_per_s(self, block: str, protocol: Protocol) -> tuple[float, ...]:
        """Rows per second in each run."""
        return tuple(self.batch_size / ms * 1e3 for ms in self.batch_ms(block, protocol))

    def table(self, name: str) -> pd.DataFrame:
        """A table of its own kind: PEER, CEILING, PLAIN, REGIMES."""
        import pandas as pd

        return pd.read_csv(self.source.records_path(name))

    def requests(self, name: str) -> pd.DataFrame:
        """Request records of ARRIVALS or REPEATS."""
        return read_records(self.source.records_path(name), REQUEST_COLUMNS)

    def split(self) -> LatencySplit:
        """Where the time of a request of the fair online arm goes."""
        return LatencySplit(**self.facts["fair_split"])


def open_study(settings: Settings, run: Run) -> Study:
    """Prepare a measurement: corpus, encoder, export, prediction; or open the records that `settings.replay` names.

    Raises:
        SettingError: no such run, or it holds no records of this notebook.
        CorpusError, ModelError: the corpus or the model cannot be read.
    """
    if settings.replay:
        return _opened(settings, run)
    work = _prepare(settings, run)
    options = _plan_options(work)
    facts = {
        "plan": options,
        "batch_size": settings.batch_size,
        "repeats": settings.repeats,
        "rows": len(work.corpus.texts),
        "corpus": work.corpus.source,
        "corpus_measures": as_json_values(work.corpus.describe()),
        "corpus_repairs": as_json_values(work.corpus.report),
        "flop": work.floor.flop,
        "flop_per_padded_token": encoder_flop(work.encoder, 1, _TYPICAL_TOKENS) / _TYPICAL_TOKENS,
        "ceiling_flop_per_s": work.floor.ceiling_flop_per_s,
        "model_load_s": work.model_load_s,
        "prediction": work.floor.sentence,
    }
    study = Study(run, facts, make_plan(**options), work)
    study.keep_facts()
    return study


def busy_ms(records: pd.DataFrame, protocol: Protocol) -> float:
    """Time that one run's rows took, ms.

    A loop's batches are added up, from token ids in memory to where its clock stops. Streams and requests overlap:
    there it is the time from the first to the last of them.
    """
    if protocol.side == "online":
        return float(records["decoded_ns"].max() - records["sent_ns"].min()) / 1e6
    if protocol.streams > 1 or protocol.cut == "tokens" or protocol.engine == "openvino":
        return float(records["pooled_ns"].max() - records["tokenised_ns"].min()) / 1e6
    end = records["inferred_ns" if protocol.clock == "launched" else "pooled_ns"]
    return float((end - records["tokenised_ns"]).sum()) / 1e6


def main_arms(plan: Plan) -> dict[str, Protocol]:
    """The arms that every row goes through, by name."""
    tuned = plan.tuned_state
    openvino = {} if tuned.batch.engine == "torch" else {"tuned OpenVINO": replace(tuned.batch, engine="openvino")}
    return {
        "article batch": plan.article.batch,
        "article online": plan.article.online,
        "fair PyTorch": replace(plan.fair_state.batch, engine="torch"),
        "fair batch": plan.fair_state.batch,
        "fair online": plan.fair_state.online,
        "tuned batch": tuned.batch,
        "tuned online": tuned.online,
        **openvino,
    }


def find_run(replay: str) -> Path:
    """The directory that the parameter `replay` names: `latest`, a run's name, or a path.

    Raises:
        SettingError: there is none.
    """
    for place in (runs_dir() / replay, Path(replay).expanduser(), PROJECT_DIR / replay):
        if place.is_dir():
            return place.resolve()
    known = ", ".join(sorted(path.name for path in runs_dir().glob("[0-9]*"))[-3:]) or "none"
    raise SettingError(f"replay is {replay!r}, which names no run. The newest: {known}.")


@dataclass(eq=False)
class _Work:
    """What measuring needs."""

    settings: Settings
    corpus: Corpus
    encoder: Encoder
    exported: ExportedModel
    depths: dict[int, ExportedModel]
    floor: Floor
    model_load_s: float


def _facts_path(run: Run) -> Path:
    return run.records_path("study").with_name(_FACTS)


def _opened(settings: Settings, run: Run) -> Study:
    source = Run(find_replayed(settings.replay, run), run.notebook)
    path = source.directory / "records" / run.notebook / _FACTS
    facts = dict(read_json(path))
    return Study(source, facts, make_plan(**facts["plan"]))


def find_replayed(replay: str, run: Run) -> Path:
    """The run to draw again; `latest` is the newest one before this run that has records of this notebook.

    Raises:
        SettingError: there is none, or its measurement did not come to its end.
    """
    if replay == "latest":
        kept = sorted(runs_dir().glob(f"[0-9]*/results/{run.notebook}.json"))
        measured = [path.parents[1] for path in kept if _is_complete(path.parents[1], run)]
        others = [path for path in measured if path.resolve() != run.directory.resolve()]
        if not others:
            raise SettingError("replay is 'latest' and no run has records of this notebook: measure first, replay: ''.")
        return others[-1]
    directory = find_run(replay)
    if not _is_complete(directory, run):
        raise SettingError(f"{directory} has no complete records of {run.notebook}: choose a run that measured it.")
    return directory


def _is_complete(directory: Path, run: Run) -> bool:
    path = directory / "records" / run.notebook / _FACTS
    return path.is_file() and "fair_split" in read_json(path)


def _prepare(settings: Settings, run: Run) -> _Work:
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.models.e5 import load_encoder
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
            depths[layers] = export_onnx(load_encoder(settings.model, layers=layers, max_length=settings.max_length))
    floor = predict_floor(
        encoder, make_batches(encoder, corpus.texts, settings.batch_size), settings.compute_threads, settings.device
    )
    return _Work(settings, corpus, encoder, exported, depths, floor, load_s)


def _plan_options(work: _Work) -> dict[str, Any]:
    from workbook.serving.server import resolve_kind

    settings = work.settings
    on_gpu = _on_gpu(settings)
    pad_to = settings.article_pad_to
    streams = settings.compute_streams
    return {
        "on_gpu": on_gpu,
        "precision": _article_precision(settings, on_gpu),
        "pad_to": min(pad_to, work.encoder.max_length) if pad_to else 0,
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


def _measure(work: _Work, plan: Plan, run: Run, progress: bool) -> dict[str, Any]:
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
        first = shares(texts, settings.repeats, settings.switch_rows)
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
    bench: Bench, work: _Work, whole: Sequence[tuple[str, ...]]
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
