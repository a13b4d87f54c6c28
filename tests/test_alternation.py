import pytest

from workbook.errors import SettingError
from workbook.measuring.alternation import alternate


def test_the_order_turns_round_every_time() -> None:
    seen: list[str] = []

    def arm(name: str):
        return lambda run: seen.append(f"{name}{run}") or f"{name}{run}"

    results = alternate({"a": arm("a"), "b": arm("b")}, repeats=4, progress=False)
    assert seen == ["a0", "b0", "b1", "a1", "a2", "b2", "b3", "a3"]
    assert results == {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2", "b3"]}


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_repeats_that_cannot_alternate_are_refused(repeats: int) -> None:
    with pytest.raises(SettingError, match=f"repeats is {repeats}"):
        alternate({"a": lambda run: run}, repeats)
