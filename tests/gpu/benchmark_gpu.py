"""What an NVIDIA machine runs of the benchmark, in six minutes: `python tests/gpu/benchmark_gpu.py [FOLDER]`.

With Docker and the pinned image: notebooks 02 and 04 with every variant the machine can build, TensorRT engines
included, on few rows. Without: PyTorch in fp32 and bf16 on the GPU, in this process. What was found and what came out
goes to FOLDER (`$OUT`, else `runs/gpu`), as `gpu.json` beside the runs. Its GPU parts have not been run yet: no machine
with a GPU was at hand when it was written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

from workbook.artifacts import PROJECT_DIR
from workbook.measuring.environment import describe_environment, gpu_names
from workbook.models.machine import describe_machine
from workbook.models.variants import choose_variants
from workbook.serving import container

BUDGET_S = 360.0
ROWS = 1024
NOTEBOOK_SETTINGS = (
    "model=bundled",
    "corpus=sample",
    "server=container",
    "batch_size=32",
    "sequence_length=128",
    "rounds=2",
    "shape_rounds=2",
    "cell_s=0.9",
    "open_loop_s=2.0",
    "load_percents=[50, 80, 120]",
    "quality_rows=256",
    "repeats=2",
)


def main() -> int:
    """Run what the machine can; 0 where something was measured on a GPU."""
    deadline = time.monotonic() + BUDGET_S
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("OUT") or PROJECT_DIR / "runs" / "gpu")
    folder.mkdir(parents=True, exist_ok=True)
    found = what_is_there()
    print(json.dumps(found, indent=2))
    if not found["gpus"]:
        print("This machine has no NVIDIA GPU that nvidia-smi shows: run it on one that has.", file=sys.stderr)
        return 1
    if found["container"]:
        measured: dict[str, Any] = {"notebooks": run_notebooks(folder, deadline)}
    elif found["torch_cuda"]:
        measured = {"torch": run_torch(folder)}
    else:
        print("Needs Docker with the image " + container.IMAGE + ", or a PyTorch built for CUDA.", file=sys.stderr)
        return 1
    environment = describe_environment()
    (folder / "gpu.json").write_text(json.dumps({"found": found, **measured, "environment": environment}, indent=2))
    print(f"Written to {folder / 'gpu.json'}")
    return 0


def what_is_there() -> dict[str, Any]:
    """GPU, Docker image, trtexec, PyTorch for CUDA, and which variants can run."""
    import torch

    usable = container.is_usable()
    machine = describe_machine("container" if usable else "embedded")
    runnable, not_run = choose_variants("auto", machine)
    return {
        "gpus": gpu_names(),
        "container": usable,
        "trtexec": None if machine.trtexec is None else machine.trtexec.program,
        "torch_cuda": torch.cuda.is_available(),
        "runnable": [variant.name for variant in runnable],
        "not_run": {variant.name: reason for variant, reason in not_run},
    }


def run_notebooks(folder: Path, deadline: float) -> dict[str, Any]:
    """Notebooks 02 and 04 within what is left of the time; their results, or how far they came."""
    command = [sys.executable, "-m", "workbook", "run", "--profile", "gpu", "--notebooks", "02 04", "--set"]
    environment = {**os.environ, "WORKBOOK_RUNS": str(folder)}
    process = subprocess.Popen([*command, *NOTEBOOK_SETTINGS], env=environment)
    try:
        ended = f"exit code {process.wait(max(1, deadline - time.monotonic()))}"
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends its kernel and server first
        process.wait()
        ended = f"stopped after {BUDGET_S:.0f} s; engines built so far are kept, so a second run comes further"
    results = sorted((folder / "latest" / "results").glob("*.json"))
    return {"ended": ended, "results": {path.stem: json.loads(path.read_text()) for path in results}}


def run_torch(folder: Path) -> list[dict[str, Any]]:
    """Rows per second of the PyTorch loop on the GPU, two runs a precision, in turn."""
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.measuring.offline.batch import BatchJob, run_batch
    from workbook.models.e5 import load_encoder

    encoder = load_encoder("bundled")
    texts = load_corpus("sample", text_column="text", rows=ROWS, seed=0).texts
    rows = []
    order: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16", "bf16", "fp32", "fp32", "bf16")
    for run, precision in enumerate(order):
        job = BatchJob("torch", 32, device="cuda", precision=precision)
        result = run_batch(encoder, texts, job, folder / "torch.csv", arm=f"torch_{precision}", run=run)
        records = result.records
        from_tokens_s = (records["pooled_ns"] - records["tokenised_ns"]).sum() / 1e9  # the server is sent tokens too
        rows.append(
            {"variant": f"torch_{precision}", "run": run, "rows_per_s": float(records["rows"].sum() / from_tokens_s)}
        )
    return rows[2:]  # the first of each warms the GPU up


if __name__ == "__main__":
    sys.exit(main())
