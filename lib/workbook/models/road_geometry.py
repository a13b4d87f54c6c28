"""Where a synthetic road runs: the frame it is seen in, and its place in every row of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 256, 448

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RoadGeometry:
    """The road as the camera sees it, row by row.

    Attributes:
        horizon: the row where ground begins, pixels from the top.
        nearness: float32, `height`, 1 / distance: 0 at the horizon and above, 1 at the bottom edge.
        centre: float32, `height`, column of the middle of the road, pixels.
        half_width: float32, `height`, half of the road's width, pixels, above 0 everywhere.
    """

    horizon: int
    nearness: Floats
    centre: Floats
    half_width: Floats


def lay_road(random: np.random.Generator) -> RoadGeometry:
    """A bending road of random place and width."""
    horizon = int(HEIGHT * random.uniform(0.28, 0.5))
    rows = np.arange(HEIGHT, dtype=np.float32)
    nearness = np.clip((rows - horizon + 0.5) / (HEIGHT - horizon), 0, 1).astype(np.float32)
    far = 1 - nearness
    bottom, vanishing = WIDTH * random.uniform(0.25, 0.75), WIDTH * random.uniform(0.3, 0.7)
    bend = WIDTH * random.normal(0, 0.3) * far ** random.uniform(2, 5)
    sway = WIDTH * random.normal(0, 0.05) * np.sin(random.uniform(2, 7) * nearness + random.uniform(0, 6)) * far
    centre = bottom * nearness + vanishing * far + bend + sway
    half_width = WIDTH * random.uniform(0.22, 0.75) * nearness ** random.uniform(0.85, 1.15)
    return RoadGeometry(horizon, nearness, centre.astype(np.float32), np.maximum(half_width, 0.5).astype(np.float32))
