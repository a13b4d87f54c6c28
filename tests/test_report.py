import json
import re
import sys
from html.parser import HTMLParser

import nbformat
import pandas as pd
import papermill
import pytest

from workbook.display.plots import throughput_bars
from workbook.display.report import build_report, write_figure
from workbook.errors import SettingError
from workbook.runs import Run, write_json

RUNS = pd.DataFrame({"label": ["batch", "batch", "online", "online"], "rows_per_s": [39.0, 41.0, 19.0, 21.0]})
ONLINE, EXPORT = "05_batch_versus_online", "01_export_models"
PLOT = """
import pandas as pd
from workbook.display.plots import throughput_bars
from workbook.display.theme import use_theme
use_theme()
throughput_bars(pd.DataFrame({"label": ["batch", "</script>"], "rows_per_s": [40.0, 20.0]}))
"""
PANEL = """
from workbook.display.widgets import LatencyPanel
LatencyPanel(pd.DataFrame({"label": "a", "run": 0, "start_s": [0.0, 1.0], "latency_ms": [5.0, 6.0], "ms_per_row": 1.0}))
"""


class Page(HTMLParser):
    """What a browser would load from elsewhere, and what a reader without eyes would meet."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.headings, self.ids, self.described, self.links = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.sources.append(found["src"])
        if tag == "link":
            self.sources.append(found["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found.get("href", ""))
        if "aria-describedby" in found:
            self.described.append(found["aria-describedby"])


def notebook(path, *cells):
    """Markdown where a cell starts with #, code otherwise."""
    made = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    made.cells = [
        (nbformat.v4.new_markdown_cell if cell.startswith("#") else nbformat.v4.new_code_cell)(cell) for cell in cells
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)
    return path


def headline(figure=None, question="Online or batch?"):
    numbers = [{"label": "Ratio", "value": "2.00 times", "detail": "95% interval 1.90 to 2.10"}] * 4
    return {"question": question, "answer": "Batch is 2.00 times as fast.", "numbers": numbers, "figure": figure}


@pytest.fixture
def run(tmp_path):
    for folder in ("notebooks", "results"):
        (tmp_path / folder).mkdir()
    write_json(tmp_path / "environment.json", {"processor": "AMD EPYC", "gpus": [], "memory_bytes": 2**33})
    return Run(tmp_path, ONLINE)


def test_a_run_of_executed_notebooks(run, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    source = notebook(
        run.directory / "source.ipynb",
        "# How much faster?\n\n## Reading\n\n[up](#Reading)",
        PLOT,
        PANEL,
        "print('x<y')",
    )
    executed = run.directory / "notebooks" / f"{ONLINE}.ipynb"
    papermill.execute_notebook(source, executed, progress_bar=False, kernel_name="python3", store_widget_state=False)
    assert executed.stat().st_size < 100_000

    figure = write_figure(run, "throughput", throughput_bars(RUNS))
    not_run = [{"what": "TensorRT engines", "needs": "an NVIDIA GPU"}]
    run.write_results({"headline": headline(figure), "not_run": not_run})
    text = build_report(run.directory, command="make run PROFILE=cpu").read_text()
    page = Page(text)

    assert page.sources == [] and not re.search(r"url\(\s*['\"]?http", text[: text.index("<script>")])
    assert text.count("plotly.js v") == 1
    assert text.index("Online or batch?") < text.index("Batch is 2.00 times") < text.index("headline-figure")
    assert text.count('class="label"') == 3  # the fourth number is not for the first screen
    assert len(page.described) == 3 and set(page.described) <= set(page.ids)
    assert len(re.findall(r'<p class="unseen" id="[^"]+">[^<]{20,}</p>', text)) == 3
    assert "widget-view" not in text and "Interactive in JupyterLab" in text
    assert (
        page.headings.count(1) == 1 and max(b - a for a, b in zip(page.headings, page.headings[1:], strict=False)) <= 1
    )
    assert len(set(page.ids)) == len(page.ids)
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#"))
    assert '<div class="code">' in text and "x&lt;y" in text
    for expected in ("AMD EPYC", "8.0 GiB", "TensorRT engines", "an NVIDIA GPU", "make run PROFILE=cpu"):
        assert expected in text
    for place in re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', text, re.S):
        assert json.loads(place)["data"]


def test_chapters_stand_in_reading_order_and_a_failed_one_says_so(run):
    from workbook.display.report import read_chapter

    notebook(run.directory / "notebooks" / "05_b.ipynb", "# Second")
    path = notebook(run.directory / "notebooks" / "01_a.ipynb", "# First", "1/0")
    made = nbformat.read(path, as_version=4)
    made.cells[1].outputs = [
        nbformat.v4.new_output(
            "error", ename="ModelError", evalue="no model", traceback=["ModelError: no model <here>"]
        )
    ]
    nbformat.write(made, path)
    assert read_chapter(path).failed
    text = build_report(run.directory).read_text()
    assert text.index('href="#01_a"') < text.index('href="#05_b"') < text.index("ModelError: no model &lt;here&gt;")
    assert text.count("stopped with an error") == 1


def test_the_answer_of_batch_versus_online_comes_first(run):
    Run(run.directory, EXPORT).write_results({"headline": headline(question="Exact?")})
    assert "<h1>Exact?</h1>" in build_report(run.directory).read_text()
    run.write_results({"headline": headline()})
    assert "<h1>Online or batch?</h1>" in build_report(run.directory).read_text()


def test_an_empty_run_has_a_report_that_says_so(tmp_path):
    text = build_report(tmp_path).read_text()
    assert "No notebook of this run has come to its answer" in text
    assert "No record of the machine was found" in text


def test_text_of_the_results_is_text(run):
    run.write_results({"headline": {**headline(), "answer": "<script>alert(1)</script>"}})
    assert "<script>alert" not in build_report(run.directory).read_text()


def test_pictures_from_elsewhere_become_their_words(run):
    notebook(
        run.directory / "notebooks" / "01_a.ipynb",
        "# First\n\n![a chart](https://example.org/a.png)\n\n| a |\n|---|\n| 1 |",
    )
    text = build_report(run.directory).read_text()
    assert "[a chart]" in text and Page(text).sources == []
    assert '<div aria-label="table" class="scroll" role="group" tabindex="0"><table>' in text
    assert '<th scope="col">a</th>' in text


def test_a_notebook_without_a_heading_gets_its_name(run):
    notebook(run.directory / "notebooks" / "03_serve_with_triton.ipynb", "1 + 1")
    assert "<h2>03 serve with triton</h2>" in build_report(run.directory).read_text()


@pytest.mark.parametrize("name", ["", "a/b", "../x", "box plot"])
def test_a_figure_needs_a_file_name(run, name):
    with pytest.raises(SettingError, match="only letters"):
        write_figure(run, name, throughput_bars(RUNS))


def test_no_directory_no_report(tmp_path):
    with pytest.raises(SettingError, match="no run directory"):
        build_report(tmp_path / "missing")


def test_the_footer_shows_the_command_line(run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/workbook/__main__.py", "run", "--profile", "cpu"])
    assert "python -m workbook run --profile cpu" in build_report(run.directory).read_text()
