"""What the load generator itself can send: measured against a model that does nothing.

A measurement near this capacity says more about the client than about the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.errors import LoadError
from workbook.measuring.online.load import Load, measure_load
from workbook.measuring.online.perf_analyzer import run_perf_analyzer
from workbook.measuring.online.requests import ModelInputs, TransportName

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server
    from workbook.settings import Settings

NULL_MODEL = "null"
_NULL_LOAD = Load(NULL_MODEL, warmup_s=0.5, window_s=1.0, stability_percent=50.0, max_windows=5)
"""A null model answers so fast that its windows never agree within 10%; the rate is wanted to within a factor."""


def null_load(settings: Settings) -> Load:
    """What is sent to find the capacity: seconds, and less where the notebook's own windows are shorter."""
    return replace(
        _NULL_LOAD,
        warmup_s=min(_NULL_LOAD.warmup_s, settings.warmup_s),
        window_s=min(_NULL_LOAD.window_s, settings.window_s),
        max_windows=min(_NULL_LOAD.max_windows, settings.max_windows),
    )


def measure_capacity(
    server: Server,
    batches: Sequence[ModelInputs],
    records_path: Path,
    *,
    concurrencies: Sequence[int] = (1, 4),
    transports: Sequence[TransportName] = ("grpc", "http"),
    program: Path | None = None,
    load: Load = _NULL_LOAD,
    progress: bool = True,
) -> pd.DataFrame:
    """Requests per second against the null model, ours beside perf_analyzer's.

    Args:
        server: serves the model `null`, which takes the inputs of the real one and answers with a constant embedding.
        batches: of the size that the real measurement sends.
        records_path: CSV file of REQUEST_COLUMNS that the records are appended to.
        concurrencies: clients.
        transports: `grpc`, `http` or both.
        program: perf_analyzer; None leaves it out.
        load: warm-up and windows; the model to send to.
        progress: show progress bars.

    Returns:
        A row a transport and concurrency: `transport`, `concurrency`, `requests_per_s`, `latency_p50_ms`,
        `client_cpu_share`, `bytes_in` (size of a request), `bytes_out`, `perf_analyzer_requests_per_s` and
        `perf_analyzer_latency_p50_ms`; the last two are NaN without it or where its windows did not agree.

    Raises:
        LoadError: as for `measure_load`.
        ServerError: the server is gone.
    """
    import pandas as pd

    rows = []
    for transport in transports:
        for concurrency in concurrencies:
            one = replace(load, transport=transport, concurrency=concurrency)
            result = measure_load(server, one, batches, records_path, arm="capacity", progress=progress)
            requests_per_s, p50_ms = _perf_analyzer_rate(server, one, batches, program)
            latency_ns = result.records["decoded_ns"] - result.records["sent_ns"]
            rows.append(
                {
                    "transport": transport,
                    "concurrency": concurrency,
                    "requests_per_s": result.requests_per_s,
                    "latency_p50_ms": latency_ns.median() / 1e6,
                    "client_cpu_share": result.client_cpu_share,
                    "bytes_in": result.records["bytes_in"].mean(),
                    "bytes_out": result.records["bytes_out"].mean(),
                    "perf_analyzer_requests_per_s": requests_per_s,
                    "perf_analyzer_latency_p50_ms": p50_ms,
                }
            )
    return pd.DataFrame(rows)


def capacity_warning(throughput_per_s: float, capacity_per_s: float, limit: float = 0.5) -> str | None:
    """A sentence where a measurement comes near what the client can send; None where it does not.

    Args:
        throughput_per_s: measured, in requests or rows per second.
        capacity_per_s: of the client, in the same unit, with the same transport and concurrency.
        limit: share of the capacity from which on the client may be what was measured, above 0.
    """
    share = throughput_per_s / capacity_per_s
    if share <= limit:
        return None
    return (
        f"The measured {throughput_per_s:,.0f}/s are {share:.0%} of the {capacity_per_s:,.0f}/s that the load "
        f"generator can send at all (limit {limit:.0%}): the client may be what was measured. Send larger batches, or "
        "measure from another machine."
    )


def _perf_analyzer_rate(
    server: Server, load: Load, batches: Sequence[ModelInputs], program: Path | None
) -> tuple[float, float]:
    if program is None:
        return float("nan"), float("nan")
    try:
        measured = run_perf_analyzer(server, load, batches, program).iloc[0]
    except LoadError as error:
        if "did not agree" not in str(error):
            raise
        return float("nan"), float("nan")
    return measured["throughput_rows_per_s"] / batches[0].rows, measured["latency_p50_ms"]
