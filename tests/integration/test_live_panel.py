"""The live panel against a real server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from serving_helpers import assert_gone, start_null

from workbook.display.live_panel import LivePanel
from workbook.errors import ServerError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.live import LiveLoad, LiveRequest, always_served
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.runs import Run
from workbook.serving.embedded import EmbeddedServer
from workbook.serving.handle import Server

pytestmark = pytest.mark.integration
LONG_S = 120.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def live_load(directory: Path, start: Callable[[], Server], server: Server | None = None) -> LiveLoad:
    ones = np.ones((2, 8), np.int64)
    batches = [Batch(ones, ones, np.arange(2), ("a", "b"))]
    return LiveLoad(Run(directory, "03_serve_with_triton"), {"null": always_served("null", batches)}, start, server)


def no_start() -> Server:
    raise ServerError("no server should be started")


def test_measure_cancel_and_measure_again(null_server: Server, tmp_path: Path) -> None:
    live = live_load(tmp_path, no_start, null_server)
    panel = LivePanel(live)
    assert "holds no records" in panel.error.value
    panel.seconds.value = 0.6
    panel.start.click()
    panel.start.click()  # a double click
    until(lambda: not panel.busy)
    assert "Done in" in panel.status.value and not panel.error.value and "rows/s" in panel.reading.value
    first = read_records(live.records_path, REQUEST_COLUMNS)
    assert set(first["run"]) == {0} and set(first["error"]) == {""}
    panel.quantity.value = "compute_infer_ms"
    assert panel.reading.value.startswith("<p>Model computes (ms)")

    panel.concurrency.value, panel.transport.value, panel.seconds.value = 2, "http", 60.0
    panel.start.click()
    until(lambda: live.records_path.read_text().count("\n") > len(first) + 20)  # it is measuring
    started_s = time.monotonic()
    panel.stop.click()
    until(lambda: not panel.busy)
    assert time.monotonic() - started_s < 30  # of 72
    assert "Cancelled" in panel.status.value and not panel.error.value
    both = read_records(live.records_path, REQUEST_COLUMNS)
    assert len(both) > len(first) and both.head(len(first)).equals(first)  # nothing is lost
    assert set(both["run"]) == {0, 1}
    live.close()
    assert null_server.is_alive()  # the notebook's server is the notebook's


def test_a_server_of_its_own_ends_with_the_panel(tmp_path: Path) -> None:
    started: list[EmbeddedServer] = []

    def start() -> Server:
        started.append(start_null())
        return started[-1]

    live = live_load(tmp_path, start)
    for _ in range(2):
        assert live.measure(LiveRequest("null", seconds=0.5)) and live.job.wait(LONG_S)
        assert live.job.state == "done", live.job.error
    assert len(started) == 1 and started[0].is_alive()  # one start for several measurements
    live_load(tmp_path, no_start)  # the cell is run again
    assert_gone(started[0].identity, [started[0].grpc_url])
