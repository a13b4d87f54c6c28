"""Triton's own load generator, perf_analyzer, on the same tokens: the check on ours.

What is worth knowing of it (2.60): `infer/sec` counts batch elements, not requests; its client asks for every output
the model has; a batch is made of as many consecutive entries of the input file as it has rows, which must be of equal
shape; and where three windows do not agree it ends with exit code 2 and writes no CSV.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.errors import LoadError, SettingError
from workbook.measuring.online.requests import ModelInputs
from workbook.measuring.online.scenario import Load

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server

HINT = "Install it with `pip install perf-analyzer` (glibc 2.38 or newer: Debian 13, Ubuntu 24.04)"
_UNSTABLE_EXIT_CODE = 2
_MICROSECOND_COLUMNS = {
    "Client Send": "client_send_ms",
    "Network+Server Send/Recv": "network_ms",
    "Server Queue": "server_queue_ms",
    "Server Compute Input": "server_compute_input_ms",
    "Server Compute Infer": "server_compute_infer_ms",
    "Server Compute Output": "server_compute_output_ms",
    "Client Recv": "client_receive_ms",
    "Avg latency": "latency_mean_ms",
    "p50 latency": "latency_p50_ms",
    "p90 latency": "latency_p90_ms",
    "p95 latency": "latency_p95_ms",
    "p99 latency": "latency_p99_ms",
}


def find_perf_analyzer(setting: str = "") -> Path | None:
    """The program, or None where it is not found or not wanted.

    Args:
        setting: its path; empty looks on PATH; `none` leaves it out.

    Raises:
        SettingError: the path is given and holds no program.
    """
    if setting == "none":
        return None
    found = shutil.which(setting or "perf_analyzer")
    if setting and not found:
        raise SettingError(f"perf_analyzer is {setting!r}, which is no program. {HINT}, or set it to none.")
    return Path(found) if found else None


def perf_analyzer_version(program: Path) -> str:
    """What it calls itself: version and commit.

    Raises:
        LoadError: it does not run on this machine.
    """
    done = _run([str(program), "--version"], timeout_s=30)
    return (done.stdout + done.stderr).strip().removeprefix("Perf Analyzer Version ")


def write_input_data(batches: Sequence[ModelInputs], path: Path) -> int:
    """Write the batches as perf_analyzer's `--input-data`: it then sends these batches, in this order, again and again.

    Returns:
        The batch size to give to it.

    Raises:
        LoadError: the batches have different numbers of rows, which perf_analyzer cannot send.
    """
    sizes = {batch.rows for batch in batches}
    if len(sizes) != 1:
        raise LoadError(f"perf_analyzer needs batches of one size, these have {sorted(sizes)} rows: drop the last one.")
    steps = [
        {
            name: {"content": array[row].ravel().tolist(), "shape": list(array.shape[1:])}
            for name, array in inputs.items()
        }
        for inputs in (batch.inputs for batch in batches)
        for row in range(next(iter(sizes)))
    ]
    path.write_text(json.dumps({"data": steps}), encoding="utf-8")
    return sizes.pop()


def perf_analyzer_command(
    program: Path, load: Load, url: str, batch_size: int, input_data: Path, csv: Path, *, percentile: int | None = None
) -> list[str]:
    """The command line that measures what `measure_load` measures with the same `Load`.

    Args:
        program: perf_analyzer.
        load: its outputs do not apply: perf_analyzer asks for all.
        url: `host:port` of the load's transport.
        batch_size: rows in a request.
        input_data: file written by `write_input_data`.
        csv: where the result goes.
        percentile: of the latency whose stability is watched, 1..99; None watches the mean, as ours does.
    """
    options: dict[str, object] = {
        "-m": load.model,
        "-u": url,
        "-i": load.transport,
        "-b": batch_size,
        "--input-data": input_data,
        "--concurrency-range": f"{load.concurrency}:{load.concurrency}",
        "--measurement-interval": round(load.window_s * 1000),
        "--stability-percentage": f"{load.stability_percent:g}",
        "--max-trials": load.max_windows,
        "-f": csv,
    }
    if percentile is not None:
        options["--percentile"] = percentile
    words = [str(word) for option in options.items() for word in option]
    return [str(program), *words, "--verbose-csv"]


def run_perf_analyzer(
    server: Server, load: Load, batches: Sequence[ModelInputs], program: Path, *, percentile: int | None = None
) -> pd.DataFrame:
    """Measure with perf_analyzer.

    Args:
        server: running server.
        load: what is sent; warm-up is perf_analyzer's own: its windows before the last three.
        batches: of one size; sent in turn, again and again.
        program: perf_analyzer.
        percentile: as for `perf_analyzer_command`.

    Returns:
        One row; columns as of `read_csv`.

    Raises:
        LoadError: it ended with an error, or its windows did not agree; the message is its own.
        ServerError: the server is gone.
    """
    url = server.grpc_url if load.transport == "grpc" else server.http_url
    longest_s = 120 + 3 * load.max_windows * load.window_s
    with tempfile.TemporaryDirectory(prefix="perf_analyzer-") as folder:
        input_data, csv = Path(folder) / "inputs.json", Path(folder) / "result.csv"
        batch_size = write_input_data(batches, input_data)
        server.check_alive()
        command = perf_analyzer_command(program, load, url, batch_size, input_data, csv, percentile=percentile)
        try:
            _run(command, timeout_s=longest_s)
        except LoadError:
            server.check_alive()
            raise
        return read_csv(csv)


def read_csv(path: Path) -> pd.DataFrame:
    """Read what `-f FILE --verbose-csv` wrote.

    Returns:
        A row a concurrency: `concurrency`, `throughput_rows_per_s`, `latency_p50_ms` and the other percentiles, and
        where the time went on average: `client_send_ms`, `network_ms`, `server_queue_ms`,
        `server_compute_{input,infer,output}_ms`, `client_receive_ms`.

    Raises:
        LoadError: it is no such file.
    """
    import pandas as pd

    if not path.is_file():
        raise LoadError("perf_analyzer ended well and wrote no result.")
    given = pd.read_csv(path)
    if not {"Concurrency", "Inferences/Second"} <= set(given.columns):
        raise LoadError(f"{path} is no result of perf_analyzer: it has the columns {', '.join(given.columns)}.")
    times = {ours: given[theirs] / 1000 for theirs, ours in _MICROSECOND_COLUMNS.items() if theirs in given}
    throughput = given["Inferences/Second"].astype("float64")
    return pd.DataFrame({"concurrency": given["Concurrency"], "throughput_rows_per_s": throughput, **times})


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, errors="replace", check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"perf_analyzer did not end within {timeout_s:.0f} s and was stopped.") from None
    except OSError as error:
        raise LoadError(f"perf_analyzer cannot be started: {error}. {HINT}.") from None
    if done.returncode == _UNSTABLE_EXIT_CODE and "stable" in done.stderr:
        raise LoadError(
            f"perf_analyzer's windows did not agree: {_sentence(done.stderr)} Raise window_s or stability_percent."
        )
    if done.returncode:
        raise LoadError(f"perf_analyzer failed (exit code {done.returncode}): {_sentence(done.stderr or done.stdout)}")
    return done


def _sentence(printed: str) -> str:
    """What it said, on one line."""
    text = re.sub(r"\s+", " ", printed).strip().removeprefix("error: ")
    return text if text.endswith(".") else f"{text}."
