"""The parameters of all notebooks: one frozen, validated value, made from a notebook's own variables."""

from __future__ import annotations

import ast
import difflib
import os
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError

PARAMETERS_DIR = PROJECT_DIR / "notebooks" / "parameters"
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "bf16", "fp32")
MAY_BE_EMPTY = ("preferred_batch_sizes", "depths")


@dataclass(frozen=True)
class Settings:
    """What a reader may set. Making one touches nothing: no file, no server, no model.

    A notebook shows the parameters it uses in its first cell; the files in `notebooks/parameters/` may set any of them.
    """

    # what is measured
    model: str = "bundled"
    """Where the encoder comes from: `bundled`, `hub:ORG/NAME` or `path:DIR`."""
    layers: int | None = None
    """Keep only the first so many encoder layers; `None` keeps them all."""
    corpus: str = "sample"
    """Where the text comes from: `sample`, `hub:ORG/NAME`, or a path to CSV, Parquet or JSONL."""
    text_column: str = "text"
    rows: int = 1024
    """Rows of the corpus that go through each arm, in file order; notebook 05 splits them over an arm's runs."""
    seed: int = 0

    # how the work is cut and computed
    batch_size: int = 32
    max_length: int = 512
    """Tokens a row is truncated to; the encoder's own limit is the bound."""
    threads: int = 0
    """Threads a model computes with, in either arm; 0 takes the processors this process may use."""
    device: str = "auto"
    """Where PyTorch computes: `auto`, `cpu` or `cuda`."""

    # the server
    server: str = "auto"
    """`embedded`, `container`, `remote:HOST:GRPC_PORT:HTTP_PORT`, or `auto`."""
    instances: int = 1
    """Copies of the served model that run at the same time."""
    dynamic_batching: bool = True
    """Whether Triton puts waiting requests together, where a notebook does not say otherwise."""
    preferred_batch_sizes: tuple[int, ...] = ()
    """Batch sizes that Triton sends off at once when reached; empty leaves it to the queue."""
    queue_delay_microseconds: int = 0
    """Longest time a request waits for others to share its batch."""
    grpc_infer_thread_count: int = 0
    """Threads that take requests off gRPC, where this Triton can be told; 0 leaves its default."""
    startup_timeout_s: float = 180.0

    # how it is measured
    concurrency: tuple[int, ...] = (1, 4)
    repeats: int = 4
    """Runs of each arm, the unit of replication; even, so that the arms alternate A B B A."""
    warmup_s: float = 2.0
    window_s: float = 5.0
    stability_percent: float = 10.0
    max_windows: int = 10
    """Windows tried before a measurement is reported as unstable."""
    perf_analyzer: str = ""
    """Path of perf_analyzer; empty looks on PATH, `none` leaves it out."""

    # the benchmark of variants
    variants: tuple[str, ...] = ("auto",)
    """`auto` for all that this machine can run, or names such as `onnx_fp32` and `tensorrt_bf16`."""
    benchmark_concurrency: tuple[int, ...] = (1, 2, 3, 4)
    """Requests in flight in the benchmark's table; the article's range."""
    request_rows: int = 1
    """Tweets a request of the benchmark's first workload carries."""
    sequence_length: int = 128
    """Tokens every row of the benchmark's second workload is padded to, `batch_size` rows a request."""
    cell_s: float = 1.5
    """Seconds measured for each cell of the benchmark's first workload; the second sends a few requests a cell."""
    rounds: int = 2
    """Times the benchmark's table is measured, forwards and backwards in turn; even."""
    shape_rounds: int = 1
    """In how many of the rounds the second workload is measured, whose requests take seconds on a CPU."""
    quality_rows: int = 512
    """Rows of the corpus on which variants are held against fp32."""
    objective_ms: float = 150.0
    """Latency objective: what a request may take from the moment it should have been sent."""
    open_loop_s: float = 5.0
    """Seconds of each open-loop measurement."""
    load_percents: tuple[int, ...] = (50, 80, 120)
    """Request rates of the open loop, in percent of what the closed loop reached."""

    # batch against online
    switch_rows: int = 256
    """Rows through each arm of the waterfall, from the first rows of every run's share."""
    article_pad_to: int = 128
    """Tokens the article's online arm pads to; 0: as its batch arm. It does not say; its engine is tuned for 128."""
    article_precision: str = "auto"
    """Of the article's batch arm: `bf16`, `fp32`, or `auto`: bf16 where a GPU or a processor computes in it."""
    streams: int = 0
    """Copies of the model that compute side by side in the tuned arms; 0: one for each thread."""
    token_budget: int = 512
    """Most padded tokens in a batch of the tuned arms."""
    depths: tuple[int, ...] = (1, 3)
    """The map of regimes also measures the encoder cut to its first so many layers."""
    regime_batches: tuple[int, ...] = (1, 8, 32, 128)
    regime_lengths: tuple[int, ...] = (128, 512)
    regime_s: float = 0.5
    """Seconds of each run of a regime, at least one batch."""
    regime_rounds: int = 2
    """Runs of each regime; even."""
    repeat_runs: int = 6
    """Runs of one and the same arm, to see what a test says where nothing differs."""
    repeat_s: float = 1.5
    """Seconds of each of those runs."""
    price_per_hour: float = 1.0
    """Price of this machine for an hour, in any currency: an assumption to be replaced by yours."""
    objective_s: float = 60.0
    """Longest wait for an answer that is acceptable, s."""
    job_start_s: float = 10.0
    """From asking for a machine to its first instruction, s: an assumption; loading the model is measured."""
    replay: str = ""
    """Directory of a run (or `latest`) whose records are drawn again without measuring; empty measures."""

    # the ensemble
    segmentation: str = "trained"
    """The segmentation model: `trained`, `checkpoint:FILE`, or a backbone `hub:ORG/NAME` or `path:DIR`."""
    ensemble_images: int = 100
    """Different road scenes that are sent in turn."""
    ensemble_connections: int = 128
    """HTTP connections that keep the ensemble busy, as in the issue."""
    ensemble_curve: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Connections of the latency-throughput curve, before `ensemble_connections`."""
    ensemble_warmup_s: float = 0.6
    ensemble_window_s: float = 0.7
    """A third of the measured time of one point."""
    ensemble_repeats: int = 2
    """Times each case is measured, forwards and backwards in turn; one gives no interval."""
    ensemble_causes: tuple[str, ...] = ("all",)
    """Causes of loss to switch on and off: `all`, or some of their keys (analysis/loss_causes.py)."""
    ensemble_cause_rounds: int = 3
    """Times each of their configurations is measured."""
    ensemble_overload_s: float = 4.0
    """How long the ensemble is asked for more than it may queue, s."""
    search_b_instances: tuple[int, ...] = (1, 2)
    search_b_batches: tuple[int, ...] = (0, 8)
    """Most masks in one execution of the post-processing; 0: one at a time."""
    search_delays_us: tuple[int, ...] = (0,)
    """Longest waits of the segmentation's batcher, microseconds."""
    search_a_batches: tuple[int, ...] = (4,)
    """Other limits on the segmentation's batches, tried on what was chosen."""

    # copies between models
    copy_sizes_kb: tuple[int, ...] = (8, 100, 1000, 3000, 6000, 12_000, 24_000, 50_000)
    """Tensors that are handed from stage to stage, in 10^3 bytes; the line of cost needs two from 1,000 to 33,554."""
    ladder_sizes_kb: tuple[int, ...] = (100, 1000, 6000, 50_000)
    """Answers that are asked for over every transport, in 10^3 bytes."""
    copy_runs: int = 4
    """Runs of each arrangement at each size; even."""
    copy_requests: int = 8
    """Requests of such a run; tensors up to 12 MB get up to three times as many."""
    copy_window_s: float = 0.2
    """A third of the measured time of each arrangement under load."""
    copy_load_runs: int = 4
    """Runs of each arrangement under load; even."""
    monolith_instances: int = 2
    """Copies of the whole pipeline that are compared with one."""
    stub_memory_mb: int = 256
    """First size of the region that each Python model shares with the server, MiB."""
    stub_growth_mb: int = 64
    """What the region grows by when it is full, MiB."""
    handle_slots: int = 8
    """Tensors that a stage may have on their way by handle."""
    handle_ttl_ms: int = 30_000
    """How long a tensor waits for its reader before its memory is taken back, ms."""
    cuda_pool_mb: int = 64
    """Triton's pool of device memory for tensors between models, MiB; 64 is its default."""

    # how the exported model is checked
    parity_batches: tuple[int, ...] = (1, 2, 32)
    parity_lengths: tuple[int, ...] = (2, 7, 128, 512)
    parity_scenes: int = 16
    """Held-out road scenes on which the segmentation model's exports are compared."""

    # how the answer is read
    smallest_difference_percent: float = 5.0
    """Two arms that differ by less than this are called equal, whatever a test says."""

    def __post_init__(self) -> None:
        """Refuse values no run could use, naming the value and the bound."""
        _require_types(self)
        _require_within("rows", self.rows, 1, 10_000_000)
        _require_within("batch_size", self.batch_size, 1, 4096)
        _require_within("max_length", self.max_length, 2, 8192)
        _require_within("threads", self.threads, 0, 1024)
        _require_within("instances", self.instances, 1, 256)
        _require_within("queue_delay_microseconds", self.queue_delay_microseconds, 0, 60_000_000)
        _require_within("grpc_infer_thread_count", self.grpc_infer_thread_count, 0, 1024)
        _require_within("request_rows", self.request_rows, 1, 4096)
        _require_within("sequence_length", self.sequence_length, 2, 8192)
        _require_within("cell_s", self.cell_s, 0.15, 600)
        _require_within("rounds", self.rounds, 2, 1000)
        _require_within("shape_rounds", self.shape_rounds, 1, self.rounds)
        _require_within("quality_rows", self.quality_rows, 2, 1_000_000)
        _require_within("objective_ms", self.objective_ms, 0.1, 3_600_000)
        _require_within("open_loop_s", self.open_loop_s, 0.2, 3600)
        _require_within("startup_timeout_s", self.startup_timeout_s, 1, 3600)
        _require_within("repeats", self.repeats, 2, 1000)
        _require_within("warmup_s", self.warmup_s, 0, 600)
        _require_within("window_s", self.window_s, 0.05, 600)
        _require_within("stability_percent", self.stability_percent, 0.1, 100)
        _require_within("max_windows", self.max_windows, 3, 1000)
        _require_within("smallest_difference_percent", self.smallest_difference_percent, 0, 1000)
        _require_within("switch_rows", self.switch_rows, 1, 10_000_000)
        _require_within("article_pad_to", self.article_pad_to, 0, 8192)
        _require_within("streams", self.streams, 0, 256)
        _require_within("token_budget", self.token_budget, 1, 1_000_000)
        _require_within("regime_s", self.regime_s, 0.001, 600)
        _require_within("repeat_runs", self.repeat_runs, 2, 100)
        _require_within("repeat_s", self.repeat_s, 0.05, 600)
        _require_within("price_per_hour", self.price_per_hour, 1e-6, 1e6)
        _require_within("objective_s", self.objective_s, 1e-3, 31_536_000)
        _require_within("job_start_s", self.job_start_s, 0, 86_400)
        if self.article_precision not in PRECISIONS:
            raise SettingError(
                f"article_precision is {self.article_precision!r}: it must be one of {', '.join(PRECISIONS)}."
            )
        _require_within("seed", self.seed, 0, 2**32 - 1)
        _require_within("parity_scenes", self.parity_scenes, 1, 4096)
        _require_within("ensemble_images", self.ensemble_images, 1, 4096)
        _require_within("ensemble_connections", self.ensemble_connections, 1, 1024)
        _require_within("ensemble_warmup_s", self.ensemble_warmup_s, 0, 600)
        _require_within("ensemble_window_s", self.ensemble_window_s, 0.05, 600)
        _require_within("ensemble_repeats", self.ensemble_repeats, 1, 100)
        _require_within("ensemble_cause_rounds", self.ensemble_cause_rounds, 1, 100)
        _require_within("ensemble_overload_s", self.ensemble_overload_s, 0.5, 3600)
        for name, lowest, highest in (
            ("ensemble_curve", 1, 1024),
            ("search_b_instances", 1, 64),
            ("search_b_batches", 0, 256),
            ("search_delays_us", 0, 10_000_000),
            ("search_a_batches", 1, 256),
        ):
            for value in getattr(self, name):
                _require_within(name, value, lowest, highest)
            if not getattr(self, name):
                raise SettingError(f"{name} is empty: give at least one whole number.")
        _require_within("copy_requests", self.copy_requests, 1, 10_000)
        _require_within("copy_window_s", self.copy_window_s, 0.05, 600)
        _require_within("copy_runs", self.copy_runs, 2, 100)
        _require_within("copy_load_runs", self.copy_load_runs, 2, 100)
        _require_within("monolith_instances", self.monolith_instances, 2, 64)
        _require_within("stub_memory_mb", self.stub_memory_mb, 1, 65_536)
        _require_within("stub_growth_mb", self.stub_growth_mb, 1, 65_536)
        _require_within("handle_slots", self.handle_slots, 1, 1024)
        _require_within("handle_ttl_ms", self.handle_ttl_ms, 1, 3_600_000)
        _require_within("cuda_pool_mb", self.cuda_pool_mb, 0, 65_536)
        if self.layers is not None:
            _require_within("layers", self.layers, 1, 1000)
        for name in ("repeats", "rounds", "regime_rounds", "copy_runs", "copy_load_runs"):
            if getattr(self, name) % 2:
                raise SettingError(
                    f"{name} is {getattr(self, name)}: it must be even, because arms alternate A B B A. Set 2, 4, 6."
                )
        self._check_lists()
        if self.device not in DEVICES:
            raise SettingError(f"device is {self.device!r}: it must be one of {', '.join(DEVICES)}.")

    def _check_lists(self) -> None:
        if not self.variants:
            raise SettingError('variants is empty: give ["auto"] or names such as ["onnx_fp32", "tensorrt_bf16"].')
        uppers = {
            "concurrency": 1024,
            "benchmark_concurrency": 1024,
            "load_percents": 1000,
            "copy_sizes_kb": 1_000_000,
            "ladder_sizes_kb": 1_000_000,
            "parity_batches": 4096,
            "parity_lengths": 8192,
            "preferred_batch_sizes": 4096,
            "depths": 1000,
            "regime_batches": 4096,
            "regime_lengths": 8192,
        }
        for name, upper in uppers.items():
            values = getattr(self, name)
            if not values and name not in MAY_BE_EMPTY:
                raise SettingError(f"{name} is empty: give at least one whole number, for example {name}: [1].")
            if len(set(values)) < len(values):
                raise SettingError(f"{name} is {list(values)}: give each number once.")
            for value in values:
                _require_within(name, value, 1, upper)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Settings:
        """Make the settings from plain values, as papermill and YAML know them: lists stand for tuples."""
        require_known(parameters)
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in parameters.items()}
        return cls(**values)

    @property
    def compute_threads(self) -> int:
        """Threads to compute with: the setting, or the processors this process may run on."""
        return self.threads or len(os.sched_getaffinity(0))

    @property
    def compute_streams(self) -> int:
        """Copies of the model in the tuned arms: the setting, or one for each thread."""
        return self.streams or self.compute_threads

    def as_parameters(self) -> dict[str, Any]:
        """The settings as JSON values, as a parameter file would give them."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name[0] != "_"
        }


def parameter_names() -> tuple[str, ...]:
    """Every parameter a notebook or a parameter file may set."""
    return tuple(f.name for f in fields(Settings))


def read_settings(namespace: Mapping[str, Any]) -> Settings:
    """Make the settings from the variables of a notebook, given as `globals()`.

    Variables that name no parameter are ignored, except those that papermill injected: there a name nobody knows is a
    typing mistake, and a run that silently measured the default would be worse than none.

    Raises:
        SettingError: a value out of its bounds, or an injected name that is no parameter.
    """
    require_known(_injected_names(namespace.get("In", ())))
    return Settings.from_parameters({name: namespace[name] for name in parameter_names() if name in namespace})


def read_parameter_file(path: Path) -> dict[str, Any]:
    """Read a YAML parameter file.

    Raises:
        SettingError: no such file, no mapping in it, or a name that is no parameter.
    """
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PARAMETERS_DIR.glob("*.yaml")))
        raise SettingError(f"there is no parameter file {path}. Profiles that exist: {known}.")
    try:
        parameters = yaml.safe_load(path.read_bytes()) or {}
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}. Check that you may read it.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no date, too many digits
        reason = " ".join(str(error).split())
        raise SettingError(f"{path} is not valid YAML: {reason}. Write `name: value` lines in UTF-8.") from None
    if not isinstance(parameters, dict):
        raise SettingError(f"{path} must hold `name: value` lines, for example rows: 2048.")
    require_known(parameters)
    return parameters


def parameter_kind(name: str) -> str:
    """The annotation of a parameter as it is written in `Settings`."""
    return next(str(f.type) for f in fields(Settings) if f.name == name)


def require_known(names: Iterable[str]) -> None:
    """Raise SettingError for the first name that is no parameter, with the nearest one that is."""
    for name in names:
        if name not in parameter_names():
            near = difflib.get_close_matches(str(name), parameter_names(), n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(parameter_names())}."
            raise SettingError(f"there is no parameter called {name!r}. {hint}")


def _injected_names(executed_cells: Iterable[str]) -> list[str]:
    """Names assigned in cells that papermill injected, which it heads with the comment `# Parameters`."""
    names: list[str] = []
    for source in executed_cells:
        if source.lstrip().startswith("# Parameters"):
            assignments = (node for node in ast.parse(source).body if isinstance(node, ast.Assign))
            names += [target.id for node in assignments for target in node.targets if isinstance(target, ast.Name)]
    return names


def _require_types(settings: Settings) -> None:
    """Every field has the type of its annotation; a whole number may stand for a float, a bool for no number."""
    kinds: dict[str, tuple[tuple[type, ...], str]] = {
        "bool": ((bool,), "true or false"),
        "int": ((int,), "a whole number"),
        "float": ((float, int), "a number"),
        "str": ((str,), "text"),
        "int | None": ((int, type(None)), "a whole number or none"),
    }
    for f in fields(settings):
        value, kind = getattr(settings, f.name), str(f.type)
        if kind.startswith("tuple"):
            member = str if "str" in kind else int
            words = "a list of names, such as [auto]" if member is str else "a list of whole numbers, such as [1, 4]"
            good = isinstance(value, tuple) and all(isinstance(v, member) and not isinstance(v, bool) for v in value)
        else:
            types, words = kinds[kind]
            good = isinstance(value, types) and (kind == "bool" or not isinstance(value, bool))
        if not good:
            shown = reprlib.repr(list(value) if isinstance(value, tuple) else value)
            raise SettingError(f"{f.name} is {shown}: it must be {words}.")


def _require_within(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:  # also refuses NaN
        raise SettingError(f"{name} is {value}: it must lie between {lowest:,} and {highest:,}.")
