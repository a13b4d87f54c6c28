from dataclasses import replace

import pytest

from workbook.errors import NotComparableError, SettingError
from workbook.measuring.ensemble.conditions import EnsembleConditions, require_same_conditions

ALIKE = EnsembleConditions(
    images_per_request=1,
    transport="http",
    connections=128,
    image="float16 3x256x448",
    b_input="float16 2x256x448",
    a_max_batch=32,
)


def test_equal_conditions_pass_and_declared_ones_may_differ() -> None:
    require_same_conditions("A", ALIKE, "C", ALIKE)
    require_same_conditions("A", ALIKE, "C", replace(ALIKE, connections=1), declared=["connections"])


def test_a_member_measured_in_batches_of_8_is_refused_with_the_field_named() -> None:
    """What happened in Triton issue 6422: a member at batch 8 beside an ensemble at batch 1."""
    with pytest.raises(NotComparableError, match="images_per_request is 8 for TRT and 1 for ensemble"):
        require_same_conditions("TRT", replace(ALIKE, images_per_request=8), "ensemble", ALIKE)


def test_the_reporters_own_test_of_b_is_refused() -> None:
    """He fed B raw images, the ensemble feeds it logits."""
    with pytest.raises(NotComparableError, match="b_input is 'float16 3x256x448'"):
        require_same_conditions("pypost16", replace(ALIKE, b_input="float16 3x256x448"), "sfpn16_pypost16", ALIKE)


def test_bad_values_are_refused() -> None:
    with pytest.raises(SettingError, match="connections is 0"):
        replace(ALIKE, connections=0)
    with pytest.raises(SettingError, match="'batch' is no condition"):
        require_same_conditions("A", ALIKE, "C", ALIKE, declared=["batch"])
