"""The runs that are there: by name, `latest` or `previous`, and those that hold what somebody asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.runs import ENVIRONMENT, runs_dir

LATEST, PREVIOUS = "latest", "previous"
_MOST_LISTED = 8


def all_runs() -> list[Path]:
    """Every run directory, oldest first; their names begin with the time."""
    return sorted(path for path in runs_dir().glob("[0-9]*") if path.is_dir())


def runs_with_results() -> list[Path]:
    """Runs in which a notebook came to its end, oldest first."""
    return [path for path in all_runs() if any(path.glob("results/*.json"))]


def runs_with_records(notebook: str) -> list[Path]:
    """Runs that hold raw records of a notebook, oldest first."""
    return [path for path in all_runs() if any(path.glob(f"records/{notebook}/*.csv"))]


def find_past_run(name: str, kept: Sequence[Path] | None = None, what: str = "results") -> Path:
    """The run that a word names: its directory's name or the beginning of it, a path, `latest` or `previous`.

    A path starts from the folder one is in, from the folder of all runs, or from the project's.

    Args:
        name: the word.
        kept: the runs among which `latest` is the newest and `previous` the one before it; by default those with
            results.
        what: what these hold, for the message where there are too few.

    Raises:
        SettingError: there is none, or several begin so; the message lists the runs there are.
    """
    word = name.strip()
    kept = runs_with_results() if kept is None else kept
    if word in (LATEST, PREVIOUS):
        place = 1 if word == LATEST else 2
        if len(kept) < place:
            raise SettingError(f"there is no {word} run: {_listed(kept, what)}")
        return kept[-place]
    beginning = [path for path in all_runs() if word and path.name.startswith(word)]
    exact = [path for path in beginning if path.name == word]
    if exact or len(beginning) == 1:
        return (exact or beginning)[0]
    if beginning:
        raise SettingError(
            f"{len(beginning)} runs begin with {word!r}; give more of the name. {_listed(beginning, what)}"
        )
    given = os.path.expanduser(word)  # noqa: PTH111 - Path's own raises RuntimeError
    for path in (Path(given), runs_dir() / given, PROJECT_DIR / given):
        if word and (path / ENVIRONMENT).is_file():
            return path.resolve()
    raise SettingError(f"there is no run {name!r}. {_listed(kept, what)}")


def _listed(runs: Sequence[Path], what: str) -> str:
    if not runs:
        return f"No run in {runs_dir()} has {what} yet: `make run` makes one."
    earlier = f" and {len(runs) - _MOST_LISTED} earlier ones" if len(runs) > _MOST_LISTED else ""
    names = ", ".join(path.name for path in reversed(runs[-_MOST_LISTED:]))
    return f"Runs in {runs_dir()}: {names}{earlier}; or {LATEST} and {PREVIOUS}."
