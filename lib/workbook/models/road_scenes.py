"""Synthetic road scenes with their ground truth: seeded, a few milliseconds each, no download.

A camera on a curved road: sky, ground, pavements, lane markings, buildings, trees, vehicles and pedestrians that hide
parts of the road, then shadows, haze, light and sensor noise. Pavements, walls, cars and overcast skies wear the
colours of asphalt, so that colour alone does not tell road from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from workbook.errors import SettingError
from workbook.models.road_geometry import HEIGHT, WIDTH, Floats, RoadGeometry, lay_road
from workbook.models.road_objects import hide_behind_objects

CLASSES = ("not road", "road")
RECIPE = 1  # raise it when a scene of the same seed and index comes out differently

GROUND, ROAD, MARKING, PAVEMENT, KERB = range(5)
ASPHALTS = ((62, 62, 66), (88, 88, 90), (118, 116, 112), (146, 143, 138), (112, 92, 74), (124, 88, 78))
SOILS = ((70, 104, 48), (124, 126, 70), (118, 94, 68), (176, 158, 120), (128, 126, 122), (84, 84, 86), (212, 214, 220))
PAVEMENTS = ((176, 172, 164), (150, 148, 144), (112, 110, 108), (158, 128, 112))
SKIES = (
    ((70, 120, 200), (190, 210, 235)),
    ((150, 152, 156), (190, 190, 192)),
    ((96, 98, 104), (124, 124, 126)),
    ((80, 90, 140), (240, 170, 110)),
    ((16, 20, 40), (52, 52, 66)),
)


@dataclass(frozen=True, eq=False)
class Scene:
    """An image and what is road in it.

    Attributes:
        image: uint8, `height width 3`, RGB.
        mask: uint8, `height width`, the index into CLASSES: 1 where road is seen, 0 elsewhere.
    """

    image: NDArray[np.uint8]
    mask: NDArray[np.uint8]


def road_scene(seed: int, index: int) -> Scene:
    """Scene number `index` of the endless series `seed`; the same two numbers give the same pixels.

    Raises:
        SettingError: a number is negative.
    """
    if seed < 0 or index < 0:
        raise SettingError(f"road_scene(seed={seed}, index={index}): both must be 0 or more")
    random = np.random.default_rng((seed, index))
    road = lay_road(random)
    surfaces = _lay_surfaces(road, random)
    canvas = np.concatenate([_paint_sky(road, random), _paint_surfaces(surfaces, random)])
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[road.horizon :] = (surfaces == ROAD) | (surfaces == MARKING)
    image, mask = hide_behind_objects(canvas, mask, road, random)
    return Scene(_light(image, road, random), mask)


def road_scenes(seed: int, count: int, start: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images `batch height width 3` and masks `batch height width` of scenes start .. start + count - 1.

    Raises:
        SettingError: `count` is below 1, or another number is negative.
    """
    if count < 1:
        raise SettingError(f"count={count} must be at least 1")
    scenes = [road_scene(seed, index) for index in range(start, start + count)]
    return np.stack([scene.image for scene in scenes]), np.stack([scene.mask for scene in scenes])


def _lay_surfaces(road: RoadGeometry, random: np.random.Generator) -> NDArray[np.uint8]:
    """What lies where below the horizon: uint8 `rows width`, an index into the palette."""
    nearness = road.nearness[road.horizon :, None]
    across = np.arange(WIDTH, dtype=np.float32) - road.centre[road.horizon :, None]
    across /= road.half_width[road.horizon :, None]  # -1 and 1 at the edges of the road
    across += random.uniform(0, 0.03) * _noise(random, nearness.shape[0], 10)
    off = np.abs(across)
    surfaces = np.full(across.shape, GROUND, np.uint8)
    if random.random() < 0.5:
        surfaces[off < random.uniform(1.15, 1.6)] = PAVEMENT
        surfaces[off < 1.06] = KERB
    surfaces[off < 1] = ROAD
    if random.random() < 0.1:
        start = random.uniform(0.15, 0.45)
        surfaces[(nearness[:, 0] > start) & (nearness[:, 0] < start * random.uniform(1.3, 1.8))] = ROAD  # a crossing
    if random.random() < 0.75:
        surfaces[_markings(across, nearness, random) & (surfaces == ROAD)] = MARKING
    return surfaces


def _markings(across: Floats, nearness: Floats, random: np.random.Generator) -> NDArray[np.bool_]:
    """Dashed lines between lanes, solid ones along the edges, now and then a zebra crossing."""
    thick, lanes = random.uniform(0.012, 0.03), int(random.integers(1, 5))
    dash = (random.uniform(1, 3) / np.maximum(nearness, 0.01) + random.random()) % 1 < random.uniform(0.4, 1.01)
    between = np.abs((across + 1) * lanes / 2 % 1 - 0.5) > 0.5 - thick * lanes / 2
    lines = between & dash & (np.abs(across) < 0.9)
    if random.random() < 0.6:
        lines |= np.abs(np.abs(across) - random.uniform(0.88, 0.96)) < thick
    if random.random() < 0.2:
        start = random.uniform(0.2, 0.7)
        stripes = (across * random.integers(4, 9)) % 1 < 0.5
        lines |= stripes & (nearness > start) & (nearness < start * 1.25) & (np.abs(across) < 0.95)
    return np.asarray(lines)


def _paint_surfaces(surfaces: NDArray[np.uint8], random: np.random.Generator) -> Floats:
    """Colour and texture by surface, float32 `rows width 3`, 0..255."""
    rows = surfaces.shape[0]
    bright = random.uniform(150, 255)
    palette = np.array(
        [
            SOILS[random.integers(len(SOILS))],
            ASPHALTS[random.integers(len(ASPHALTS))],
            (bright, bright * random.uniform(0.8, 1), bright * random.choice([0.4, 1.0], p=[0.25, 0.75])),
            PAVEMENTS[random.integers(len(PAVEMENTS))],
            (170, 168, 164),
        ],
        np.float32,
    )
    palette += random.normal(0, 8, size=palette.shape).astype(np.float32)
    roughness = np.array([16, 8, 12, 9, 6], np.float32) * random.uniform(0.5, 1.5, size=5).astype(np.float32)
    texture = 0.5 * _noise(random, rows, 6) + 0.6 * _noise(random, rows, 40) + 0.6 * _noise(random, rows, 150)
    painted = np.asarray(palette[surfaces], np.float32)
    painted += (roughness[surfaces] * texture)[..., None]
    return painted


def _paint_sky(road: RoadGeometry, random: np.random.Generator) -> Floats:
    top, bottom = np.array(SKIES[random.integers(len(SKIES))], np.float32)
    down = np.linspace(0, 1, road.horizon, dtype=np.float32)[:, None, None]
    sky = np.broadcast_to(top * (1 - down) + bottom * down, (road.horizon, WIDTH, 3)).copy()
    clouds = np.clip(_noise(random, road.horizon, 8) - random.uniform(0, 2), 0, 1) * random.uniform(0, 1)
    sky += clouds[..., None] * (235 - sky)
    return np.asarray(sky, np.float32)


def _noise(random: np.random.Generator, rows: int, cells: int) -> Floats:
    """Smooth noise of about unit deviation, float32 `rows width`, with so many cells across the width."""
    grid = random.standard_normal((max(2, cells * rows // WIDTH), cells), dtype=np.float32)
    return np.asarray(Image.fromarray(grid).resize((WIDTH, rows), Image.Resampling.BICUBIC))


def _light(image: Floats, road: RoadGeometry, random: np.random.Generator) -> NDArray[np.uint8]:
    """Shadows, haze, lamps, colour cast, slope of light, blur and noise; uint8 `height width 3`."""
    left, right = random.uniform(0.45, 1.4), random.uniform(0.75, 1.25)
    light = _shadows(random) * np.linspace(left, left * right, WIDTH, dtype=np.float32)
    if random.random() < 0.15:
        light *= _headlights(road)
    image *= light[..., None]
    image *= random.uniform(0.88, 1.12, size=3).astype(np.float32)
    if random.random() < 0.4:
        haze = random.uniform(0, 0.65) * np.exp(-road.nearness * random.uniform(3, 10))[:, None, None]
        image += haze * (random.uniform(90, 210) - image)
    image += random.standard_normal((HEIGHT, WIDTH, 1), dtype=np.float32) * random.uniform(1, 8)
    finished = np.clip(image, 0, 255).astype(np.uint8)
    if random.random() < 0.35:
        blurred = Image.fromarray(finished).filter(ImageFilter.BoxBlur(random.uniform(0.3, 1.2)))
        finished = np.asarray(blurred)
    return finished


def _shadows(random: np.random.Generator) -> Floats:
    """Factor of light, float32 `height width`: cast shadows with straight edges, or the dapple of leaves."""
    small = Image.new("L", (WIDTH // 2, HEIGHT // 2), 255)
    draw = ImageDraw.Draw(small)
    for _ in range(random.integers(0, 4)):
        x, y, long = random.uniform(-50, WIDTH / 2), random.uniform(HEIGHT / 5, HEIGHT / 2), random.uniform(20, 160)
        lean, deep = random.uniform(-60, 60), random.uniform(5, 45)
        corners = [(x, y), (x + long, y), (x + long + lean, y + deep), (x + lean, y + deep)]
        draw.polygon(corners, fill=int(random.uniform(90, 200)))
    light = np.asarray(small.filter(ImageFilter.BoxBlur(1)).resize((WIDTH, HEIGHT)), np.float32) / 255
    if random.random() < 0.12:
        leaves = np.clip(2 * _noise(random, HEIGHT // 2, 40), 0, 1) * random.uniform(0.15, 0.4)
        light[HEIGHT // 2 :] *= 1 - leaves
    return np.asarray(light, np.float32)


def _headlights(road: RoadGeometry) -> Floats:
    """Night with the camera car's lamps: a pool of light around the near road."""
    aside = (np.arange(WIDTH, dtype=np.float32) - WIDTH / 2) / (WIDTH * 0.35)
    pool = np.exp(-(aside**2)) * np.sqrt(road.nearness)[:, None]
    return np.asarray(0.45 + 0.7 * pool, np.float32)
