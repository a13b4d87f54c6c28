from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from workbook.errors import NotComparableError
from workbook.measuring.ensemble import study as ensemble_study
from workbook.measuring.ensemble.conditions import EnsembleConditions
from workbook.measuring.ensemble.images import ImageRequest, Images, decode_mask, mask_agreement, requests_for
from workbook.measuring.ensemble.runs import Point, Probe
from workbook.measuring.ensemble.study import Case, Study
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B, EnsembleVariant

ALIKE = EnsembleConditions(
    images_per_request=1, transport="http", connections=8, image="i", b_input="b", a_max_batch=32
)


def point(model: str, rate: float, conditions: EnsembleConditions = ALIKE) -> Point:
    nothing = pd.DataFrame()
    return Point(model, EnsembleVariant(), conditions, rate, 1.0, 1.0, 2.0, 0, (), {}, {}, nothing)


class FakeServed:
    variant = EnsembleVariant()
    cold = False

    def configure(self, variant: EnsembleVariant) -> None:
        self.variant = variant


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    calls: list[tuple[str, int]] = []

    def fake(served: Any, model: str, images: Any, probe: Probe, path: Path, *, arm: str, run: int) -> Point:
        calls.append((model, run))
        return replace(point(model, 100.0 + run), variant=served.variant)

    monkeypatch.setattr(Study, "warm_up", lambda study: None)
    monkeypatch.setattr(ensemble_study, "measure_point", fake)
    return calls


def make_study(tmp_path: Path) -> Study:
    return Study(cast(Any, FakeServed()), cast(Any, None), Probe(8), lambda name: tmp_path / name, progress=False)


def test_the_bound_is_the_slower_member_and_the_ratio_is_to_it() -> None:
    points = {MEMBER_A: [point(MEMBER_A, 314.86)], MEMBER_B: [point(MEMBER_B, 420.80)]}
    case = Case("reported", EnsembleVariant(), {**points, ENSEMBLE: [point(ENSEMBLE, 141.40)]})
    assert (case.bound.name, round(case.ratio, 3)) == (MEMBER_A, 0.449)


def test_a_member_measured_otherwise_is_refused() -> None:
    other = replace(ALIKE, images_per_request=8)
    points = {MEMBER_A: [point(MEMBER_A, 1, other)], MEMBER_B: [point(MEMBER_B, 1)], ENSEMBLE: [point(ENSEMBLE, 1)]}
    with pytest.raises(NotComparableError, match="images_per_request is 8 for sfpn16"):
        _ = Case("unequal", EnsembleVariant(), points).bound


def test_models_take_turns_forwards_and_backwards(tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    make_study(tmp_path).case("x", EnsembleVariant(), (MEMBER_A, ENSEMBLE), repeats=2)
    assert asked == [(MEMBER_A, 0), (ENSEMBLE, 0), (ENSEMBLE, 1), (MEMBER_A, 1)]


def test_a_search_goes_on_where_it_stopped(tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    variants = [EnsembleVariant(b_instances=count) for count in (1, 2, 3)]
    kept, study = tmp_path / "search.jsonl", make_study(tmp_path)
    study.search(variants[:2], kept)
    with kept.open("a") as file:
        file.write('{"key": "cut off by a cra')
    kept.write_text(kept.read_text() + "\n")
    found = study.search(variants, kept)
    assert len(asked) == 3
    assert found["b_instances"].tolist() == [1, 2, 3]


def make_images(count: int) -> Images:
    masks = np.zeros((count, 256, 448), np.uint8)
    for number in range(count):
        masks[number, 100 + 20 * number :] = 1
    logits = np.stack([1.0 - masks, masks], axis=1).astype(np.float16)
    return Images(np.zeros((count, 3, 256, 448), np.float16), logits, masks)


@pytest.mark.parametrize(
    ("model", "variant", "shape"),
    [
        (ENSEMBLE, EnsembleVariant(), (3, 256, 448)),
        (MEMBER_A, EnsembleVariant(), (1, 3, 256, 448)),
        (MEMBER_B, EnsembleVariant(), (2, 256, 448)),
        (MEMBER_B, EnsembleVariant(b_max_batch=4, hop="mask"), (1, 256, 448)),
    ],
)
def test_requests_have_the_shape_the_model_takes(model: str, variant: EnsembleVariant, shape: Sequence[int]) -> None:
    requests = requests_for(model, make_images(2), variant)
    assert [request.first_row for request in requests] == [0, 1]
    assert all(array.shape == shape for request in requests for array in request.inputs.values())
    assert isinstance(requests[0], ImageRequest)


def jpeg_of(mask: np.ndarray) -> bytes:
    import io

    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(mask * np.uint8(255)).save(written, "JPEG")
    return written.getvalue()


def test_swapped_and_lost_answers_are_seen() -> None:
    images = make_images(3)
    answers = [{"OUTPUT": np.array([jpeg_of(images.masks[number])], np.object_)} for number in (0, 2)]
    table = mask_agreement([*answers, {}], images)
    assert table["answered"].tolist() == [True, True, False]
    assert table["nearest_image"].tolist() == [0, 2, -1]
    assert table["pixel_agreement"][0] > 0.99 > table["pixel_agreement"][1]
    assert (decode_mask(jpeg_of(images.masks[1])) == images.masks[1]).mean() > 0.99
