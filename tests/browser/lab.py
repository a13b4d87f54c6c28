"""A JupyterLab of its own, and a notebook opened in it with a real browser, as a reader does it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import papermill
import psutil
from playwright.sync_api import ConsoleMessage, Page

from workbook.settings import PARAMETERS_DIR, read_parameter_file

SCREENSHOTS = Path(__file__).parent / "screenshots"
START_S = 240
"""Longest that JupyterLab may take to answer."""
PORT_ATTEMPTS = 5
"""A test beside this one may take the port between our choice and JupyterLab's."""
PATIENCE_MS = 120_000
"""Longest wait of the browser for what it is told to do, unless it is told otherwise."""

HARMLESS = tuple(
    re.compile(pattern)
    for pattern in (
        # Chromium without a graphics card draws with the CPU and says so
        r"^\[\.WebGL-0x[0-9a-f]+\]GL Driver Message .* GPU stall due to ReadPixels",
    )
)
"""What JupyterLab and Chromium write to the console with any notebook at all. Everything else is ours."""

STATE_OF_NOTEBOOK = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const cells = panel.content.widgets.filter(cell => cell.model.type === 'code');
    const outputs = cells.flatMap(cell => cell.model.outputs.toJSON());
    return {
        kernel: panel.sessionContext.session?.kernel?.status ?? 'none',
        cells: cells.length,
        run: cells.filter(cell => cell.model.executionCount !== null).length,
        pending: cells.filter(cell => cell.model.executionState !== 'idle').length,
        errors: outputs.filter(output => output.output_type === 'error')
            .map(output => `${output.ename}: ${output.evalue}`),
    };
}"""


FIGURES_ASKED = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code')
    .flatMap(cell => cell.model.outputs.toJSON())
    .filter(output => output.data && 'application/vnd.plotly.v1+json' in output.data).length"""
"""How many outputs of the notebook are figures; those of panels come on top."""

FIGURES_DRAWN = """() => [...document.querySelectorAll('.jp-Notebook .js-plotly-plot')]
    .filter(figure => !figure.closest('.workbook-panel'))
    .filter(figure => figure.querySelectorAll('.main-svg path, .main-svg text').length > 5
        && figure.getBoundingClientRect().width > 300).length"""

OVERLAPS = """() => [...document.querySelectorAll('.jp-Notebook .js-plotly-plot')].flatMap(figure => {
    const words = ['.gtitle', '.gtitle-subtitle'].map(name => figure.querySelector(name));
    if (!words[0] || !words[1] || !words[1].textContent) return [];
    const [title, below] = words.map(each => each.getBoundingClientRect());
    return below.top < title.bottom - 4 ? [`${words[0].textContent}: its second line lies on the first`] : [];
})"""
"""Figures whose title and second line lie upon each other."""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab.

    Attributes:
        url: of the server, with a slash at the end.
        token: that lets one in.
        root: the folder it shows.
        runs: where the notebooks leave their runs.
    """

    url: str
    token: str
    root: Path
    runs: Path

    def kernels(self) -> list[dict[str, Any]]:
        """The kernels that run now, as JupyterLab lists them."""
        return list(json.loads(self._ask("GET", "api/kernels")))

    def end_kernels(self) -> None:
        """Shut every kernel down, as JupyterLab's own menu does, and wait until all that they started is gone.

        Raises:
            AssertionError: something they started is still there.
        """
        for kernel in self.kernels():
            self._ask("DELETE", f"api/kernels/{kernel['id']}")
        assert self.wait_until_gone() == []

    def processes(self) -> list[str]:
        """What kernels have started and is still there: their servers and what those started."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("WORKBOOK_RUNS") == str(self.runs)
                words = " ".join(process.cmdline())
                if ours and not any(name in words for name in ("ipykernel_launcher", "jupyterlab")):
                    found.append(words)
        return found

    def wait_for_process(self, word: str, timeout_s: float) -> list[str]:
        """What kernels have started, as soon as the word stands in one of the command lines, or after the time-out."""
        return _wait(self.processes, lambda found: any(word in words for words in found), timeout_s)

    def wait_until_gone(self, timeout_s: float = 60) -> list[str]:
        """What kernels have started and is still there after the time-out."""
        return _wait(self.processes, lambda found: not found, timeout_s)

    def live_measurements(self, notebook: str) -> int:
        """How many measurements the live panel has kept in the newest run of this notebook."""
        records = self.runs / "latest" / "records" / notebook / "live_server.csv"
        return len(records.read_text().splitlines()) - 1 if records.exists() else 0

    def _ask(self, method: str, path: str) -> bytes:
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return bytes(answer.read())


def _wait(look: Callable[[], list[str]], wanted: Callable[[list[str]], bool], timeout_s: float) -> list[str]:
    """What `look` found last: as soon as it is wanted, or after the time-out."""
    ends = time.monotonic() + timeout_s
    while not wanted(found := look()) and time.monotonic() < ends:
        time.sleep(0.2)
    return found


def prepare(notebook: Path, lab: Lab, **parameters: Any) -> None:
    """Put a copy of the notebook with smoke parameters into JupyterLab's folder, as papermill writes them in."""
    smoke = read_parameter_file(PARAMETERS_DIR / "smoke.yaml")
    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of parameters that a notebook does not show
    papermill.execute_notebook(
        notebook,
        lab.root / notebook.name,
        {**smoke, **parameters},
        kernel_name="python3",
        prepare_only=True,
        progress_bar=False,
    )


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """JupyterLab with settings, runtime files and runs in a folder of its own; gone with all its kernels afterwards."""
    root, runs, own = folder / "notebooks", folder / "runs", folder / "jupyter"
    for needed in (root, runs, own):
        needed.mkdir(parents=True)
    _settle(own / "lab")
    environment = {
        **{name: value for name, value in os.environ.items() if name != "WORKBOOK_RUN"},
        **{f"JUPYTER_{kind}_DIR": str(own / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")},
        **{f"JUPYTERLAB_{kind}_DIR": str(own / "lab") for kind in ("SETTINGS", "WORKSPACES")},
        "WORKBOOK_RUNS": str(runs),
    }
    log = folder / "jupyterlab.log"
    for attempts_left in reversed(range(PORT_ATTEMPTS)):
        token, port = secrets.token_hex(16), _free_port()
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.root_dir={root}"),
            *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"),
            "--LabApp.expose_app_in_browser=True",
        ]
        with log.open("w") as output:
            server = subprocess.Popen(command, env=environment, cwd=root, stdout=output, stderr=subprocess.STDOUT)
        lab = Lab(f"http://127.0.0.1:{port}/", token, root, runs)
        try:
            _wait_for(lab, server, log)
            break
        except RuntimeError:
            _end(server)
            if not attempts_left or "is already in use" not in log.read_text():
                raise
    try:
        yield lab
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(60)


def _settle(settings: Path) -> None:
    """Keep JupyterLab from questions that nobody answers: about news, and about a file that it saved itself meanwhile.

    It saves each notebook every two minutes. Where a test saves at that moment, it finds the file newer than it knows
    and asks whether to overwrite it.
    """
    for plugin, values in {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "docmanager-extension/plugin": {"autosave": False},
    }.items():
        file = settings / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_for(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends and server.poll() is None:
        try:
            lab.kernels()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab does not answer. It said: {log.read_text()[-2000:]}")


@dataclass
class OpenNotebook:
    """A notebook open in JupyterLab.

    Attributes:
        page: the browser's page.
        name: of the notebook, without `.ipynb`.
        complaints: what the console was told of errors, without what is known to be harmless.
    """

    page: Page
    name: str
    complaints: list[str] = field(default_factory=list)
    _shots: int = 0

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))

    def _listen(self, message: ConsoleMessage) -> None:
        harmless = any(pattern.search(message.text) for pattern in HARMLESS)
        if message.type == "error" and not harmless:
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def open(self, lab: Lab) -> None:
        """Show the notebook, in a workspace as it is after installing."""
        self.page.goto(f"{lab.url}lab/tree/{self.name}.ipynb?reset&token={lab.token}")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=240_000)
        self.page.wait_for_function(f"({STATE_OF_NOTEBOOK})().kernel === 'idle'", timeout=240_000)
        # JupyterLab asks a kernel for the widgets it has as soon as it is there; widgets made meanwhile are mixed up
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(2000)

    def choose(self, menu: str, entry: str) -> None:
        """Choose an entry of JupyterLab's menu bar."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$")).click()

    def state(self) -> dict[str, Any]:
        """Kernel status, number of code cells, of cells run and of cells waiting, and the errors shown."""
        return dict(self.page.evaluate(STATE_OF_NOTEBOOK))

    def wait_until_idle(self, timeout_s: float) -> dict[str, Any]:
        """Wait until no cell runs or waits to run; the state then."""
        done = (
            f"(() => {{ const now = ({STATE_OF_NOTEBOOK})(); return now.kernel === 'idle' && now.pending === 0; }})()"
        )
        self.page.wait_for_function(done, timeout=1000 * timeout_s, polling=200)
        return self.state()

    def asked_figures(self) -> int:
        """How many outputs are figures, panels apart."""
        return int(self.page.evaluate(FIGURES_ASKED))

    def wait_for_figures(self, count: int) -> int:
        """How many figures, panels apart, are really drawn, as soon as it is so many; scrolls past all of them."""
        ends = time.monotonic() + PATIENCE_MS / 1000
        while True:
            for figure in self.page.locator(".jp-Notebook .js-plotly-plot").all():
                figure.scroll_into_view_if_needed()
            drawn = int(self.page.evaluate(FIGURES_DRAWN))
            if drawn == count or time.monotonic() > ends:
                return drawn
            self.page.wait_for_timeout(200)

    def overlaps(self) -> list[str]:
        """Figures whose title and second line lie upon each other."""
        return list(self.page.evaluate(OVERLAPS))

    def photograph_cells(self) -> None:
        """Keep a picture of each figure and panel where it stands in the notebook."""
        for place, figure in enumerate(self.page.locator(".jp-OutputArea-output:has(.js-plotly-plot)").all()):
            figure.scroll_into_view_if_needed()
            SCREENSHOTS.mkdir(exist_ok=True)
            figure.screenshot(path=SCREENSHOTS / f"{self.name}-figure-{place + 1:02d}.png")

    def answer_of(self, expression: str) -> str:
        """What the kernel answers to a line that it is sent now."""
        ask = """async expression => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const done = kernel.requestExecute({code: '', user_expressions: {answer: expression}});
            return (await done.done).content.user_expressions.answer.data['text/plain'];
        }"""
        return str(self.page.evaluate(ask, expression))

    def save(self) -> None:
        """Save it, as Ctrl+S does.

        Raises:
            AssertionError: it is not saved after a minute; the message holds what JupyterLab asks, if it does.
        """
        saved = """() => Promise.race([
            window.jupyterapp.shell.currentWidget.context.save().then(() => true),
            new Promise(resolve => setTimeout(() => resolve(false), 60000)),
        ])"""
        assert self.page.evaluate(saved), f"not saved: {self.page.locator('.jp-Dialog').all_inner_texts()}"

    def photograph(self, step: str) -> None:
        """Keep what the browser shows now as `screenshots/NOTEBOOK-NN-STEP.png`."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self._shots += 1
        self.page.screenshot(path=SCREENSHOTS / f"{self.name}-{self._shots:02d}-{step}.png")
