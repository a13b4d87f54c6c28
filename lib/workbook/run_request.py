"""What a run was asked for, kept in its directory: a run that was stopped goes on from it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from workbook.errors import SettingError
from workbook.past_runs import all_runs, find_past_run
from workbook.runs import read_json, write_json

REQUEST, TIMES = "request.json", "notebook_seconds.json"


@dataclass(frozen=True)
class RunRequest:
    """What the command line asked for; `None` and empty mean the default."""

    profile: str | None = None
    notebooks: tuple[str, ...] = ()
    corpus: str | None = None
    overrides: tuple[str, ...] = ()
    resume: str | None = None
    """A run that was stopped, to go on with; nothing else may be asked for then."""

    def command(self) -> str:
        """The `make` command that asks for the same."""
        given = {
            "PROFILE": self.profile,
            "NOTEBOOKS": " ".join(self.notebooks),
            "CORPUS": self.corpus,
            "SET": " ".join(self.overrides),
        }
        words = [f"{name}={shlex.quote(value.replace('$', '$$'))}" for name, value in given.items() if value]
        return " ".join(["make run", *words])


@dataclass(frozen=True)
class Plan:
    """A request worked out.

    Attributes:
        command: what asked for it, for the report's footer.
        profile: name of the profile.
        notebooks: stems of the notebooks, in reading order.
        parameters: of all of them, paths absolute.
    """

    command: str
    profile: str
    notebooks: tuple[str, ...]
    parameters: dict[str, Any]

    def write(self, directory: Path) -> None:
        """Keep it with the run."""
        write_json(directory / REQUEST, asdict(self))

    def left(self, directory: Path) -> tuple[str, ...]:
        """Its notebooks that have not come to their end in this run directory."""
        return tuple(name for name in self.notebooks if not (directory / "results" / f"{name}.json").is_file())


def find_stopped_run(request: RunRequest) -> tuple[Path, Plan]:
    """The run to go on with, and what it was asked for; `latest` is the newest run, with results or without.

    Raises:
        SettingError: there is none, it says nothing of what it was asked for, or more than `resume` was given.
    """
    if request != RunRequest(resume=request.resume):
        raise SettingError(
            "RESUME goes on with what that run was asked for: leave out PROFILE, NOTEBOOKS, CORPUS, SET."
        )
    runs = [path for path in all_runs() if (path / REQUEST).is_file()]
    directory = find_past_run(request.resume or "", runs, "a request to go on with")
    if not (directory / REQUEST).is_file():
        raise SettingError(f"{directory.name} was not made by `make run`, so it cannot go on: start a new run.")
    kept = read_json(directory / REQUEST)
    plan = Plan(**{f.name: kept[f.name] for f in fields(Plan)})
    return directory, plan


def note_seconds(directory: Path, notebook: str, seconds: float) -> None:
    """Keep how long a notebook took, for the estimate of later runs."""
    path = directory / TIMES
    write_json(path, {**(read_json(path) if path.is_file() else {}), notebook: round(seconds, 1)})


def seconds_last_time(profile: str, notebook: str) -> float | None:
    """How long a notebook took in the newest run of this profile that finished it; None where there is none."""
    for directory in reversed(all_runs()):
        if (directory / TIMES).is_file() and (directory / REQUEST).is_file():
            seconds = read_json(directory / TIMES).get(notebook)
            if seconds is not None and read_json(directory / REQUEST)["profile"] == profile:
                return float(seconds)
    return None
