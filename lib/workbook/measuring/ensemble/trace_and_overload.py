"""Smaller measurements beside the study: a traced burst, the scheduler's own cost, and an open loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.summaries import latency_percentile
from workbook.analysis.trace import read_trace
from workbook.errors import LoadError, SettingError
from workbook.measuring.ensemble.images import ImageRequest, Images, mask_agreement, requests_for
from workbook.measuring.ensemble.runs import Probe
from workbook.measuring.online.load import send_all
from workbook.measuring.online.open_loop import OpenLoop, measure_open_loop
from workbook.measuring.online.scenario import Load
from workbook.serving.ensemble_server import EnsembleServer
from workbook.serving.ensemble_spec import ENSEMBLE, NULL_A, NULL_B, NULL_ENSEMBLE, EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd

PAYLOADS = {"one number": 1, "an image": 3 * 256 * 448}
BLOCKS = 2
_CONNECTIONS_TRACED = 64
_TRACE_PATIENCE_S = 20.0


def trace_burst(
    served: EnsembleServer, variant: EnsembleVariant, images: Images, *, requests: int = 96, records_path: Path
) -> pd.DataFrame:
    """Send a few dozen images at once with tracing on, and read the trace.

    Args:
        served: the running server; it was started with a trace file.
        variant: the configuration.
        images: sent in turn.
        requests: how many.
        records_path: CSV file that the records are appended to.

    Returns:
        As `read_trace`; as many images again, which warm the members up before, are not in it.

    Raises:
        SettingError: the server has no trace file.
        LoadError: the trace is not whole after a while.
    """
    if served.trace_file is None:
        raise SettingError("this server writes no trace: start_ensemble_server(..., trace_file=...) gives it a file.")
    served.configure(variant)
    served.trace_file.unlink(missing_ok=True)
    sent = requests_for(ENSEMBLE, images, variant)
    burst = [sent[number % len(sent)] for number in range(requests)]
    load = Probe(min(_CONNECTIONS_TRACED, requests)).load(ENSEMBLE)
    for on in (False, True):
        served.trace(on)
        send_all(served.server, load, burst, records_path, arm="traced", progress=False)
    served.trace(False)
    timeline = _wait_for_trace(served.trace_file, requests)
    moments = ["queue_start_ms", "work_start_ms", "work_end_ms"]
    timeline[moments] -= timeline["queue_start_ms"].min()
    return timeline


def _wait_for_trace(path: Path, requests: int) -> pd.DataFrame:
    """Triton writes what it has collected a moment after tracing was switched off."""
    deadline_s = time.monotonic() + _TRACE_PATIENCE_S
    while True:
        try:
            timeline = read_trace(path)
            if len(timeline) == 2 * requests:
                return timeline
            problem = f"{path} holds {len(timeline)} of {2 * requests} steps of the images that were sent"
        except LoadError as error:
            problem = str(error)
        if time.monotonic() > deadline_s:
            raise LoadError(problem)
        time.sleep(0.1)


def check_answers(served: EnsembleServer, images: Images, records_path: Path, concurrency: int = 32) -> pd.DataFrame:
    """Send every image once to the ensemble and hold the JPEGs that come back against the masks made in this process.

    Returns:
        As `mask_agreement`.
    """
    load = Probe(concurrency).load(ENSEMBLE)
    requests = requests_for(ENSEMBLE, images, served.variant)
    result = send_all(served.server, load, requests, records_path, arm="answers", keep_outputs=True, progress=False)
    return mask_agreement(result.outputs or [], images)


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


def open_loop_at(
    served: EnsembleServer,
    variant: EnsembleVariant,
    images: Images,
    probe: Probe,
    rate_per_s: float,
    records_path: Path,
    duration_s: float,
    runs: int = 1,
) -> dict[str, float]:
    """Send at a fixed rate and see how long the slowest requests take.

    The slowest 1% of a few seconds are whatever disturbed the machine in them; so of several runs the median counts.

    Returns:
        `rate_per_s` asked for, `runs`; the medians over runs of `answered_per_s`, `latency_p50_ms` and
        `latency_p99_ms`, both from the intended moment of sending; `lowest_p99_ms` and `highest_p99_ms` of a run; and
        `failed` in all of them.
    """
    served.configure(variant)
    load = replace(probe, connections=min(64, probe.connections)).load(ENSEMBLE)
    loop = OpenLoop(load, rate_per_s, "constant", duration_s=duration_s, warmup_s=probe.warmup_s)
    requests = requests_for(ENSEMBLE, images, variant)
    rows = []
    for run in range(runs):
        result = measure_open_loop(served.server, loop, requests, records_path, run=run, progress=False)
        answered = result.records[result.records["error"] == ""]
        latency_ms = (answered["decoded_ns"] - answered["intended_ns"]) / 1e6
        quantiles = [latency_percentile(latency_ms, percent) for percent in (50, 99)]
        rows.append((len(answered) / duration_s, *quantiles, len(result.records) - len(answered)))
    answered_per_s, p50_ms, p99_ms, failed = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return {
        "rate_per_s": rate_per_s,
        "runs": runs,
        "answered_per_s": float(np.median(answered_per_s)),
        "latency_p50_ms": float(np.median(p50_ms)),
        "latency_p99_ms": float(np.median(p99_ms)),
        "lowest_p99_ms": float(p99_ms.min()),
        "highest_p99_ms": float(p99_ms.max()),
        "failed": float(failed.sum()),
    }
