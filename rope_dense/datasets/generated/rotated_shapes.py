"""Scenes of long shapes at any angle, whose oriented boxes are known exactly.

Backgrounds, colours and occlusion are as in ``shapes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from .shapes import METAINFO, Scene, Shape, draw_color, make_scene

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

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        """The closed outline, corners [-, 2] at radius 1 and angle 0."""
        return (UNIT_OUTLINES[self.label] * (1, self.breadth),)

    @property
    def area(self) -> float:
        """Area at radius 1."""
        return cv2.contourArea(self.outlines[0].astype(np.float32))

    def corners(self, height: int, width: int) -> np.ndarray:
        """Corners [4, 2] of the box, (x, y) in pixels of an image, around it."""
        half = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (1, self.breadth)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        rotated = half @ np.array([[cos, sin], [-sin, cos]])
        return (self.x * width, self.y * height) + rotated * self.radius * min(height, width)


def make_rotated_scene(
    seed: int, split: str, index: int, *, aspect: float = 1.0, colors: str = 'class'
) -> Scene:
    """Draw the scene number `index` of a split; see ``make_scene``."""
    return make_scene(seed, split, index, aspect=aspect, colors=colors, draw=_draw_rotated)


def _draw_rotated(rng: np.random.Generator, colors: str) -> RotatedShape:
    label = int(rng.integers(len(UNIT_OUTLINES)))
    x, y = rng.uniform(0.15, 0.85, size=2)
    radius, breadth = (
        float(np.exp(rng.uniform(*np.log(r)))) for r in (LENGTH_RANGE, BREADTH_RANGE)
    )
    angle = float(rng.uniform(0, 2 * np.pi))
    owner = label if colors == 'class' else int(rng.integers(len(UNIT_OUTLINES)))
    color = draw_color(rng, ROTATED_METAINFO['palette'][owner])
    return RotatedShape(label, float(x), float(y), radius, angle, color, breadth)
