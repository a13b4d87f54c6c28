"""What a run is asked for, worked out into notebooks and parameters, and kept: a stopped run goes on from it."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from workbook.artifacts import PROJECT_DIR
from workbook.environment import gpu_names
from workbook.errors import SettingError
from workbook.overrides import read_overrides
from workbook.past_runs import all_runs, find_past_run
from workbook.runs import read_json, write_json
from workbook.settings import PARAMETERS_DIR, read_parameter_file

NOTEBOOKS_DIR = PROJECT_DIR / "notebooks"
STOPPED = 130
"""Exit code of a run that somebody stopped, as shells know it."""
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


def make_plan(request: RunRequest) -> Plan:
    """Work a request out: its profile, notebooks and parameters.

    Raises:
        SettingError: unknown profile, notebook or parameter.
    """
    profile = request.profile or default_profile()
    parameters = gather_parameters(profile, request)
    notebooks = tuple(path.stem for path in choose_notebooks(request.notebooks))
    return Plan(request.command(), profile, notebooks, parameters)


def default_profile() -> str:
    """`gpu` where an NVIDIA GPU and Docker are found, else `cpu`."""
    return "gpu" if gpu_names() and shutil.which("docker") else "cpu"


def gather_parameters(profile: str, request: RunRequest) -> dict[str, Any]:
    """The profile's parameters with the command line's on top; paths made absolute, since notebooks run elsewhere."""
    parameters = {**read_parameter_file(_parameter_file(profile)), **read_overrides(request.overrides)}
    if request.corpus:
        parameters["corpus"] = request.corpus
    return absolute_paths(parameters)


def _parameter_file(profile: str) -> Path:
    """The file of a profile: a name such as `cpu`, or a path; `cpu.yaml` alone is the one that belongs to us."""
    if not profile.endswith((".yaml", ".yml")):
        return PARAMETERS_DIR / f"{profile}.yaml"
    given = expanded(profile)
    return given if given.exists() or os.sep in profile else PARAMETERS_DIR / given.name


def choose_notebooks(numbers: tuple[str, ...]) -> list[Path]:
    """The notebooks with these numbers, in reading order; all of them where none is named."""
    notebooks = sorted(NOTEBOOKS_DIR.glob("[0-9][0-9]_*.ipynb"))
    called = {call: path for path in notebooks for call in (path.name[:2].lstrip("0"), path.stem, path.name)}
    words = " ".join(numbers).replace(",", " ").split()
    wanted = {word: called.get(Path(word).name.lstrip("0") if word.isdecimal() else Path(word).name) for word in words}
    for word, path in wanted.items():
        if path is None:
            there = ", ".join(path.name[:2] for path in notebooks)
            raise SettingError(f'there is no notebook {word!r}. There are {there}; name several as NOTEBOOKS="01 05".')
    return [path for path in notebooks if not words or path in wanted.values()]


def absolute_paths(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters with their paths made absolute: notebooks run in another folder than the command."""
    result = dict(parameters)
    corpus, program = parameters.get("corpus"), parameters.get("perf_analyzer")
    if isinstance(corpus, str) and expanded(corpus).is_file():
        result["corpus"] = str(expanded(corpus).resolve())
    for name in ("model", "segmentation"):
        kind, _, place = str(parameters.get(name) or "").partition(":")
        if kind in ("path", "checkpoint") and place:
            result[name] = f"{kind}:{expanded(place).resolve()}"
    if isinstance(program, str) and os.sep in program:
        result["perf_analyzer"] = str(expanded(program).absolute())
    return result


def expanded(path: str) -> Path:
    """The path with `~` replaced; as it is where there is no such user, or the text is no path at all."""
    return Path(os.path.expanduser(path.replace("\0", "\ufffd")))  # noqa: PTH111 - Path's own raises RuntimeError


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
