"""A closed loop measured again from inside a notebook: on the notebook's server, or on one started for it.

State and work of the live panel, without any widget. Records are appended to the run's `live.csv`, what Triton counted
to `live_server.csv`, so that a figure over both can be drawn again later.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from workbook.errors import SettingError
from workbook.measuring.background import BackgroundJob
from workbook.measuring.online.load import Load, LoadResult, measure_load, send_all
from workbook.measuring.online.patience import lone_request_s, patient
from workbook.measuring.online.requests import ModelInputs, TransportName
from workbook.measuring.online.windows import STABLE_WINDOWS
from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter, read_records

if TYPE_CHECKING:
    from workbook.runs import Run
    from workbook.serving.handle import Server

LIVE = "live"
LIVE_SERVER = "live_server"
SERVER_COLUMNS: Mapping[str, str] = {
    "arm": "str",
    "concurrency": "int64",
    "run": "int64",
    "queue_ms": "float64",
    "compute_input_ms": "float64",
    "compute_infer_ms": "float64",
    "compute_output_ms": "float64",
}
"""What Triton says of a request of each measurement: means, in ms."""
TRANSPORTS: tuple[str, ...] = get_args(TransportName)
MOST_SECONDS = 600.0
_WARM_UP_SHARE = 0.2
_IDLE_S = 60.0
_POLL_S = 0.1
_START_SHARE = 0.1


@dataclass(frozen=True)
class Target:
    """Something that can be asked.

    Attributes:
        name: as the panel's list shows it; the arm in the records.
        batches: sent in turn, again and again.
        serving: makes sure that a server serves it for the length of a `with` block and gives its name there.
    """

    name: str
    batches: Sequence[ModelInputs] = field(repr=False)
    serving: Callable[[Server], AbstractContextManager[str]] = field(repr=False)


def always_served(model: str, batches: Sequence[ModelInputs]) -> Target:
    """A target that the server has loaded from its start on."""
    return Target(model, batches, lambda server: nullcontext(model))


@dataclass(frozen=True)
class LiveRequest:
    """What the controls ask for. Making one touches nothing.

    Raises:
        SettingError: a value no load could have.
    """

    target: str
    concurrency: int = 1
    transport: str = "grpc"
    seconds: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not 0.3 <= self.seconds <= MOST_SECONDS:
            raise SettingError(f"seconds is {self.seconds:g}: it must lie between 0.3 and {MOST_SECONDS:g}.")
        self.load("any")

    def load(self, model: str) -> Load:
        """Three windows, whatever they show: the reader sees the points, and asks for more seconds."""
        return Load(
            model,
            self.concurrency,
            self.transport,  # type: ignore[arg-type]  # checked by Load
            warmup_s=_WARM_UP_SHARE * self.seconds,
            window_s=self.seconds / STABLE_WINDOWS,
            stability_percent=1000,
            max_windows=STABLE_WINDOWS,
        )


@dataclass(eq=False)
class LiveLoad:
    """Measures on request, one at a time, beside the kernel.

    A server of its own is started where the notebook's has ended. It ends a minute after the last measurement, with
    `close`, with the kernel, and when the same notebook makes another one of these (the cell was run again).

    Attributes:
        run: where records go.
        targets: what can be asked, by name.
        start_server: starts a server of its own.
        server: the notebook's, used while it runs.
        job: the measurement under way, or the last one.
    """

    run: Run
    targets: Mapping[str, Target]
    start_server: Callable[[], Server] = field(repr=False)
    server: Server | None = field(default=None, repr=False)
    idle_s: float = _IDLE_S
    job: BackgroundJob = field(default_factory=BackgroundJob, repr=False)

    def __post_init__(self) -> None:
        self._own = _OwnServer(self.start_server, self.idle_s)
        _take_the_place_of_earlier(self)

    @property
    def records_path(self) -> Path:
        """Every request of every measurement, REQUEST_COLUMNS."""
        return self.run.records_path(LIVE)

    @property
    def _warm_up_path(self) -> Path:
        return self.run.records_path(f"warm_up_{LIVE}")

    def measure(self, request: LiveRequest) -> bool:
        """Begin a measurement; False where one is under way, and nothing happens.

        Raises:
            SettingError: no such target.
        """
        target = self.targets.get(request.target)
        if target is None:
            raise SettingError(f"there is no {request.target!r} to ask: choose one of {', '.join(self.targets)}.")
        return self.job.start(partial(self._measure, request, target))

    def cancel(self) -> None:
        """End the measurement soon; what it measured stays in the records."""
        self.job.cancel()

    def close(self) -> None:
        """End the measurement and the server of our own; the notebook's server is left alone."""
        self.job.cancel()
        self.job.wait(10.0)
        self._own.close()

    def _measure(self, request: LiveRequest, target: Target, job: BackgroundJob) -> LoadResult:
        server = self._running_server(job)
        number = self._next_number()
        beginning = job.share

        def cancelled() -> bool:
            since_s = job.elapsed_s - started_s
            job.report(beginning + (1 - beginning) * min(0.99, since_s / expected_s), "measuring")
            return job.cancelled

        try:
            with target.serving(server) as model:
                alone = send_all(server, Load(model), target.batches[:1], self._warm_up_path, progress=False)
                load = patient(request.load(model), lone_request_s(alone))
                started_s = job.elapsed_s
                expected_s = load.warmup_s + STABLE_WINDOWS * load.window_s
                result = measure_load(
                    server, load, target.batches, self.records_path, arm=target.name, run=number,
                    progress=False, cancelled=cancelled,
                )  # fmt: skip
        finally:
            self._own.rest()
        self._keep(result)
        return result

    def _running_server(self, job: BackgroundJob) -> Server:
        if self.server is not None and self.server.is_alive():
            return self.server
        job.report(0.0, "starting a server")
        server = self._own.running(job)
        job.report(_START_SHARE)
        return server

    def _next_number(self) -> int:
        """Every measurement is a run of its own: runs are what differs by chance."""
        if not self.records_path.is_file():
            return 0
        runs = read_records(self.records_path, REQUEST_COLUMNS)["run"]
        return int(runs.max()) + 1 if len(runs) else 0

    def _keep(self, result: LoadResult) -> None:
        counted = {name: getattr(result.statistics, name) for name in SERVER_COLUMNS if name.endswith("_ms")}
        row = {"arm": result.arm, "concurrency": result.load.concurrency, "run": result.run, **counted}
        with RecordWriter(self.run.records_path(LIVE_SERVER), SERVER_COLUMNS) as writer:
            writer.append(row)


class _OwnServer:
    """A server that is started when first needed, in a thread, so that whoever waits for it can give up waiting."""

    def __init__(self, start: Callable[[], Server], idle_s: float) -> None:
        self._start, self._idle_s = start, idle_s
        self._lock = threading.RLock()
        self._server: Server | None = None
        self._failure: BaseException | None = None
        self._starting: threading.Thread | None = None
        self._stopper: threading.Timer | None = None
        self._closed = False

    def running(self, job: BackgroundJob) -> Server:
        """The server, started where it does not run.

        Raises:
            CancelledError: cancelled while it starts; it comes up nevertheless and waits for the next measurement.
            ServerError, SetupError: it does not start.
        """
        with self._lock:
            self._closed = False
            self._stop_timer()
            if self._server is not None and self._server.is_alive():
                return self._server
            if self._starting is None or not self._starting.is_alive():
                self._server = self._failure = None
                self._starting = threading.Thread(target=self._bring_up, name="workbook-live-server", daemon=True)
                self._starting.start()
            starting = self._starting
        while starting.is_alive():
            starting.join(_POLL_S)
            if job.cancelled:
                self.rest()
            job.raise_if_cancelled()
        if self._server is None:
            raise self._failure or SettingError("The server was stopped while it started: press Measure again.")
        return self._server

    def _bring_up(self) -> None:
        try:
            server = self._start()
        except BaseException as error:
            self._failure = error
            return
        with self._lock:
            self._server = server
            if self._closed:
                self.close()

    def rest(self) -> None:
        """Stop the server after a while, unless it is needed again before."""
        with self._lock:
            self._stop_timer()
            self._stopper = threading.Timer(self._idle_s, self.close)
            self._stopper.daemon = True
            self._stopper.start()

    def close(self) -> None:
        """Stop the server, also one that is just starting."""
        with self._lock:
            self._closed = True
            self._stop_timer()
            server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _stop_timer(self) -> None:
        if self._stopper is not None:
            self._stopper.cancel()
            self._stopper = None


_OPEN: dict[tuple[Path, str], LiveLoad] = {}


def _take_the_place_of_earlier(load: LiveLoad) -> None:
    """Close the one that an earlier run of the same cell made."""
    key = load.run.directory, load.run.notebook
    earlier = _OPEN.pop(key, None)
    if earlier is not None:
        earlier.close()
    _OPEN[key] = load


@atexit.register
def _close_all() -> None:
    for load in list(_OPEN.values()):
        load.close()
