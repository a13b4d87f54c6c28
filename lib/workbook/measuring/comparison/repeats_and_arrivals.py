"""Two short measurements beside the arms: one arm repeated with nothing changed, and rows that arrive one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.measuring.online.load import measure_load, send_all
from workbook.measuring.online.open_loop import OpenLoop, measure_open_loop
from workbook.measuring.online.scenario import Load
from workbook.measuring.online.windows import STABLE_WINDOWS

if TYPE_CHECKING:
    from workbook.measuring.corpus.batches import Batch
    from workbook.serving.handle import Server
    from workbook.settings import Settings

ARRIVAL_PERCENTS = (30, 60, 85)
"""Poisson arrivals, in percent of what the server reaches on single rows in a closed loop."""
_MOST_IN_FLIGHT = 64


def measure_repeats(
    server: Server, model: str, batches: Sequence[Batch], settings: Settings, records_path: Path
) -> None:
    """The same closed loop `settings.repeat_runs` times; one client, a record a request.

    Raises:
        LoadError, ServerError: as `measure_load`.
    """
    load = Load(
        model,
        warmup_s=min(0.2, settings.repeat_s / 5),
        window_s=settings.repeat_s / STABLE_WINDOWS,
        stability_percent=1000.0,
        max_windows=STABLE_WINDOWS,
    )
    for run in range(settings.repeat_runs):
        measure_load(server, load, batches, records_path, arm="the same arm", run=run, progress=False)


def measure_arrivals(
    server: Server, model: str, batches: Sequence[Batch], settings: Settings, records_path: Path
) -> list[dict[str, Any]]:
    """Rows that arrive at random, one a request, at ARRIVAL_PERCENTS of what the server can do.

    Returns:
        For each rate: `rate_per_s`, `answered_per_s`, mean rows that the server put together (`mean_batch_size`), and
        `capacity_per_s`, what the closed loop reached.

    Raises:
        LoadError, ServerError: as `measure_open_loop`.
    """
    capacity = send_all(
        server,
        Load(model, concurrency=_MOST_IN_FLIGHT),
        batches,
        records_path.with_name("capacity.csv"),
        progress=False,
    ).throughput_rows_per_s
    found = []
    for number, percent in enumerate(ARRIVAL_PERCENTS):
        open_loop = OpenLoop(
            Load(model, concurrency=_MOST_IN_FLIGHT),
            rate_per_s=capacity * percent / 100,
            duration_s=2 * settings.repeat_s,
            warmup_s=settings.repeat_s / 3,
            seed=settings.seed + number,
        )
        result = measure_open_loop(
            server, open_loop, batches, records_path, arm=f"{percent}% of capacity", run=number, progress=False
        )
        answered = result.records[result.records["error"] == ""]
        found.append(
            {
                "percent": percent,
                "capacity_per_s": capacity,
                "rate_per_s": open_loop.rate_per_s,
                "answered_per_s": len(answered) / open_loop.duration_s,
                "mean_batch_size": result.statistics.mean_batch_size,
                "p50_ms": float((answered["decoded_ns"] - answered["intended_ns"]).quantile(0.5) / 1e6),
                "p95_ms": float((answered["decoded_ns"] - answered["intended_ns"]).quantile(0.95) / 1e6),
            }
        )
    return found
