"""However the server, its supervisor or the program that started it ends: nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from serving_helpers import assert_gone, infer, start_null, traces, urls_of
from tritonclient.utils import InferenceServerException

from busy_machine import PATIENCE_S, in_one_of, wait_for
from workbook.errors import ServerError
from workbook.serving import supervisor
from workbook.serving.embedded import EmbeddedServer
from workbook.serving.handle import Server

pytestmark = pytest.mark.integration


def test_stop_leaves_nothing_and_touches_no_other_server(null_server: Server) -> None:
    server = start_null()
    assert traces(server.identity)  # else the check below would hold of anything
    server.stop()
    server.stop()  # a second time does nothing
    assert not server.is_alive()
    assert null_server.is_alive()
    assert infer(null_server.grpc_url, "null", np.ones((1, 2), np.int64), ["sentence_embedding"])
    assert_gone(server.identity, urls_of(server), within_s=0)


def test_killed_server_is_noticed_and_explained() -> None:
    with start_null() as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: not server.is_alive())
        with pytest.raises(InferenceServerException) as caught:
            infer(server.grpc_url, "null", np.ones((1, 4), np.int64), ["sentence_embedding"])
        explained = server.explain_failure(caught.value)
        assert isinstance(explained, ServerError)
        assert "killed by signal 9" in str(explained)
        assert "Started GRPCInferenceService" in explained.log_tail
        with pytest.raises(ServerError, match="killed by signal 9"):
            server.check_alive()
        assert_gone(server.identity, urls_of(server))  # though nobody has called stop()


def test_killed_supervisor_takes_the_server_with_it() -> None:
    with start_null() as server:
        os.kill(server.supervisor_pid, signal.SIGKILL)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(server.pid).wait(PATIENCE_S)
        assert not server.is_alive()
    assert_gone(server.identity, urls_of(server), within_s=0)


def leave_traces(_: int) -> EmbeddedServer:
    """Kill supervisor and server in one go; the files stay, as nobody is left to remove them."""
    victim = start_null()
    os.kill(victim.supervisor_pid, signal.SIGSTOP)
    os.kill(victim.pid, signal.SIGKILL)
    os.kill(victim.supervisor_pid, signal.SIGKILL)
    psutil.Process(victim.supervisor_pid).wait(PATIENCE_S)
    assert traces(victim.identity)  # unless a server that the test beside this one starts has cleared them
    return victim


def test_next_start_clears_what_a_killed_server_left() -> None:
    victim = in_one_of(leave_traces)
    foreign = supervisor.SHARED_MEMORY_DIR / f"{supervisor.NAME_STEM}-not-ours-{os.getpid()}"
    foreign.touch()
    try:
        with start_null() as server:
            assert traces(victim.identity) == []
            assert traces(server.identity)
        assert foreign.exists()
    finally:
        foreign.unlink()
        victim.stop()


PARENT = """
import json, os, sys, time
from pathlib import Path
from workbook.serving.repository import committed_repository
from workbook.serving.server import start_server
server = start_server("embedded", committed_repository(), models=["null"])
if sys.argv[1] == "fork":
    if os.fork() == 0:
        time.sleep(300)  # holds every pipe of its parent open
        os._exit(0)
print(json.dumps({"identity": server.identity, "log": str(server.log_file),
    "urls": [server.http_url, server.grpc_url, server.metrics_url]}), flush=True)
if sys.argv[1] == "raise":
    raise ValueError("a mistake in a cell")
if sys.argv[1] != "return":
    time.sleep(300)
"""


@contextlib.contextmanager
def parent(how: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    command = [sys.executable, "-c", PARENT, how]
    # a group of its own, as a terminal gives it: signals below go to the whole group
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line, process.stderr.read() if process.stderr else ""
            yield process, json.loads(line)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def to_group(number: signal.Signals) -> Callable[[int], None]:
    return lambda pid: os.killpg(pid, number)


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("return", None),
        ("raise", None),
        ("sleep", to_group(signal.SIGINT)),
        ("sleep", to_group(signal.SIGTERM)),
        ("sleep", to_group(signal.SIGKILL)),
        ("fork", lambda pid: os.kill(pid, signal.SIGKILL)),
    ],
    ids=["end of program", "exception", "Ctrl-C", "SIGTERM", "kernel restart", "killed with a forked child left"],
)
def test_server_goes_with_its_parent(how: str, end: Callable[[int], None] | None) -> None:
    with parent(how) as (process, started):
        if end is not None:
            end(process.pid)
        assert_gone(started["identity"], started["urls"])  # type: ignore[arg-type]
        assert not Path(str(started["log"])).exists()  # a temporary log has no reader any more
