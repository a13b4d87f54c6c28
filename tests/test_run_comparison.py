import json
import math
import sys

import pytest

from past_runs import NOTEBOOK, save_run
from workbook.__main__ import main
from workbook.analysis.run_comparison import compare_runs, leading_number
from workbook.display.compare_panel import ComparePanel
from workbook.display.comparison_page import tables_html
from workbook.display.panel import STATIC_FIGURE
from workbook.errors import SettingError
from workbook.past_runs import find_past_run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    save_run(
        tmp_path, "20260101-000000-cpu-a", {"served": ("100 rows/s", "95%: 90 to 110"), "fastest: x": ("2.0x", "")}
    )
    save_run(
        tmp_path,
        "20260102-000000-cpu-b",
        {"served": ("1,250 rows/s", "95%: 1,200 to 1,300"), "fastest: y": ("3.0x", ""), "<new>": ("1", "")},
        parameters={"rows": 16},
        packages={"torch": "2"},
    )
    return tmp_path


def test_ratios_and_what_changed(runs):
    comparison = compare_runs(find_past_run("previous"), find_past_run("latest"))
    numbers = comparison.numbers.set_index("number")
    assert numbers.loc["served", "ratio"] == 12.5 and numbers.loc["served", "note"] == "the intervals are apart"
    assert numbers.loc["fastest", "ratio"] == 1.5 and numbers.loc["fastest", "note"] == "x in a, y in b"
    assert math.isnan(numbers.loc["<new>", "ratio"]) and numbers.loc["<new>", "note"] == "only in b"
    assert comparison.changed.to_dict("records") == [
        {"what": "machine", "name": "torch", "a": "1", "b": "2"},
        {"what": "parameter", "name": "rows", "a": "8", "b": "16"},
    ]
    assert comparison.sentence.startswith("2 things changed (torch, rows)")
    assert "&lt;new&gt;" in tables_html(comparison) and "<new>" not in tables_html(comparison)


def test_two_runs_of_the_same_differ_by_chance(runs):
    save_run(runs, "20260103-000000-cpu-c", {"served": ("101 rows/s", "95%: 91 to 111")})
    comparison = compare_runs(find_past_run("20260101"), find_past_run("latest"))
    assert comparison.changed.empty and "what differs is chance" in comparison.sentence
    assert comparison.numbers.set_index("number").loc["served", "note"] == "the intervals overlap"


def test_rows_that_a_time_limit_cut_are_something_that_changed(tmp_path):
    for name, rows in (("a", 1024), ("b", 512)):
        path = save_run(tmp_path, name, {"served": ("100 rows/s", "")}) / "results" / f"{NOTEBOOK}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "rows_per_arm": rows}))
    comparison = compare_runs(tmp_path / "a", tmp_path / "b")
    assert comparison.changed.to_dict("records") == [
        {"what": "measured", "name": "rows_per_arm", "a": "1024", "b": "512"}
    ]
    assert comparison.sentence.startswith("1 thing changed (rows_per_arm)")


@pytest.mark.parametrize(
    ("text", "value"), [("1,234.5 rows/s", 1234.5), ("4.82x", 4.82), ("-3%", -3), ("p < 1e-5", 1e-5), (".5", 0.5)]
)
def test_the_number_in_a_headline(text, value):
    assert leading_number(text) == value


def test_a_headline_without_a_number_has_no_ratio():
    assert math.isnan(leading_number("not measured"))


@pytest.mark.parametrize(
    ("name", "message"), [("nope", "there is no run 'nope'. Runs in .*20260102.*latest"), ("2026", "2 runs begin with")]
)
def test_a_run_that_is_not_there_names_those_that_are(runs, name, message):
    with pytest.raises(SettingError, match=message):
        find_past_run(name)


def test_a_run_is_named_by_its_beginning_or_by_a_path(runs, tmp_path_factory, monkeypatch):
    kept = save_run(tmp_path_factory.mktemp("elsewhere"), "kept", {"served": ("1", "")})
    first = runs / "20260101-000000-cpu-a"
    assert find_past_run("20260101") == find_past_run(first.name) == find_past_run(str(first)) == first
    assert find_past_run(str(kept)) == kept
    monkeypatch.chdir(kept.parent)
    assert find_past_run("kept") == kept


def test_without_runs_the_way_to_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path / "none"))
    with pytest.raises(SettingError, match=r"there is no latest run: No run in .* has results yet: `make run`"):
        find_past_run("latest")


def test_a_run_is_not_compared_with_itself(runs):
    with pytest.raises(SettingError, match="choose two different runs"):
        compare_runs(find_past_run("latest"), find_past_run("20260102"))


def call(monkeypatch, *names):
    """The command, without the signal handlers that it sets for its own process."""
    monkeypatch.setattr(sys, "argv", ["workbook", "compare", *names])
    monkeypatch.setattr("workbook.__main__.signal.signal", lambda *_: None)
    return main()


def test_the_command_prints_both_and_writes_a_page(runs, monkeypatch, capsys):
    assert call(monkeypatch, "previous", "latest") == 0
    printed = capsys.readouterr().out
    assert "12.5" in printed and "torch" in printed
    page = (runs / "20260102-000000-cpu-b" / "compare.html").read_text()
    assert "12.5" in page and "http" not in page.replace("http-equiv", "")


def test_the_command_explains_a_wrong_name(runs, monkeypatch, capsys):
    assert call(monkeypatch, "nope", "latest") == 2
    assert capsys.readouterr().err.startswith("SettingError: there is no run 'nope'")


def test_the_panel_starts_with_the_newest_two_and_follows_its_lists(runs):
    panel = ComparePanel()
    assert "x 12.5" in panel.reading.value and "12.5" in panel.tables.value
    panel.run_a.value = panel.run_b.value
    assert "choose two different runs" in panel.error.value and not panel.tables.value
    panel.run_a.value, panel.run_b.value = panel.run_a.options[0][1], panel.run_a.options[1][1]
    assert "x 0.08" in panel.reading.value and not panel.error.value


def test_the_panel_says_when_there_is_nothing_to_compare(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    bundle = ComparePanel()._repr_mimebundle_()
    assert "no two runs to compare yet" in bundle[STATIC_FIGURE]["layout"]["meta"]["reading"]
