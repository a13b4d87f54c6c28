"""One variant in the open loop: several request rates, constant and Poisson, and the search for its knee."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from workbook.analysis.open_loop import summarise_open_loop
from workbook.measuring.online.knee import Knee, find_knee
from workbook.measuring.online.open_loop import MOST_CLIENTS, Arrivals, OpenLoop, measure_open_loop
from workbook.measuring.online.scenario import Load
from workbook.measuring.variants.workloads import Workload

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server
    from workbook.settings import Settings

_FIRST_GUESS = 0.6
"""Share of the closed loop's rate at which the search for the knee begins."""


def measure_rates(
    server: Server,
    model: str,
    workload: Workload,
    closed_loop_per_s: float,
    settings: Settings,
    records_path: Path,
    *,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure each rate of `settings.load_percents` with constant and with Poisson arrivals.

    Args:
        server: running server that serves the model.
        model: its name there.
        workload: what is sent.
        closed_loop_per_s: requests per second that the closed loop reached: 100 percent.
        settings: rates, seconds, objective.
        records_path: CSV file of REQUEST_COLUMNS that the records are appended to.
        progress: show a progress bar.

    Returns:
        A row a measurement: `arrivals`, `percent`, and the fields of `summarise_open_loop`.
    """
    import pandas as pd

    rows = []
    for percent in settings.load_percents:
        for arrivals in get_args(Arrivals):
            rate = percent / 100 * closed_loop_per_s
            summary = _measure(server, model, workload, rate, arrivals, settings, records_path, progress)
            rows.append({"arrivals": arrivals, "percent": percent, **summary})
    return pd.DataFrame(rows)


def search_knee(
    server: Server,
    model: str,
    workload: Workload,
    closed_loop_per_s: float,
    settings: Settings,
    records_path: Path,
    *,
    probes: int = 5,
    progress: bool = True,
) -> Knee:
    """The highest Poisson rate at which 99% of the requests are answered within `settings.objective_ms`.

    Arguments as for `measure_rates`; `probes` rates are tried.
    """

    def measure(rate_per_s: float) -> Mapping[str, float]:
        return _measure(server, model, workload, rate_per_s, "poisson", settings, records_path, progress)

    return find_knee(measure, _FIRST_GUESS * closed_loop_per_s, settings.objective_ms, probes=probes)


def _measure(
    server: Server,
    model: str,
    workload: Workload,
    rate_per_s: float,
    arrivals: Arrivals,
    settings: Settings,
    records_path: Path,
    progress: bool,
) -> dict[str, float]:
    asked = OpenLoop(
        Load(model, concurrency=MOST_CLIENTS),
        rate_per_s,
        arrivals,
        duration_s=settings.open_loop_s,
        warmup_s=min(0.5, 0.2 * settings.open_loop_s),
        drain_s=settings.open_loop_s,
        seed=settings.seed,
    )
    result = measure_open_loop(server, asked, workload.batches, records_path, arm=arrivals, progress=progress)
    return summarise_open_loop(result.records, result.scheduled, asked.duration_s, settings.objective_ms)
