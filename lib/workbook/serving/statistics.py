"""Triton's statistics of one model, read before and after a measurement and subtracted.

How Triton counts (checked against 2.51, and as its statistics extension documents):

- a *request* carries one or more *inferences* (batch elements); the batcher puts requests together into one
  *execution*;
- queue and compute times are added up **per request**: when an execution of 27 ms served six requests,
  `compute_infer_ns` grows by 6 x 27 ms. Divided by the requests it is what a request sat through; added up, it
  exceeds the wall clock;
- `batches` counts the same times **once per execution**, by batch size. What the model itself costs is read there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbook.errors import ServerError

_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class BatchStatistics:
    """Executions of one batch size; times are once per execution, in ns."""

    batch_size: int
    execution_count: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int

    def __sub__(self, earlier: BatchStatistics) -> BatchStatistics:
        return BatchStatistics(
            batch_size=self.batch_size,
            execution_count=self.execution_count - earlier.execution_count,
            compute_input_ns=self.compute_input_ns - earlier.compute_input_ns,
            compute_infer_ns=self.compute_infer_ns - earlier.compute_infer_ns,
            compute_output_ns=self.compute_output_ns - earlier.compute_output_ns,
        )


@dataclass(frozen=True)
class ModelStatistics:
    """Counters since the model was loaded, or, after a subtraction, between two readings.

    Attributes:
        success_count: requests answered.
        fail_count: requests answered with an error.
        inference_count: batch elements of the answered requests.
        execution_count: times the model ran.
        success_ns: time from arrival at the model to its answer, added up over answered requests; transport is not in
        it. fail_ns: the same over failed requests.
        queue_ns, compute_input_ns, compute_infer_ns, compute_output_ns: added up over answered requests.
        batches: the compute times once per execution, by batch size, smallest first.
    """

    model: str
    version: str
    success_count: int
    fail_count: int
    inference_count: int
    execution_count: int
    success_ns: int
    fail_ns: int
    queue_ns: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int
    batches: tuple[BatchStatistics, ...] = ()

    @classmethod
    def from_triton(cls, stats: Mapping[str, Any]) -> ModelStatistics:
        """Read one entry of `model_stats`, from HTTP's JSON or gRPC's `as_json=True` (numbers as text, no zeros)."""
        durations = stats.get("inference_stats", {})
        return cls(
            model=stats["name"],
            version=str(stats.get("version", "")),
            success_count=_number(durations, "success", "count"),
            fail_count=_number(durations, "fail", "count"),
            inference_count=int(stats.get("inference_count", 0)),
            execution_count=int(stats.get("execution_count", 0)),
            success_ns=_number(durations, "success", "ns"),
            fail_ns=_number(durations, "fail", "ns"),
            queue_ns=_number(durations, "queue", "ns"),
            compute_input_ns=_number(durations, "compute_input", "ns"),
            compute_infer_ns=_number(durations, "compute_infer", "ns"),
            compute_output_ns=_number(durations, "compute_output", "ns"),
            batches=tuple(sorted(map(_batch, stats.get("batch_stats", [])), key=lambda batch: batch.batch_size)),
        )

    def __sub__(self, earlier: ModelStatistics) -> ModelStatistics:
        """What happened since an earlier reading of the same model.

        Raises:
            ServerError: the readings are of two models, or the counters went backwards (the model was loaded anew).
        """
        if (self.model, self.version) != (earlier.model, earlier.version):
            raise ServerError(
                f"Statistics of {self.model} version {self.version} and of {earlier.model} version {earlier.version} "
                "cannot be subtracted; read the same model twice."
            )
        counts = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        if min(counts.values()) < 0:
            raise ServerError(
                f"The counters of {self.model} went backwards: it was loaded anew in between. Measure again."
            )
        return ModelStatistics(
            model=self.model, version=self.version, batches=_batch_delta(self.batches, earlier.batches), **counts
        )

    def __add__(self, other: ModelStatistics) -> ModelStatistics:
        """Both stretches of the same model together; times by batch size are left out, the sums hold."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTERS}
        return ModelStatistics(model=self.model, version=self.version, **counts)

    @property
    def mean_batch_size(self) -> float:
        """Batch elements per execution; NaN where nothing ran."""
        return _ratio(self.inference_count, self.execution_count)

    @property
    def request_ms(self) -> float:
        """Mean time a request spent inside the server, ms."""
        return self._per_request_ms(self.success_ns)

    @property
    def queue_ms(self) -> float:
        """Mean time a request waited for its execution, ms."""
        return self._per_request_ms(self.queue_ns)

    @property
    def compute_input_ms(self) -> float:
        """Mean time a request sat through while inputs were gathered, ms."""
        return self._per_request_ms(self.compute_input_ns)

    @property
    def compute_infer_ms(self) -> float:
        """Mean time a request sat through while the model ran, ms."""
        return self._per_request_ms(self.compute_infer_ns)

    @property
    def compute_output_ms(self) -> float:
        """Mean time a request sat through while outputs were handed out, ms."""
        return self._per_request_ms(self.compute_output_ns)

    @property
    def execution_input_ms(self) -> float:
        """Mean time of one execution gathering inputs, ms."""
        return self._per_execution_ms("compute_input_ns")

    @property
    def execution_infer_ms(self) -> float:
        """Mean time of one execution of the model, ms."""
        return self._per_execution_ms("compute_infer_ns")

    @property
    def execution_output_ms(self) -> float:
        """Mean time of one execution handing out outputs, ms."""
        return self._per_execution_ms("compute_output_ns")

    def _per_request_ms(self, total_ns: int) -> float:
        return _ratio(total_ns, self.success_count * _NS_PER_MS)

    def _per_execution_ms(self, name: str) -> float:
        executions = sum(batch.execution_count for batch in self.batches)
        return _ratio(sum(getattr(batch, name) for batch in self.batches), executions * _NS_PER_MS)


_COUNTERS = tuple(name for name in ModelStatistics.__dataclass_fields__ if name not in ("model", "version", "batches"))


def _batch(stats: Mapping[str, Any]) -> BatchStatistics:
    return BatchStatistics(
        batch_size=int(stats["batch_size"]),
        execution_count=_number(stats, "compute_infer", "count"),
        compute_input_ns=_number(stats, "compute_input", "ns"),
        compute_infer_ns=_number(stats, "compute_infer", "ns"),
        compute_output_ns=_number(stats, "compute_output", "ns"),
    )


def _batch_delta(
    later: tuple[BatchStatistics, ...], earlier: tuple[BatchStatistics, ...]
) -> tuple[BatchStatistics, ...]:
    before = {batch.batch_size: batch for batch in earlier}
    delta = (batch - before[batch.batch_size] if batch.batch_size in before else batch for batch in later)
    return tuple(batch for batch in delta if batch.execution_count)


def _number(stats: Mapping[str, Any], name: str, part: str) -> int:
    return int(stats.get(name, {}).get(part, 0))


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan
