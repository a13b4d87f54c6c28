"""The pipeline at a fixed rate of requests, an open loop: how long do the slowest ones take?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbook.analysis.summaries import latency_percentile
from workbook.measuring.ensemble.images import requests_for
from workbook.measuring.ensemble.study import Study
from workbook.measuring.online.open_loop import OpenLoop, measure_open_loop
from workbook.serving.ensemble_spec import ENSEMBLE, EnsembleVariant

MOST_CONNECTIONS = 64


def open_loop_at(
    study: Study, variant: EnsembleVariant, rate_per_s: float, duration_s: float, runs: int = 1
) -> dict[str, float]:
    """Send at a fixed rate and see how long the slowest requests take.

    The slowest 1% of a few seconds are whatever disturbed the machine in them; so of several runs the median counts.

    Returns:
        `rate_per_s` asked for, `runs`; the medians over runs of `answered_per_s`, `latency_p50_ms` and
        `latency_p99_ms`, both from the intended moment of sending; `lowest_p99_ms` and `highest_p99_ms` of a run; and
        `failed` in all of them.
    """
    study.serve(variant)
    load = replace(study.probe, connections=min(MOST_CONNECTIONS, study.probe.connections)).load(ENSEMBLE)
    loop = OpenLoop(load, rate_per_s, "constant", duration_s=duration_s, warmup_s=study.probe.warmup_s)
    requests = requests_for(ENSEMBLE, study.images, variant)
    server, records_path = study.served.server, study.records("open_loop")
    rows = []
    for run in range(runs):
        result = measure_open_loop(server, loop, requests, records_path, run=run, progress=False)
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
