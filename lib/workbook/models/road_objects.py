"""What stands on and beside a synthetic road: drawn far to near, each object hides the road behind it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from workbook.models.road_geometry import RoadGeometry

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]

WALLS = ((150, 148, 145), (96, 96, 100), (168, 120, 96), (196, 184, 160), (120, 70, 58))
PAINTS = ((70, 70, 74), (128, 128, 130), (200, 200, 204), (20, 20, 24), (170, 30, 30), (30, 60, 140), (210, 180, 40))
LEAVES = ((44, 78, 34), (70, 100, 44), (96, 96, 50), (120, 84, 40))
GLASS, TYRE, LAMP = (40, 48, 58), (18, 18, 20), (220, 60, 40)


class _Canvas:
    """Draws each shape twice: in colour on the image, and as "no road" on the mask."""

    def __init__(self, image: NDArray[np.float32], mask: NDArray[np.uint8], random: np.random.Generator) -> None:
        self.picture = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))
        self.labels = Image.fromarray(mask)
        self.random = random
        self._image, self._mask = ImageDraw.Draw(self.picture), ImageDraw.Draw(self.labels)

    def rectangle(self, box: Box, colour: Colour) -> None:
        self._image.rectangle(box, fill=colour)
        self._mask.rectangle(box, fill=0)

    def ellipse(self, box: Box, colour: Colour) -> None:
        self._image.ellipse(box, fill=colour)
        self._mask.ellipse(box, fill=0)

    def polygon(self, corners: list[tuple[float, float]], colour: Colour) -> None:
        self._image.polygon(corners, fill=colour)
        self._mask.polygon(corners, fill=0)

    def shade(self, box: Box) -> None:
        """Darken the ground under an object; what was road there stays road."""
        self._image.ellipse(box, fill=(28, 28, 30))

    def paint(self, colours: tuple[Colour, ...], spread: float = 14) -> Colour:
        """One of the colours, slightly off."""
        red, green, blue = np.array(colours[self.random.integers(len(colours))]) + self.random.normal(0, spread, 3)
        return int(np.clip(red, 0, 255)), int(np.clip(green, 0, 255)), int(np.clip(blue, 0, 255))


def hide_behind_objects(
    image: NDArray[np.float32], mask: NDArray[np.uint8], road: RoadGeometry, random: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Draw a skyline, then vehicles, walkers, trees, buildings and poles, far to near.

    Args:
        image: float32, `height width 3`, 0..255.
        mask: uint8, `height width`, 1 on road.
        road: its geometry.
        random: where all choices come from.

    Returns:
        The image, float32, and the mask, uint8, with the objects in them.
    """
    canvas = _Canvas(image, mask, random)
    _draw_skyline(canvas, road)
    beside = [(_draw_building, 1.5, 3.5), (_draw_tree, 1.1, 3.0), (_draw_pole, 1.03, 1.4), (_draw_walker, 0.2, 1.5)]
    wanted = [beside[random.integers(len(beside))] for _ in range(random.integers(1, 10))]
    wanted += [(_draw_vehicle, 0.0, 1.1)] * int(random.integers(0, 6))
    nearness = np.sort(random.uniform(0.12, 0.95, size=len(wanted)) ** 1.5)
    for near, which in zip(nearness, random.permutation(len(wanted)), strict=True):
        draw, inner, outer = wanted[which]
        row = min(int(np.searchsorted(road.nearness, near)), len(road.nearness) - 1)
        scale = float(road.half_width[row])
        aside = random.uniform(inner, outer) * random.choice([-1, 1]) * scale
        draw(canvas, float(road.centre[row]) + aside, float(row), scale)
    return np.asarray(canvas.picture, np.float32), np.asarray(canvas.labels)


def _draw_skyline(canvas: _Canvas, road: RoadGeometry) -> None:
    """Distant hills, trees or houses that stand on the horizon."""
    random, ground = canvas.random, road.horizon + 1
    width = road.horizon * 4
    if random.random() < 0.5:
        far = canvas.paint(((90, 104, 110), (70, 90, 60)))
        steps = np.linspace(0, width, 9)
        heights = ground - random.uniform(0, road.horizon * 0.5, size=9)
        canvas.polygon([(0, ground), *zip(steps, heights, strict=True), (width, ground)], far)
    for _ in range(random.integers(0, 9)):
        x, half = random.uniform(0, width), random.uniform(6, 40)
        if random.random() < 0.5:
            top = ground - random.uniform(0.1, 0.9) * road.horizon
            _draw_front(canvas, (x - half, top, x + half, ground))
        else:
            canvas.ellipse((x - half, ground - half, x + half, ground), canvas.paint(LEAVES))


def _draw_front(canvas: _Canvas, box: Box) -> None:
    """A wall with rows of windows."""
    left, top, right, bottom = box
    canvas.rectangle(box, canvas.paint(WALLS))
    pane = canvas.paint((GLASS, (200, 190, 130), (120, 130, 140)))
    columns, floors = int(canvas.random.integers(1, 6)), int(canvas.random.integers(1, 7))
    wide, high = (right - left) / columns, (bottom - top) / floors
    if min(wide, high) < 4:
        return
    for column in range(columns):
        for floor in range(floors):
            x, y = left + (column + 0.25) * wide, top + (floor + 0.25) * high
            canvas.rectangle((x, y, x + 0.5 * wide, y + 0.5 * high), pane)


def _draw_building(canvas: _Canvas, x: float, ground: float, scale: float) -> None:
    half, high = scale * canvas.random.uniform(0.3, 0.8), scale * canvas.random.uniform(0.8, 2.5)
    _draw_front(canvas, (x - half, ground - high, x + half, ground))


def _draw_tree(canvas: _Canvas, x: float, ground: float, scale: float) -> None:
    trunk, high = scale * 0.04, scale * canvas.random.uniform(0.5, 1.4)
    canvas.shade((x - scale * 0.3, ground - scale * 0.03, x + scale * 0.3, ground + scale * 0.03))
    canvas.rectangle((x - trunk, ground - high, x + trunk, ground), (70, 54, 42))
    for _ in range(canvas.random.integers(2, 8)):
        dx, dy = canvas.random.normal(0, scale * 0.15, 2)
        half = scale * canvas.random.uniform(0.08, 0.25)
        middle = ground - high + dy
        canvas.ellipse((x + dx - half, middle - half, x + dx + half, middle + half), canvas.paint(LEAVES))


def _draw_pole(canvas: _Canvas, x: float, ground: float, scale: float) -> None:
    half, high = max(0.5, scale * 0.015), scale * canvas.random.uniform(0.6, 1.8)
    canvas.rectangle((x - half, ground - high, x + half, ground), canvas.paint(((90, 90, 94), (150, 150, 150))))
    if canvas.random.random() < 0.5:
        sign = scale * 0.09
        canvas.ellipse((x - sign, ground - high - sign, x + sign, ground - high + sign), canvas.paint(PAINTS))


def _draw_walker(canvas: _Canvas, x: float, ground: float, scale: float) -> None:
    half, high = scale * 0.05, scale * canvas.random.uniform(0.3, 0.45)
    canvas.rectangle((x - half, ground - 0.5 * high, x + half, ground), canvas.paint(PAINTS))
    canvas.rectangle((x - 1.3 * half, ground - 0.85 * high, x + 1.3 * half, ground - 0.4 * high), canvas.paint(PAINTS))
    canvas.ellipse((x - half, ground - high - half, x + half, ground - 0.8 * high), (190, 150, 124))


def _draw_vehicle(canvas: _Canvas, x: float, ground: float, scale: float) -> None:
    """A car or a truck, from behind or ahead."""
    truck = canvas.random.random() < 0.25
    half = scale * canvas.random.uniform(0.16, 0.24)
    high = half * (canvas.random.uniform(2.2, 3.0) if truck else canvas.random.uniform(1.2, 1.6))
    paint, belt = canvas.paint(PAINTS), ground - high * (0.9 if truck else 0.55)
    canvas.shade((x - 1.15 * half, ground - 0.1 * half, x + 1.15 * half, ground + 0.15 * half))
    for side in (-0.85, 0.6):
        canvas.rectangle((x + side * half, ground - 0.3 * half, x + (side + 0.25) * half, ground), TYRE)
    canvas.polygon(
        [(x - half, belt), (x - 0.75 * half, ground - high), (x + 0.75 * half, ground - high), (x + half, belt)], paint
    )
    canvas.rectangle((x - half, belt, x + half, ground - 0.15 * half), paint)
    glass_top, glass_bottom = ground - 0.93 * high, max(belt, ground - 0.6 * high)
    canvas.rectangle((x - 0.65 * half, glass_top, x + 0.65 * half, glass_bottom), GLASS)
    lamp = canvas.paint((LAMP, (240, 240, 220)))
    for side in (-0.95, 0.7):
        canvas.rectangle((x + side * half, ground - 0.5 * half, x + (side + 0.25) * half, ground - 0.35 * half), lamp)
