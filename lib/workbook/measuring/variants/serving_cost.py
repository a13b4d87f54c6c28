"""What serving costs: one engine inside Triton and in this process, on the same batches, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.analysis.intervals import Interval, ratio_interval
from workbook.measuring.alternation import alternate
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.load import Load, send_all
from workbook.models.variant_sessions import VariantSession, open_variant
from workbook.serving.variant_server import serving

if TYPE_CHECKING:
    import pandas as pd

    from workbook.models.variants import VariantModel
    from workbook.serving.handle import Server

IN_PROCESS = "in this process"
WANTED_SHARE = 0.95


@dataclass(frozen=True)
class ServingCost:
    """The runs of each arm.

    Attributes:
        variant: its name.
        rows_per_s: arm -> throughput of each run, run i of all arms side by side.
    """

    variant: str
    rows_per_s: dict[str, list[float]]

    def share(self, arm: str) -> Interval:
        """Throughput of a served arm over that in this process, with its interval."""
        return ratio_interval(self.rows_per_s[arm], self.rows_per_s[IN_PROCESS])

    @property
    def best(self) -> str:
        """The served arm with the higher throughput."""
        return max((arm for arm in self.rows_per_s if arm != IN_PROCESS), key=lambda arm: self.share(arm).estimate)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        share = self.share(self.best)
        bounds = f" (95% interval {share.low:.1%} to {share.high:.1%})" if share.known else ""
        return (
            f"{self.variant}, {self.best}, handles {share.estimate:.1%}{bounds} of the rows/s that it reaches in this "
            f"process on the same batches: at least {WANTED_SHARE:.0%} was expected, and {_verdict(share)}."
        )

    def runs(self) -> pd.DataFrame:
        """`label`, `run`, `rows_per_s`, a row each run, as `plots.throughput_bars` takes it."""
        import pandas as pd

        rows = [(arm, run, rate) for arm, rates in self.rows_per_s.items() for run, rate in enumerate(rates)]
        return pd.DataFrame(rows, columns=["label", "run", "rows_per_s"])


def measure_serving_cost(
    server: Server,
    model: VariantModel,
    batches: Sequence[Batch],
    threads: int,
    repeats: int,
    records_path: Path,
    *,
    progress: bool = True,
) -> ServingCost:
    """Compute the same batches in this process and through the server with one and two requests in flight, in turn.

    Both compute with the same threads; while one arm runs the other is idle. With one request in flight the engine
    waits while the answer travels; with two it has the next one already.

    Args:
        server: from `start_variant_server`.
        model: a variant that runs in this process.
        batches: all are computed in each run.
        threads: of the engine.
        repeats: runs of each arm; even.
        records_path: CSV file that the served requests' records are appended to.
        progress: show a progress bar.
    """
    session = open_variant(model, threads)
    with serving(server, model) as name:

        def served(concurrency: int, run: int) -> float:
            load = Load(name, concurrency)
            arm = _arm(concurrency)
            return send_all(server, load, batches, records_path, arm=arm, run=run, progress=False).throughput_rows_per_s

        _compute(session, batches)  # every shape pays once for its memory, in both places
        served(1, -1)
        arms: dict[str, Callable[[int], float]] = {
            IN_PROCESS: lambda _: _compute(session, batches),
            _arm(1): partial(served, 1),
            _arm(2): partial(served, 2),
        }
        return ServingCost(model.variant.name, alternate(arms, repeats, progress=progress))


def _verdict(share: Interval) -> str:
    """Kept or not, and whether these runs can tell."""
    kept = share.estimate >= WANTED_SHARE
    sure = not share.known or share.low >= WANTED_SHARE or share.high < WANTED_SHARE
    doubt = "" if sure else ", though the runs scatter too much to be sure of it"
    return f"{'kept' if kept else 'NOT kept'}{doubt}"


def _arm(concurrency: int) -> str:
    return f"served, {concurrency} in flight"


def _compute(session: VariantSession, batches: Sequence[Batch]) -> float:
    """Rows per second of a plain loop over the batches."""
    started_ns = time.perf_counter_ns()
    for batch in batches:
        session(batch.input_ids, batch.attention_mask)
    return sum(batch.rows for batch in batches) / (time.perf_counter_ns() - started_ns) * 1e9
