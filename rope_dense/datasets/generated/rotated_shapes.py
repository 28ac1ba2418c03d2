"""Scenes of long shapes at any angle, whose oriented boxes are known exactly.

Backgrounds, colours and occlusion are as in ``shapes``.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..rotated import rectangle_corners
from .shapes import METAINFO, DrawnShape

# Class names and colours (RGB), as `metainfo` of mmrotate's DOTADataset.
ROTATED_METAINFO: dict[str, Any] = dict(
    classes=('rectangle', 'ellipse', 'triangle', 'arrow'), palette=METAINFO['palette'][:4]
)
# Outlines from -1 to 1 in x and in y: a box of sides 2 around each.
UNIT_OUTLINES = (
    np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], float),
    np.stack([f(2 * np.pi * np.arange(64) / 64) for f in (np.cos, np.sin)], axis=1),
    np.array([(-1, -1), (1, 0), (-1, 1)], float),
    np.array([(-1, -0.5), (0, -0.5), (0, -1), (1, 0), (0, 1), (0, 0.5), (-1, 0.5)], float),
)


@dataclass(frozen=True)
class RotatedShape(DrawnShape):
    """A shape whose box has sides 2 `radius` along `angle` and 2 `radius` `breadth` across."""

    breadth: float = 1.0
    METAINFO: ClassVar = ROTATED_METAINFO
    CENTRES: ClassVar = (0.15, 0.85)
    SIZES: ClassVar = ((0.14, 0.3), (0.2, 1.0))

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        return (UNIT_OUTLINES[self.label] * (1, self.breadth),)

    def corners(self, height: int, width: int) -> np.ndarray:
        """Corners [4, 2] of the box, (x, y) in pixels of an image, around it."""
        side = 2 * self.radius * min(height, width)
        box = [self.x * width, self.y * height, side, side * self.breadth, self.angle]
        return rectangle_corners(np.array(box)).reshape(4, 2)
