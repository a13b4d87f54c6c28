import math

import pytest

from workbook.analysis.bottleneck import Bound, Demand, Stage, processor_bound, slowest_member
from workbook.analysis.ensemble_published import published_ensemble, published_explanations
from workbook.errors import SettingError
from workbook.serving.statistics import ModelStatistics


def test_two_instances_of_batch_8_in_100_ms_are_160_per_s() -> None:
    assert Stage("A", instances=2, batch=8, input_ms=10, infer_ms=80, output_ms=10).ceiling_per_s == pytest.approx(160)


def test_a_stage_is_read_from_tritons_counters_once_an_execution() -> None:
    """10 executions of 4 images, 20 ms each: 200/s, although every request sat through 20 ms."""
    ns = {"count": "40", "ns": str(40 * 20_000_000)}
    stats = {
        "name": "A",
        "inference_count": "40",
        "execution_count": "10",
        "inference_stats": {"success": ns, "compute_infer": ns},
        "batch_stats": [{"batch_size": "4", "compute_infer": {"count": "10", "ns": str(10 * 20_000_000)}}],
    }
    stage = Stage.from_statistics(ModelStatistics.from_triton(stats), instances=1)
    assert (stage.batch, stage.execution_ms, stage.ceiling_per_s) == (4, 20, 200)


def test_disjoint_members_are_bound_by_the_slower_one() -> None:
    fast, slow = Stage("A", 1, 1, 0, 2, 0), Stage("B", 1, 1, 1, 3, 1)
    assert slowest_member([fast, slow]) == Bound("B", 200)


def test_processors_that_are_shared_add_up() -> None:
    """4 + 1 + 1 ms on two processors: 333/s; A alone on processor 0: 250/s, which is less."""
    demands = [Demand("A", 0.004, (0,)), Demand("B", 0.001, (1,)), Demand("server", 0.001)]
    assert processor_bound(demands, [0, 1]) == Bound("A", pytest.approx(250))
    shared = [Demand("A", 0.004), Demand("B", 0.001), Demand("server", 0.001)]
    assert processor_bound(shared, [0, 1]) == Bound("A + B + server", pytest.approx(2 / 0.006))


def test_a_server_that_finds_no_free_processor_is_the_limit() -> None:
    """3 ms on each processor and 2 ms anywhere: 8 ms on two processors, 250/s, and not 333/s."""
    demands = [Demand("A", 0.003, (0,)), Demand("B", 0.003, (1,)), Demand("server", 0.002)]
    assert processor_bound(demands, [0, 1]).per_s == pytest.approx(250)


def test_nothing_demanded_has_no_bound() -> None:
    assert processor_bound([Demand("A", 0.0)], [0, 1]).per_s == math.inf


def test_the_issues_printout_is_explained_by_b_alone() -> None:
    """3.459 + 3.105 + 0.209 = 6.773 ms, one instance: 147.6/s; 148.2/s was measured, 0.4% more."""
    row = published_explanations().set_index("issue").loc["2760"]
    assert row["bottleneck"] == "pypost16"
    assert row["predicted_per_s"] == pytest.approx(1000 / 6.773, rel=1e-6)
    assert row["error_percent"] == pytest.approx(-0.4, abs=0.05)


def test_issue_3245_is_explained_by_its_dali_member() -> None:
    """16 images in 72.2 ms: 221.6/s; 217.6/s was measured."""
    row = published_explanations().set_index("issue").loc["3245"]
    assert row["predicted_per_s"] == pytest.approx(16 / 0.0722)
    assert abs(row["error_percent"]) < 2


def test_members_alone_do_not_explain_the_reported_rate() -> None:
    """min(314.86, 420.80) was expected, 141.40 was obtained: 45%."""
    published = published_ensemble()
    assert (published.bound_per_s, published.bound_member) == (314.86, "sfpn16")
    assert published.ratio == pytest.approx(0.449, abs=0.001)


def test_the_reporter_fed_b_another_tensor_than_the_ensemble_does() -> None:
    """276.81 MB/s (of 2^20 bytes) over 420.80/s is 690 kB a request: a raw image of 688,128 bytes, not 458,752."""
    published = published_ensemble()
    assert published.b_request_bytes == pytest.approx(688_128, rel=0.01)


def test_bad_values_are_refused() -> None:
    with pytest.raises(SettingError, match="instances is 0"):
        Stage("A", 0, 1, 0, 1, 0)
    with pytest.raises(SettingError, match="batch is nan"):
        Stage("A", 1, math.nan, 0, 1, 0)
    with pytest.raises(SettingError, match="takes 0"):
        Stage("A", 1, 1, 0, 0, 0)
    with pytest.raises(SettingError, match="without members"):
        slowest_member([])
    with pytest.raises(SettingError, match="no processors"):
        processor_bound([], [])
    with pytest.raises(SettingError, match="below 0"):
        processor_bound([Demand("A", -1)], [0])
