"""Processor time of each part of a served pipeline: every model's own processes, the server, the client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """

    time_ns: int
    seconds: Mapping[str, float]

    @classmethod
    def take(cls, server: Server, models: Sequence[str]) -> ProcessorTimes:
        """Read them now."""
        import psutil

        now_ns, client = time.perf_counter_ns(), time.process_time()
        if server.pid is None:
            return cls(now_ns, {})
        seconds = dict.fromkeys((*models, SERVER), 0.0)
        try:
            process = psutil.Process(server.pid)
            seconds[SERVER] = _own(process)
            for child in process.children(recursive=True):
                model = _model_of(child)
                if model in seconds:
                    seconds[model] += _own(child)
        except psutil.Error:
            return cls(now_ns, {})
        return cls(now_ns, {**seconds, CLIENT: client})

    def __sub__(self, earlier: ProcessorTimes) -> ProcessorTimes:
        """What was used in between; `time_ns` is then the time that passed."""
        used = {name: value - earlier.seconds.get(name, 0.0) for name, value in self.seconds.items()}
        return ProcessorTimes(self.time_ns - earlier.time_ns, used if earlier.seconds else {})

    def per_image(self, images: int) -> dict[str, float]:
        """Seconds of processor time for each of so many images."""
        return {name: value / images for name, value in self.seconds.items()} if images else {}


def _own(process: object) -> float:
    times = process.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


def _model_of(process: object) -> str:
    """The model that a stub runs: the folder two levels above its code."""
    line = process.cmdline()  # type: ignore[attr-defined]
    if len(line) < 2 or PurePath(line[0]).name != _STUB:
        return ""
    return PurePath(line[1]).parent.parent.name
