"""The comparison of batch and online on a reader's own model and text, beside the kernel.

State and work of the bring-your-own panel, without any widget. What is measured is notebook 05 itself, executed by the
same command that a reader would type (`OwnRequest.command`), with parameters that leave out what does not bear on the
answer. So the panel, the command line and papermill give the same result files.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from workbook.errors import CancelledError, LoadError, SettingError
from workbook.measuring.background import BackgroundJob
from workbook.preflight import check_run
from workbook.run_request import STOPPED, RunRequest, absolute_paths, choose_notebooks, expanded, gather_parameters
from workbook.runs import RUN_VARIABLE, read_json, runs_dir
from workbook.settings import Settings

NOTEBOOK = "05_batch_versus_online"
PROFILE = "smoke"
SHORT = {
    "layers": "none",
    "batch_size": "32",
    "repeats": "4",
    "switch_rows": "64",
    "depths": "[]",
    "regime_batches": "[1, 32]",
    "token_budget": "512",
}
"""What is set beside the reader's own: the whole model, four runs an arm, few rows for everything but the main arms."""
LEAST_ROWS, MOST_ROWS = 32, 100_000
_DIRECTORY = re.compile(r"run directory (.+)$")
_POLL_S = 0.2
_STOP_S = 20.0
_STARTER = (
    "import ctypes, os, runpy, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); "
    "os.getppid() == int(sys.argv.pop(1)) or sys.exit(1); runpy.run_module('workbook', run_name='__main__')"
)
"""Runs the command line so that it is asked to stop when whoever started it is gone, even killed."""
_CONFIG = "config.json"
_ONNX_ALONE = (
    "{name} is a bare ONNX file, with no config.json beside it or one folder up: the batch side computes in PyTorch "
    "too, so give the folder that holds the model's config.json, its weights (model.safetensors) and its tokenizer, as "
    "save_pretrained writes it."
)


@dataclass(frozen=True)
class OwnRequest:
    """What the fields say. Making one touches nothing.

    Attributes:
        model: `bundled`, a hub id, a folder (or an ONNX file in it), or one of them with `hub:` or `path:` before it.
        corpus: `sample`, `hub:ORG/NAME`, or a path to CSV, Parquet or JSONL.
        text_column: the column that holds the text.
        rows: through each main arm.
    """

    model: str = "bundled"
    corpus: str = "sample"
    text_column: str = "text"
    rows: int = 256

    def overrides(self) -> tuple[str, ...]:
        """`name=value` words for the command line.

        Raises:
            SettingError: the model is a bare ONNX file.
        """
        own = {
            "model": named_model(self.model),
            "corpus": self.corpus.strip(),
            "text_column": self.text_column.strip(),
            "rows": str(self.rows),
        }
        return tuple(f"{name}={value}" for name, value in {**SHORT, **own}.items())

    def check(self) -> None:
        """Look at all that the fields name, before any work.

        Raises:
            SettingError, CorpusError, ModelError, SetupError: what is wrong; a wrong column comes with those there are.
        """
        if not LEAST_ROWS <= self.rows <= MOST_ROWS:
            raise SettingError(f"rows is {self.rows}: it must lie between {LEAST_ROWS} and {MOST_ROWS:,}.")
        for name in ("corpus", "text_column"):
            if not getattr(self, name).strip():
                raise SettingError(f"The field {name.replace('_', ' ')} is empty.")
        request = RunRequest(PROFILE, (NOTEBOOK,), overrides=self.overrides())
        parameters = gather_parameters(PROFILE, request)
        check_run(Settings.from_parameters(absolute_paths(parameters)), choose_notebooks((NOTEBOOK,)))

    @property
    def command(self) -> str:
        """What a reader would type for the same result."""
        return shlex.join(["python", "-m", "workbook", *self.arguments()])

    def arguments(self) -> list[str]:
        """After `python -m workbook`."""
        return ["run", "--profile", PROFILE, "--notebooks", NOTEBOOK[:2], "--set", *self.overrides()]


def named_model(model: str) -> str:
    """The parameter `model` for what somebody wrote into a field: a folder and a hub id need no prefix.

    An ONNX file stands for the model's folder that it lies in, itself or in a folder such as `onnx/`: both sides are
    measured on the weights there, and the graph is exported from them.

    Raises:
        SettingError: nothing was written, or the name of a bare ONNX file.
    """
    word = model.strip()
    if not word:
        raise SettingError("The field model is empty: write bundled, a folder, or ORG/NAME of a model hub.")
    place = word.removeprefix("path:")
    if place.lower().endswith(".onnx"):
        around = expanded(place).parents[:2]
        folder = next((folder for folder in around if (folder / _CONFIG).is_file()), None)
        if folder is None:
            raise SettingError(_ONNX_ALONE.format(name=place))
        return f"path:{folder}"
    if word == "bundled" or word.startswith(("path:", "hub:")):
        return word
    if expanded(word).exists() or word.startswith((".", "/", "~")) or word.count("/") != 1:
        return f"path:{word}"
    return f"hub:{word}"


@dataclass(frozen=True)
class OwnResult:
    """What came out.

    Attributes:
        request: what was asked for.
        directory: of the run it made, with records, executed notebook and report.
        results: of notebook 05.
    """

    request: OwnRequest
    directory: Path
    results: dict[str, Any] = field(repr=False)


@dataclass(eq=False)
class OwnComparison:
    """Runs one comparison at a time.

    Attributes:
        job: the comparison under way, or the last one; its result is an OwnResult.
    """

    job: BackgroundJob = field(default_factory=BackgroundJob, repr=False)

    def measure(self, request: OwnRequest) -> bool:
        """Begin; False where one is under way, and nothing happens.

        Raises:
            SettingError, CorpusError, ModelError, SetupError: what the fields name is not there.
        """
        if self.job.is_running:
            return False
        request.check()
        return self.job.start(partial(_run, request))

    def cancel(self) -> None:
        """End it; the run it has begun keeps what was measured."""
        self.job.cancel()


def _run(request: OwnRequest, job: BackgroundJob) -> OwnResult:
    runs_dir().mkdir(parents=True, exist_ok=True)
    log = runs_dir() / f".own-comparison-{os.getpid()}.log"
    environment = {name: value for name, value in os.environ.items() if name != RUN_VARIABLE}
    command = [sys.executable, "-c", _STARTER, str(os.getpid()), *request.arguments()]
    job.report(0.0, "reading the model and the text")
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        while process.poll() is None:
            job.raise_if_cancelled()
            time.sleep(_POLL_S)
            with contextlib.suppress(OSError, ValueError):
                _report(job, _directory(log), request.rows)
        if process.returncode == STOPPED:  # the kernel was interrupted, and with it everything it had started
            raise CancelledError("The comparison was interrupted.")
        text = log.read_text(encoding="utf-8", errors="replace")
        directory = _directory(log)
        results = directory / "results" / f"{NOTEBOOK}.json" if directory else None
        if process.returncode or directory is None or results is None or not results.is_file():
            raise LoadError(_why(text))
        return OwnResult(request, directory, dict(read_json(results)))
    except CancelledError:
        process.send_signal(signal.SIGTERM)  # as Ctrl-C: its kernel and its server end first
        raise
    finally:
        _see_it_end(process)
        log.unlink(missing_ok=True)


def _see_it_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_S if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _directory(log: Path) -> Path | None:
    """The run directory, once the command has said it."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        found = _DIRECTORY.search(line)
        if found:
            return Path(found.group(1)).absolute()
    return None


def _why(text: str) -> str:
    """The command's own word on why it failed, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\bfailed after\b|Error: ", line)]
    return (told or lines or ["The command ended without a word."])[0]


def _report(job: BackgroundJob, directory: Path | None, rows: int) -> None:
    """How far: the rows that went through the main arms, then the switches, then the rest."""
    records = directory / "records" / NOTEBOOK if directory else None
    if records is None or not records.is_dir():
        return
    stages: list[tuple[str, str, float, float, Callable[[], float]]] = [
        ("main-*.csv", "measuring the main arms", 0.1, 0.5, lambda: _rows_in(records, "main-*.csv") / (8 * rows)),
        ("switch-*.csv", "measuring each switch", 0.6, 0.25, lambda: _rows_in(records, "switch-*.csv") / (12 * 64)),
        ("regimes.csv", "measuring regimes and arrivals", 0.85, 0.1, lambda: 0.0),
        ("arrivals.csv", "reading the answer", 0.95, 0.04, lambda: 0.0),
    ]
    for pattern, note, start, width, share in reversed(stages):
        if any(records.glob(pattern)):
            job.report(start + width * min(1.0, share()), note)
            return
    if (records / "study.json").is_file():
        job.report(0.04, "exporting and starting the server")


def _rows_in(records: Path, pattern: str) -> int:
    total = 0
    for path in records.glob(pattern):
        with path.open(encoding="utf-8", newline="") as file:
            total += sum(int(row["rows"]) for row in csv.DictReader(file) if (row.get("rows") or "").isdigit())
    return total
