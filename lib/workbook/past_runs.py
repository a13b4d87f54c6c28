"""The runs that are there: by name, `latest` or `previous`, and those that hold what somebody asks for."""

from __future__ import annotations

from pathlib import Path

from workbook.errors import SettingError
from workbook.runs import runs_dir

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


def find_past_run(name: str) -> Path:
    """The run that a word names: its directory's name or the beginning of it, a path, `latest` or `previous`.

    `latest` is the newest run with results, `previous` the one before it.

    Raises:
        SettingError: there is none, or several begin so; the message lists the runs there are.
    """
    word = name.strip()
    kept = runs_with_results()
    if word in (LATEST, PREVIOUS):
        place = 1 if word == LATEST else 2
        if len(kept) < place:
            raise SettingError(f"there is no {word} run: {_listed(kept)}")
        return kept[-place]
    beginning = [path for path in all_runs() if word and path.name.startswith(word)]
    exact = [path for path in beginning if path.name == word]
    if exact or len(beginning) == 1:
        return (exact or beginning)[0]
    if beginning:
        raise SettingError(f"{len(beginning)} runs begin with {word!r}; give more of the name. {_listed(beginning)}")
    path = Path(word).expanduser()
    if word and (path / "results").is_dir():
        return path.resolve()
    raise SettingError(f"there is no run {name!r}. {_listed(kept)}")


def _listed(runs: list[Path]) -> str:
    if not runs:
        return f"No run in {runs_dir()} has results yet: `make run` makes one."
    earlier = f" and {len(runs) - _MOST_LISTED} earlier ones" if len(runs) > _MOST_LISTED else ""
    names = ", ".join(path.name for path in reversed(runs[-_MOST_LISTED:]))
    return f"Runs in {runs_dir()}: {names}{earlier}; or {LATEST} and {PREVIOUS}."
