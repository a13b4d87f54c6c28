"""The report as a reader meets it: at a desk, on a phone, on paper, by ear, and without a network."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from workbook.display.plots import box_plot, parity_plot, throughput_bars, trace_over_time
from workbook.display.report import build_report, write_figure
from workbook.display.tables import readable_table
from workbook.runs import Run, write_json

DESK, PHONE = {"width": 1100, "height": 900}, {"width": 390, "height": 844}
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
PLOTLY = "application/vnd.plotly.v1+json"
LATENCIES = pd.DataFrame(
    {"label": ["batch"] * 30 + ["online, single rows put together by the server"] * 30, "run": [0] * 30 + [1] * 30,
     "start_s": [float(n) for n in range(60)], "latency_ms": [50.0 + n % 7 for n in range(60)], "ms_per_row": 1.0}
)  # fmt: skip
PARITY = pd.DataFrame(
    {"batch": [1, 1], "sequence": [2, 512], "output": "embedding", "max_abs_error": [1e-7, 2e-6], "min_cosine": 1.0}
)
WIDE = pd.DataFrame({f"quantity {n} (ms)": [float(n), 2.0] for n in range(12)}).assign(note="words enough " * 6)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with every kind of output: figures, tables, code, text, a mistake."""
    directory = tmp_path_factory.mktemp("run")
    run = Run(directory, "05_batch_versus_online")
    rates = pd.DataFrame({"label": ["batch", "online"] * 2, "rows_per_s": [40.0, 20.0, 41.0, 21.0]})
    figures = [box_plot(LATENCIES), trace_over_time(LATENCIES), throughput_bars(rates), parity_plot(PARITY)]
    cell = nbformat.v4.new_code_cell("import workbook  # a comment\nprint('done', 1.5)")
    shown = [{PLOTLY: json.loads(figure.to_json())} for figure in figures]
    shown += [{"text/html": readable_table(WIDE, caption="Twelve quantities").to_html()}]
    cell.outputs = [nbformat.v4.new_output("display_data", data) for data in shown]
    traceback = [
        "\x1b[38;5;28;01mfrom\x1b[39;00m x \x1b[38;5;28;01mimport\x1b[39;00m y",
        "\x1b[31mModelError\x1b[39m: none",
    ]
    cell.outputs += [nbformat.v4.new_output("error", ename="ModelError", evalue="none", traceback=traceback)]
    words = "# How much faster?\n\nSee [below](#Reading).\n\n## Reading\n\n| a | b |\n|---|---|\n| 1 | words |"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words), cell])
    (directory / "notebooks").mkdir()
    (directory / "results").mkdir()
    nbformat.write(made, directory / "notebooks" / f"{run.notebook}.ipynb")
    write_json(directory / "environment.json", {"processor": "AMD EPYC", "gpus": [], "memory_bytes": 2**33})
    write_json(directory / "parameters" / f"{run.notebook}.json", {"model": "path:/a/very/long/path/" * 8})
    number = {"label": "batch / online", "value": "1.04x", "detail": "95% interval 0.98 to 1.10"}
    headline = {"question": "Online or batch?", "answer": "Neither.", "numbers": [number] * 3}
    headline["figure"] = write_figure(run, "rates", throughput_bars(rates))
    run.write_results({"headline": headline, "not_run": [{"what": "TensorRT", "needs": "an NVIDIA GPU"}]})
    return build_report(directory, "make run PROFILE=smoke")


def opened(chromium: Browser, report: Path, viewport: dict[str, int]) -> tuple[Page, list[str], list[str]]:
    """The page, what it asked for, and what it complained of; every figure drawn, all code shown."""
    page = chromium.new_page(viewport=viewport)
    page.set_default_timeout(120_000)
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri(), timeout=120_000)
    page.check("#show-code")
    for place in page.locator("[data-figure]").all():
        place.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 5", timeout=120_000)
    return page, asked, complaints


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_it_loads_nothing_fits_the_screen_and_is_accessible(
    chromium: Browser, report: Path, viewport: dict[str, int]
) -> None:
    page, asked, complaints = opened(chromium, report, viewport)
    assert (asked, complaints) == ([report.as_uri()], [])
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    found = Axe().run(page, options={"runOnly": STANDARDS}).response["violations"]
    assert not found, [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found]
    assert page.get_attribute("html", "lang") == "en" and page.locator("h1").count() == 1
    page.close()


@pytest.mark.browser
def test_paper_shows_every_figure_without_having_been_scrolled(chromium: Browser, report: Path) -> None:
    page = chromium.new_page(viewport=DESK)
    page.goto(report.as_uri(), timeout=120_000)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".js-plotly-plot").count() == page.locator("[data-figure]").count() == 5
    page.emulate_media(media="print")
    widths = page.evaluate("[...document.querySelectorAll('.js-plotly-plot .main-svg')].map((svg) => svg.clientWidth)")
    assert set(widths) == {680}
    page.close()


@pytest.mark.browser
def test_the_first_screen_holds_question_answer_numbers_and_the_figures_top(chromium: Browser, report: Path) -> None:
    page = chromium.new_page(viewport=DESK)
    page.goto(report.as_uri(), timeout=120_000)
    figure = page.locator("header figure").bounding_box()
    assert figure is not None and figure["y"] + figure["height"] < DESK["height"]
    page.close()
