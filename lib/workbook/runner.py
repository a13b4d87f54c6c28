"""Executes notebooks headlessly with papermill, in one run directory, and closes with the report."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.measuring.environment import gpu_names
from workbook.runs import RUN_VARIABLE, create_run, read_json
from workbook.settings import PARAMETERS_DIR, Settings, read_parameter_file, require_known

NOTEBOOKS_DIR = PROJECT_DIR / "notebooks"


@dataclass(frozen=True)
class RunRequest:
    """What the command line asked for; `None` and empty mean the default."""

    profile: str | None = None
    notebooks: tuple[str, ...] = ()
    corpus: str | None = None
    overrides: tuple[str, ...] = ()


def run_workbook(request: RunRequest) -> int:
    """Execute the notebooks asked for; return 0, or 1 where one of them failed.

    Everything that can be wrong with the request is found before the first notebook starts. A notebook that fails does
    not keep the later ones from running: each stands alone.

    Raises:
        SettingError: unknown profile, notebook or parameter, or a value out of bounds.
        CorpusError: the corpus cannot be read.
    """
    profile = request.profile or default_profile()
    parameters = gather_parameters(profile, request)
    chosen = choose_notebooks(request.notebooks)
    check_corpus(Settings.from_parameters(parameters))
    directory = create_run(Path(profile).stem)
    print(f"Profile {profile}, {len(chosen)} notebooks, run directory {_shown(directory)}", flush=True)
    failed = [notebook for notebook in chosen if not execute(notebook, directory, parameters)]
    print_headlines(directory)
    print_report(directory)
    if failed:
        print(
            f"Failed: {', '.join(path.stem for path in failed)}. See above; records so far are kept.", file=sys.stderr
        )
    return 1 if failed else 0


def default_profile() -> str:
    """`gpu` where an NVIDIA GPU and Docker are found, else `cpu`."""
    return "gpu" if gpu_names() and shutil.which("docker") else "cpu"


def gather_parameters(profile: str, request: RunRequest) -> dict[str, Any]:
    """The profile's parameters with the command line's on top; paths made absolute, since notebooks run elsewhere."""
    path = Path(profile) if profile.endswith((".yaml", ".yml")) else PARAMETERS_DIR / f"{profile}.yaml"
    parameters = read_parameter_file(path)
    for override in request.overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise SettingError(f"{override!r} is not of the form name=value, for example rows=2048.")
        require_known([name])
        parameters[name] = yaml.safe_load(value) if value else ""
    if request.corpus:
        parameters["corpus"] = request.corpus
    if Path(str(parameters.get("corpus", "sample"))).expanduser().is_file():
        parameters["corpus"] = str(Path(parameters["corpus"]).expanduser().resolve())
    return parameters


def choose_notebooks(numbers: tuple[str, ...]) -> list[Path]:
    """The notebooks with these numbers, in reading order; all of them where none is named."""
    by_number = {path.name[:2]: path for path in sorted(NOTEBOOKS_DIR.glob("[0-9][0-9]_*.ipynb"))}
    wanted = {number[:2].zfill(2) for number in " ".join(numbers).replace(",", " ").split()} or set(by_number)
    unknown = sorted(wanted - set(by_number))
    if unknown:
        raise SettingError(f"there is no notebook {unknown[0]}. There are {', '.join(by_number)}.")
    return [path for number, path in by_number.items() if number in wanted]


def check_corpus(settings: Settings) -> None:
    """Read the corpus once, so that a wrong path or column fails now and not twenty minutes later."""
    from workbook.measuring.corpus import load_corpus

    load_corpus(settings.corpus, text_column=settings.text_column, rows=settings.rows, seed=settings.seed)


def execute(notebook: Path, directory: Path, parameters: dict[str, Any]) -> bool:
    """Execute one notebook into the run directory; False where a cell failed, after saying why."""
    import papermill

    started = time.monotonic()
    print(f"\n{notebook.stem}", flush=True)
    os.environ[RUN_VARIABLE] = str(directory)
    # papermill warns of parameters that a notebook does not show; they were checked above, and the notebook takes them
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        papermill.execute_notebook(
            str(notebook),
            str(directory / "notebooks" / notebook.name),
            parameters=parameters,
            cwd=str(NOTEBOOKS_DIR),
            kernel_name="python3",
            log_output=False,
            store_widget_state=False,  # a figure widget's state holds all of plotly.js
            extra_arguments=["--log-level=CRITICAL"],
            progress_bar=sys.stderr.isatty(),
        )
    except papermill.PapermillExecutionError as error:
        print(
            f"  failed after {time.monotonic() - started:.0f} s: {error.ename}: {error.evalue}",
            file=sys.stderr,
            flush=True,
        )
        return False
    finally:
        del os.environ[RUN_VARIABLE]
    print(f"  done in {time.monotonic() - started:.0f} s", flush=True)
    return True


def print_headlines(directory: Path) -> None:
    """Print the numbers that each notebook put in its headline, as one table."""
    rows = [
        (path.stem, number["label"], number["value"], number.get("detail", ""))
        for path in sorted((directory / "results").glob("*.json"))
        for number in read_json(path).get("headline", {}).get("numbers", [])
    ]
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), "", row[3])


def print_report(directory: Path) -> None:
    """Build the HTML report from whatever was executed and print its path."""
    from workbook.display.report import build_report

    print(f"\nReport: {_shown(build_report(directory))}", flush=True)


def _shown(path: Path) -> str:
    """A path as the reader would type it from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
