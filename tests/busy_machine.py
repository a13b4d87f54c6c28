"""For tests that must not fail because the machine was busy with something else, or stopped for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0
"""How long to wait for something that mostly takes less than a second; the waiting ends when it has come."""
ATTEMPTS = 5
T = TypeVar("T")


def wait_for(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until the condition holds; AssertionError where it does not in all that time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.01)


def in_one_of(attempt: Callable[[int], T], attempts: int = ATTEMPTS) -> T:
    """Measure and check; once is enough, since a machine that stops in the middle can break any bound on a time.

    Only for what a right program can miss by chance. A wrong one misses it every time.

    Args:
        attempt: called with the number of the attempt, from 0; raises where its check fails.
        attempts: after which the failure stands.
    """
    for number in range(attempts - 1):
        try:
            return attempt(number)
        except Exception:  # a pytest.fail, as a time-out calls it, goes through
            continue
    return attempt(attempts - 1)
