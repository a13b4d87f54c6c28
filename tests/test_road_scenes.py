"""Synthetic road scenes: the same each time, and not to be solved by colour or by place alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.models.road_scenes import road_scene, road_scenes
from workbook.models.segmentation_images import intersection_over_union


@pytest.fixture(scope="module")
def training() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return road_scenes(0, 40)


@pytest.fixture(scope="module")
def held_out() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return road_scenes(1, 20)


def test_image_and_mask():
    scene = road_scene(0, 0)
    assert scene.image.shape == (256, 448, 3)
    assert scene.mask.shape == (256, 448)
    assert scene.image.dtype == scene.mask.dtype == np.uint8
    assert set(np.unique(scene.mask)) == {0, 1}


def test_same_seed_and_index_give_the_same_pixels(training):
    again = road_scene(0, 7)
    np.testing.assert_array_equal(again.image, training[0][7])
    np.testing.assert_array_equal(again.mask, training[1][7])


def test_seed_and_index_both_matter():
    base = road_scene(0, 1).image
    assert (road_scene(0, 2).image != base).any()
    assert (road_scene(1, 1).image != base).any()
    assert (road_scene(1, 0).image != road_scene(0, 1).image).any()


def test_start_counts_on(training):
    images, masks = road_scenes(0, 2, start=5)
    np.testing.assert_array_equal(images, training[0][5:7])
    np.testing.assert_array_equal(masks, training[1][5:7])


def test_road_lies_below_the_horizon_and_varies(training):
    shares = training[1].mean(axis=(1, 2))
    assert not training[1][:, : int(256 * 0.28)].any()
    assert 0.2 < shares.mean() < 0.4
    assert shares.std() > 0.05


def test_objects_hide_the_road(training):
    """Without occluders a row of road is one run of pixels; here most scenes have rows of several."""
    runs = (np.diff(training[1].astype(np.int8), axis=2) == 1).sum(axis=2).max(axis=1)
    assert (runs >= 2).mean() > 0.6


def test_the_best_rule_on_colour_fails(training, held_out):
    """For each of 4,096 colours, the class it mostly has: no other rule on a pixel's colour does better in training."""

    def colours(images: NDArray[np.uint8]) -> NDArray[np.int64]:
        return (images.astype(np.int64) >> 4) @ np.array([256, 16, 1])

    seen = colours(training[0])
    total, road = np.bincount(seen.ravel(), minlength=4096), np.bincount(seen[training[1] == 1], minlength=4096)
    predicted = (2 * road > total)[colours(held_out[0])].astype(np.uint8)
    assert intersection_over_union(predicted, held_out[1]).mean < 0.6


def test_the_best_rule_on_place_fails(training, held_out):
    usual = (training[1].mean(axis=0) > 0.5).astype(np.uint8)
    predicted = np.broadcast_to(usual, held_out[1].shape)
    assert intersection_over_union(predicted, held_out[1]).mean < 0.8


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(seed: int, index: int):
    with pytest.raises(SettingError, match="0 or more"):
        road_scene(seed, index)


def test_no_scenes_are_refused():
    with pytest.raises(SettingError, match="count=0"):
        road_scenes(0, 0)
