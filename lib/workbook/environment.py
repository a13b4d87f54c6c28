"""The machine a number was measured on: without it, no number can be compared."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbook.artifacts import PROJECT_DIR

PACKAGES = ("torch", "onnxruntime", "transformers", "tritonclient", "numpy", "pandas", "tokenizers", "workbook")


def describe_environment() -> dict[str, Any]:
    """Processor, memory, GPU, system, versions, commit and time, as JSON values.

    `load_average_1min` is how many processes wanted a processor just before the run: above 1 on an idle-looking machine
    means somebody else was measuring too.
    """
    import psutil

    return {
        "processor": _processor_name(),
        "processors_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average_1min": round(os.getloadavg()[0], 2),
        "gpus": gpu_names(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def gpu_names() -> list[str]:
    """Name and driver of every NVIDIA GPU that nvidia-smi shows; empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return []
    shown = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return [line.strip() for line in shown.splitlines() if line.strip()]


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    commit = _output("git", "-C", str(PROJECT_DIR), "rev-parse", "--short", "HEAD").strip()
    changed = _output("git", "-C", str(PROJECT_DIR), "status", "--porcelain", "--untracked-files=no").strip()
    return f"{commit} + uncommitted changes" if commit and changed else commit or None


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
