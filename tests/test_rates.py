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


def test_a_single_burst_is_no_rate_of_its_own() -> None:
    """8 answers within 50 ms look like 140/s; in a window of 1 s it was between 0 and 16."""
    burst = [7_000_000 * number for number in range(8)]
    assert completion_rate_per_s(burst) > 140
    assert completion_rate_per_s(burst, window_s=1.0, burst=8) == 16
