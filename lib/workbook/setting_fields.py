"""Fields of the settings: their bounds stand beside their default, and what is refused names value and bound."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from workbook.errors import SettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value")
KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((float, int), "a number"),
    "str": ((str,), "text"),
    "int | None": ((int, type(None)), "a whole number or none"),
}
"""Annotation -> the types it takes, and what to call them; a whole number may stand for a float."""


def within(default: Value, lowest: float, highest: float, *, even: bool = False, may_be_empty: bool = False) -> Value:
    """A field whose number, or each number of whose list, lies within bounds; `None` needs none.

    Args:
        default: its value where nothing else is given.
        lowest: that is allowed.
        highest: that is allowed.
        even: whether it must be an even number.
        may_be_empty: whether a list may hold nothing.
    """
    return _field(default, {"bounds": (lowest, highest), "even": even, "may_be_empty": may_be_empty})


def one_of(default: str, names: tuple[str, ...]) -> str:
    """A field that holds one of these names."""
    return _field(default, {"names": names})


def check_fields(settings: DataclassInstance) -> None:
    """Refuse the first value that is not of its field's type, then the first that its field does not allow.

    Raises:
        SettingError: naming field, value and bound.
    """
    for f in fields(settings):
        _require_type(f.name, getattr(settings, f.name), str(f.type))
    for f in fields(settings):
        value = getattr(settings, f.name)
        if "names" in f.metadata and value not in f.metadata["names"]:
            raise SettingError(f"{f.name} is {value!r}: it must be one of {', '.join(f.metadata['names'])}.")
        if "bounds" in f.metadata and value is not None:
            _require_bounds(f.name, value, f.metadata)


def require_within(name: str, value: float, lowest: float, highest: float) -> None:
    """Refuse a number out of its bounds, NaN among them."""
    if not lowest <= value <= highest:
        raise SettingError(f"{name} is {value}: it must lie between {lowest:,} and {highest:,}.")


def _field(default: Value, metadata: Mapping[str, Any]) -> Value:
    """To a type checker a field is its default, as with `dataclasses.field` itself."""
    made: Value = field(default=default, metadata=metadata)
    return made


def _require_type(name: str, value: Any, kind: str) -> None:
    if kind.startswith("tuple"):
        member = str if "str" in kind else int
        words = "a list of names, such as [auto]" if member is str else "a list of whole numbers, such as [1, 4]"
        good = isinstance(value, tuple) and all(isinstance(v, member) and not isinstance(v, bool) for v in value)
    else:
        types, words = KINDS[kind]
        good = isinstance(value, types) and (kind == "bool" or not isinstance(value, bool))
    if not good:
        shown = reprlib.repr(list(value) if isinstance(value, tuple) else value)
        raise SettingError(f"{name} is {shown}: it must be {words}.")


def _require_bounds(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    values = value if isinstance(value, tuple) else (value,)
    if not values and not metadata["may_be_empty"]:
        raise SettingError(f"{name} is empty: give at least one whole number, for example {name}: [1].")
    if len(set(values)) < len(values):
        raise SettingError(f"{name} is {list(values)}: give each number once.")
    for one in values:
        require_within(name, one, *metadata["bounds"])
        if metadata["even"] and one % 2:
            raise SettingError(f"{name} is {one}: it must be even, because arms alternate A B B A. Set 2, 4, 6.")
