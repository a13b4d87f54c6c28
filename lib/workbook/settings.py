"""The parameters of all notebooks: one frozen, validated value, made from a notebook's own variables."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.setting_fields import check_fields, one_of, require_within, within

PARAMETERS_DIR = PROJECT_DIR / "notebooks" / "parameters"
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "bf16", "fp32")


@dataclass(frozen=True)
class Settings:
    """What a reader may set. Making one touches nothing: no file, no server, no model.

    A notebook shows the parameters it uses in its first cell; the files in `notebooks/parameters/` may set any of them.
    """

    # what is measured
    model: str = "bundled"
    """Where the encoder comes from: `bundled`, `hub:ORG/NAME` or `path:DIR`."""
    layers: int | None = within(None, 1, 1000)
    """Keep only the first so many encoder layers; `None` keeps them all."""
    corpus: str = "sample"
    """Where the text comes from: `sample`, `hub:ORG/NAME`, or a path to CSV, Parquet or JSONL."""
    text_column: str = "text"
    rows: int = within(1024, 1, 10_000_000)
    """Rows of the corpus that go through each arm, in file order; notebook 05 splits them over an arm's runs."""
    seed: int = within(0, 0, 2**32 - 1)

    # how the work is cut and computed
    batch_size: int = within(32, 1, 4096)
    max_length: int = within(512, 2, 8192)
    """Tokens a row is truncated to; the encoder's own limit is the bound."""
    threads: int = within(0, 0, 1024)
    """Threads a model computes with, in either arm; 0 takes the processors this process may use."""
    device: str = one_of("auto", DEVICES)
    """Where PyTorch computes: `auto`, `cpu` or `cuda`."""

    # the server
    server: str = "auto"
    """`embedded`, `container`, `remote:HOST:GRPC_PORT:HTTP_PORT`, or `auto`."""
    instances: int = within(1, 1, 256)
    """Copies of the served model that run at the same time."""
    dynamic_batching: bool = True
    """Whether Triton puts waiting requests together, where a notebook does not say otherwise."""
    preferred_batch_sizes: tuple[int, ...] = within((), 1, 4096, may_be_empty=True)
    """Batch sizes that Triton sends off at once when reached; empty leaves it to the queue."""
    queue_delay_microseconds: int = within(0, 0, 60_000_000)
    """Longest time a request waits for others to share its batch."""
    grpc_infer_thread_count: int = within(0, 0, 1024)
    """Threads that take requests off gRPC, where this Triton can be told; 0 leaves its default."""
    startup_timeout_s: float = within(180.0, 1, 3600)

    # how it is measured
    concurrency: tuple[int, ...] = within((1, 4), 1, 1024)
    repeats: int = within(4, 2, 1000, even=True)
    """Runs of each arm, the unit of replication; even, so that the arms alternate A B B A."""
    warmup_s: float = within(2.0, 0, 600)
    window_s: float = within(5.0, 0.05, 600)
    stability_percent: float = within(10.0, 0.1, 100)
    max_windows: int = within(10, 3, 1000)
    """Windows tried before a measurement is reported as unstable."""
    perf_analyzer: str = ""
    """Path of perf_analyzer; empty looks on PATH, `none` leaves it out."""

    # the benchmark of variants
    variants: tuple[str, ...] = ("auto",)
    """`auto` for all that this machine can run, or names such as `onnx_fp32` and `tensorrt_bf16`."""
    benchmark_concurrency: tuple[int, ...] = within((1, 2, 3, 4), 1, 1024)
    """Requests in flight in the benchmark's table; the article's range."""
    request_rows: int = within(1, 1, 4096)
    """Tweets a request of the benchmark's first workload carries."""
    sequence_length: int = within(128, 2, 8192)
    """Tokens every row of the benchmark's second workload is padded to, `batch_size` rows a request."""
    cell_s: float = within(1.5, 0.15, 600)
    """Seconds measured for each cell of the benchmark's first workload; the second sends a few requests a cell."""
    rounds: int = within(2, 2, 1000, even=True)
    """Times the benchmark's table is measured, forwards and backwards in turn; even."""
    shape_rounds: int = within(1, 1, 1000)
    """In how many of the rounds the second workload is measured, whose requests take seconds on a CPU."""
    quality_rows: int = within(512, 2, 1_000_000)
    """Rows of the corpus on which variants are held against fp32."""
    objective_ms: float = within(150.0, 0.1, 3_600_000)
    """Latency objective: what a request may take from the moment it should have been sent."""
    open_loop_s: float = within(5.0, 0.2, 3600)
    """Seconds of each open-loop measurement."""
    load_percents: tuple[int, ...] = within((50, 80, 120), 1, 1000)
    """Request rates of the open loop, in percent of what the closed loop reached."""

    # batch against online
    switch_rows: int = within(256, 1, 10_000_000)
    """Rows through each arm of the waterfall, from the first rows of every run's share."""
    arms_limit_s: float = within(0.0, 0, 1_000_000)
    """About the longest time that the arms of batch and online may take together, s: a machine too slow for all rows
    measures fewer of them. 0: all rows, whatever it takes."""
    article_pad_to: int = within(128, 0, 8192)
    """Tokens the article's online arm pads to; 0: as its batch arm. It does not say; its engine is tuned for 128."""
    article_precision: str = one_of("auto", PRECISIONS)
    """Of the article's batch arm: `bf16`, `fp32`, or `auto`: bf16 where a GPU or a processor computes in it."""
    streams: int = within(0, 0, 256)
    """Copies of the model that compute side by side in the tuned arms; 0: one for each thread."""
    token_budget: int = within(512, 1, 1_000_000)
    """Most padded tokens in a batch of the tuned arms."""
    depths: tuple[int, ...] = within((1, 3), 1, 1000, may_be_empty=True)
    """The map of regimes also measures the encoder cut to its first so many layers."""
    regime_batches: tuple[int, ...] = within((1, 8, 32, 128), 1, 4096)
    regime_lengths: tuple[int, ...] = within((128, 512), 1, 8192)
    regime_s: float = within(0.5, 0.001, 600)
    """Seconds of each run of a regime, at least one batch."""
    regime_rounds: int = within(2, 2, 1000, even=True)
    """Runs of each regime; even."""
    repeat_runs: int = within(6, 2, 100)
    """Runs of one and the same arm, to see what a test says where nothing differs."""
    repeat_s: float = within(1.5, 0.05, 600)
    """Seconds of each of those runs."""
    price_per_hour: float = within(1.0, 1e-6, 1e6)
    """Price of this machine for an hour, in any currency: an assumption to be replaced by yours."""
    objective_s: float = within(60.0, 1e-3, 31_536_000)
    """Longest wait for an answer that is acceptable, s."""
    job_start_s: float = within(10.0, 0, 86_400)
    """From asking for a machine to its first instruction, s: an assumption; loading the model is measured."""
    replay: str = ""
    """A run whose records are drawn again without measuring: `latest`, its name or the beginning of it, a path."""

    # the ensemble
    segmentation: str = "trained"
    """The segmentation model: `trained`, `checkpoint:FILE`, or a backbone `hub:ORG/NAME` or `path:DIR`."""
    ensemble_images: int = within(100, 1, 4096)
    """Different road scenes that are sent in turn."""
    ensemble_connections: int = within(128, 1, 1024)
    """HTTP connections that keep the ensemble busy, as in the issue."""
    ensemble_curve: tuple[int, ...] = within((1, 2, 4, 8, 16, 32, 64), 1, 1024)
    """Connections of the latency-throughput curve, before `ensemble_connections`."""
    ensemble_warmup_s: float = within(0.4, 0, 600)
    ensemble_window_s: float = within(0.6, 0.05, 600)
    """A third of the measured time of one point."""
    ensemble_repeats: int = within(2, 1, 100)
    """Times each case is measured, forwards and backwards in turn; one gives no interval."""
    ensemble_causes: tuple[str, ...] = ("all",)
    """Causes of loss to switch on and off: `all`, or some of their keys (analysis/loss_causes.py)."""
    ensemble_cause_rounds: int = within(2, 1, 100)
    """Times each of their configurations is measured."""
    ensemble_overload_s: float = within(4.0, 0.5, 3600)
    """How long the ensemble is asked for more than it may queue, s."""
    search_b_instances: tuple[int, ...] = within((1, 2), 1, 64)
    search_b_batches: tuple[int, ...] = within((0, 8), 0, 256)
    """Most masks in one execution of the post-processing; 0: one at a time."""
    search_delays_us: tuple[int, ...] = within((0,), 0, 10_000_000)
    """Longest waits of the segmentation's batcher, microseconds."""
    search_a_batches: tuple[int, ...] = within((4,), 1, 256)
    """Other limits on the segmentation's batches, tried on what was chosen."""

    # copies between models
    copy_sizes_kb: tuple[int, ...] = within((8, 100, 1000, 3000, 6000, 12_000, 24_000, 50_000), 1, 1_000_000)
    """Tensors that are handed from stage to stage, in 10^3 bytes; the line of cost needs two from 1,000 to 33,554."""
    ladder_sizes_kb: tuple[int, ...] = within((100, 1000, 6000, 50_000), 1, 1_000_000)
    """Answers that are asked for over every transport, in 10^3 bytes."""
    copy_runs: int = within(4, 2, 100, even=True)
    """Runs of each arrangement at each size; even."""
    copy_requests: int = within(8, 1, 10_000)
    """Requests of such a run; tensors up to 12 MB get twice as many."""
    copy_window_s: float = within(0.2, 0.05, 600)
    """A third of the measured time of each arrangement under load."""
    copy_load_runs: int = within(4, 2, 100, even=True)
    """Runs of each arrangement under load; even."""
    monolith_instances: int = within(2, 2, 64)
    """Copies of the whole pipeline that are compared with one."""
    stub_memory_mb: int = within(256, 1, 65_536)
    """First size of the region that each Python model shares with the server, MiB."""
    stub_growth_mb: int = within(64, 1, 65_536)
    """What the region grows by when it is full, MiB."""
    handle_slots: int = within(8, 1, 1024)
    """Tensors that a stage may have on their way by handle."""
    handle_ttl_ms: int = within(30_000, 1, 3_600_000)
    """How long a tensor waits for its reader before its memory is taken back, ms."""
    cuda_pool_mb: int = within(64, 0, 65_536)
    """Triton's pool of device memory for tensors between models, MiB; 64 is its default."""

    # how the exported model is checked
    parity_batches: tuple[int, ...] = within((1, 2, 32), 1, 4096)
    parity_lengths: tuple[int, ...] = within((2, 7, 128, 512), 1, 8192)
    parity_scenes: int = within(16, 1, 4096)
    """Held-out road scenes on which the segmentation model's exports are compared."""

    # how the answer is read
    smallest_difference_percent: float = within(5.0, 0, 1000)
    """Two arms that differ by less than this are called equal, whatever a test says."""

    def __post_init__(self) -> None:
        """Refuse values no run could use, naming the value and the bound."""
        check_fields(self)
        require_within("shape_rounds", self.shape_rounds, 1, self.rounds)
        if not self.variants:
            raise SettingError('variants is empty: give ["auto"] or names such as ["onnx_fp32", "tensorrt_bf16"].')

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
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


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
