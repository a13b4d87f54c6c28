"""One directory a run: parameters, environment, raw records, results, executed notebooks, report."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workbook.artifacts import PROJECT_DIR, cannot_write
from workbook.environment import describe_environment
from workbook.errors import SettingError
from workbook.settings import Settings

ENVIRONMENT = "environment.json"
"""File of the machine's description, which every run directory holds."""
RUN_VARIABLE = "WORKBOOK_RUN"
"""Environment variable by which `make run` gives all its notebooks the same run directory."""


@dataclass(frozen=True)
class Run:
    """A notebook's place in a run directory.

    Attributes:
        directory: `runs/<run>`.
        notebook: stem of the notebook's file name, such as `05_batch_versus_online`.
    """

    directory: Path
    notebook: str

    @property
    def log_path(self) -> Path:
        """Where this notebook's server writes its log."""
        return self.directory / "logs" / f"{self.notebook}.log"

    def records_path(self, name: str) -> Path:
        """Where the raw records of one measurement are kept: one CSV file per measurement."""
        path = self.directory / "records" / self.notebook / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write_results(self, results: Mapping[str, Any]) -> Path:
        """Write the notebook's headline numbers, with the environment they hold for, to `results/<notebook>.json`."""
        path = self.directory / "results" / f"{self.notebook}.json"
        write_json(path, {**results, "environment": read_json(self.directory / ENVIRONMENT)})
        return path

    def read_results(self) -> dict[str, Any]:
        """The headline numbers this notebook wrote in this run."""
        return dict(read_json(self.directory / "results" / f"{self.notebook}.json"))


def runs_dir() -> Path:
    """Folder of all runs: `$WORKBOOK_RUNS`, from the project's folder on, else its `runs/`."""
    return PROJECT_DIR / Path(os.environ.get("WORKBOOK_RUNS") or "runs").expanduser()


def create_run(label: str) -> Path:
    """Make a new run directory, named by time and label, and point `runs/latest` to it.

    Raises:
        SetupError: the folder of all runs cannot be written to.
    """
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^\w.-]+", "_", label)[:40]
    try:
        runs_dir().mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"{stamp}-{name}-", dir=runs_dir()))
        directory.chmod(0o755)
        for folder in ("records", "results", "logs", "notebooks"):
            (directory / folder).mkdir()
        write_json(directory / ENVIRONMENT, describe_environment())
        _point_latest_to(directory)
    except OSError as error:
        raise cannot_write(runs_dir(), "WORKBOOK_RUNS", error) from error
    return directory


def open_run(notebook: str, settings: Settings) -> Run:
    """Take part in the run that `make run` opened, or open a new one for this notebook alone."""
    shared = os.environ.get(RUN_VARIABLE)
    directory = Path(shared) if shared else create_run(notebook[:2])
    if not directory.is_dir():
        raise SettingError(
            f"{RUN_VARIABLE} names {directory}, which is no directory. Unset it, or start with `make run`."
        )
    write_json(directory / "parameters" / f"{notebook}.json", settings.as_parameters())
    return Run(directory, notebook)


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all, so that a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def _point_latest_to(directory: Path) -> None:
    link = directory.parent / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(directory.name)
    link.replace(directory.parent / "latest")
