"""Scenes of long shapes at any angle, whose oriented boxes are known exactly.

Backgrounds, colours and occlusion are as in ``shapes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..rotated import rectangle_corners
from .shapes import METAINFO, Shape, draw_color

# Class names and colours (RGB), as `metainfo` of mmrotate's DOTADataset.
ROTATED_METAINFO: dict[str, Any] = dict(
    classes=('rectangle', 'ellipse', 'triangle', 'arrow'), palette=METAINFO['palette'][:4]
)
LENGTH_RANGE = (0.14, 0.3)  # half of the longer side, of S, drawn log-uniformly
BREADTH_RANGE = (0.2, 1.0)  # of the shorter side, relative to the longer one, log-uniform

_ROUND = 2 * np.pi * np.arange(64) / 64
# Outlines from -1 to 1 in x and in y: a box of sides 2 around each.
UNIT_OUTLINES = (
    np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], float),
    np.stack([np.cos(_ROUND), np.sin(_ROUND)], axis=1),
    np.array([(-1, -1), (1, 0), (-1, 1)], float),
    np.array([(-1, -0.5), (0, -0.5), (0, -1), (1, 0), (0, 1), (0, 0.5), (-1, 0.5)], float),
)


@dataclass(frozen=True)
class RotatedShape(Shape):
    """A shape whose box has sides 2 `radius` along `angle` and 2 `radius` `breadth` across."""

    breadth: float = 1.0

    @classmethod
    def draw(cls, rng: np.random.Generator, colors: str) -> Self:
        """Draw a shape; ``colors`` as in ``make_scene``."""
        label = int(rng.integers(len(UNIT_OUTLINES)))
        x, y = rng.uniform(0.15, 0.85, size=2).tolist()
        radius, breadth = np.exp(rng.uniform(*np.log([LENGTH_RANGE, BREADTH_RANGE]).T)).tolist()
        angle = rng.uniform(0, 2 * np.pi)
        owner = label if colors == 'class' else rng.integers(len(UNIT_OUTLINES))
        color = draw_color(rng, ROTATED_METAINFO['palette'][owner])
        return cls(label, x, y, radius, angle, color, breadth)

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        """The closed outline, corners [-, 2] at radius 1 and angle 0."""
        return (UNIT_OUTLINES[self.label] * (1, self.breadth),)

    def corners(self, height: int, width: int) -> np.ndarray:
        """Corners [4, 2] of the box, (x, y) in pixels of an image, around it."""
        side = 2 * self.radius * min(height, width)
        box = [self.x * width, self.y * height, side, side * self.breadth, self.angle]
        return rectangle_corners(np.array(box)).reshape(4, 2)
