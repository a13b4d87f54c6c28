"""One variant in the open loop: several request rates, constant and Poisson, and the search for its knee."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from workbook.analysis.open_loop import SERVER_PARTS, summarise_open_loop
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
LEAST_REQUESTS = 10
"""A rate is offered for at least so long that as many requests are due: fewer show no rate."""


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
        A row a measurement: `arrivals`, `percent`, `seconds` (over which requests were due), the fields of
        `summarise_open_loop`, and SERVER_PARTS as Triton counts them.
    """
    import pandas as pd

    rows = []
    for percent in settings.load_percents:
        for arrivals in get_args(Arrivals):
            rate = percent / 100 * closed_loop_per_s
            summary = _measure(server, model, workload, rate, arrivals, settings, records_path, progress)
            seconds = seconds_at(rate, settings.open_loop_s)
            rows.append({"arrivals": arrivals, "percent": percent, "seconds": seconds, **summary})
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


def seconds_at(rate_per_s: float, wanted_s: float) -> float:
    """How long a rate is offered: as asked for, or longer where a slow machine would see too few requests."""
    return max(wanted_s, LEAST_REQUESTS / rate_per_s)


def longer_rates(rates: pd.DataFrame, wanted_s: float) -> str:
    """Which rates of `measure_rates` were offered for longer than asked for; empty where none was."""
    if not (rates["seconds"] > wanted_s).any():
        return ""
    return (
        f"Rates below {LEAST_REQUESTS / wanted_s:.3g} requests/s were offered for longer than the {wanted_s:g} s asked "
        f"for, until {LEAST_REQUESTS} requests were due."
    )


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
    duration_s = seconds_at(rate_per_s, settings.open_loop_s)
    asked = OpenLoop(
        Load(model, concurrency=MOST_CLIENTS),
        rate_per_s,
        arrivals,
        duration_s=duration_s,
        warmup_s=min(0.5, 0.2 * duration_s),
        drain_s=duration_s,
        seed=settings.seed,
    )
    result = measure_open_loop(server, asked, workload.batches, records_path, arm=arrivals, progress=progress)
    summary = summarise_open_loop(result.records, result.scheduled, asked.duration_s, settings.objective_ms)
    return {**summary, **{name: float(getattr(result.statistics, name)) for name in SERVER_PARTS}}
