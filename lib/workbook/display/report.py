"""One HTML file a run: the answer first, then the executed notebooks; it needs no network and no server.

plotly.js stands in the file once, so that every figure can be zoomed and read off offline.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.display.chapters import Chapter, figure_html, read_chapter
from workbook.errors import SettingError
from workbook.runs import ENVIRONMENT, Run, read_json, write_json

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEADLINE_FIRST = "05_batch_versus_online"
"""The notebook whose headline opens the report where it was run; else the first one that has a headline."""

REPORT = "report.html"


@dataclass(frozen=True)
class Headline:
    """The first screen.

    Attributes:
        question: what the run asked.
        answer: one sentence.
        numbers: up to three, each with `label`, `value` and `detail`.
        figure: HTML of the figure under them; empty where there is none.
    """

    question: str
    answer: str
    numbers: list[dict[str, str]] = field(default_factory=list)
    figure: str = ""


def build_report(run_directory: Path, command: str | None = None) -> Path:
    """Write `report.html` of a run from its executed notebooks, results and environment.

    Whatever is missing is left out: a run of one notebook, or of notebooks that failed, has a report too.

    Args:
        run_directory: `runs/<run>`.
        command: what made the run, for the footer; the command line of this process by default.

    Returns:
        The path of the report.

    Raises:
        SettingError: no such directory.
    """
    if not run_directory.is_dir():
        raise SettingError(f"there is no run directory {run_directory}. `make run` makes one.")
    directory = run_directory.resolve()
    results = {path.stem: dict(read_json(path)) for path in sorted((directory / "results").glob("*.json"))}
    page = _template().render(
        headline=_headline(directory, results),
        chapters=[read_chapter(path) for path in sorted((directory / "notebooks").glob("*.ipynb"))],
        answers={name: result.get("headline", {}).get("answer", "") for name, result in results.items()},
        machine=_machine(directory),
        parameters=_parameters(directory),
        not_run=_not_run(results),
        command=command or _command_line(),
        run=directory.name,
        made=datetime.now().strftime("%Y-%m-%d %H:%M"),
        style=(Path(__file__).parent / "report.css").read_text(encoding="utf-8"),
        plotly_js=_plotly_js(),
    )
    path = directory / REPORT
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(page, encoding="utf-8", errors="replace")
    unfinished.replace(path)
    return path


def write_figure(run: Run, name: str, figure: go.Figure) -> str:
    """Keep a figure for the report's first screen, as plotly JSON in `figures/<notebook>/<name>.json`.

    Returns:
        What the results' `headline` names as its `figure`: the path within `figures/`.

    Raises:
        SettingError: a name that is no plain file name.
    """
    import json

    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise SettingError(f"the figure's name is {name!r}: only letters, digits, - and _ make a file name everywhere.")
    place = f"{run.notebook}/{name}.json"
    write_json(run.directory / "figures" / place, json.loads(figure.to_json()))
    return place


def _headline(directory: Path, results: dict[str, dict[str, Any]]) -> Headline:
    ordered = sorted(results, key=lambda name: (name != HEADLINE_FIRST, name))
    found = next((results[name]["headline"] for name in ordered if results[name].get("headline")), None)
    if found is None:
        return Headline("What did this run measure?", "No notebook of this run has come to its answer.")
    figure = directory / "figures" / str(found.get("figure") or "-")
    return Headline(
        question=found["question"],
        answer=found["answer"],
        numbers=list(found.get("numbers", []))[:3],
        figure=figure_html(read_json(figure), "headline-figure") if figure.is_file() else "",
    )


def _not_run(results: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    return [{**entry, "notebook": name} for name, result in results.items() for entry in result.get("not_run", [])]


def _machine(directory: Path) -> list[tuple[str, str]]:
    """The environment record in words; empty where there is none."""
    path = directory / ENVIRONMENT
    if not path.is_file():
        return []
    found = dict(read_json(path))
    packages = ", ".join(f"{name} {version}" for name, version in found.get("packages", {}).items() if version)
    words = [
        ("Processor", found.get("processor")),
        ("Processors this run could use", found.get("processors_usable")),
        ("Memory", f"{found['memory_bytes'] / 2**30:.1f} GiB" if "memory_bytes" in found else None),
        ("GPU", ", ".join(found.get("gpus", [])) or "none"),
        ("Load just before the run", _load(found.get("load_average_1min"))),
        ("System", found.get("system")),
        ("Python", found.get("python")),
        ("Packages", packages),
        ("Commit", found.get("commit")),
        ("Started", found.get("started")),
    ]
    return [(name, str(value)) for name, value in words if value not in (None, "")]


def _load(processes: float | None) -> str | None:
    if processes is None:
        return None
    busy = " Something else was running: read small differences with care." if processes > 1 else ""
    return f"{processes:.1f} processes wanted a processor (mean of one minute).{busy}"


def _parameters(directory: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: dict(read_json(path)) for path in sorted((directory / "parameters").glob("*.json"))}


def _command_line() -> str:
    """This process's command as a reader would type it."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py" and program.parent.name == "workbook":
        return shlex.join(["python", "-m", "workbook", *sys.argv[1:]])
    return "make run"


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    return environment.get_template("report.html.j2")


__all__ = ["Chapter", "Headline", "build_report", "write_figure"]
