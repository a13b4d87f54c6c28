"""The same answer over every transport: what of a served request's time is the way the tensor travels.

One model answers at once with a float32 tensor of the size asked for; it computes nothing. Each rung ends with a NumPy
array in the client, so the rungs can be compared with each other and with a model called in this process.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.errors import LoadError, SettingError
from workbook.measuring.alternation import alternate
from workbook.measuring.copies.requests import relay_request
from workbook.measuring.online.requests import check_requests
from workbook.measuring.online.rungs import HTTP_JSON, OPEN, OUTPUT, RUNGS
from workbook.measuring.online.transports import RequestError
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter
from workbook.serving.arrangements import SOURCE_MODEL

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

JSON_MOST_BYTES = 64 << 20
_WARM = 1
_SLOW_NS, _SLOWEST_NS = 1_000_000_000, 5_000_000_000


def measure_ladder(
    server: Server,
    sizes_bytes: Sequence[int],
    records_path: Path,
    *,
    rungs: Sequence[str] = RUNGS,
    repeats: int = 2,
    requests: int = 6,
    json_most_bytes: int = JSON_MOST_BYTES,
    progress: bool = True,
) -> pd.DataFrame:
    """Ask for each size over each transport, one request at a time; all take turns, A B B A.

    A run that has spent a second on a size sends no further requests of it: JSON of 50 MB takes seconds for one, and
    then the first one counts too. What took more than five seconds is not run again: a hiccup of the machine is short
    beside that.

    Args:
        server: serves `copies_source` (`serving.arrangements.source_model`).
        sizes_bytes: of the answer; multiples of 4, 8 or more.
        records_path: CSV file of REQUEST_COLUMNS; `arm` is "rung bytes".
        rungs: transports, names from RUNGS.
        repeats: runs of each, even.
        requests: timed requests of a run, at most.
        json_most_bytes: larger answers are not asked for as JSON.
        progress: show a progress bar.

    Returns:
        A row a run: `rung`, `bytes`, `run`, `requests`, `latency_ms` (median), `client_ms` (median processor time of
        this process), `decode_ms` (median), `mb_per_s` (of the tensor's bytes, at the median), `body_bytes`.

    Raises:
        SettingError: no such rung or size.
        LoadError: a request failed.
        ServerError: the server is gone.
    """
    import pandas as pd

    _require(sizes_bytes, rungs)
    check_requests(server, SOURCE_MODEL, [relay_request(size) for size in sizes_bytes], [OUTPUT])
    with RecordWriter(records_path, REQUEST_COLUMNS) as writer:
        arms: dict[str, Callable[[int], list[dict[str, Any]]]] = {
            f"{rung} {size}": _unless_slow(partial(_measure_cell, server, writer, rung, size, requests))
            for size in sizes_bytes
            for rung in rungs
            if rung != HTTP_JSON or size <= json_most_bytes
        }
        cells = alternate(arms, repeats, progress=progress)
    return pd.DataFrame([_summary(rows) for rows in itertools.chain.from_iterable(cells.values()) if rows])


def ladder_table(ladder: pd.DataFrame) -> pd.DataFrame:
    """Medians over the runs: a row a size and rung, with the share of the time in which this process was busy.

    Returns:
        `bytes`, `rung`, `latency_ms`, `client_ms`, `decode_ms`, `client_share` (of the latency, at most 1), `mb_per_s`.
    """
    medians = ladder.groupby(["bytes", "rung"], sort=False)[["latency_ms", "client_ms", "decode_ms"]].median()
    table = medians.reset_index()
    table["client_share"] = (table["client_ms"] / table["latency_ms"]).clip(upper=1.0)
    table["mb_per_s"] = table["bytes"] / 1e3 / table["latency_ms"]
    return table.sort_values(["bytes", "latency_ms"], ignore_index=True)


def _require(sizes_bytes: Sequence[int], rungs: Sequence[str]) -> None:
    for rung in rungs:
        if rung not in RUNGS:
            raise SettingError(f"there is no rung {rung!r}: there are {', '.join(RUNGS)}.")
    for size in sizes_bytes:
        if size < 8 or size % 4:
            raise SettingError(f"a size is {size} bytes: answers are float32, so it is a multiple of 4, 8 or more.")
    if not sizes_bytes or not rungs:
        raise SettingError("there is nothing to measure: give at least one size and one rung.")


def _unless_slow(measure: Callable[[int], list[dict[str, Any]]]) -> Callable[[int], list[dict[str, Any]]]:
    """The same, without requests once one has taken longer than five seconds."""
    slowest_ns = 0

    def run(number: int) -> list[dict[str, Any]]:
        nonlocal slowest_ns
        rows = measure(number) if slowest_ns < _SLOWEST_NS else []
        slowest_ns = max([slowest_ns, *(row["decoded_ns"] - row["sent_ns"] for row in rows)])
        return rows

    return run


def _measure_cell(
    server: Server, writer: RecordWriter, rung: str, size: int, requests: int, run: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with ExitStack() as opened:
        try:
            ask = OPEN[rung](server, size, opened)
            started_ns = time.perf_counter_ns()
            for number in range(-_WARM, requests):
                busy_ns, sent_ns = time.process_time_ns(), time.perf_counter_ns()
                received_ns, array, body_bytes = ask()
                decoded_ns = time.perf_counter_ns()
                busy_ns = time.process_time_ns() - busy_ns
                if array.nbytes != size:
                    raise LoadError(f"{rung}: asked for {size} bytes, {array.nbytes} came back.")
                times = {"sent_ns": sent_ns, "received_ns": received_ns, "decoded_ns": decoded_ns}
                counts = number >= 0 or decoded_ns - sent_ns > _SLOW_NS  # warming up is nothing to seconds
                writer.append(_record(rung, size, run, number, body_bytes, times, counts))
                if counts:
                    rows.append(
                        {"rung": rung, "bytes": size, "run": run, "busy_ns": busy_ns, "body": body_bytes} | times
                    )
                if rows and decoded_ns - started_ns > _SLOW_NS:
                    break
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{rung}, {size:,} bytes: {error}.") from None
    return rows


def _record(
    rung: str, size: int, run: int, number: int, body_bytes: int, times: dict[str, int], counts: bool
) -> dict[str, Any]:
    zeros = ("client", "first_row", "real_tokens", "padded_tokens", "bytes_in")
    return {
        **dict.fromkeys(zeros, 0),
        **times,
        "arm": f"{rung} {size}",
        "run": run,
        "concurrency": 1,
        "request": number + _WARM,
        "window": 0 if counts else -1,
        "intended_ns": times["sent_ns"],
        "rows": 1,
        "bytes_out": body_bytes,
        "error": "",
    }


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def median_ms(values: Sequence[int]) -> float:
        return float(np.median(values)) / 1e6

    first = rows[0]
    latency_ms = median_ms([row["decoded_ns"] - row["sent_ns"] for row in rows])
    return {
        "rung": first["rung"],
        "bytes": first["bytes"],
        "run": first["run"],
        "requests": len(rows),
        "latency_ms": latency_ms,
        "client_ms": median_ms([row["busy_ns"] for row in rows]),
        "decode_ms": median_ms([row["decoded_ns"] - row["received_ns"] for row in rows]),
        "mb_per_s": first["bytes"] / 1e3 / latency_ms,
        "body_bytes": first["body"],
    }
