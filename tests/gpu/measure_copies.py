"""Copies between Python models on a GPU: one script, at most six minutes, one JSON file.

    python tests/gpu/measure_copies.py [--out FILE] [--minutes 6]

Needs an NVIDIA GPU, a PyTorch that sees it, and the embedded server (`make setup`). It serves the relay's stages on the
GPU with inputs that may stay there and with Triton's default, with several sizes of the CUDA pool, and writes what was
measured beside what the ledger predicts. What there was no time for is listed, not left out silently. It ends by
itself: an alarm interrupts what runs shortly before the time is up, the server is stopped, what there is gets written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from workbook.analysis.gpu_copies import gpu_ledger
from workbook.analysis.summaries import as_json_values
from workbook.environment import describe_environment, gpu_names
from workbook.errors import SetupError, WorkbookError
from workbook.measuring.copies.sizes import measure_sizes
from workbook.runs import write_json
from workbook.serving.gpu_arrangements import (
    GPU_ARRANGEMENTS,
    gpu_arrange,
    gpu_options,
    gpu_pipeline,
)
from workbook.serving.options import ServerOptions
from workbook.serving.repository import assemble_repository
from workbook.serving.server import start_server

SIZES_BYTES = (1_000_000, 6_000_000, 24_000_000, 50_000_000, 100_000_000)
POOLS_BYTES = (64 << 20, 1 << 30)
LEAST_LEFT_S = 60
"""A case is begun only while so much time is left: a start of the server and the measurement itself."""
ENDING_S = 15
"""Kept for stopping the server and writing the file."""


class TimeUpError(Exception):
    """The alarm went off."""


def main() -> None:
    """Measure case after case until all are done or the time is up."""
    arguments = _arguments()
    _require_gpu()
    deadline_s = time.monotonic() + 60 * arguments.minutes
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, 60 * arguments.minutes - ENDING_S))
    cases: list[dict[str, Any]] = []
    for stay_on_gpu, pool_bytes in itertools.product((True, False), POOLS_BYTES):
        case: dict[str, Any] = {"stay_on_gpu": stay_on_gpu, "pool_bytes": pool_bytes}
        if time.monotonic() + LEAST_LEFT_S > deadline_s:
            case["not_run"] = f"no time left of {arguments.minutes:g} minutes"
        else:
            case |= _try(stay_on_gpu, pool_bytes)
        cases.append(case)
        print(json.dumps({**case, "sizes": f"{len(case.get('sizes', []))} rows"}), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    write_json(arguments.out, {"cases": cases, "environment": describe_environment()})
    print(f"Written: {arguments.out}")


def _ring(number: int, frame: FrameType | None) -> None:
    raise TimeUpError


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_copies.json"))
    parser.add_argument("--minutes", type=float, default=6.0)
    return parser.parse_args()


def _require_gpu() -> None:
    if not gpu_names():
        raise SystemExit("Not run on this machine: nvidia-smi shows no GPU.")
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"PyTorch {torch.__version__} sees no GPU: install a build with CUDA.")


def _try(stay_on_gpu: bool, pool_bytes: int) -> dict[str, Any]:
    try:
        return {"sizes": _measure(stay_on_gpu, pool_bytes)}
    except SetupError as error:
        raise SystemExit(str(error)) from None
    except TimeUpError:
        return {"not_run": "interrupted: the time was up"}
    except WorkbookError as error:  # the other cases may still run
        return {"failed": str(error)[:2000]}


def _measure(stay_on_gpu: bool, pool_bytes: int) -> list[dict[str, Any]]:
    """Median latency of each arrangement and size, with the number of copies the ledger expects."""
    with tempfile.TemporaryDirectory() as folder:
        repository = assemble_repository(Path(folder) / "models", gpu_arrange(stay_on_gpu=stay_on_gpu), "embedded")
        options = gpu_options(pool_bytes, ServerOptions(shm_default_bytes=512 << 20, startup_timeout_s=120))
        with start_server("embedded", repository, options=options, log_file=Path(folder) / "triton.log") as server:
            sweep = measure_sizes(
                server,
                GPU_ARRANGEMENTS,
                SIZES_BYTES,
                Path(folder) / "records.csv",
                repeats=2,
                requests=6,
                pipeline=gpu_pipeline(),
                progress=False,
            )
    medians = sweep.latencies.groupby(["arrangement", "bytes"], sort=False)["latency_ms"].median().reset_index()
    medians["copies"] = [
        len(gpu_ledger(row.arrangement, row.bytes, stay_on_gpu=stay_on_gpu, pool_bytes=pool_bytes))
        for row in medians.itertuples()
    ]
    return as_json_values(medians)


if __name__ == "__main__":
    main()
