import pytest

from workbook.errors import SettingError
from workbook.overrides import read_overrides


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["rows=64 threads=1"], {"rows": 64, "threads": 1}),
        (["rows=64", "concurrency=[1,", "2]"], {"rows": 64, "concurrency": [1, 2]}),
        (["model=path:/my models/e5 rows=2"], {"model": "path:/my models/e5", "rows": 2}),
        (['model="path:/a b"', "text_column=yes"], {"model": "path:/a b", "text_column": "yes"}),
        (["corpus=2020-01-01.csv"], {"corpus": "2020-01-01.csv"}),
        (["layers=none"], {"layers": None}),
        (["dynamic_batching=false"], {"dynamic_batching": False}),
        (["rows="], {"rows": ""}),
    ],
)
def test_a_value_is_read_by_the_type_of_its_parameter(words: list[str], values: dict[str, object]) -> None:
    assert read_overrides(words) == values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rows"], "'rows' is not of the form name=value"),
        (["=5"], "not of the form"),
        (["12 rows=5"], "'12' is not of the form"),
        (["rowz=5"], "Did you mean rows"),
        (["rows=1", "rows=2"], "rows is set twice"),
        (["rows=[1"], "rows is '\\[1', which cannot be read"),
        (["rows=2020-99-99"], "cannot be read"),
        (["rows=" + "9" * 5000], "cannot be read"),
        (["rows=!!python/name:os"], "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        read_overrides(words)
    assert "\n" not in str(caught.value)
