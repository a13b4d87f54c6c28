"""A pipeline of two batching members as a simulation of its events: bursts, queues and waits that no formula holds.

Connections form a closed loop: each sends its next image when it has its answer. A member's batcher hands over a batch
when it is full, or when its oldest image has waited long enough, and an instance is free (Triton's dynamic batcher).
Instances share the processors of their member: more running ones than processors slow each other down.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from workbook.analysis.rates import completion_rate_per_s
from workbook.errors import SettingError


@dataclass(frozen=True)
class Member:
    """What the simulation knows of a member.

    Attributes:
        instances: copies that run at the same time.
        max_batch: most images in one execution; 1 for a member without batching.
        delay_s: longest wait for a fuller batch.
        work_s: processor time of one image.
        stall_s: wait of one image that keeps no processor busy.
        pool: members with the same pool share its processors.
        processors: of the pool, may be a fraction.
        work_by_batch: (images in an execution, `work_s` of each of them), ascending, where it depends on the batch;
            between two points it is interpolated. Empty: `work_s` for any batch.
    """

    instances: int
    max_batch: int
    delay_s: float
    work_s: float
    stall_s: float = 0.0
    pool: str = ""
    processors: float = 1.0
    work_by_batch: tuple[tuple[float, float], ...] = ()

    def work_of(self, batch: float) -> float:
        """Processor time of one image in an execution of so many, s."""
        if not self.work_by_batch:
            return self.work_s
        sizes, works = zip(*self.work_by_batch, strict=True)
        return float(np.interp(batch, sizes, works))

    def __post_init__(self) -> None:
        if self.instances < 1 or self.max_batch < 1 or min(self.delay_s, self.stall_s) < 0 or not self.work_s > 0:
            raise SettingError(f"{self} cannot be: 1 instance and batch 1 at least, no negative time, some work.")


@dataclass(frozen=True)
class Simulated:
    """What came out.

    Attributes:
        images_per_s: in the settled part.
        latency_p50_ms, latency_p99_ms: of an image, from sending to answer.
        mean_batch_a: images in an execution of A.
        longest_queue_b: most images that waited for B at one moment.
    """

    images_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    mean_batch_a: float
    longest_queue_b: int


@dataclass
class _Job:
    station: int
    images: list[int]
    stall_s: float
    work_s: float


@dataclass
class _Station:
    member: Member
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    running: int = 0
    executions: int = 0
    images: int = 0
    longest: int = 0

    def release_s(self) -> float:
        """When the next batch may start, if an instance is free; infinity where nothing waits."""
        if not self.waiting or self.running >= self.member.instances:
            return math.inf
        if len(self.waiting) >= self.member.max_batch:
            return -math.inf
        return self.waiting[0][0] + self.member.delay_s


def simulate_pipeline(
    a: Member, b: Member, connections: int, *, transport_s: float = 0.0, images: int = 0
) -> Simulated:
    """Run images through A, then B.

    Args:
        a: the first member.
        b: the second.
        connections: requests in flight.
        transport_s: time of an image outside the members, from its connection's last answer to A's queue.
        images: how many are answered before the simulation ends; 0 takes enough for a settled rate.

    Raises:
        SettingError: no connections.
    """
    if connections < 1:
        raise SettingError(f"connections is {connections}: at least 1 is needed.")
    total = images or max(400, 12 * connections, 8 * a.max_batch * a.instances)
    return _Simulation(a, b, connections, transport_s).run(total)


class _Simulation:
    def __init__(self, a: Member, b: Member, connections: int, transport_s: float) -> None:
        self.stations = (_Station(a), _Station(b))
        self.transport_s = transport_s
        self.now_s = 0.0
        self.jobs: list[_Job] = []
        self.sent_s = [0.0] * connections
        self.arrivals = [(transport_s, connection) for connection in range(connections)]
        self.answers: list[tuple[float, float]] = []  # end and latency, s

    def run(self, total: int) -> Simulated:
        while len(self.answers) < total:
            self._admit()
            self._start_jobs()
            self._advance(self._next_event_s())
        settled = self.answers[total // 3 :]
        ended_s, latencies_s = np.array(settled).T
        a, b = self.stations
        return Simulated(
            images_per_s=completion_rate_per_s((ended_s * 1e9).tolist()),
            latency_p50_ms=float(np.percentile(latencies_s, 50) * 1e3),
            latency_p99_ms=float(np.percentile(latencies_s, 99) * 1e3),
            mean_batch_a=a.images / a.executions,
            longest_queue_b=b.longest,
        )

    def _admit(self) -> None:
        while self.arrivals and self.arrivals[0][0] <= self.now_s:
            _, connection = heapq.heappop(self.arrivals)
            self.stations[0].waiting.append((self.now_s, connection))

    def _start_jobs(self) -> None:
        for place, station in enumerate(self.stations):
            station.longest = max(station.longest, len(station.waiting))
            while station.release_s() <= self.now_s + 1e-12:
                count = min(len(station.waiting), station.member.max_batch)
                images = [station.waiting.popleft()[1] for _ in range(count)]
                station.running += 1
                station.executions += 1
                station.images += count
                self.jobs.append(
                    _Job(place, images, count * station.member.stall_s, count * station.member.work_of(count))
                )

    def _speeds(self) -> list[float]:
        working: dict[str, int] = {}
        pools = [self.stations[job.station].member for job in self.jobs]
        for job, member in zip(self.jobs, pools, strict=True):
            working[member.pool] = working.get(member.pool, 0) + (job.stall_s <= 0)
        return [min(1.0, member.processors / max(1, working[member.pool])) for member in pools]

    def _next_event_s(self) -> float:
        """Time until something happens."""
        times = [station.release_s() - self.now_s for station in self.stations]
        if self.arrivals:
            times.append(self.arrivals[0][0] - self.now_s)
        for job, speed in zip(self.jobs, self._speeds(), strict=True):
            times.append(job.stall_s if job.stall_s > 0 else job.work_s / speed)
        return max(0.0, min(times))

    def _advance(self, step_s: float) -> None:
        speeds = self._speeds()
        self.now_s += step_s
        unfinished = []
        for job, speed in zip(self.jobs, speeds, strict=True):
            if job.stall_s > 0:
                job.stall_s -= step_s
                if job.stall_s < 1e-12:
                    job.stall_s = 0.0
            else:
                job.work_s -= step_s * speed
            if job.stall_s <= 0 and job.work_s < 1e-12:
                self._finish(job)
            else:
                unfinished.append(job)
        self.jobs = unfinished

    def _finish(self, job: _Job) -> None:
        self.stations[job.station].running -= 1
        for connection in job.images:
            if job.station == 0:
                self.stations[1].waiting.append((self.now_s, connection))
                continue
            self.answers.append((self.now_s, self.now_s - self.sent_s[connection]))
            self.sent_s[connection] = self.now_s
            heapq.heappush(self.arrivals, (self.now_s + self.transport_s, connection))
