"""A reader interrupts a notebook in the middle of a measurement, from JupyterLab's menu."""

from __future__ import annotations

import pytest
from lab import Lab, OpenNotebook, prepare
from playwright.sync_api import Browser

from workbook.artifacts import PROJECT_DIR

NOTEBOOK = PROJECT_DIR / "notebooks" / "05_batch_versus_online.ipynb"
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


def test_an_interrupted_comparison_leaves_no_server_and_a_kernel_that_goes_on(lab: Lab, chromium: Browser) -> None:
    prepare(NOTEBOOK, lab, repeats=40)  # long enough to be interrupted
    notebook = OpenNotebook(chromium.new_page(viewport={"width": 1280, "height": 1000}), NOTEBOOK.stem)
    notebook.open(lab)
    notebook.choose("Run", "Run All Cells")
    started = lab.wait_for_process("triton", timeout_s=300)
    assert any("triton" in words for words in started), started
    notebook.photograph("measuring")
    notebook.choose("Kernel", "Interrupt Kernel")
    state = notebook.wait_until_idle(timeout_s=120)
    notebook.photograph("interrupted")
    assert lab.wait_until_gone() == []
    assert any(error.startswith("KeyboardInterrupt") for error in state["errors"]), state
    assert notebook.answer_of("6 * 7") == "42"
    assert notebook.complaints == []
    notebook.page.close()
    lab.end_kernels()
