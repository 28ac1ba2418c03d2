"""Boxes, polygons and run lengths of objects, in pixels (x = column, y = row)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import cv2
import numpy as np

from ..images.headers import Header
from ..rotated import rectangle_corners
from .objects import Box, Labelled, Outline, Report, Shape

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

FAR = 100  # times the longer side of an image: no corner is there by drawing
CORNERS = 36  # of the polygon for a circle or an ellipse


def bounding_box(points: Sequence[float] | np.ndarray) -> Box:
    """The smallest box around points [x, y, x, y, ...]."""
    corners = np.reshape(points, (-1, 2))
    (left, top), (right, bottom) = corners.min(0).tolist(), corners.max(0).tolist()
    return left, top, right - left, bottom - top


def box_corners(box: Box) -> list[float]:
    """The corners [x, y, x, y, ...] of a box, in turn."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    return [left, top, right, top, right, bottom, left, bottom]


def box_shape(
    label: str, left: float, top: float, right: float, bottom: float, **more: Any
) -> Shape:
    """An object from two opposite corners of its box, in any order."""
    return Shape(label, bounding_box([left, top, right, bottom]), **more)


def polygon_shape(label: str, points: Sequence[float] | np.ndarray, **more: Any) -> Shape:
    """An object from the corners [x, y, x, y, ...] of its outline.

    Raises:
        ValueError: less than three corners.
    """
    outline = np.asarray(points, float).reshape(-1).tolist()
    if len(outline) < 6 or len(outline) % 2:
        raise ValueError(f'a polygon of {len(outline)} numbers; three corners are six')
    return Shape(label, bounding_box(outline), [outline], **more)


def rotated_shape(label: str, box: Box, degrees: float, **more: Any) -> Shape:
    """An object from a box and its clockwise rotation about the centre."""
    left, top, width, height = box
    centre = left + width / 2, top + height / 2
    rectangle = np.array([*centre, width, height, np.deg2rad(degrees)])
    return polygon_shape(label, rectangle_corners(rectangle), **more)


def mask_shape(
    label: str, mask: np.ndarray, left: int, top: int, size: tuple[int, int], **more: Any
) -> Shape:
    """An object from a mask.

    Args:
        mask: [h, w], not 0 where the object is.
        left, top: place of the mask's first pixel in the image.
        size: (height, width) of the image.

    Raises:
        ValueError: the mask has no pixel within the image.
    """
    whole = np.zeros(size, np.uint8, order='F')
    rows, columns = (
        slice(max(top, 0), top + mask.shape[0]),
        slice(max(left, 0), left + mask.shape[1]),
    )
    part = whole[rows, columns]
    above, before = max(-top, 0), max(-left, 0)
    part[:] = mask[above : above + part.shape[0], before : before + part.shape[1]] != 0
    if not whole.any():
        raise ValueError('a mask without a pixel in its image')
    lengths = coco_mask.encode(whole)
    box = tuple(coco_mask.toBbox(lengths).tolist())
    outline = dict(size=list(size), counts=lengths['counts'].decode('ascii'))
    return Shape(label, box, outline, **more)


def ellipse(x: float, y: float, radius_x: float, radius_y: float, degrees: float = 0) -> np.ndarray:
    """Corners [36, 2] of an ellipse around (x, y), rotated clockwise."""
    angles = np.arange(CORNERS) * 2 * np.pi / CORNERS
    along, across = radius_x * np.cos(angles), radius_y * np.sin(angles)
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.stack([x + along * cos - across * sin, y + along * sin + across * cos], 1)


def run_lengths(outline: dict[str, Any]) -> dict[str, Any]:
    """Run lengths as pycocotools takes them, from COCO's compressed or uncompressed ones.

    Raises:
        ValueError: they are none, or their counts do not sum up to their size.
    """
    size, counts = outline.get('size'), outline.get('counts')
    if not isinstance(size, (list, tuple)) or len(size) != 2 or counts is None:
        raise ValueError('run lengths without size [height, width] and counts')
    height, width = (int(side) for side in size)
    if isinstance(counts, list):
        if sum(counts) != height * width or min(counts, default=0) < 0:
            raise ValueError(f'run lengths of {sum(counts)} pixels for {height} x {width}')
        return coco_mask.frPyObjects(dict(size=[height, width], counts=counts), height, width)
    encoded = counts.encode('ascii') if isinstance(counts, str) else bytes(counts)
    if covered_pixels(encoded) != height * width:
        raise ValueError(f'broken run lengths, or of another size than {height} x {width}')
    return dict(size=[height, width], counts=encoded)


def covered_pixels(counts: bytes) -> int:
    """The sum of compressed run lengths, -1 for broken ones, of which pycocotools makes any mask.

    A number is a group of characters with 5 bits each, the lowest first; 32 says that another
    follows, and 16 in the last one that the number is negative. From the fourth number on, it is
    the difference to the last but one.
    """
    codes = np.frombuffer(counts, np.uint8).astype(np.int64) - 48
    is_last = (codes & 32) == 0
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or not is_last[-1]:
        return -1
    ends = np.flatnonzero(is_last)
    starts = np.append(0, ends[:-1] + 1)
    place = np.arange(len(codes)) - np.repeat(starts, ends - starts + 1)
    if place.max() > 6:  # 35 bits are more than any image needs
        return -1
    numbers = np.add.reduceat((codes & 31) << (5 * place), starts)
    numbers -= np.where(codes[ends] & 16, 1 << (5 * (place[ends] + 1)), 0)
    numbers[1::2], numbers[2::2] = numbers[1::2].cumsum(), numbers[2::2].cumsum()
    return int(numbers.sum()) if numbers.min() >= 0 else -1


def outline_lengths(outline: Outline, size: tuple[int, int]) -> dict[str, Any]:
    """An outline as run lengths of an image of `size` (height, width), for pycocotools.

    Polygons are clipped while they are drawn, so that a slope at the border stays a slope.

    Raises:
        ValueError: run lengths of another size, or a corner far from the image: pycocotools takes
            memory for each pixel on the way to it.
    """
    if isinstance(outline, dict):
        lengths = run_lengths(outline)
        if tuple(lengths['size']) != tuple(size):
            raise ValueError(
                f'run lengths of {lengths["size"]} for an image of {list(size)} (h, w)'
            )
        return lengths
    farthest = max(max(max(points), -min(points)) for points in outline)
    if farthest > FAR * max(size):
        raise ValueError(f'a corner at {farthest:g} pixels, for an image of {list(size)} (h, w)')
    return coco_mask.merge(coco_mask.frPyObjects(outline, *size))


def merged(parts: Sequence[Outline]) -> Outline:
    """One outline of all parts: polygons, or run lengths if a part has run lengths."""
    sizes = [part['size'] for part in parts if isinstance(part, dict)]
    if not sizes:
        return [polygon for part in parts if isinstance(part, list) for polygon in part]
    lengths = coco_mask.merge([outline_lengths(part, sizes[0]) for part in parts])
    return dict(size=sizes[0], counts=lengths['counts'].decode('ascii'))


def outer_points(outline: Outline) -> list[float]:
    """Points [x, y, x, y, ...] around an outline: its corners, or the contours of a mask."""
    if not isinstance(outline, dict):
        return [value for polygon in outline for value in polygon]
    mask = coco_mask.decode(run_lengths(outline))
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    points = np.concatenate([contour.reshape(-1, 2) for contour in contours]).astype(float)
    # Contours pass through the centres of pixels, whose corners are the outline.
    corners = points[:, None] + np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    return corners.reshape(-1).tolist()


def clipped(box: Box, height: int, width: int) -> Box:
    """The part of a box within an image; one that is less than 1/100 pixel outside stays."""
    left, top, box_width, box_height = box
    right, bottom = left + box_width, top + box_height
    if min(left, top) >= -0.01 and right <= width + 0.01 and bottom <= height + 0.01:
        return box
    left, right = min(max(left, 0.0), width), min(max(right, 0.0), width)
    top, bottom = min(max(top, 0.0), height), min(max(bottom, 0.0), height)
    return left, top, right - left, bottom - top


def crosses_itself(points: Sequence[float]) -> bool:
    """Return True if two edges of a polygon [x, y, x, y, ...] cross within both."""
    start = np.reshape(points, (-1, 2))
    edge = np.roll(start, -1, axis=0) - start

    def side(origin: np.ndarray, direction: np.ndarray, point: np.ndarray) -> np.ndarray:
        x, y = np.moveaxis(point - origin, -1, 0)
        return np.sign(direction[..., 0] * y - direction[..., 1] * x)

    ends = start + edge
    apart = side(start[:, None], edge[:, None], start) * side(start[:, None], edge[:, None], ends)
    return bool(((apart < 0) & (apart.T < 0)).any())


Turn = Callable[[float, float, float, float], tuple[float, float]]
# (x, y) in an image of w x h pixels to the picture of an EXIF orientation whose sides are swapped.
TURNS: dict[int, Turn] = {
    5: lambda x, y, w, h: (y, x),
    6: lambda x, y, w, h: (h - y, x),
    7: lambda x, y, w, h: (h - y, w - x),
    8: lambda x, y, w, h: (y, w - x),
}


def as_shown(item: Labelled, image: Header, report: Report) -> Labelled:
    """Labels of the pixels of a file, for the picture that its EXIF orientation makes of them.

    Tools and pipelines show and read that picture. Labels are of the file's own pixels if they say
    a size that only these have.
    """
    size = item.size
    if image.orientation < 5 or image.height == image.width:
        return item
    if size != (image.width, image.height):
        return item
    report.note('labels of an image before its EXIF rotation (rotated)', item.file.name)
    move = TURNS[image.orientation]
    shapes = []
    for shape in item.shapes:
        outline = shape.outline
        if isinstance(outline, dict):
            mask = coco_mask.decode(run_lengths(outline))
            steps = {5: (0, True), 6: (3, False), 7: (2, True), 8: (1, False)}
            turns, is_transposed = steps[image.orientation]
            mask = np.rot90(mask.T if is_transposed else mask, turns)
            lengths = coco_mask.encode(np.asfortranarray(mask))
            outline = dict(size=lengths['size'], counts=lengths['counts'].decode('ascii'))
        elif outline:
            outline = [moved(polygon, move, size) for polygon in outline]
        box = bounding_box(moved(box_corners(shape.box), move, size))
        shapes.append(replace(shape, box=box, outline=outline))
    return replace(item, shapes=shapes, size=(image.height, image.width))


def moved(points: Sequence[float], move: Turn, size: tuple[int, int]) -> list[float]:
    """Points [x, y, x, y, ...] of an image of `size` (height, width), each moved."""
    height, width = size
    pairs = np.reshape(points, (-1, 2)).tolist()
    return [value for x, y in pairs for value in move(x, y, width, height)]
