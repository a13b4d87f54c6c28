"""Golden numbers: six requests of two rows, served by one execution of 27 ms, as Triton 2.51 counted them."""

import math

import pytest

from workbook.errors import ServerError
from workbook.serving.statistics import BatchStatistics, ModelStatistics

MS = 1_000_000


def reading(requests: int, rows: int, executions: int, *, infer_ms: int = 27, **changes: object) -> dict[str, object]:
    """One `model_stats` entry where every execution takes infer_ms and serves requests/executions requests."""
    per_request = {
        "queue": 4,
        "compute_input": 1,
        "compute_infer": infer_ms,
        "compute_output": 2,
        "success": infer_ms + 7,
    }
    inference_stats = {name: {"count": requests, "ns": requests * ms * MS} for name, ms in per_request.items()}
    batch = {
        name: {"count": executions, "ns": executions * per_request[name] * MS}
        for name in ("compute_input", "compute_infer", "compute_output")
    }
    return {
        "name": "e5",
        "version": "1",
        "inference_count": rows,
        "execution_count": executions,
        "inference_stats": inference_stats | {"fail": {"count": 0, "ns": 0}},
        "batch_stats": [{"batch_size": rows // executions, **batch}] if executions else [],
        **changes,
    }


def statistics(*args: int, **kwargs: object) -> ModelStatistics:
    return ModelStatistics.from_triton(reading(*args, **kwargs))  # type: ignore[arg-type]


def test_means_per_request_and_per_execution() -> None:
    one = statistics(6, 12, 1)
    assert one.compute_infer_ns == 6 * 27 * MS  # counted once for each request that sat through it
    assert one.compute_infer_ms == 27
    assert one.execution_infer_ms == 27
    assert (one.queue_ms, one.compute_input_ms, one.compute_output_ms, one.request_ms) == (4, 1, 2, 34)
    assert one.mean_batch_size == 12


def test_per_request_and_per_execution_differ_when_batches_do() -> None:
    mixed = reading(4, 4, 2)
    mixed["inference_stats"]["compute_infer"] = {"count": 4, "ns": (3 * 30 + 10) * MS}  # type: ignore[index]
    mixed["batch_stats"] = [
        {"batch_size": 3, "compute_infer": {"count": 1, "ns": 30 * MS}},
        {"batch_size": 1, "compute_infer": {"count": 1, "ns": 10 * MS}},
    ]
    read = ModelStatistics.from_triton(mixed)
    assert read.compute_infer_ms == 25  # three requests sat through 30 ms, one through 10
    assert read.execution_infer_ms == 20
    assert [batch.batch_size for batch in read.batches] == [1, 3]


def test_difference_holds_only_what_lies_between() -> None:
    delta = statistics(16, 32, 4) - statistics(6, 12, 1, batch_stats=[])
    assert (delta.success_count, delta.inference_count, delta.execution_count) == (10, 20, 3)
    assert delta.queue_ns == 40 * MS
    assert delta.mean_batch_size == pytest.approx(20 / 3)


def test_difference_by_batch_size_drops_sizes_that_did_not_run() -> None:
    before = statistics(2, 2, 2)
    after = statistics(
        3,
        6,
        3,
        batch_stats=[*reading(2, 2, 2)["batch_stats"], {"batch_size": 4, "compute_infer": {"count": 1, "ns": 9}}],  # type: ignore[misc]
    )
    assert (after - before).batches == (BatchStatistics(4, 1, 0, 9, 0),)


def test_nothing_ran_has_no_mean() -> None:
    idle = statistics(6, 12, 1) - statistics(6, 12, 1)
    assert idle.success_count == 0
    assert all(math.isnan(value) for value in (idle.request_ms, idle.execution_infer_ms, idle.mean_batch_size))


def test_grpc_json_has_text_and_leaves_zeros_out() -> None:
    grpc = {"name": "null", "version": "1", "inference_count": "12", "execution_count": "1"}
    grpc |= {"inference_stats": {"success": {"count": "6", "ns": "287113500"}, "fail": {}}}  # type: ignore[dict-item]
    read = ModelStatistics.from_triton(grpc)
    assert (read.success_count, read.fail_count, read.success_ns, read.inference_count) == (6, 0, 287113500, 12)


def test_readings_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ServerError, match="loaded anew"):
        statistics(1, 1, 1) - statistics(2, 2, 2)
    with pytest.raises(ServerError, match="read the same model twice"):
        statistics(2, 2, 2, name="other") - statistics(1, 1, 1)
