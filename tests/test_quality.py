"""Quality of embeddings against golden numbers that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.quality import (
    COLUMNS,
    Tolerance,
    neighbour_agreement,
    probe_accuracy,
    quality_table,
    row_cosines,
)
from workbook.errors import SettingError


def on_circle(*degrees: float) -> np.ndarray:
    """Rows of length 1 at these angles."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_row_cosines():
    left, right = on_circle(0, 10, 20), on_circle(60, 10, 200) * 3
    np.testing.assert_allclose(row_cosines(left, right), [0.5, 1, -1], atol=1e-6)
    np.testing.assert_array_equal(row_cosines(np.zeros((1, 2), np.float32), on_circle(0)), [0])


def test_neighbour_agreement_counts_shared_neighbours():
    # nearest two: 0 -> {10, 25}, 10 -> {0, 25}, 25 -> {10, 0}, 100 -> {25, 10}
    reference = on_circle(0, 10, 25, 100)
    assert neighbour_agreement(reference, reference, 2) == 1
    # the last two rows change places: 0 -> {10, 100'}, where 100' is row 3 at 25 degrees, and so on
    swapped = on_circle(0, 10, 100, 25)
    # row 0: {1, 2} and {1, 3} share 1; row 1: {0, 2} and {0, 3} share 1;
    # row 2 at 100: {1, 0} and {3, 1} share 1; row 3 at 25: {2, 1} and {1, 0} share 1; so 4 of 8
    assert neighbour_agreement(swapped, reference, 2) == 0.5


def test_neighbours_ignore_length_and_are_at_most_the_other_rows():
    rows = on_circle(0, 10, 25)
    assert neighbour_agreement(rows * np.array([[1], [5], [0.1]], np.float32), rows, 1) == 1
    assert neighbour_agreement(on_circle(0, 90, 180), rows, 10) == 1  # all others are neighbours
    assert math.isnan(neighbour_agreement(rows[:1], rows[:1]))


def test_neighbours_in_blocks_are_those_of_one_matrix():
    random = np.random.default_rng(0)
    rows = random.normal(size=(1500, 8)).astype(np.float32)
    noisy = rows + random.normal(size=rows.shape).astype(np.float32)
    unit, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, noisy))
    nearest = [np.argsort(-(u @ u.T) + 9 * np.eye(1500), axis=1)[:, :10] for u in (unit, other)]
    expected = np.mean([len(set(a) & set(b)) for a, b in zip(*nearest, strict=True)]) / 10
    assert neighbour_agreement(noisy, rows) == pytest.approx(expected, abs=1e-3)


def test_probe_separates_what_can_be_separated():
    random = np.random.default_rng(1)
    labels = np.repeat([0.0, 1.0], 50)
    apart = random.normal(size=(100, 4)).astype(np.float32) + 20 * labels[:, None].astype(np.float32)
    noise = random.normal(size=(100, 4)).astype(np.float32)
    assert probe_accuracy(apart, labels) == 1
    assert 0.3 < probe_accuracy(noise, labels) < 0.7
    assert probe_accuracy(noise, labels) == probe_accuracy(noise, labels)


def test_probe_skips_rows_without_a_class():
    labels = np.repeat([0.0, 1.0], 10)
    rows = on_circle(*labels * 90)
    unknown = np.concatenate([labels, [np.nan] * 5])
    assert probe_accuracy(np.concatenate([rows, on_circle(*[45] * 5)]), unknown) == 1


@pytest.mark.parametrize("labels", [[1.0] * 10, [np.nan] * 10, [0.0] * 6 + [1.0] * 4])
def test_probe_needs_two_classes_of_five(labels: list[float]):
    assert math.isnan(probe_accuracy(on_circle(*range(10)), np.array(labels)))


def table(**variants: np.ndarray) -> pd.DataFrame:
    reference = on_circle(*range(0, 120, 2))
    return quality_table(reference, variants, [None, float("nan"), *[0, 1] * 29]).set_index("variant")


def test_the_same_embeddings_lose_nothing():
    row = table(same=on_circle(*range(0, 120, 2))).loc["same"]
    assert row[["min_cosine", "mean_cosine", "neighbour_agreement"]].tolist() == pytest.approx([1, 1, 1])
    assert row.acceptable and row.why == ""


def test_one_bad_row_is_found_and_said():
    degrees = [*range(0, 118, 2), 178]  # the last row is turned by 60 degrees
    row = table(bad=on_circle(*degrees)).loc["bad"]
    assert row.min_cosine == pytest.approx(0.5, abs=1e-6)
    assert row.mean_cosine == pytest.approx((59 + 0.5) / 60, abs=1e-6)
    assert not row.acceptable
    assert "a row's cosine to fp32 is 0.5000, below 0.99" in row.why


def test_shuffled_neighbours_and_a_worse_probe_are_said():
    labels = np.repeat([0.0, 1.0], 50)
    reference = on_circle(*labels * 90 + np.linspace(0, 20, 100))
    loose = Tolerance(min_cosine=0, neighbour_agreement=0.9, probe_accuracy_loss=0.1)
    shuffled = reference[np.random.default_rng(0).permutation(100)]
    row = quality_table(reference, {"shuffled": shuffled}, labels, tolerance=loose).iloc[0]
    assert "% of the nearest neighbours agree, below 90%" in row.why
    assert "the probe's accuracy falls from 100.0% to" in row.why


def test_columns_and_a_table_without_targets():
    rows = on_circle(0, 1, 2)
    found = quality_table(rows, {"a": rows})
    assert tuple(found.columns) == COLUMNS
    assert math.isnan(found.probe_accuracy[0]) and found.acceptable[0]


@pytest.mark.parametrize(
    ("embeddings", "targets", "message"),
    [
        (on_circle(0, 1), None, r"embeddings of x are \(2, 2\), those of the reference \(3, 2\)"),
        (np.zeros(3, np.float32), None, r"embeddings of x are \(3,\)"),
        (np.array([[0, 1], [np.nan, 0], [1, 0]], np.float32), None, "hold NaN or infinity, first in row 1"),
        (on_circle(0, 1, 2), [1, 0], "2 targets for 3 rows"),
    ],
)
def test_what_does_not_fit_is_refused(embeddings: np.ndarray, targets: list[int] | None, message: str):
    with pytest.raises(SettingError, match=message):
        quality_table(on_circle(0, 1, 2), {"x": embeddings}, targets)


@pytest.mark.parametrize("name", ["min_cosine", "neighbour_agreement", "probe_accuracy_loss"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_tolerance_is_a_share(name: str, value: float):
    with pytest.raises(SettingError, match=f"Tolerance.{name}"):
        Tolerance(**{name: value})
