"""A burst of images with Triton's trace switched on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.analysis.trace import read_trace
from workbook.errors import LoadError, SettingError
from workbook.measuring.ensemble.images import Images, requests_for
from workbook.measuring.ensemble.runs import Probe
from workbook.measuring.online.load import send_all
from workbook.serving.ensemble_server import EnsembleServer
from workbook.serving.ensemble_spec import ENSEMBLE, EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd

_CONNECTIONS_TRACED = 64
_TRACE_PATIENCE_S = 20.0


def trace_burst(
    served: EnsembleServer, variant: EnsembleVariant, images: Images, *, requests: int = 96, records_path: Path
) -> pd.DataFrame:
    """Send a few dozen images at once with tracing on, and read the trace.

    Args:
        served: the running server; it was started with a trace file.
        variant: the configuration.
        images: sent in turn.
        requests: how many.
        records_path: CSV file that the records are appended to.

    Returns:
        As `read_trace`; as many images again, which warm the members up before, are not in it.

    Raises:
        SettingError: the server has no trace file.
        LoadError: the trace is not whole after a while.
    """
    if served.trace_file is None:
        raise SettingError("this server writes no trace: start_ensemble_server(..., trace_file=...) gives it a file.")
    served.configure(variant)
    served.trace_file.unlink(missing_ok=True)
    sent = requests_for(ENSEMBLE, images, variant)
    burst = [sent[number % len(sent)] for number in range(requests)]
    load = Probe(min(_CONNECTIONS_TRACED, requests)).load(ENSEMBLE)
    for on in (False, True):
        served.trace(on)
        send_all(served.server, load, burst, records_path, arm="traced", progress=False)
    served.trace(False)
    timeline = _wait_for_trace(served.trace_file, requests)
    moments = ["queue_start_ms", "work_start_ms", "work_end_ms"]
    timeline[moments] -= timeline["queue_start_ms"].min()
    return timeline


def _wait_for_trace(path: Path, requests: int) -> pd.DataFrame:
    """Triton writes what it has collected a moment after tracing was switched off."""
    deadline_s = time.monotonic() + _TRACE_PATIENCE_S
    while True:
        try:
            timeline = read_trace(path)
            if len(timeline) == 2 * requests:
                return timeline
            problem = f"{path} holds {len(timeline)} of {2 * requests} steps of the images that were sent"
        except LoadError as error:
            problem = str(error)
        if time.monotonic() > deadline_s:
            raise LoadError(problem)
        time.sleep(0.1)
