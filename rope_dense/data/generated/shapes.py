"""Scenes of flat shapes on textured backgrounds: described once, rendered at any resolution.

A scene depends only on (seed, split, index), so a data set keeps its first images when it grows.
Positions are fractions of the width and of the height, lengths fractions of the shorter side S of
the image: a scene rendered at twice the size is the same picture with twice the detail. Letters:
H, W the image; N the shapes of a scene, back to front.

Of other shapes there are two kinds, with the same backgrounds and occlusion: ``RotatedShape``, long
ones at any angle, whose oriented boxes are known exactly; and ``ThermalCircle``, whose class shows
in a fourth channel of 16 bits only (``render_channels``): red, green and blue show where the
circles are, in any colour, the fourth whether a circle is warm or cold.
"""

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import cv2
import numpy as np

from ..rotated import rectangle_corners

Metainfo = dict[str, Any]
# Class names and colours (RGB), as `metainfo` of mmdet's CocoDataset.
HEX_COLOURS = 'e76f51 f4b942 58ab60 269db2 5469d4 be5cb8'.split()
METAINFO: Metainfo = dict(
    classes=('circle', 'square', 'triangle', 'star', 'cross', 'ring'),
    palette=[tuple(bytes.fromhex(colour)) for colour in HEX_COLOURS],
)

# With the background as the first class, as `metainfo` of mmseg's BaseSegDataset.
SEGMENTATION_METAINFO = dict(
    classes=('background', *METAINFO['classes']),
    palette=[(90, 90, 90), *METAINFO['palette']],
)

SPLITS = ('train', 'val')
COLORS = ('class', 'any')

MAX_SHAPES = 6
MIN_VISIBLE = 0.5  # share of its area that every shape shows
REFERENCE_SIZE = 96  # pixels of S at which a new scene measures what is visible
SUPERSAMPLING = 4
SUBPIXEL_BITS = 4  # of cv2.fillPoly's fixed-point coordinates
Color = tuple[float, float, float]  # RGB in 0..1


@dataclass(frozen=True)
class DrawnShape:
    """A shape: class, centre, outer radius (of S), angle (radians, clockwise), RGB in 0..1."""

    label: int
    x: float
    y: float
    radius: float
    angle: float
    color: Color
    METAINFO: ClassVar = METAINFO
    CENTRES: ClassVar = (0.08, 0.92)
    # Ranges of the radius, and of the breadth if there is one, drawn log-uniformly.
    SIZES: ClassVar[Sequence] = ((0.09, 0.26),)

    @classmethod
    def draw(cls, rng: np.random.Generator, colors: str) -> Self:
        """Draw a shape; ``colors`` as in ``make_scene``."""
        palette = cls.METAINFO['palette']
        label = int(rng.integers(len(palette)))
        x, y = rng.uniform(*cls.CENTRES, size=2).tolist()
        radius, *breadth = np.exp(rng.uniform(*np.log(cls.SIZES).T)).tolist()
        angle = rng.uniform(0, 2 * np.pi)
        owner = label if colors == 'class' else rng.integers(len(palette))
        color = draw_color(rng, palette[owner])
        return cls(label, x, y, radius, angle, color, *breadth)

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        """Closed outlines, corners [-, 2] at radius 1 and angle 0; all but the first are holes."""
        return OUTLINES[self.label]

    @property
    def area(self) -> float:
        """Area at radius 1, holes taken off."""
        areas = [cv2.contourArea(line.astype(np.float32)) for line in self.outlines]
        return areas[0] - sum(areas[1:])


@dataclass(frozen=True)
class Background:
    """Two colours, blended by smooth noise, by a gradient, or in stripes."""

    kind: str  # 'noise', 'gradient' or 'stripes'
    colors: tuple[Color, Color]
    angle: float  # of gradient and stripes, in radians, clockwise from the x axis
    period: float  # of the stripes, of S
    noise_seed: int


@dataclass(frozen=True)
class Scene:
    """A background and the shapes on it, back to front."""

    background: Background
    shapes: tuple[DrawnShape, ...]


def make_scene(
    seed: int,
    split: str,
    index: int,
    *,
    aspect: float = 1.0,
    colors: str = 'class',
    kind: type[DrawnShape] = DrawnShape,
) -> Scene:
    """Draw the scene number `index` of a split.

    Every shape shows at least MIN_VISIBLE of its area: one that would not, or that would hide too
    much of those behind it, is left out. So nothing in a picture lacks a label, at any resolution.

    Args:
        aspect: width / height of the images to be rendered.
        colors: 'class': each class has its own colour of the palette, varied a little, so that a
            detector learns fast; 'any': a shape takes the colour of any class, so that only its
            outline tells the class.
        kind: the class of the shapes.
    """
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    background = _draw_background(rng)
    height = round(REFERENCE_SIZE / min(aspect, 1))
    width = round(REFERENCE_SIZE * max(aspect, 1))
    side = min(height, width)
    shapes: list[DrawnShape] = []
    wanted = rng.integers(2, MAX_SHAPES + 1)
    for _ in range(4 * wanted):
        some = [*shapes, kind.draw(rng, colors)]
        coverages = [coverage(shape, height, width) for shape in some]
        shown = visible_parts(coverages).sum(axis=(1, 2))
        full = np.array([shape.area * (shape.radius * side) ** 2 for shape in some])
        if (shown >= MIN_VISIBLE * full).all():
            shapes = some
        if len(shapes) == wanted:
            break
    return Scene(background, tuple(shapes))


def render(scene: Scene, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Anti-aliased RGB image, uint8 [H, W, 3], and each shape's visible part, bool [N, H, W]."""
    image = _render_background(scene.background, height, width)  # [H, W, 3] in 0..1
    light = np.linspace(1.08, 0.92, height, dtype=np.float32)[:, None, None]
    coverages = [coverage(shape, height, width) for shape in scene.shapes]
    for shape, covered in zip(scene.shapes, coverages, strict=True):
        color = np.array(shape.color, np.float32)
        image += covered[..., None] * (color * light - image)
    pixels = (image.clip(0, 1) * 255 + 0.5).astype(np.uint8)
    return pixels, visible_parts(coverages)


def coverage(shape: DrawnShape, height: int, width: int) -> np.ndarray:
    """Share of each pixel that a shape, wholly in view, covers: float32 [H, W] in 0..1."""
    cos = np.cos(shape.angle)
    sin = np.sin(shape.angle)
    to_pixels = shape.radius * min(height, width) * np.array([[cos, sin], [-sin, cos]])
    center = (shape.x * width, shape.y * height)
    lines = []
    for line in shape.outlines:
        # Pixel i of the fine canvas has its centre at i, hence the half.
        fine = (line @ to_pixels + center) * SUPERSAMPLING - 0.5
        lines.append(np.rint(fine * 2**SUBPIXEL_BITS).astype(np.int32))
    canvas = np.zeros((height * SUPERSAMPLING, width * SUPERSAMPLING), np.uint8)
    cv2.fillPoly(canvas, lines, 255, shift=SUBPIXEL_BITS)
    covered = cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)
    return covered.astype(np.float32) / 255


def visible_parts(coverages: list[np.ndarray]) -> np.ndarray:
    """Masks bool [N, H, W]: a pixel is of the foremost shape that covers half of it or more."""
    masks = np.stack(coverages) >= 0.5  # [N, H, W]
    hidden = np.zeros_like(masks[0])
    for mask in masks[::-1]:
        covered = mask.copy()
        mask &= ~hidden
        hidden |= covered
    return masks


def draw_color(rng: np.random.Generator, color: tuple[int, int, int]) -> Color:
    """A colour of a palette (0..255), varied a little."""
    hue, saturation, value = colorsys.rgb_to_hsv(*np.array(color) / 255)
    hue += rng.uniform(-0.03, 0.03)
    saturation *= rng.uniform(0.8, 1.1)
    value *= rng.uniform(0.85, 1.08)
    return colorsys.hsv_to_rgb(hue % 1, min(saturation, 1), min(value, 1))


def _draw_background(rng: np.random.Generator) -> Background:
    kind = str(rng.choice(['noise', 'gradient', 'stripes']))
    hue, saturation, value = rng.uniform((0, 0.04, 0.25), (1, 0.2, 0.95))
    other = value + (0.16 if value < 0.6 else -0.16)
    return Background(
        kind,
        (
            colorsys.hsv_to_rgb(hue, saturation, value),
            colorsys.hsv_to_rgb(hue, saturation, other),
        ),
        angle=rng.uniform(0, 2 * np.pi),
        period=rng.uniform(0.06, 0.25),
        noise_seed=int(rng.integers(2**31)),
    )


def _render_background(background: Background, height: int, width: int) -> np.ndarray:
    """The picture without shapes, [H, W, 3] in 0..1."""
    rng = np.random.default_rng(background.noise_seed)

    def smooth_noise(cells: int) -> np.ndarray:
        lattice = rng.random((cells, cells), dtype=np.float32)
        return cv2.resize(lattice, (width, height), interpolation=cv2.INTER_CUBIC)

    if background.kind == 'noise':
        blend = 0.6 * smooth_noise(6) + 0.4 * smooth_noise(20)  # [H, W] in 0..1
    else:
        x = (np.arange(width, dtype=np.float32) + 0.5) / min(height, width)
        y = (np.arange(height, dtype=np.float32)[:, None] + 0.5) / min(height, width)
        cos = np.float32(np.cos(background.angle))
        sin = np.float32(np.sin(background.angle))
        along = cos * x + sin * y
        if background.kind == 'gradient':
            blend = (along - along.min()) / np.ptp(along)
        else:
            waves = np.sin(2 * np.pi * along / background.period)
            blend = 0.5 + 0.5 * np.tanh(3 * waves)
    first, second = np.array(background.colors, np.float32)
    image = first + blend[..., None] * (second - first)
    return image + 0.05 * (smooth_noise(96)[..., None] - 0.5)


def _regular_polygon(corners: int, *radii: float) -> np.ndarray:
    """Corners [corners, 2] around the origin, the first at the top; the radii alternate."""
    angles = 2 * np.pi * np.arange(corners) / corners
    radius = np.resize(radii, corners)
    return np.stack([radius * np.sin(angles), -radius * np.cos(angles)], axis=1)


def _cross(half_width: float) -> np.ndarray:
    arm = np.array([(-half_width, -1), (half_width, -1), (half_width, -half_width)])
    arm /= np.hypot(half_width, 1)
    quarter_turn = np.array([(0, 1), (-1, 0)])
    arms = [arm @ np.linalg.matrix_power(quarter_turn, number) for number in range(4)]
    return np.concatenate(arms)


# The closed outlines of each class, corners [-, 2] with y down; the ring's second one is its hole.
OUTLINES = (
    (_regular_polygon(64, 1),),
    (_regular_polygon(4, 1),),
    (_regular_polygon(3, 1),),
    (_regular_polygon(10, 1, 0.45),),
    (_cross(0.33),),
    (_regular_polygon(64, 1), _regular_polygon(64, 0.55)),
)


# Class names and colours (RGB), as `metainfo` of mmrotate's DOTADataset.
ROTATED_METAINFO: Metainfo = dict(
    classes=('rectangle', 'ellipse', 'triangle', 'arrow'),
    palette=METAINFO['palette'][:4],
)
# Outlines from -1 to 1 in x and in y: a box of sides 2 around each.
UNIT_OUTLINES = (
    np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], float),
    np.stack([f(2 * np.pi * np.arange(64) / 64) for f in (np.cos, np.sin)], axis=1),
    np.array([(-1, -1), (1, 0), (-1, 1)], float),
    np.array([(-1, -0.5), (0, -0.5), (0, -1), (1, 0), (0, 1), (0, 0.5), (-1, 0.5)], float),
)  # fmt: skip


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


WARM_METAINFO: Metainfo = dict(
    classes=('warm', 'cold'),
    palette=METAINFO['palette'][:2],
)
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
        palette = METAINFO['palette']
        color = draw_color(rng, palette[rng.integers(len(palette))])
        return cls(label, x, y, radius, 0.0, color)

    @property
    def outlines(self) -> tuple[np.ndarray, ...]:
        return OUTLINES[0]

    @property
    def area(self) -> float:
        return np.pi  # of the circle, not of its polygon


def render_channels(
    scene: Scene,
    height: int,
    width: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Render a scene: uint16 [H, W, 4] of ``CHANNELS``, and masks as ``render``."""
    image, masks = render(scene, height, width)
    rng = np.random.default_rng([scene.background.noise_seed, 4])
    base, difference = HEAT
    heat = base + NOISE * rng.standard_normal((height, width))
    for shape in scene.shapes:
        value = base + difference if shape.label == 0 else base - difference
        heat += coverage(shape, height, width) * (value - heat)
    pixels = np.dstack([image * float(COLOUR_SCALE), heat])
    return pixels.round().astype(np.uint16), masks
