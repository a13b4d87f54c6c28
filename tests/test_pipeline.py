import pytest

from workbook.analysis.pipeline import Member, simulate_pipeline
from workbook.errors import SettingError

FAST = Member(instances=1, max_batch=1, delay_s=0, work_s=0.001, pool="b")


def test_one_connection_pays_everything_in_turn() -> None:
    """150 ms wait for a batch that never fills + 10 ms in A + 1 ms in B + 1 ms outside = 162 ms."""
    a = Member(instances=1, max_batch=32, delay_s=0.150, work_s=0.010, pool="a")
    simulated = simulate_pipeline(a, FAST, 1, transport_s=0.001, images=50)
    assert simulated.images_per_s == pytest.approx(1 / 0.162, rel=1e-3)
    assert simulated.latency_p50_ms == pytest.approx(162, rel=1e-3)
    assert simulated.mean_batch_a == 1


def test_many_connections_reach_the_slower_member() -> None:
    a = Member(instances=2, max_batch=32, delay_s=0.150, work_s=0.005, pool="a")
    simulated = simulate_pipeline(a, FAST, 128)
    assert simulated.images_per_s == pytest.approx(200, rel=0.03)  # two instances on one processor: 1 / 5 ms
    assert simulated.mean_batch_a == pytest.approx(32, rel=0.05)


def test_a_second_processor_doubles_a() -> None:
    a = Member(instances=2, max_batch=8, delay_s=0, work_s=0.005, pool="a", processors=2)
    assert simulate_pipeline(a, FAST, 64).images_per_s == pytest.approx(400, rel=0.03)


def test_members_on_one_processor_add_up() -> None:
    a = Member(instances=1, max_batch=8, delay_s=0, work_s=0.004, pool="all")
    b = Member(instances=1, max_batch=1, delay_s=0, work_s=0.001, pool="all")
    assert simulate_pipeline(a, b, 64).images_per_s == pytest.approx(200, rel=0.03)  # 1 / (4 + 1 ms)


def test_sixteen_connections_never_fill_a_batch_of_32_and_wait_out_the_delay() -> None:
    a = Member(instances=2, max_batch=32, delay_s=0.150, work_s=0.003, pool="a")
    simulated = simulate_pipeline(a, FAST, 16)
    assert simulated.images_per_s < 16 / 0.150
    without = simulate_pipeline(Member(2, 32, 0.0, 0.003, pool="a"), FAST, 16)
    assert without.images_per_s == pytest.approx(1 / 0.003, rel=0.05)


def test_full_batches_arrive_as_bursts_at_an_unbatched_b() -> None:
    a = Member(instances=2, max_batch=32, delay_s=0.150, work_s=0.003, pool="a")
    b = Member(instances=1, max_batch=1, delay_s=0, work_s=0.001, pool="b")
    assert simulate_pipeline(a, b, 128).longest_queue_b >= 32
    assert simulate_pipeline(Member(2, 1, 0, 0.003, pool="a"), b, 128).longest_queue_b <= 2


def test_a_stall_is_hidden_by_more_instances_and_by_no_processor() -> None:
    a = Member(instances=1, max_batch=1, delay_s=0, work_s=0.002, pool="a")
    stalled = [Member(count, 1, 0, 0.001, stall_s=0.004, pool="b") for count in (1, 3)]
    rates = [simulate_pipeline(a, b, 32).images_per_s for b in stalled]
    assert rates == pytest.approx([1 / 0.005, 1 / 0.002], rel=0.03)


def test_bad_values_are_refused() -> None:
    with pytest.raises(SettingError, match="connections is 0"):
        simulate_pipeline(FAST, FAST, 0)
    with pytest.raises(SettingError, match="cannot be"):
        Member(instances=0, max_batch=1, delay_s=0, work_s=1)
