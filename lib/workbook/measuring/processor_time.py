"""Processor time of each part of a served pipeline: every model's own processes, the server, the client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbook.serving.handle import Server

SERVER, CLIENT = "server", "client"
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class ProcessorTimes:
    """A reading of processor time used so far; subtract two readings.

    Attributes:
        time_ns: when it was read.
        seconds: by model name (a Python model's processes), `server` (the server itself) and `client` (this process);
            empty where the server's processes cannot be seen.
        processes: what each process used, with the name it counts for, by process number: one that has ended in between
            (of a model that was loaded anew) counts for nothing.
    """

    time_ns: int
    seconds: Mapping[str, float]
    processes: Mapping[int, tuple[str, float]] = field(default_factory=dict, repr=False)

    @classmethod
    def take(cls, server: Server, models: Sequence[str]) -> ProcessorTimes:
        """Read them now."""
        import psutil

        now_ns, client = time.perf_counter_ns(), time.process_time()
        if server.pid is None:
            return cls(now_ns, {})
        try:
            process = psutil.Process(server.pid)
            processes = {server.pid: (SERVER, _own(process)), 0: (CLIENT, client)}
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # of a model that is being unloaded
                    if (model := _model_of(child)) in models:
                        processes[child.pid] = (model, _own(child))
        except psutil.Error:
            return cls(now_ns, {})
        return cls(now_ns, _by_name(processes, (*models, SERVER, CLIENT)), processes)

    def __sub__(self, earlier: ProcessorTimes) -> ProcessorTimes:
        """What was used in between; `time_ns` is then the time that passed."""
        before = {number: used for number, (_, used) in earlier.processes.items()}
        processes = {n: (name, used - before.get(n, 0.0)) for n, (name, used) in self.processes.items()}
        passed_ns = self.time_ns - earlier.time_ns
        return ProcessorTimes(passed_ns, _by_name(processes, self.seconds) if earlier.seconds else {}, processes)

    def per_image(self, images: int) -> dict[str, float]:
        """Seconds of processor time for each of so many images."""
        return {name: value / images for name, value in self.seconds.items()} if images else {}


def _by_name(processes: Mapping[int, tuple[str, float]], names: Iterable[str]) -> dict[str, float]:
    seconds = dict.fromkeys(names, 0.0)
    for name, used in processes.values():
        seconds[name] += used
    return seconds


def _own(process: object) -> float:
    times = process.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


def _model_of(process: object) -> str:
    """The model that a stub runs: the folder two levels above its code."""
    line = process.cmdline()  # type: ignore[attr-defined]
    if len(line) < 2 or PurePath(line[0]).name != _STUB:
        return ""
    return PurePath(line[1]).parent.parent.name
