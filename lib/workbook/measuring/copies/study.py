"""The parts of notebook 07 that need both models and servers: pipelines, their requests, second servers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.analysis.arrangement_choice import Situation
from workbook.analysis.copies import ledger, tensor_sizes
from workbook.analysis.copy_costs import relay_bytes
from workbook.measuring.alternation import order_of_runs
from workbook.measuring.copies.answers import ask_once
from workbook.measuring.copies.booking import measure_stages
from workbook.measuring.copies.caches import CacheSweeper
from workbook.measuring.copies.counter import (
    LEAST_BYTES,
    MOST_SIZES,
    CountedCopy,
    counted_row,
    counter_environment,
    find_compiler,
    read_counted,
)
from workbook.measuring.copies.requests import TensorRequest, relay_request
from workbook.measuring.copies.sizes import measure_sizes, settle_memory
from workbook.serving.arrangement_server import HUGE_PAGES, start_arrangement_server
from workbook.serving.arrangements import entry_model
from workbook.serving.pipelines import Pipeline, passage_pipeline, relay_pipeline, road_pipeline
from workbook.serving.server import Server, resolve_kind

if TYPE_CHECKING:
    import pandas as pd

    from workbook.runs import Run
    from workbook.settings import Settings

NEEDS_COUNTING = "the embedded server and a C compiler (apt-get install gcc libc6-dev)"
LOADED_BYTES = 6_000_000
"""What the relay hands on where it is put under load."""
PASSAGE_ROWS = 2
ROAD_SCENES = 4
_UNCOUNTED, _COUNTED = 1, 6
_LOG_S = 0.02


def load_pipelines(settings: Settings) -> dict[str, Pipeline]:
    """Relay, road and passage, with the weights of the settings' models; exported once.

    Raises:
        SettingError, ModelError: a model cannot be had.
    """
    from workbook.models.e5 import load_encoder
    from workbook.models.export import export_onnx
    from workbook.models.segmentation import load_segmentation
    from workbook.models.segmentation_export import export_segmentation

    exported = export_onnx(load_encoder(settings.model, layers=settings.layers, max_length=settings.max_length))
    segmentation = export_segmentation(load_segmentation(settings.segmentation))
    made = (
        relay_pipeline(),
        road_pipeline(segmentation.path),
        passage_pipeline(exported.path, exported.hidden_size),
    )
    return {pipeline.name: pipeline for pipeline in made}


def pipeline_requests(settings: Settings) -> dict[str, list[TensorRequest]]:
    """What each pipeline is asked: a tensor of 6 MB, road scenes, pairs of tweets."""
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.models.e5 import load_encoder
    from workbook.models.road_scenes import road_scenes

    images, _ = road_scenes(settings.seed, ROAD_SCENES)
    encoder = load_encoder(settings.model, layers=settings.layers, max_length=settings.max_length)
    texts = load_corpus(settings.corpus, text_column=settings.text_column, rows=PASSAGE_ROWS, seed=settings.seed).texts
    tokens = encoder.tokenize(texts)
    passage = {"input_ids": tokens.input_ids, "attention_mask": tokens.attention_mask}
    largest = max(kilobytes * 1000 for kilobytes in settings.copy_sizes_kb)
    return {
        "relay": [relay_request(min(LOADED_BYTES, largest))],
        "road": [TensorRequest({"image": image[None]}, number) for number, image in enumerate(images)],
        "passage": [TensorRequest(passage, rows=PASSAGE_ROWS)],
    }


def request_sizes(
    pipelines: Mapping[str, Pipeline], requests: Mapping[str, Sequence[TensorRequest]], jpeg_bytes: int
) -> dict[str, dict[str, int]]:
    """Bytes of every tensor of each pipeline's first request.

    Args:
        pipelines: by name.
        requests: of `pipeline_requests`.
        jpeg_bytes: of a road answer, as it came back.
    """
    free = {
        "relay": int(requests["relay"][0].inputs["request"][0, 0]),
        "road": jpeg_bytes,
        "passage": int(requests["passage"][0].inputs["input_ids"].shape[1]),
    }
    return {
        name: tensor_sizes(pipeline, len(next(iter(requests[name][0].inputs.values()))), free[name])
        for name, pipeline in pipelines.items()
    }


def measured_situations(
    server: Server,
    pipelines: Mapping[str, Pipeline],
    requests: Mapping[str, Sequence[TensorRequest]],
    sizes: Mapping[str, Mapping[str, int]],
    settings: Settings,
) -> dict[str, Situation]:
    """Stage times and the mean size of what is handed on, by pipeline: where the what-if panel starts."""
    situations = {}
    for name, pipeline in pipelines.items():
        times = measure_stages(server, pipeline, requests[name][0])
        handed_on = [sizes[name][tensor] for stage in pipeline.stages[:-1] for tensor in stage.outputs]
        situations[name] = Situation(
            sum(handed_on) / len(handed_on) / 1e6,
            tuple(times.values()),
            settings.monolith_instances,
            settings.compute_threads,
        )
    return situations


def measure_huge_pages(settings: Settings, run: Run, latencies: pd.DataFrame) -> pd.DataFrame | None:
    """The largest tensor once more, on a server whose malloc asks for pages of 2 MiB.

    Args:
        settings: as for the server of `latencies`.
        run: where repository, log and records go.
        latencies: of `measuring.copies.SizeSweep`, with ordinary pages.

    Returns:
        `arrangement`, `bytes`, `small_pages_ms`, `huge_pages_ms`, `ratio`; None where the server is not embedded.

    Raises:
        ServerError, LoadError: as for `measure_sizes`.
    """
    if resolve_kind(settings.server) != "embedded":
        return None
    size = int(latencies["bytes"].max())
    names = ["monolith", "ensemble", "bls"]
    with start_arrangement_server(
        [relay_pipeline()], settings, run, only=names, part="_huge_pages", added=HUGE_PAGES
    ) as server:
        sweep = measure_sizes(
            server,
            names,
            [size],
            run.records_path("huge_pages"),
            repeats=2,
            requests=settings.copy_requests,
        )
    small = latencies[latencies["bytes"] == size].groupby("arrangement")["latency_ms"].median()
    huge = sweep.latencies.groupby("arrangement", sort=False)["latency_ms"].median()
    table = huge.rename("huge_pages_ms").reset_index()
    table.insert(1, "bytes", size)
    table.insert(2, "small_pages_ms", table["arrangement"].map(small))
    return table.assign(ratio=table["small_pages_ms"] / table["huge_pages_ms"])


def count_copies(
    settings: Settings, run: Run, arrangements: Sequence[str], sizes_bytes: Sequence[int]
) -> pd.DataFrame | None:
    """Send requests to each arrangement of the relay on a server that reports its copies; hold them to the ledger.

    Args:
        settings: as for `start_arrangement_server`.
        run: where repository and log go.
        arrangements: which.
        sizes_bytes: of the tensor; those below 64 KiB are left out, they could be anything.

    Returns:
        A row an arrangement and size, as `copy_counter.counted_row`; None where the server is not embedded or no C
        compiler is found.

    Raises:
        ServerError: the server did not start, or is gone.
        LoadError: a request failed.
    """
    import pandas as pd

    sizes = [size for size in sizes_bytes if size >= LEAST_BYTES][-MOST_SIZES:]
    if resolve_kind(settings.server) != "embedded" or find_compiler() is None:
        return None
    pipeline, rows = relay_pipeline(), []
    added = counter_environment(sizes)
    with start_arrangement_server([pipeline], settings, run, only=arrangements, part="_counted", added=added) as server:
        settle_memory(server, pipeline, arrangements, sizes)
        for size in sizes:
            for name, reported in _counted_requests(server, pipeline, arrangements, size).items():
                expected = ledger(pipeline, name, relay_bytes(size))
                rows.append(counted_row(name, size, reported, expected, server.pid or 0))
    return pd.DataFrame(rows)


def _counted_requests(
    server: Server, pipeline: Pipeline, arrangements: Sequence[str], size: int
) -> dict[str, list[list[CountedCopy]]]:
    """What some requests to each arrangement reported; they take turns and find cold caches, as in `measure_sizes`."""
    log, sweeper = server.log_file, CacheSweeper()
    reported: dict[str, list[list[CountedCopy]]] = {name: [] for name in arrangements}
    assert isinstance(log, Path)
    for turn, name in order_of_runs(tuple(arrangements), _UNCOUNTED + _COUNTED):
        start = log.stat().st_size
        sweeper.sweep()
        ask_once(server, entry_model(pipeline, name), pipeline.outputs, relay_request(size))
        time.sleep(_LOG_S)  # a line may be written a moment after the answer
        with log.open("rb") as file:
            file.seek(start)
            if turn >= _UNCOUNTED:
                reported[name].append(read_counted(file.read().decode(errors="replace")))
    return reported
