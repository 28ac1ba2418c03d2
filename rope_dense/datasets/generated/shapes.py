"""Scenes of flat shapes on textured backgrounds: described once, rendered at any resolution.

A scene depends only on (seed, split, index), so a data set keeps its first images when it grows.
Positions are fractions of the width and of the height, lengths fractions of the shorter side S of
the image: a scene rendered at twice the size is the same picture with twice the detail. Letters:
H, W the image; N the shapes of a scene, back to front.
"""

import colorsys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

# Class names and colours (RGB), as `metainfo` of mmdet's CocoDataset.
METAINFO: dict[str, Any] = dict(
    classes=('circle', 'square', 'triangle', 'star', 'cross', 'ring'),
    palette=[
        (231, 111, 81),
        (244, 185, 66),
        (88, 171, 96),
        (38, 157, 178),
        (84, 105, 212),
        (190, 92, 184),
    ],
)

# With the background as the first class, as `metainfo` of mmseg's BaseSegDataset.
SEGMENTATION_METAINFO = dict(
    classes=('background', *METAINFO['classes']), palette=[(90, 90, 90), *METAINFO['palette']]
)

SPLITS = ('train', 'val')
COLORS = ('class', 'any')

MAX_SHAPES = 6
RADIUS_RANGE = (0.09, 0.26)  # of S, drawn log-uniformly
MIN_VISIBLE = 0.5  # share of its area that every shape shows
REFERENCE_SIZE = 96  # pixels of S at which a new scene measures what is visible
SUPERSAMPLING = 4
SUBPIXEL_BITS = 4  # of cv2.fillPoly's fixed-point coordinates


@dataclass(frozen=True)
class Shape:
    """A shape: class, centre, outer radius (of S), angle (radians, clockwise), RGB in 0..1."""

    label: int
    x: float
    y: float
    radius: float
    angle: float
    color: tuple[float, float, float]

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        """Closed outlines, corners [-, 2] at radius 1 and angle 0."""
        return OUTLINES[self.label]

    @property
    def area(self) -> float:
        """Area at radius 1, holes taken off."""
        return AREAS[self.label]


@dataclass(frozen=True)
class Background:
    """Two RGB colours in 0..1, and how they are blended.

    By smooth noise, by a gradient along `angle` (radians, clockwise from the x axis), or in stripes
    across it with `period` (of S).
    """

    kind: str
    colors: tuple[tuple[float, float, float], tuple[float, float, float]]
    angle: float
    period: float
    noise_seed: int


@dataclass(frozen=True)
class Scene:
    """A background and the shapes on it, back to front."""

    background: Background
    shapes: tuple[Shape, ...]


def make_scene(
    seed: int,
    split: str,
    index: int,
    *,
    aspect: float = 1.0,
    colors: str = 'class',
    draw: Callable[[np.random.Generator, str], Shape] | None = None,
) -> Scene:
    """Draw the scene number `index` of a split.

    Every shape shows at least MIN_VISIBLE of its area: one that would not, or that would hide too
    much of those behind it, is left out. So nothing in a picture lacks a label, at any resolution.

    Args:
        aspect: width / height of the images to be rendered.
        colors: 'class': each class has its own colour of the palette, varied a little, so that a
            detector learns fast; 'any': a shape takes the colour of any class, so that only its
            outline tells the class.
        draw: makes a shape from a random generator and ``colors``; None for the shapes of METAINFO.
    """
    draw = draw or _draw_shape
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    background = _draw_background(rng)
    height, width = round(REFERENCE_SIZE / min(aspect, 1)), round(REFERENCE_SIZE * max(aspect, 1))
    shapes: list[Shape] = []
    wanted = rng.integers(2, MAX_SHAPES + 1)
    for _ in range(4 * wanted):
        some = [*shapes, draw(rng, colors)]
        shown = visible_parts([coverage(x, height, width) for x in some]).sum(axis=(1, 2))
        full = np.array([x.area * (x.radius * min(height, width)) ** 2 for x in some])
        if (shown >= MIN_VISIBLE * full).all():
            shapes = some
        if len(shapes) == wanted:
            break
    return Scene(background, tuple(shapes))


def render(scene: Scene, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Render a scene, anti-aliased.

    Returns:
        The RGB image, uint8 [H, W, 3], and the visible part of each shape, bool [N, H, W].
    """
    image = _render_background(scene.background, height, width)  # [H, W, 3] in 0..1
    light = np.linspace(1.08, 0.92, height, dtype=np.float32)[:, None, None]
    coverages = [coverage(shape, height, width) for shape in scene.shapes]
    for shape, covered in zip(scene.shapes, coverages, strict=True):
        color = np.array(shape.color, np.float32)
        image += covered[..., None] * (color * light - image)
    return (image.clip(0, 1) * 255 + 0.5).astype(np.uint8), visible_parts(coverages)


def coverage(shape: Shape, height: int, width: int) -> np.ndarray:
    """Share of each pixel that a shape, wholly in view, covers: float32 [H, W] in 0..1."""
    cos, sin = np.cos(shape.angle), np.sin(shape.angle)
    to_pixels = shape.radius * min(height, width) * np.array([[cos, sin], [-sin, cos]])
    center = (shape.x * width, shape.y * height)
    # Pixel i of the fine canvas has its centre at i, hence the half.
    fine = [(line @ to_pixels + center) * SUPERSAMPLING - 0.5 for line in shape.outlines]
    fixed_point = [np.rint(points * 2**SUBPIXEL_BITS).astype(np.int32) for points in fine]
    canvas = np.zeros((height * SUPERSAMPLING, width * SUPERSAMPLING), np.uint8)
    cv2.fillPoly(canvas, fixed_point, 255, shift=SUBPIXEL_BITS)
    covered = cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)
    return covered.astype(np.float32) / 255


def visible_parts(coverages: list[np.ndarray]) -> np.ndarray:
    """Masks of what each shape shows, bool [N, H, W].

    A pixel belongs to the foremost shape that covers half of it or more.
    """
    masks = np.stack(coverages) >= 0.5  # [N, H, W]
    hidden = np.zeros_like(masks[0])
    for mask in masks[::-1]:
        covered = mask.copy()
        mask &= ~hidden
        hidden |= covered
    return masks


def _draw_shape(rng: np.random.Generator, colors: str) -> Shape:
    label = int(rng.integers(len(OUTLINES)))
    x, y = rng.uniform(0.08, 0.92, size=2)
    radius = np.exp(rng.uniform(*np.log(RADIUS_RANGE)))
    angle = rng.uniform(0, 2 * np.pi)
    owner = label if colors == 'class' else int(rng.integers(len(OUTLINES)))
    color = draw_color(rng, METAINFO['palette'][owner])
    return Shape(label, float(x), float(y), float(radius), float(angle), color)


def draw_color(rng: np.random.Generator, color: tuple[int, int, int]) -> tuple[float, float, float]:
    """A colour of a palette (0..255), varied a little: RGB in 0..1."""
    hue, saturation, value = colorsys.rgb_to_hsv(*np.array(color) / 255)
    hue, saturation, value = (
        hue + rng.uniform(-0.03, 0.03),
        saturation * rng.uniform(0.8, 1.1),
        value * rng.uniform(0.85, 1.08),
    )
    return colorsys.hsv_to_rgb(hue % 1, min(saturation, 1), min(value, 1))


def _draw_background(rng: np.random.Generator) -> Background:
    kind = str(rng.choice(['noise', 'gradient', 'stripes']))
    hue, saturation = rng.uniform(0, 1), rng.uniform(0.04, 0.2)
    value = rng.uniform(0.25, 0.95)
    other = value + (0.16 if value < 0.6 else -0.16)
    first, second = (colorsys.hsv_to_rgb(hue, saturation, v) for v in (value, other))
    angle, period = rng.uniform(0, 2 * np.pi), rng.uniform(0.06, 0.25)
    seed = int(rng.integers(2**31))
    return Background(kind, (first, second), float(angle), float(period), seed)


def _render_background(background: Background, height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(background.noise_seed)
    blend = _blend(background, rng, height, width)[..., None]  # [H, W, 1] in 0..1
    first, second = np.array(background.colors, np.float32)
    grain = _smooth_noise(rng, 96, height, width)[..., None] - 0.5
    return first + blend * (second - first) + 0.05 * grain


def _blend(background: Background, rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    if background.kind == 'noise':
        coarse, fine = (_smooth_noise(rng, cells, height, width) for cells in (6, 20))
        return 0.6 * coarse + 0.4 * fine
    side = min(height, width)
    x = (np.arange(width, dtype=np.float32) + 0.5) / side
    y = (np.arange(height, dtype=np.float32)[:, None] + 0.5) / side
    cos, sin = np.array([np.cos(background.angle), np.sin(background.angle)], np.float32)
    along = cos * x + sin * y  # [H, W]
    if background.kind == 'gradient':
        return (along - along.min()) / np.ptp(along)
    return 0.5 + 0.5 * np.tanh(3 * np.sin(2 * np.pi * along / background.period))


def _smooth_noise(rng: np.random.Generator, cells: int, height: int, width: int) -> np.ndarray:
    lattice = rng.random((cells, cells), dtype=np.float32)
    return cv2.resize(lattice, (width, height), interpolation=cv2.INTER_CUBIC)


def _regular_polygon(corners: int, *radii: float) -> np.ndarray:
    """Corners [corners, 2] around the origin, the first at the top; the radii alternate."""
    angles = 2 * np.pi * np.arange(corners) / corners
    radius = np.resize(radii, corners)
    return np.stack([radius * np.sin(angles), -radius * np.cos(angles)], axis=1)


def _cross(half_width: float) -> np.ndarray:
    arm = np.array([(-half_width, -1), (half_width, -1), (half_width, -half_width)])
    arm /= np.hypot(half_width, 1)
    quarter_turn = np.array([(0, 1), (-1, 0)])
    return np.concatenate([arm @ np.linalg.matrix_power(quarter_turn, k) for k in range(4)])


# The closed outlines of each class, corners [-, 2] with y down; the ring's second one is its hole.
OUTLINES = (
    (_regular_polygon(64, 1),),
    (_regular_polygon(4, 1),),
    (_regular_polygon(3, 1),),
    (_regular_polygon(10, 1, 0.45),),
    (_cross(0.33),),
    (_regular_polygon(64, 1), _regular_polygon(64, 0.55)),
)
# Area of each class at radius 1, holes taken off.
AREAS = tuple(
    cv2.contourArea(outer.astype(np.float32))
    - sum(cv2.contourArea(hole.astype(np.float32)) for hole in holes)
    for outer, *holes in OUTLINES
)
