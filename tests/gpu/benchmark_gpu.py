"""What an NVIDIA machine runs of the benchmark, in six minutes: `python tests/gpu/benchmark_gpu.py [FOLDER]`.

Step by step: PyTorch in fp32 and bf16 on the GPU, in this process; then, with Docker and the pinned image, each variant
the machine can build, TensorRT engines included: made, served, held against PyTorch, and measured with 1 to 4 requests
in flight. After every step FOLDER/gpu.json (`$OUT`, else `runs/gpu`) holds what there is; when the time is up the step
that runs is ended, its server too. Engines are kept, so that a second run comes further.

Its GPU parts have not been run yet: no machine with a GPU was at hand when it was written. The way through it has, on a
CPU: `--server embedded --device cpu --layers 2 --seconds 60`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from workbook.artifacts import PROJECT_DIR
from workbook.environment import describe_environment, gpu_names
from workbook.errors import WorkbookError
from workbook.models.machine import describe_machine
from workbook.models.variants import Ingredients, VariantModel, choose_variants, make_variant
from workbook.runs import Run, write_json
from workbook.serving import container
from workbook.settings import Settings

BUDGET_S = 360.0
CLOSING_S = 30.0
"""Kept of the budget for ending a server and writing the file."""
MAKING_SHARE = 0.6
"""Most of the time that making variants may take, so that what was made is measured too."""
ROWS = 256
FIRST = ("onnx_fp32", "tensorrt_bf16", "tensorrt_fp32", "onnx_fp16", "tensorrt_fp16", "tensorrt_best")
"""Made in this order, so that the time is spent on what the article compares; any other variant after them."""
Report = dict[str, Any]


class OutOfTime(BaseException):
    """The time is up: whatever runs is to end now. Like KeyboardInterrupt it passes through `except Exception`."""


def main() -> int:
    """Run what the machine can within the time; 0 where something was measured."""
    arguments = _arguments()
    end_s = time.monotonic() + arguments.seconds - min(CLOSING_S, arguments.seconds / 4)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    report: Report = {"found": what_is_there(arguments.server), "steps": {}}
    print(json.dumps(report["found"], indent=2))
    steps = _steps(arguments, end_s)
    if not steps:
        print(_what_it_needs(report["found"]), file=sys.stderr)
        return 1
    for name, step in steps.items():
        report["steps"][name] = found = {"ended": "not begun: the time was up"}
        if time.monotonic() < end_s:
            _try(step, found, end_s)
        write_json(arguments.folder / "gpu.json", {**report, "environment": describe_environment()})
        print(f"{name}: {found['ended']}", flush=True)
    print(f"Written to {arguments.folder / 'gpu.json'}")
    return 0 if any(found.get("rows") for found in report["steps"].values()) else 1


def what_is_there(server: str) -> Report:
    """GPU, Docker image, trtexec, PyTorch for CUDA, and which variants can run."""
    import torch

    machine = describe_machine(server)
    runnable, not_run = choose_variants("auto", machine)
    return {
        "gpus": gpu_names(),
        "container": container.is_usable(),
        "trtexec": None if machine.trtexec is None else machine.trtexec.program,
        "torch_cuda": torch.cuda.is_available(),
        "runnable": [variant.name for variant in runnable],
        "not_run": {variant.name: reason for variant, reason in not_run},
    }


def measure_torch(arguments: argparse.Namespace, found: Report) -> None:
    """Rows per second of the PyTorch loop, two runs a precision, in turn."""
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.measuring.offline.batch import BatchJob, run_batch
    from workbook.models.e5 import load_encoder

    encoder = load_encoder("bundled", layers=arguments.layers)
    texts = load_corpus("sample", text_column="text", rows=ROWS, seed=0).texts
    order: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16", "bf16", "fp32", "fp32", "bf16")
    for run, precision in enumerate(order):
        job = BatchJob("torch", 32, device=arguments.device, precision=precision)
        path = arguments.folder / "torch.csv"
        records = run_batch(encoder, texts, job, path, arm=f"torch_{precision}", run=run, progress=False).records
        from_tokens_s = float((records["pooled_ns"] - records["tokenised_ns"]).sum()) / 1e9  # a server gets tokens too
        rate = float(records["rows"].sum()) / from_tokens_s
        if run >= 2:  # the first of each warms the GPU up
            found.setdefault("rows", []).append({"variant": f"torch_{precision}", "run": run, "rows_per_s": rate})


def measure_variants(arguments: argparse.Namespace, found: Report, end_s: float) -> None:
    """Make variants for a share of the time, then serve and measure those that were made."""
    from workbook.measuring.corpus.reading import load_corpus
    from workbook.measuring.variants.quality import reference_embeddings
    from workbook.measuring.variants.workloads import tweets_workload, workloads_of
    from workbook.models.e5 import load_encoder
    from workbook.models.export import export_onnx
    from workbook.serving.variant_server import start_variant_server

    settings = _settings(arguments)
    encoder = load_encoder(settings.model, layers=settings.layers)
    making: Report = found.setdefault("making", {})
    ingredients = Ingredients(encoder, export_onnx(encoder), describe_machine(arguments.server))
    until_s = time.monotonic() + MAKING_SHARE * (end_s - time.monotonic())
    models = _make(ingredients, making, until_s, end_s)
    texts = load_corpus("sample", text_column="text", rows=ROWS, seed=0).texts
    reference = reference_embeddings(encoder, texts)
    run = Run(arguments.folder, "benchmark_gpu")
    with start_variant_server(encoder, models, settings, run) as server:
        batches = tweets_workload(encoder, texts, 32).batches
        for model in models:
            _measure(server, model, workloads_of(encoder, texts, settings), batches, reference, settings, run, found)


def _measure(
    server: Any, model: VariantModel, workloads: Any, batches: Any, reference: Any, settings: Settings, run: Run,
    found: Report,
) -> None:  # fmt: skip
    """One variant: its answers against PyTorch's, its table; an error is noted and the next one begins."""
    from workbook.analysis.benchmark_table import benchmark_table, result_rows
    from workbook.analysis.summaries import as_json_values
    from workbook.measuring.variants.benchmark import benchmark_variants
    from workbook.measuring.variants.quality import served_agreement

    name = model.variant.name
    try:
        answers = served_agreement(server, [model], batches, {name: reference}, run.records_path("answers"))
        found.setdefault("quality", []).extend(as_json_values(answers))
        folder = run.records_path("benchmark").parent
        cells = benchmark_variants(server, [model], workloads, settings, folder, progress=False)
        found.setdefault("rows", []).extend(result_rows(benchmark_table(cells)))
    except WorkbookError as error:
        found.setdefault("failed", {})[name] = str(error)
        server.check_alive()


def _make(ingredients: Ingredients, making: Report, until_s: float, end_s: float) -> list[VariantModel]:
    """Variants made one after the other until their time is up; what failed or was not begun says so."""
    runnable, _ = choose_variants("auto", ingredients.machine)
    places = {name: place for place, name in enumerate(FIRST)}
    models = []
    for variant in sorted(runnable, key=lambda variant: places.get(variant.name, len(FIRST))):
        began_s = time.monotonic()
        if began_s > until_s:
            making[variant.name] = "not begun: the time for making was up"
            continue
        try:
            signal.setitimer(signal.ITIMER_REAL, until_s - began_s)
            model = make_variant(variant, ingredients)
        except OutOfTime:
            making[variant.name] = f"ended after {time.monotonic() - began_s:.0f} s: the time for making was up"
        except WorkbookError as error:
            making[variant.name] = str(error)
        else:
            models.append(model)
            build = asdict(model.engine.build) if model.engine else {}
            making[variant.name] = {"seconds": time.monotonic() - began_s, "bytes": model.bytes, **build}
        finally:
            signal.setitimer(signal.ITIMER_REAL, max(0.1, end_s - time.monotonic()))
    return models


def _try(step: Callable[[Report], None], found: Report, end_s: float) -> None:
    """Run a step until it or the time ends; what it found so far stays."""
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, end_s - time.monotonic()))
    try:
        step(found)
        found["ended"] = "done"
    except OutOfTime:
        found["ended"] = "stopped: the time was up"
    except WorkbookError as error:
        found["ended"] = f"failed: {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _time_is_up(number: int, frame: object) -> None:
    raise OutOfTime


def _steps(arguments: argparse.Namespace, end_s: float) -> dict[str, Callable[[Report], None]]:
    """What this machine can do, in order; empty where it lacks what all of it needs."""
    import torch

    steps: dict[str, Callable[[Report], None]] = {}
    if arguments.device == "cpu" or torch.cuda.is_available():
        steps["torch"] = lambda found: measure_torch(arguments, found)
    if arguments.server == "embedded" or container.is_usable():
        steps["served"] = lambda found: measure_variants(arguments, found, end_s)
    return steps


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        model="bundled",
        layers=arguments.layers,
        server=arguments.server,
        batch_size=32,
        sequence_length=128,
        benchmark_concurrency=(1, 2, 3, 4),
        rounds=2,
        shape_rounds=2,
        cell_s=0.9,
        quality_rows=ROWS,
    )


def _what_it_needs(found: Report) -> str:
    if not found["gpus"]:
        return "This machine has no NVIDIA GPU that nvidia-smi shows: run it on one that has."
    return f"Needs Docker with the image {container.IMAGE}, or a PyTorch built for CUDA."


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    folder = Path(os.environ.get("OUT") or PROJECT_DIR / "runs" / "gpu")
    parser.add_argument("folder", nargs="?", type=Path, default=folder, help="where gpu.json and the records go")
    parser.add_argument("--seconds", type=float, default=BUDGET_S, help="after which it has ended")
    parser.add_argument("--server", choices=("container", "embedded"), default="container")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of PyTorch in this process")
    parser.add_argument("--layers", type=int, default=None, help="of the encoder; all by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
