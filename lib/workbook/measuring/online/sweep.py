"""One model under closed loops of growing concurrency: summaries, split of the latency, and what to be wary of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.analysis.split import LatencySplit, split_latency
from workbook.analysis.summaries import check_littles_law, summarise_requests
from workbook.measuring.online.capacity import capacity_warning
from workbook.measuring.online.load import Load, LoadResult, measure_load
from workbook.measuring.online.requests import ModelInputs

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server


@dataclass(frozen=True, eq=False)
class Sweep:
    """Measurements of one load at several concurrencies.

    Attributes:
        results: one for each concurrency, in the order measured.
        records: the measured requests of all of them.
        summary: a row a concurrency, from `summarise_requests`, and whether the windows agreed (`stable`).
        splits: where the mean latency went, by concurrency.
    """

    results: tuple[LoadResult, ...] = field(repr=False)
    records: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame
    splits: dict[str, LatencySplit]

    def notes(self, capacity: pd.DataFrame) -> list[str]:
        """What a careful reader would object, in sentences: unstable windows, Little's law, a client at its limit."""
        notes = [_little(self.summary)]
        for result in self.results:
            here = capacity[capacity["transport"] == result.load.transport].set_index("concurrency")["requests_per_s"]
            if result.load.concurrency in here:
                notes.append(capacity_warning(result.requests_per_s, here[result.load.concurrency]) or "")
            if not result.stable:
                notes.append(
                    f"At concurrency {result.load.concurrency} no three windows agreed within "
                    f"{result.load.stability_percent:g}%: read its numbers as rough, or raise window_s and max_windows."
                )
        return [note for note in notes if note]


def measure_sweep(
    server: Server,
    load: Load,
    batches: Sequence[ModelInputs],
    concurrencies: Sequence[int],
    records_path: Path,
    *,
    progress: bool = True,
) -> Sweep:
    """Measure the load at each concurrency in turn.

    Raises:
        LoadError: the model would refuse the batches, or no request was answered.
        ServerError: the server is gone; the message holds the end of its log, the records so far are on disk.
    """
    import pandas as pd

    results = tuple(
        measure_load(server, replace(load, concurrency=concurrency), batches, records_path, progress=progress)
        for concurrency in concurrencies
    )
    records = pd.concat([result.records for result in results], ignore_index=True)
    return Sweep(results, records, _summary(results), _splits(results))


def _summary(results: Sequence[LoadResult]) -> pd.DataFrame:
    import pandas as pd

    tables = [summarise_requests(result.records, by_run=False).assign(stable=result.stable) for result in results]
    return pd.concat(tables, ignore_index=True)


def _splits(results: Sequence[LoadResult]) -> dict[str, LatencySplit]:
    return {
        f"concurrency {result.load.concurrency}": split_latency(result.records, result.statistics) for result in results
    }


def _little(summary: pd.DataFrame) -> str:
    law = check_littles_law(summary)
    implied = ", ".join(
        f"{value:.2f} for {n}" for n, value in zip(law["concurrency"], law["implied_in_flight"], strict=True)
    )
    holds = "holds" if law["holds"].all() else "does NOT hold within 5%: some time is missing from the records"
    return f"Little's law, throughput x latency = requests in flight, {holds} ({implied})."
