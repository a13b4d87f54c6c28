"""Where a request's latency goes: the client's clock and Triton's statistics put together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workbook.errors import LoadError

if TYPE_CHECKING:
    import pandas as pd

NS_PER_MS = 1e6

PARTS = {
    "encode_ms": "client encodes",
    "network_ms": "network and waiting",
    "queue_ms": "queue",
    "compute_input_ms": "inputs gathered",
    "compute_infer_ms": "model computes",
    "compute_output_ms": "outputs handed out",
    "decode_ms": "client decodes",
}
"""Parts in the order a request passes through them, with the words a reader sees."""


class RequestTimes(Protocol):
    """Mean times a request spent in the server, in ms: what `serving.statistics.ModelStatistics` gives."""

    @property
    def success_count(self) -> int:
        """Requests answered."""

    @property
    def queue_ms(self) -> float:
        """Waiting for the execution."""

    @property
    def compute_input_ms(self) -> float:
        """Inputs gathered."""

    @property
    def compute_infer_ms(self) -> float:
        """Model runs."""

    @property
    def compute_output_ms(self) -> float:
        """Outputs handed out."""


@dataclass(frozen=True)
class LatencySplit:
    """Mean latency of a request and its parts, in ms; the parts sum to the mean.

    Attributes:
        mean_ms: decoded - intended, the mean over answered requests.
        parts_ms: a value for each name in `PARTS`, in that order.
        requests: answered requests the client's parts are the mean of.
        server_requests: answered requests the server's parts are the mean of.
        note: what is odd about the split; empty where nothing is.
    """

    mean_ms: float
    parts_ms: dict[str, float]
    requests: int
    server_requests: int
    note: str = ""

    @property
    def server_ms(self) -> float:
        """Time inside the model's queue and computation, as Triton counts it."""
        return sum(self.parts_ms[name] for name in PARTS if name.startswith(("queue", "compute")))


def split_latency(records: pd.DataFrame, statistics: RequestTimes) -> LatencySplit:
    """Split the mean latency into what the client, the way and the server took.

    encode = sent - intended, decode = decoded - received, queue and compute as Triton counts them, and network and
    waiting = (received - sent) - (queue + compute): the only part nobody timed, and so the one where a mistake shows.
    Negative means that the two clocks speak of different requests; it is kept, with a note.

    Args:
        records: `REQUEST_COLUMNS` of one arm and concurrency.
        statistics: of the model over the same requests, the later reading minus the earlier one.

    Raises:
        LoadError: no request was answered.
    """
    good = records[(records["error"] == "") & (records["window"] >= 0)]
    if good.empty:
        raise LoadError("no request was answered without error, so there is no latency to split: see the error column.")
    encode_ms = float((good["sent_ns"] - good["intended_ns"]).mean() / NS_PER_MS)
    way_ms = float((good["received_ns"] - good["sent_ns"]).mean() / NS_PER_MS)
    decode_ms = float((good["decoded_ns"] - good["received_ns"]).mean() / NS_PER_MS)
    server = {name: float(getattr(statistics, name)) for name in PARTS if name.startswith(("queue", "compute"))}
    network_ms = way_ms - sum(server.values())
    parts = {"encode_ms": encode_ms, "network_ms": network_ms, **server, "decode_ms": decode_ms}
    return LatencySplit(
        mean_ms=encode_ms + way_ms + decode_ms,
        parts_ms={name: parts[name] for name in PARTS},
        requests=len(good),
        server_requests=statistics.success_count,
        note=_note(network_ms, way_ms),
    )


def _note(network_ms: float, way_ms: float) -> str:
    if math.isnan(network_ms):
        return "the server answered no request between the two readings of its statistics"
    if network_ms < 0:
        return (
            f"the server's parts add up to {way_ms - network_ms:.2f} ms, more than the {way_ms:.2f} ms between sending "
            "and receiving: the statistics cover other requests than the records"
        )
    return ""
