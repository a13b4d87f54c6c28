"""One JupyterLab for all tests with a browser, and a Chromium for each file of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab, running_lab
from playwright.sync_api import Browser, sync_playwright

from set_up import NO_BROWSER, find_browser

OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
"""A root user's Chromium refuses its sandbox; the rest keeps it from asking the network for what nobody wants."""


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Of the browser there is."""
    path = find_browser()
    if path is None:
        pytest.skip(NO_BROWSER)
    return path


@pytest.fixture(scope="session")
def lab(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab over an empty folder."""
    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium(chromium_path: str) -> Iterator[Browser]:
    """A browser; not for the session, since as long as it runs no other test can have an event loop in this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=list(OPTIONS))
        yield browser
        browser.close()
