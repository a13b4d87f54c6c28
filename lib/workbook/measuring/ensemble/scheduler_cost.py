"""The ensemble scheduler's own cost: members that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbook.measuring.ensemble.images import ImageRequest
from workbook.measuring.online.load import send_all
from workbook.measuring.online.scenario import Load
from workbook.serving.ensemble_server import EnsembleServer
from workbook.serving.ensemble_spec import NULL_A, NULL_B, NULL_ENSEMBLE

if TYPE_CHECKING:
    import pandas as pd

PAYLOADS = {"one number": 1, "an image": 3 * 256 * 448}
BLOCKS = 2


def scheduler_cost(served: EnsembleServer, records: Callable[[str], Path], requests: int = 300) -> pd.DataFrame:
    """What the ensemble scheduler itself costs: members that do nothing, one request at a time.

    The scheduler's part cannot be read from Triton's statistics: a member's request ends after the next one's began. So
    one member alone and two of them in an ensemble take turns, and what the second one needs for itself is taken off.

    Args:
        served: the running server.
        records: gives the file for the records.
        requests: for each payload and model.

    Returns:
        A row a payload: `payload`, `bytes`, `member_p50_ms` and `ensemble_p50_ms` (in the client), `hop_ms` (their
        difference: all that a second member costs), `second_member_ms` (queue and compute of it, Triton's statistics),
        `scheduler_ms` (the rest, from means as those statistics are; below 0 where the machine is too noisy to tell).
    """
    import pandas as pd

    return pd.DataFrame([_hop_cost(served, records("scheduler"), *item, requests) for item in PAYLOADS.items()])


def _hop_cost(served: EnsembleServer, records: Path, payload: str, numbers: int, requests: int) -> dict[str, object]:
    batches = [ImageRequest({"INPUT": np.zeros(numbers, np.float16)}, number) for number in range(requests // BLOCKS)]
    latencies_ms: dict[str, list[float]] = {NULL_A: [], NULL_ENSEMBLE: []}
    before = served.server.statistics(NULL_B, settled=True)
    for block in range(BLOCKS):
        for model in latencies_ms if block % 2 == 0 else reversed(latencies_ms):
            load = Load(model=model, transport="http", outputs=("OUTPUT",))
            result = send_all(served.server, load, batches, records, arm=payload, run=block, progress=False)
            latencies_ms[model] += ((result.records["decoded_ns"] - result.records["sent_ns"]) / 1e6).tolist()
    second = served.server.statistics(NULL_B, settled=True) - before
    own_ms = second.queue_ms + second.compute_input_ms + second.compute_infer_ms + second.compute_output_ms
    member_ms, ensemble_ms = (float(np.median(latencies_ms[model])) for model in (NULL_A, NULL_ENSEMBLE))
    return {
        "payload": payload,
        "bytes": 2 * numbers,
        "member_p50_ms": member_ms,
        "ensemble_p50_ms": ensemble_ms,
        "hop_ms": ensemble_ms - member_ms,
        "second_member_ms": own_ms,
        "scheduler_ms": float(np.mean(latencies_ms[NULL_ENSEMBLE]) - np.mean(latencies_ms[NULL_A])) - own_ms,
    }
