"""Every notebook in a real JupyterLab: run, looked at, and each of its panels moved, with smoke parameters."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from lab import PATIENCE_MS, Lab, OpenNotebook, prepare
from panels import ACTS_ON_MEASURE, PATIENCE_S, Control, PanelOnPage, panels_on
from playwright.sync_api import Browser, expect

from test_notebooks import NOTEBOOKS, check_results

REDRAW_S = 5.0
"""Bound of what a redraw takes, median over the moves of a panel; about 0.2 s where nothing else runs."""
SETTLES_S = 2 * REDRAW_S
"""Longest wait for a position of a control to change something; not every one of them does."""
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest, lab: Lab, chromium: Browser) -> Iterator[OpenNotebook]:
    """The notebook, run to its end; its kernel ends with the last test of it."""
    prepare(request.param, lab)
    page = chromium.new_page(viewport={"width": 1280, "height": 1400})
    opened = OpenNotebook(page, request.param.stem)
    opened.open(lab)
    opened.photograph("opened")
    opened.choose("Run", "Run All Cells")
    ended = opened.wait_until_idle(timeout_s=600)
    opened.save()
    opened.photograph("ended")
    assert ended["errors"] == []
    yield opened
    page.close()
    lab.end_kernels()


def test_it_runs_and_draws_everything(notebook: OpenNotebook) -> None:
    state = notebook.state()
    assert state["errors"] == []
    assert state["run"] == state["cells"] > 5
    asked = notebook.asked_figures()
    drawn = notebook.wait_for_figures(asked)
    notebook.photograph_cells()
    assert drawn == asked
    assert notebook.overlaps() == []
    expect(notebook.page.get_by_text("Loading widget")).to_have_count(0, timeout=PATIENCE_MS)
    assert notebook.page.get_by_text("Error displaying widget").count() == 0
    assert notebook.complaints == []


def test_what_it_leaves_is_what_papermill_leaves(notebook: OpenNotebook, lab: Lab) -> None:
    saved = lab.root / f"{notebook.name}.ipynb"
    cells = [cell for cell in nbformat.read(saved, 4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    check_results(Path(shutil.copy(saved, lab.runs)), saved)


def test_every_control_changes_what_is_drawn(notebook: OpenNotebook) -> None:
    for panel in panels_on(notebook.page):
        panel.box.scroll_into_view_if_needed()
        notebook.photograph(f"{panel.name}-at-first")
        seconds = [each for control in panel.controls() for each in move(notebook, panel, control)]
        notebook.photograph(f"{panel.name}-moved")
        if seconds:
            middle = statistics.median(seconds)
            print(f"{notebook.name} {panel.name}: {len(seconds)} moves redrawn in {middle:.2f} s (median), "
                  f"{max(seconds):.2f} s at most")  # fmt: skip
            assert middle < REDRAW_S
    assert notebook.overlaps() == []
    assert notebook.state()["errors"] == []
    assert notebook.complaints == []


def move(notebook: OpenNotebook, panel: PanelOnPage, control: Control) -> list[float]:
    """Move a control through its positions; seconds to each new picture, of which there must be one."""
    if control.kind == "text":
        return []
    acts_at_once = control.name not in ACTS_ON_MEASURE.get(panel.name, set())
    for waits in (SETTLES_S, PATIENCE_S) if acts_at_once else (0.0,):  # the second where the machine stood still
        seconds: list[float] = []
        before = panel.picture()
        positions = 0
        for _ in control.moves():
            positions += 1
            # once it has changed something, a position that does not is not waited for as long
            changed = panel.wait_for_another_picture(before, waits if not seconds else min(waits, 1.5))
            seconds += [changed] if changed is not None else []
            before = panel.picture()
            assert_a_sentence_if_any(panel.said("error"))
        assert panel.wait_for_no_error() == "", f"{panel.name}: {control.name}, back where it was"
        if seconds or positions < 2:
            break
    assert seconds or not acts_at_once or positions < 2, f"{panel.name}: {control.name} changes nothing"
    return seconds


def assert_a_sentence_if_any(error: str) -> None:
    """A position for which nothing was measured says so in plain words; anything else is a fault of ours."""
    assert "cannot be drawn" not in error and "Traceback" not in error, error
    assert not error or (error.endswith((".", "?")) and len(error) > 20), error


def test_bad_input_becomes_a_sentence(notebook: OpenNotebook) -> None:
    for panel in panels_on(notebook.page):
        for field in [control for control in panel.controls() if control.kind == "text"]:
            before = field.place.input_value()
            field.write("no/such/thing.nowhere")
            if panel.has_button("measure"):
                panel.button("measure").click()
            sentence = panel.wait_for_error()
            notebook.photograph(f"{panel.name}-bad-{field.name}")
            assert_a_sentence_if_any(sentence)
            field.write(before)
    assert notebook.state()["errors"] == []
    assert notebook.complaints == []


def test_measure_and_cancel(notebook: OpenNotebook, lab: Lab) -> None:
    for panel in panels_on(notebook.page):
        if panel.has_button("measure"):
            panel.box.scroll_into_view_if_needed()
            if panel.name == "live":
                measure_once(notebook, panel, lab)
            cancel_soon(notebook, panel)
    assert notebook.state()["errors"] == []
    assert notebook.complaints == []


def measure_once(notebook: OpenNotebook, panel: PanelOnPage, lab: Lab) -> None:
    """Press Measure twice, as an impatient reader does: one measurement is shown and kept."""
    for control in panel.controls():
        if control.name == "seconds":
            control.place.press("Home")
    before, kept = panel.picture(), lab.live_measurements(notebook.name)
    panel.watch()  # it may be over before anybody looks
    panel.button("measure").dblclick()
    panel.wait_until_seen("%")
    notebook.photograph(f"{panel.name}-measuring")
    assert panel.wait_until_measured().startswith("Done")
    assert panel.said("error") == ""
    assert panel.wait_for_another_picture(before, PATIENCE_S) is not None
    assert lab.live_measurements(notebook.name) == kept + 1
    notebook.photograph(f"{panel.name}-measured")


def cancel_soon(notebook: OpenNotebook, panel: PanelOnPage) -> None:
    """Press Measure and then Cancel: it ends, and says what is kept."""
    for control in panel.controls():
        if control.name == "seconds":
            control.place.press("End")
    panel.button("measure").click()
    panel.wait_for_status("%")
    panel.button("cancel").click()
    status = panel.wait_until_measured()
    notebook.photograph(f"{panel.name}-cancelled")
    assert "kept" in status
    assert panel.said("error") == ""
