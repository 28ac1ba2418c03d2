"""Scenes of circles whose class shows in a fourth channel only, in 16 bits.

Red, green and blue show where the circles are, in any colour; the fourth channel shows whether a
circle is warm or cold. Backgrounds and occlusion are as in ``shapes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .shapes import METAINFO, RADIUS_RANGE, Scene, Shape, coverage, draw_color, make_scene, render

WARM_METAINFO: dict[str, Any] = dict(classes=('warm', 'cold'), palette=METAINFO['palette'][:2])
CHANNELS = ('red', 'green', 'blue', 'heat')
COLOUR_SCALE = 16  # of 8-bit colours: 12 bits, as many cameras have
HEAT = (20000, 3000)  # mean of the background, and the difference of a circle
NOISE = 800  # deviation of the fourth channel


@dataclass(frozen=True)
class WarmShape(Shape):
    """A circle of a class that its outline does not show."""

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        """The outline of a circle, corners [-, 2] at radius 1."""
        angles = 2 * np.pi * np.arange(64) / 64
        return (np.stack([np.sin(angles), -np.cos(angles)], axis=1),)

    @property
    def area(self) -> float:
        """Area at radius 1."""
        return np.pi


def make_warm_scene(seed: int, split: str, index: int, *, aspect: float = 1.0) -> Scene:
    """Draw the scene number `index` of a split; see ``make_scene``."""
    return make_scene(seed, split, index, aspect=aspect, colors='any', draw=_draw_circle)


def render_channels(scene: Scene, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Render a scene: uint16 [H, W, 4] of ``CHANNELS``, and masks as ``render``."""
    image, masks = render(scene, height, width)
    rng = np.random.default_rng([scene.background.noise_seed, 4])
    base, difference = HEAT
    heat = base + NOISE * rng.standard_normal((height, width))
    for shape in scene.shapes:
        value = base + difference * (1 if shape.label == 0 else -1)
        heat += coverage(shape, height, width) * (value - heat)
    channels = [*np.moveaxis(image.astype(np.float64) * COLOUR_SCALE, 2, 0), heat]
    return np.stack(channels, axis=2).round().astype(np.uint16), masks


def _draw_circle(rng: np.random.Generator, colors: str) -> WarmShape:
    label = int(rng.integers(len(WARM_METAINFO['classes'])))
    x, y = rng.uniform(0.08, 0.92, size=2)
    radius = np.exp(rng.uniform(*np.log(RADIUS_RANGE)))
    color = draw_color(rng, METAINFO['palette'][int(rng.integers(len(METAINFO['palette'])))])
    return WarmShape(label, float(x), float(y), float(radius), 0.0, color)
