"""Scenes of circles whose class shows in a fourth channel only, in 16 bits.

Red, green and blue show where the circles are, in any colour; the fourth channel shows whether a
circle is warm or cold. Backgrounds and occlusion are as in ``shapes``.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .shapes import METAINFO, OUTLINES, DrawnShape, Scene, coverage, draw_color, render

WARM_METAINFO: dict[str, Any] = dict(classes=('warm', 'cold'), palette=METAINFO['palette'][:2])
CHANNELS = ('red', 'green', 'blue', 'heat')
COLOUR_SCALE = 16  # of 8-bit colours: 12 bits, as many cameras have
HEAT = (20000, 3000)  # mean of the background, and the difference of a circle
NOISE = 800  # deviation of the fourth channel


@dataclass(frozen=True)
class ThermalCircle(DrawnShape):
    """A circle of a class that neither outline nor colour shows."""

    @classmethod
    def draw(cls, rng: np.random.Generator, colors: str) -> Self:
        """Draw a circle of any colour, whatever ``colors`` says."""
        label = int(rng.integers(len(WARM_METAINFO['classes'])))
        x, y = rng.uniform(*cls.CENTRES, size=2).tolist()
        (radius,) = np.exp(rng.uniform(*np.log(cls.SIZES).T)).tolist()
        color = draw_color(rng, METAINFO['palette'][rng.integers(len(METAINFO['palette']))])
        return cls(label, x, y, radius, 0.0, color)

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        return OUTLINES[0]

    @property
    def area(self) -> float:
        return np.pi  # of the circle, not of its polygon


def render_channels(scene: Scene, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Render a scene: uint16 [H, W, 4] of ``CHANNELS``, and masks as ``render``."""
    image, masks = render(scene, height, width)
    rng = np.random.default_rng([scene.background.noise_seed, 4])
    base, difference = HEAT
    heat = base + NOISE * rng.standard_normal((height, width))
    for shape in scene.shapes:
        value = base + difference * (1 if shape.label == 0 else -1)
        heat += coverage(shape, height, width) * (value - heat)
    return np.dstack([image * float(COLOUR_SCALE), heat]).round().astype(np.uint16), masks
