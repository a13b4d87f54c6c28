"""What a member or the ensemble was measured under: rates are put side by side only where all of it is the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from workbook.errors import NotComparableError, SettingError


@dataclass(frozen=True, kw_only=True)
class EnsembleConditions:
    """All that decides how much work an image is and how it arrives.

    Attributes:
        images_per_request: images that one request carries.
        transport: `grpc` or `http`.
        connections: requests in flight.
        image: type and shape of the image that A gets.
        b_input: type and shape of what B gets, from A or from its own test.
        a_max_batch: most images in one execution of A.
    """

    images_per_request: int
    transport: str
    connections: int
    image: str
    b_input: str
    a_max_batch: int

    def __post_init__(self) -> None:
        for name in ("images_per_request", "connections", "a_max_batch"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least 1.")


def require_same_conditions(
    first: str, a: EnsembleConditions, second: str, b: EnsembleConditions, declared: Collection[str] = ()
) -> None:
    """Refuse to put two rates side by side that were measured under different conditions.

    Args:
        first: what the first rate is of, for the message.
        a: its conditions.
        second: what the second rate is of.
        b: its conditions.
        declared: fields that are the difference under test.

    Raises:
        NotComparableError: names each undeclared field that differs, with both values.
        SettingError: a declared name is no condition.
    """
    known = [f.name for f in fields(EnsembleConditions)]
    if unknown := [name for name in declared if name not in known]:
        raise SettingError(f"{unknown[0]!r} is no condition. Known: {', '.join(known)}.")
    found = [(n, getattr(a, n), getattr(b, n)) for n in known if n not in declared and getattr(a, n) != getattr(b, n)]
    if found:
        listed = "; ".join(f"{name} is {x!r} for {first} and {y!r} for {second}" for name, x, y in found)
        raise NotComparableError(f"{first} and {second} cannot be compared: {listed}. Measure both alike.")
