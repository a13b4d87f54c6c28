"""Two runs side by side: their headline numbers with the ratio, and what differs in machine and parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.errors import SettingError
from workbook.runs import ENVIRONMENT, read_json

if TYPE_CHECKING:
    import pandas as pd

_ALWAYS_DIFFERENT = ("started",)
_NUMBER = re.compile(r"(?<![\w.,])[+-]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
_INTERVAL = re.compile(r"([\d.,]*\d)\s*to\s*([\d.,]*\d)")
_BUSY = 1.0


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Two runs beside each other.

    Attributes:
        a, b: names of the runs.
        numbers: `notebook`, `number` (its label), `a`, `b` (as the runs wrote them), `ratio` (b / a, NaN where one is
            missing), `interval_a`, `interval_b` (their own words), `note`.
        changed: `what` ("machine", "parameter", or "measured": how much a time limit left), `name`, `a`, `b`: a row for
            each value that differs.
        only: notebooks that one of the two runs has no results of, with the run's letter.
    """

    a: str
    b: str
    numbers: pd.DataFrame = field(repr=False)
    changed: pd.DataFrame = field(repr=False)
    only: dict[str, str]

    @property
    def sentence(self) -> str:
        """What a reader should know before looking at the ratios."""
        count = len(self.changed)
        if not count:
            changed = (
                "Machine, versions and parameters are the same: what differs is chance, or the load of the machine."
            )
        else:
            names = ", ".join(self.changed["name"].head(4)) + (" and more" if count > 4 else "")
            few = "1 thing" if count == 1 else f"{count} things"
            changed = f"{few} changed ({names}): a ratio cannot be put down to one of several."
        return f"{changed} Each number is of one run; where the intervals overlap, the runs do not differ by it."


def compare_runs(a: Path, b: Path) -> RunComparison:
    """Put two run directories side by side.

    Raises:
        SettingError: one of them has no results, or they are the same.
    """
    import pandas as pd

    if a.resolve() == b.resolve():
        raise SettingError(f"both are the run {a.name}: choose two different runs.")
    left, right = _results(a), _results(b)
    rows = [
        {"notebook": notebook, **row}
        for notebook in sorted({*left, *right})
        for row in _side_by_side(_headline(left, notebook), _headline(right, notebook))
    ]
    columns = ["notebook", "number", "a", "b", "ratio", "interval_a", "interval_b", "note"]
    both = {*left} & {*right}
    changed = [
        *_differences("machine", _flat(_environment(a)), _flat(_environment(b))),
        *_differences("parameter", _parameters(a, both), _parameters(b, both)),
    ]
    if not {"rows", "switch_rows"} & {change["name"] for change in changed}:
        changed += _differences("measured", _rows_measured(left, both), _rows_measured(right, both))
    only = dict.fromkeys(sorted({*left} - {*right}), "a") | dict.fromkeys(sorted({*right} - {*left}), "b")
    return RunComparison(
        a.name,
        b.name,
        pd.DataFrame(rows, columns=columns),
        pd.DataFrame(changed, columns=["what", "name", "a", "b"]),
        only,
    )


def leading_number(text: str) -> float:
    """The first number in a headline's value, such as 1,234.5 of "1,234.5 rows/s"; NaN where there is none."""
    found = _NUMBER.search(text)
    return float(found.group().replace(",", "")) if found else math.nan


def _results(directory: Path) -> dict[str, dict[str, Any]]:
    found = {path.stem: dict(read_json(path)) for path in sorted((directory / "results").glob("*.json"))}
    if not found:
        raise SettingError(f"{directory.name} has no results: none of its notebooks came to its end.")
    return found


def _headline(results: Mapping[str, Mapping[str, Any]], notebook: str) -> dict[str, dict[str, str]]:
    """Numbers of a notebook's headline by label; what follows a colon is the winner's name, which may change."""
    numbers = results.get(notebook, {}).get("headline", {}).get("numbers", [])
    return {str(number["label"]).partition(":")[0]: number for number in numbers}


def _side_by_side(
    left: Mapping[str, Mapping[str, str]], right: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, Any]]:
    for label in dict.fromkeys([*left, *right]):
        one, two = left.get(label), right.get(label)
        values = [leading_number(side["value"]) if side else math.nan for side in (one, two)]
        details = [side.get("detail", "") if side else "" for side in (one, two)]
        yield {
            "number": label,
            "a": one["value"] if one else "–",
            "b": two["value"] if two else "–",
            "ratio": values[1] / values[0] if values[0] else math.nan,
            "interval_a": details[0],
            "interval_b": details[1],
            "note": _note(one, two, details),
        }


def _note(one: Mapping[str, str] | None, two: Mapping[str, str] | None, details: list[str]) -> str:
    if one is None or two is None:
        return "only in b" if one is None else "only in a"
    notes = []
    if one["label"] != two["label"]:
        notes.append(f"{one['label'].partition(': ')[2]} in a, {two['label'].partition(': ')[2]} in b")
    intervals = [_interval(detail) for detail in details]
    if intervals[0] and intervals[1]:
        apart = intervals[0][1] < intervals[1][0] or intervals[1][1] < intervals[0][0]
        notes.append("the intervals are apart" if apart else "the intervals overlap")
    return "; ".join(notes)


def _interval(detail: str) -> tuple[float, float] | None:
    found = _INTERVAL.search(detail)
    return (float(found.group(1).replace(",", "")), float(found.group(2).replace(",", ""))) if found else None


def _environment(directory: Path) -> dict[str, Any]:
    path = directory / ENVIRONMENT
    return dict(read_json(path)) if path.is_file() else {}


def _flat(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Packages as names of their own; the load only where it disturbs, since it is never the same twice."""
    values = {name: value for name, value in environment.items() if name not in _ALWAYS_DIFFERENT}
    load = values.pop("load_average_1min", None)
    if load is not None:
        values["other load"] = "yes, something else was running" if load > _BUSY else "none to speak of"
    packages = values.pop("packages", {})
    return {**values, **packages}


def _parameters(directory: Path, notebooks: set[str]) -> dict[str, Any]:
    """Parameters of the notebooks that both runs have; by notebook only where notebooks of a run differ."""
    by_name: dict[str, dict[str, Any]] = {}
    for notebook in sorted(notebooks):
        path = directory / "parameters" / f"{notebook}.json"
        for name, value in (dict(read_json(path)) if path.is_file() else {}).items():
            by_name.setdefault(name, {})[notebook] = value
    return {
        name: next(iter(values.values())) if len({repr(value) for value in values.values()}) == 1 else values
        for name, values in by_name.items()
    }


def _rows_measured(results: Mapping[str, Mapping[str, Any]], notebooks: set[str]) -> dict[str, Any]:
    """Rows that arms took; with the same parameters a slower machine takes fewer (`arms_limit_s`)."""
    names = ("rows_per_arm", "rows_per_switch")
    return {
        name: results[notebook][name] for notebook in sorted(notebooks) for name in names if name in results[notebook]
    }


def _differences(what: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for name in dict.fromkeys([*left, *right]):
        one, two = left.get(name), right.get(name)
        if one != two:
            yield {"what": what, "name": name, "a": _shown(one), "b": _shown(two)}


def _shown(value: Any) -> str:
    if value in (None, "", []):
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
