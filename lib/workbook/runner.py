"""Executes notebooks headlessly with papermill, in one run directory, and closes with the report."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from workbook.artifacts import cannot_write
from workbook.preflight import check_run
from workbook.run_request import (
    NOTEBOOKS_DIR,
    STOPPED,
    Plan,
    RunRequest,
    find_stopped_run,
    make_plan,
    note_seconds,
    seconds_last_time,
)
from workbook.runs import RUN_VARIABLE, create_run, read_json
from workbook.settings import Settings


def run_workbook(request: RunRequest) -> int:
    """Execute the notebooks asked for; return 0, or 1 where one of them failed.

    Everything that can be wrong with the request is found before the first notebook starts. A notebook that fails does
    not keep the later ones from running: each stands alone. A run that is stopped says how to go on with it.

    Raises:
        SettingError: unknown profile, notebook or parameter, a value out of bounds, or no such run to go on with.
        CorpusError, ModelError, ServerError, SetupError: what the settings name is not there, or the run directory
            cannot be made.
    """
    if request.resume is None:
        directory, plan = None, make_plan(request)
    else:
        directory, plan = find_stopped_run(request)
    chosen = [NOTEBOOKS_DIR / f"{name}.ipynb" for name in (plan.left(directory) if directory else plan.notebooks)]
    check_run(Settings.from_parameters(plan.parameters), chosen)
    if directory is None:
        directory = create_run(Path(plan.profile).stem)
        plan.write(directory)
    many = "notebook" if len(chosen) == 1 else "notebooks"
    print(f"Profile {plan.profile}, {len(chosen)} {many}, run directory {_shown(directory)}", flush=True)
    again = f"make run RESUME={directory.name}"
    try:
        failed = [notebook for notebook in chosen if not _timed(notebook, directory, plan)]
        print_headlines(directory)
        print_report(directory, plan.command)
    except KeyboardInterrupt:
        print(f"\nStopped. What was measured so far is kept in {_shown(directory)}. To go on: {again}", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(directory, "WORKBOOK_RUNS", error) from error
    if failed:
        names = ", ".join(path.stem for path in failed)
        print(f"Failed: {names}. See above; records so far are kept. To try again: {again}", file=sys.stderr)
    return 1 if failed else 0


def _timed(notebook: Path, directory: Path, plan: Plan) -> bool:
    """Execute a notebook, saying how long it took last time, and keep how long it took now."""
    before = seconds_last_time(plan.profile, notebook.stem)
    print(f"\n{notebook.stem}" + ("" if before is None else f" (took {before:.0f} s last time)"), flush=True)
    started = time.monotonic()
    done = execute(notebook, directory, plan.parameters)
    if done:
        note_seconds(directory, notebook.stem, time.monotonic() - started)
    return done


def execute(notebook: Path, directory: Path, parameters: dict[str, Any]) -> bool:
    """Execute one notebook into the run directory; False where a cell failed, after saying why."""
    import papermill
    from nbclient.exceptions import DeadKernelError

    started = time.monotonic()
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
        return _failed(started, f"{error.ename}: {error.evalue}")
    except DeadKernelError:
        return _failed(
            started,
            "its Python process was killed. Mostly that is a lack of memory: take fewer threads, or less at once.",
        )
    finally:
        del os.environ[RUN_VARIABLE]
    print(f"  done in {time.monotonic() - started:.0f} s", flush=True)
    return True


def _failed(started: float, why: str) -> bool:
    """Say why a notebook failed; False, for `execute` to return."""
    print(f"  failed after {time.monotonic() - started:.0f} s: {why}", file=sys.stderr, flush=True)
    return False


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


def print_report(directory: Path, command: str | None = None) -> None:
    """Build the HTML report from whatever was executed and print its path."""
    from workbook.display.report import build_report

    print(f"\nReport: {_shown(build_report(directory, command))}", flush=True)


def _shown(path: Path) -> str:
    """A path as the reader would type it from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
