"""What a panel that measures adds: one button to start, one to cancel, and a line that says how far it has come."""

from __future__ import annotations

import html
import threading
from typing import Any

from workbook.display.panel import Panel, named
from workbook.errors import WorkbookError
from workbook.measuring.background import BackgroundJob, first_line

_TICK_S = 0.25


class MeasuringPanel(Panel):
    """A panel with a job.

    Attributes:
        job: what runs beside the kernel, one at a time.
        start, stop: the buttons "Measure" and "Cancel".
        bar, status: how far the job has come.
        busy: from the press of "Measure" until what came of it is shown.
    """

    job: BackgroundJob
    start: Any
    stop: Any
    bar: Any
    status: Any
    busy: bool = False

    def begin(self) -> bool:
        """Begin what the controls ask for; False where something runs already.

        Raises:
            WorkbookError: the controls ask for something that cannot be, before any work.
        """
        raise NotImplementedError

    def ended(self) -> None:
        """Take over what the job has found; called once after each job, whatever became of it."""
        self.redraw()

    def buttons(self) -> Any:
        """Make the buttons and the line of progress, in one box."""
        import ipywidgets as widgets

        self._showing = threading.Lock()
        self.start = named(widgets.Button(description="Measure", button_style="primary"), "workbook-measure")
        self.stop = named(widgets.Button(description="Cancel", disabled=True), "workbook-cancel")
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, description="progress")
        self.status = named(widgets.HTML(), "workbook-panel-status")
        self.start.on_click(self.press_measure)
        self.stop.on_click(self.press_cancel)
        self._show_progress()
        return widgets.HBox([self.start, self.stop, self.bar, self.status])

    def press_measure(self, button: Any = None) -> None:
        """Begin a measurement, unless one runs; what is wrong with the controls becomes a sentence."""
        if self.busy or self.job.is_running:
            return
        self.error.value = ""
        try:
            self.busy = self.begin()
        except WorkbookError as error:
            self.complain(first_line(error))
            return
        except Exception as error:  # a callback's traceback goes to a log that nobody reads
            self.complain(f"Nothing was measured: {type(error).__name__}: {first_line(error)}")
            return
        if self.busy:
            self._show_progress()
            threading.Thread(target=self._watch, name="workbook-panel", daemon=True).start()

    def press_cancel(self, button: Any = None) -> None:
        """End the measurement soon."""
        self.job.cancel()
        self._show_progress()

    def _watch(self) -> None:
        while not self.job.wait(_TICK_S):
            self._show_progress()
        try:
            self.ended()
            if self.job.error:
                self.complain(self.job.error)
        finally:
            self._show_progress(over=True)

    def _show_progress(self, over: bool = False) -> None:
        with self._showing:  # a press of Cancel must not write what it saw over the end that came meanwhile
            running = self.job.is_running
            self.start.disabled = not over and (running or self.busy)
            self.stop.disabled = not running or self.job.cancelled
            self.bar.layout.visibility = "visible" if running else "hidden"
            self.bar.value = self.job.share
            self.status.value = f"<span role='status'>{html.escape(self.job.sentence)}</span>"
            if over:
                self.busy = False
