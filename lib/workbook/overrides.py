"""What the command line sets: `name=value` words, read by the type their parameter has."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from typing import Any

import yaml

from workbook.errors import SettingError
from workbook.settings import parameter_kind, require_known

_ASSIGNMENT = re.compile(r"(?:^|(?<=\s))(\w+)=")


def read_overrides(words: Sequence[str]) -> dict[str, Any]:
    """Read what `--set` and `SET=` gave, one word or many, into plain values.

    A value goes on to the next `name=`, so that paths and lists may hold spaces: `model=path:/my models/e5 threads=1`.

    Raises:
        SettingError: text that is no `name=value`, a name that is no parameter or stands there twice, or a value that
            cannot be read.
    """
    text = " ".join(words).strip()
    starts = list(_ASSIGNMENT.finditer(text))
    before = text[: starts[0].start() if starts else None].strip()
    if before:
        raise SettingError(f"{before!r} is not of the form name=value, for example rows=2048.")
    values: dict[str, Any] = {}
    ends = [*(later.start() for later in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=False):
        name = start.group(1)
        require_known([name])
        if name in values:
            raise SettingError(f"{name} is set twice; give it once.")
        values[name] = _read_value(name, text[start.end() : end].strip())
    return values


def _read_value(name: str, text: str) -> Any:
    """Text stays as it is, since `path:DIR` and `yes` mean something else in YAML; the rest is YAML."""
    kind = parameter_kind(name)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if kind == "str":
        return text[1:-1] if quoted else text
    if "None" in kind and text.lower() == "none":
        return None
    try:
        return yaml.safe_load(text) if text else ""
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SettingError(
            f"{name} is {reprlib.repr(text)}, which cannot be read: write a number, true, false or a list."
        ) from None
