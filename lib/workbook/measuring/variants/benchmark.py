"""The benchmark: every variant under every workload and concurrency, forwards and backwards in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from workbook.errors import SettingError
from workbook.measuring.alternation import alternate, order_of_runs
from workbook.measuring.online.load import Load, measure_load, send_all
from workbook.measuring.online.patience import lone_request_s, patient
from workbook.measuring.online.requests import TransportName
from workbook.measuring.online.scenario import LoadResult
from workbook.measuring.online.shared_memory_client import send_through_shared_memory
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.measuring.variants.workloads import Workload
from workbook.serving.variant_server import serving

if TYPE_CHECKING:
    from workbook.models.variants import VariantModel
    from workbook.serving.handle import Server
    from workbook.settings import Settings

SHARED_MEMORY = "grpc + system shared memory"
POOLED = ("sentence_embedding",)
HIDDEN = ("last_hidden_state",)
_WARM_UP_SHARE = 0.2
_WARM_UP_REQUESTS = 3


@dataclass(frozen=True, eq=False)
class Cell:
    """One measurement of the table.

    Attributes:
        variant: its name.
        workload: what was sent.
        result: the measurement: its load says concurrency, transport and outputs, its run the round.
        steady: whether it was measured for a time after a warm-up; else it is a few requests from the first on.
        transport: as the table calls it; empty: the load's.
    """

    variant: str
    workload: Workload
    result: LoadResult = field(repr=False)
    steady: bool
    transport: str = ""


def benchmark_variants(
    server: Server,
    models: Sequence[VariantModel],
    workloads: Sequence[Workload],
    settings: Settings,
    records_folder: Path,
    *,
    progress: bool = True,
) -> list[Cell]:
    """Measure every variant at every concurrency; variants take turns A B C, C B A over the rounds.

    A workload that is not timed is measured in the first `settings.shape_rounds` rounds. A cell of one that is takes
    `settings.cell_s`, or longer where its windows would hold too few requests on this machine: `longer_cells` says so.

    Args:
        server: from `start_variant_server`.
        models: the variants.
        workloads: from `workloads_of`.
        settings: concurrencies, rounds, seconds a cell.
        records_folder: raw records, a CSV file a workload.
        progress: show a progress bar.

    Raises:
        SettingError: a workload is longer than a variant takes, before anything is sent.
        LoadError: a measurement failed; the records so far are kept.
        ServerError: the server is gone, or a variant does not load.
    """
    from tqdm.auto import tqdm

    _refuse_too_long(models, workloads)
    by_name = {model.variant.name: model for model in models}
    cells = []
    with tqdm(total=settings.rounds * len(models), unit="variant", disable=not progress) as bar:
        for number, name in order_of_runs(tuple(by_name), settings.rounds):
            bar.set_description(f"{name}, round {number + 1} of {settings.rounds}")
            with serving(server, by_name[name]) as model:
                for workload in workloads:
                    if workload.timed or number < settings.shape_rounds:
                        path = records_folder / f"{workload.name.replace(' ', '_')}.csv"
                        cells += _measure_column(server, model, name, workload, settings, path, number)
            bar.update()
    return cells


def measure_axes(
    server: Server,
    model: VariantModel,
    workload: Workload,
    settings: Settings,
    records_path: Path,
) -> list[Cell]:
    """One variant over every transport, one request in flight, returning the pooled embedding or the hidden state.

    The hidden state is `sequence` times as large; what it costs on each transport is the cost of moving it. System
    shared memory is measured where the server is a process of this machine, for the embedding. All take turns, forwards
    and backwards, over `settings.rounds`.
    """
    lone_s = _warm_up(server, model, workload, records_path)
    arms: dict[str, Callable[[int], Cell]] = {}
    with serving(server, model) as name:
        for outputs in (POOLED, HIDDEN):
            for transport in get_args(TransportName):
                arms[f"{outputs[0]} over {transport}"] = partial(
                    _measure, server, name, model.variant.name, workload, settings, records_path, lone_s, 1,
                    transport=transport, outputs=outputs,
                )  # fmt: skip
        if server.kind == "embedded":
            arms[f"{POOLED[0]} over {SHARED_MEMORY}"] = partial(
                _measure_shared_memory, server, name, model, workload, records_path
            )
        results = alternate(arms, settings.rounds, progress=False)
    return [cell for cells in results.values() for cell in cells]


def _warm_up(server: Server, model: VariantModel, workload: Workload, path: Path) -> float:
    """Pay for what only the first request of a shape pays, over gRPC with all outputs; the seconds it took."""
    with serving(server, model) as name:
        load, own = Load(name, outputs=(*POOLED, *HIDDEN)), path.with_name("warm_up_axes.csv")
        return lone_request_s(send_all(server, load, workload.batches[:1], own, arm="warm-up", progress=False))


def _measure_shared_memory(
    server: Server, name: str, model: VariantModel, workload: Workload, records_path: Path, number: int
) -> Cell:
    """The pooled embedding through system shared memory; the connection carries names of regions only."""
    import pandas as pd

    path = records_path.with_name(f"shared_memory_{records_path.name}")
    batches, arm = workload.requests_for(1), model.variant.name
    before = server.statistics(name, settled=True)
    send_through_shared_memory(server, name, POOLED[0], model.hidden_size, batches, path, arm=arm, run=number)
    statistics = server.statistics(name, settled=True) - before
    records = read_records(path, REQUEST_COLUMNS).tail(len(batches)).reset_index(drop=True)
    duration_s = float(records["decoded_ns"].max() - records["sent_ns"].min()) / 1e9
    load = Load(name, 1, outputs=POOLED)
    result = LoadResult(load, arm, number, records, path, pd.DataFrame(), True, duration_s, statistics, float("nan"))
    return Cell(arm, workload, result, steady=False, transport=SHARED_MEMORY)


def _measure_column(
    server: Server, model: str, variant: str, workload: Workload, settings: Settings, path: Path, number: int
) -> list[Cell]:
    few = workload.batches[: _WARM_UP_REQUESTS if workload.timed else 1]
    warm_up = send_all(server, Load(model), few, path.with_name(f"warm_up_{path.name}"), arm="warm-up", progress=False)
    measure = partial(_measure, server, model, variant, workload, settings, path, lone_request_s(warm_up))
    return [measure(concurrency, number) for concurrency in settings.benchmark_concurrency]


def _measure(
    server: Server,
    model: str,
    variant: str,
    workload: Workload,
    settings: Settings,
    path: Path,
    lone_s: float,
    concurrency: int,
    number: int,
    *,
    transport: TransportName = "grpc",
    outputs: tuple[str, ...] = POOLED,
) -> Cell:
    load = Load(
        model,
        concurrency,
        transport,
        outputs,
        warmup_s=_WARM_UP_SHARE * settings.cell_s,
        window_s=settings.cell_s / 3,
        stability_percent=1000,  # three windows, whatever they show: the rounds show how much a cell moves
        max_windows=3,
    )
    if workload.timed:
        load = patient(load, lone_s)
        result = measure_load(server, load, workload.batches, path, arm=variant, run=number, progress=False)
    else:
        requests = workload.requests_for(concurrency)
        result = send_all(server, load, requests, path, arm=variant, run=number, progress=False)
    return Cell(variant, workload, result, steady=workload.timed)


def _refuse_too_long(models: Sequence[VariantModel], workloads: Sequence[Workload]) -> None:
    for workload in workloads:
        longest = max(batch.input_ids.shape[1] for batch in workload.batches)
        for model in models:
            if longest > model.max_length:
                raise SettingError(
                    f"workload {workload.name} has rows of {longest} tokens and {model.variant.name} takes at most "
                    f"{model.max_length}: lower sequence_length."
                )
