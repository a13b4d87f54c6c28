"""What a load measurement is asked for, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.measuring.online.requests import TransportName
from workbook.measuring.online.windows import STABLE_WINDOWS

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.statistics import ModelStatistics

_LONGEST_S = 3600.0


@dataclass(frozen=True)
class Load:
    """What is sent and how it is measured. Making one touches nothing.

    Attributes:
        model: name of the model.
        concurrency: requests kept in flight, one client each.
        transport: `grpc` or `http`.
        outputs: names of the outputs to ask for.
        warmup_s: time that is not measured, s.
        window_s: length of a measurement window, s.
        stability_percent: max / min - 1 that the last three windows may show, %.
        max_windows: windows after which an unstable measurement is given up as unstable, at least 3.
        timeout_s: after which a request counts as failed, s.
    """

    model: str
    concurrency: int = 1
    transport: TransportName = "grpc"
    outputs: tuple[str, ...] = ("sentence_embedding",)
    warmup_s: float = 2.0
    window_s: float = 5.0
    stability_percent: float = 10.0
    max_windows: int = 10
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse values no load could have, naming the value and the bound."""
        if self.transport not in get_args(TransportName):
            raise SettingError(f"transport is {self.transport!r}: it must be grpc or http.")
        bounds: dict[str, tuple[float, float]] = {
            "concurrency": (1, 1024),
            "warmup_s": (0, _LONGEST_S),
            "window_s": (0.05, _LONGEST_S),
            "stability_percent": (0.1, 1000),
            "max_windows": (STABLE_WINDOWS, 1000),
            "timeout_s": (0.05, _LONGEST_S),
        }
        for name, (lowest, highest) in bounds.items():
            if not lowest <= getattr(self, name) <= highest:  # also refuses NaN
                raise SettingError(f"{name} is {getattr(self, name)}: it must lie between {lowest:g} and {highest:g}.")


@dataclass(frozen=True, eq=False)
class ToTheEnd:
    """A closed loop from the end of its warm-up until its last request was answered.

    Its clients stop sending once the last window has ended. What they still wait for stands in a queue and comes at the
    pace at which the queue is worked off; where answers come in bursts, that is a good part of what shows a rate.

    Attributes:
        ended_ns: when each answer came, in order.
        warmed_up: Triton's counters when the warm-up ended.
    """

    ended_ns: NDArray[np.int64]
    warmed_up: ModelStatistics


@dataclass(frozen=True, eq=False)
class LoadResult:
    """A finished measurement.

    Attributes:
        load: what was asked for.
        arm, run: as in the records.
        records: the measured requests, REQUEST_COLUMNS: of the last three windows, or all of a fixed number.
        records_path: file with all requests of the run, warm-up included.
        windows: a row a window: `window`, `requests`, `failed`, `rows`, `throughput_rows_per_s`, `latency_mean_ms`,
            `measured`.
        stable: whether the last three windows agree; True where a fixed number was sent.
        duration_s: length of the measured part, s.
        statistics: Triton's counters over the measured part.
        client_cpu_share: processor time of this process over the measured part / duration_s; 1 is one processor.
        outputs: decoded outputs of each request, in the order of the batches; None where they were not kept.
        to_the_end: of a closed loop, what came after its last window too; None where a fixed number was sent.
    """

    load: Load
    arm: str
    run: int
    records: pd.DataFrame
    records_path: Path
    windows: pd.DataFrame
    stable: bool
    duration_s: float
    statistics: ModelStatistics
    client_cpu_share: float
    outputs: list[dict[str, NDArray[Any]]] | None = field(default=None, repr=False)
    to_the_end: ToTheEnd | None = field(default=None, repr=False)

    @property
    def throughput_rows_per_s(self) -> float:
        """Answered rows per second of the measured part."""
        return float(self.records.loc[self.records["error"] == "", "rows"].sum() / self.duration_s)

    @property
    def requests_per_s(self) -> float:
        """Answered requests per second of the measured part."""
        return float((self.records["error"] == "").sum() / self.duration_s)

    @property
    def failed(self) -> int:
        """Measured requests that ended in an error."""
        return int((self.records["error"] != "").sum())
