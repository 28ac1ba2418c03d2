"""Rooms with spheres and boxes, drawn by casting rays, with the true depth of every pixel.

A room depends only on (seed, split, index), as the scenes of ``shapes``. Coordinates are metres
from the camera: x right, y down, z forward; 1.5 m above the floor, tilted a little. A pixel's depth
is the z, along the axis of the camera, of the surface that its centre sees. Letters: H, W the
image; R = H W rays.
"""

import colorsys
from dataclasses import dataclass

import numpy as np

from .shapes import SPLITS, Color

EYE = 1.5  # metres above the floor
FOCAL = 0.9  # of the shorter side of the image
TILE = 0.5  # metres: side of the squares on floor, ceiling and walls
LIGHT = np.array([0.4, -0.8, -0.45])  # to the light
SUPERSAMPLING = 2
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Solid:
    """A sphere or an upright box: centre and half its sides (three radii), in metres."""

    is_sphere: bool
    centre: Triple
    half: Triple
    colour: Color


@dataclass(frozen=True)
class Room:
    """A room and the solids in it, as one tilted camera sees them."""

    bounds: tuple[tuple[float, float], ...]  # least and largest of each axis, in metres
    tilt: float  # of the camera, in radians, down is positive
    colours: tuple[Color, ...]  # of left and right wall, ceiling, floor and back wall
    solids: tuple[Solid, ...]
    # Disc without depth: x, y, radius in shares of W, H, W.
    unknown: Triple


def make_room(seed: int, split: str, index: int) -> Room:
    """Draw the room number ``index`` of a split: 3 to 9 m deep, with one to five solids."""
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    left = -rng.uniform(1.2, 3)
    right = rng.uniform(1.2, 3)
    height = rng.uniform(2.3, 3.4)
    back = rng.uniform(3, 9)
    count = rng.integers(1, 6)
    solids = tuple(draw_solid(rng, left, right, back) for _ in range(count))
    bounds = (left, right), (EYE - height, EYE), (-1.0, back)
    colours = tuple(draw_colour(rng, 0.35) for _ in range(5))
    unknown = (
        rng.uniform(0.1, 0.9),
        rng.uniform(0.1, 0.9),
        rng.uniform(0.03, 0.1),
    )
    return Room(
        bounds,
        rng.uniform(-0.1, 0.2),
        colours,
        solids,
        unknown,
    )


def draw_solid(
    rng: np.random.Generator,
    left: float,
    right: float,
    back: float,
) -> Solid:
    """A sphere or box on the floor."""
    is_sphere = bool(rng.integers(2))
    sides = rng.uniform(0.15, 0.5, size=1 if is_sphere else 3).tolist()
    if is_sphere:
        sides = sides * 3
    width, height, length = sides
    z = rng.uniform(1.6, back - length)
    x = rng.uniform(max(left + width, -z), min(right - width, z))
    centre = (x, EYE - height, z)
    return Solid(
        is_sphere,
        centre,
        tuple(sides),
        draw_colour(
            rng,
            0.8,
        ),
    )


def draw_colour(rng: np.random.Generator, saturation: float) -> Color:
    """A colour of any hue, up to a saturation."""
    hue = rng.uniform()
    strength = rng.uniform(0.1, saturation)
    value = rng.uniform(0.5, 1)
    return colorsys.hsv_to_rgb(hue, strength, value)


def render_room(room: Room, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The anti-aliased RGB image, uint8 [H, W, 3], and depth in metres, float32, 0 for unknown."""
    depth, _ = cast(room, height, width)
    _, fine = cast(room, SUPERSAMPLING * height, SUPERSAMPLING * width)
    cells = fine.reshape(height, SUPERSAMPLING, width, SUPERSAMPLING, 3)
    image = (cells.mean((1, 3)).clip(0, 1) * 255 + 0.5).astype(np.uint8)
    x, y, radius = room.unknown
    columns = np.arange(width) + 0.5 - x * width
    rows = np.arange(height) + 0.5 - y * height
    is_unknown = np.hypot(columns, rows[:, None]) < radius * width
    return image, np.where(is_unknown, 0, depth).astype(np.float32)


def cast(room: Room, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Depth [H, W] and colour [H, W, 3] of what the rays through the centres of pixels meet."""
    focal = FOCAL * min(height, width)
    columns = np.arange(width) + 0.5 - width / 2
    rows = np.arange(height) + 0.5 - height / 2
    x, y = np.meshgrid(columns, rows)
    x = x.ravel() / focal
    y = y.ravel() / focal
    cos = np.cos(room.tilt)
    sin = np.sin(room.tilt)
    # [R, 3], a step of 1 is a depth of 1
    rays = np.stack([x, cos * y + sin, cos - sin * y], 1)
    depth, colour = meet_walls(room, rays)
    for solid in room.solids:
        meet = meet_sphere if solid.is_sphere else meet_box
        reached, normals = meet(solid, rays)
        is_nearer = reached < depth
        depth = np.where(is_nearer, reached, depth)
        colour[is_nearer] = np.array(solid.colour) * shade(normals[is_nearer])
    return depth.reshape(height, width), colour.reshape(height, width, 3)


def meet_walls(room: Room, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Depth [R] and colour [R, 3] of floor, ceiling and walls, in squares of two shades."""
    low, high = np.array(room.bounds).T  # [3] each
    with np.errstate(divide='ignore'):
        # [R, 3]: where a ray leaves an axis
        steps = np.where(rays > 0, high / rays, low / rays)
    axis = steps.argmin(1)
    depth = steps.min(1)
    direction = np.take_along_axis(rays, axis[:, None], 1)[:, 0]
    surface = 2 * axis + (direction > 0)
    # What is behind is never met.
    colours = np.array([*room.colours[:4], (0, 0, 0), room.colours[4]])[surface]
    places = np.floor(depth[:, None] * rays / TILE + 1e-6)
    np.put_along_axis(places, axis[:, None], 0, 1)
    squares = 1 - 0.25 * (places.sum(1) % 2)
    normals = np.eye(3)[axis]
    return depth, colours * squares[:, None] * shade(normals)


def meet_sphere(solid: Solid, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Depth [R], infinite where a ray misses, and normals [R, 3]."""
    centre = np.array(solid.centre)
    radius = solid.half[0]
    square = (rays**2).sum(1)
    along = rays @ centre
    under = along**2 - square * (centre @ centre - radius**2)
    is_met = under > 0
    near = (along - np.sqrt(under.clip(0))) / square
    points = np.where(is_met, near, 0)[:, None] * rays
    return np.where(is_met, near, np.inf), (points - centre) / radius


def meet_box(solid: Solid, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of a box."""
    centre = np.array(solid.centre)
    half = np.array(solid.half)
    with np.errstate(divide='ignore'):
        ends = np.sort([(centre - half) / rays, (centre + half) / rays], 0)  # [2, R, 3]
    enter = ends[0].max(1)
    leave = ends[1].min(1)
    is_met = (enter < leave) & (enter > 0)
    normals = np.eye(3)[ends[0].argmax(1)]
    return np.where(is_met, enter, np.inf), normals


def shade(normals: np.ndarray) -> np.ndarray:
    """Brightness [R, 1] of surfaces with these normals [R, 3]."""
    return 0.55 + 0.45 * np.abs(normals @ LIGHT)[:, None]
