import numpy as np
import pytest

from workbook.analysis.rates import completion_rate_per_s
from workbook.errors import SettingError


def test_bursts_of_32_every_200_ms_are_160_per_s_wherever_the_window_lies() -> None:
    bursts = np.repeat(np.arange(10) * 200_000_000, 32)
    assert completion_rate_per_s(bursts) == pytest.approx(160)
    assert completion_rate_per_s(bursts[5:]) == pytest.approx(160, rel=0.02)  # counted in a window: 3% to 10% off


def test_even_answers_every_10_ms_are_100_per_s_in_any_order() -> None:
    assert completion_rate_per_s([30_000_000, 0, 20_000_000, 10_000_000]) == pytest.approx(100)


@pytest.mark.parametrize("ended", [[], [1], [5, 5, 5]])
def test_one_moment_is_no_rate(ended: list[int]) -> None:
    with pytest.raises(SettingError, match="make no rate"):
        completion_rate_per_s(ended)


def test_three_bursts_are_enough_to_a_percent_even_where_a_second_member_draws_them_out() -> None:
    burst = 2_000_000 * np.arange(64)
    ended = np.concatenate([burst + number * 1_250_000_000 for number in range(3)])
    assert completion_rate_per_s(ended) == pytest.approx(64 / 1.25, rel=0.012)
