from types import SimpleNamespace
from typing import Any, cast

import pytest

from workbook.measuring.floor import Floor, encoder_flop


def encoder(layers: int, hidden: int, ffn: int) -> Any:
    return cast(Any, SimpleNamespace(layers=layers, hidden_size=hidden, config=SimpleNamespace(intermediate_size=ffn)))


def test_flop_of_a_model_small_enough_to_count() -> None:
    # 1 layer, hidden 2, ffn 4: weights 4*2*2 + 2*2*4 = 32; 3 tokens: 2*32*3 = 192; attention 4*2*3*3 = 72
    assert encoder_flop(encoder(1, 2, 4), batch=1, sequence=3) == 192 + 72


def test_flop_of_the_article() -> None:
    """multilingual-e5-base at 32 x 512: 84.9 M weights, 3.09 TFLOP."""
    assert encoder_flop(encoder(12, 768, 3072), 32, 512) == pytest.approx(3.09e12, rel=0.005)


def test_floor_is_rows_over_time_at_the_ceiling() -> None:
    floor = Floor(flop=200.0, ceiling_flop_per_s=100.0, rows=10, measure=lambda: 100.0)
    assert floor.rows_per_s == 5
    assert floor.verified(4)[1] == "The fastest arm, 4.0 rows/s, reached 80% of the floor's 5.0: the prediction held."


def test_an_arm_beyond_the_floor_is_doubted_unless_the_ceiling_was_low() -> None:
    low = Floor(flop=200.0, ceiling_flop_per_s=100.0, rows=10, measure=lambda: 200.0)
    assert low.verified(6)[0].rows_per_s == 10
    steady = Floor(flop=200.0, ceiling_flop_per_s=100.0, rows=10, measure=lambda: 90.0)
    assert "cannot be" in steady.verified(6)[1]
