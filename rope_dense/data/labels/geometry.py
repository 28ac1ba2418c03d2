"""Boxes, polygons and run lengths of objects, in pixels (x = column, y = row)."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np

from ..images.headers import Header
from ..rotated import rectangle_corners, turned
from .objects import Box, Labelled, Outline, Report, Shape

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

FAR = 100  # times the longer side of an image: no corner is there by drawing
CORNERS = 36  # of the polygon for a circle or an ellipse
MOST_PIXELS = 2**32  # of run lengths of pycocotools
MOST_MASK = 4  # times the pixels of its image, which a mask may leave
BROKEN = np.array([-1])


def bounding_box(points: Sequence[float] | np.ndarray) -> Box:
    """The smallest box around points [x, y, x, y, ...]."""
    corners = np.reshape(points, (-1, 2))
    left, top = corners.min(0).tolist()
    right, bottom = corners.max(0).tolist()
    return left, top, right - left, bottom - top


def outline_box(outline: Outline) -> Box:
    """The smallest box around polygons, or around the pixels of run lengths."""
    if isinstance(outline, dict):
        return tuple(coco_mask.toBbox(run_lengths(outline)).tolist())
    return bounding_box([*chain(*outline)])


def box_corners(box: Box) -> list[float]:
    """The corners [x, y, x, y, ...] of a box, in turn."""
    left, top, width, height = box
    right = left + width
    bottom = top + height
    return [left, top, right, top, right, bottom, left, bottom]


def polygon_shape(
    label: str,
    points: Sequence[float] | np.ndarray,
    **more: Any,
) -> Shape:
    """An object from the corners [x, y, x, y, ...] of its outline; ValueError for less than 3."""
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


def check_mask(width: int, height: int, image: Header) -> None:
    """Raise ValueError for a mask of many more pixels than its image, before it is decoded."""
    if width * height > MOST_MASK * image.height * image.width:
        raise ValueError(
            f'a mask of {width} x {height} pixels, for an image of {image.width} x {image.height}'
        )


def mask_shape(
    label: str,
    mask: np.ndarray,
    left: int,
    top: int,
    size: tuple[int, int],
    **more: Any,
) -> Shape:
    """An object from a mask, see ``mask_lengths``; ValueError if no pixel is within the image."""
    outline = mask_lengths(mask, left, top, size)
    if not coco_mask.area(run_lengths(outline)):
        raise ValueError('a mask without a pixel in its image')
    return Shape(label, outline_box(outline), outline, **more)


def mask_lengths(
    mask: np.ndarray,
    left: int,
    top: int,
    size: tuple[int, int],
    shrink: int = 1,
) -> dict[str, Any]:
    """The run lengths of a mask [h, w] in an image, in the memory of the mask alone.

    Args:
        left, top: place of the mask's first pixel in the image, which is shrunken.
        size: (height, width) of the image as it is.
        shrink: times that the image is shrunken along each axis.
    """
    height, width = size
    part = mask[max(-top, 0) :, max(-left, 0) :] != 0
    # Run lengths go down the columns: places at which a run of a column begins or ends.
    padded = np.pad(part.T.astype(np.int8), ((0, 0), (1, 1)))
    columns, rows = np.nonzero(np.diff(padded))
    rows = np.minimum((rows + max(top, 0)) * shrink, height)
    columns = (columns + max(left, 0)) * shrink
    columns = columns[:, None] + np.arange(shrink)  # [edges, shrink]
    places = (columns * height + rows[:, None])[columns < width]
    # A place that is there twice: a run goes on in the next column.
    places, counts = np.unique(places, return_counts=True)
    edges = [0, *places[counts % 2 == 1].tolist()]
    if edges[-1] < height * width:
        edges.append(height * width)
    return text_lengths(run_lengths(dict(size=size, counts=np.diff(edges).tolist())))


def text_lengths(lengths: dict[str, Any]) -> dict[str, Any]:
    """Run lengths of pycocotools as JSON has them."""
    return dict(size=list(lengths['size']), counts=lengths['counts'].decode('ascii'))


def ellipse(
    x: float,
    y: float,
    radius_x: float,
    radius_y: float,
    degrees: float = 0,
) -> np.ndarray:
    """Corners [36, 2] of an ellipse around (x, y), rotated clockwise."""
    if not np.isfinite([radius_x, radius_y]).all():
        raise ValueError(f'radii of {radius_x} and {radius_y} pixels')
    angles = np.arange(CORNERS) * 2 * np.pi / CORNERS
    along = radius_x * np.cos(angles)
    across = radius_y * np.sin(angles)
    return turned(x, y, along, across, np.deg2rad(degrees))


def run_lengths(outline: dict[str, Any]) -> dict[str, Any]:
    """Run lengths as pycocotools takes them, from COCO's of either form, checked."""
    size = outline.get('size')
    counts = outline.get('counts')
    if not isinstance(size, (list, tuple)) or len(size) != 2 or counts is None:
        raise ValueError('run lengths without size [height, width] and counts')
    height, width = map(int, size)
    if min(height, width) < 1 or height * width >= MOST_PIXELS:
        raise ValueError(f'run lengths of {height} x {width} pixels')
    if isinstance(counts, list):
        count = sum(counts)
        if count != height * width or min(counts, default=0) < 0:
            raise ValueError(f'run lengths of {count} pixels for {height} x {width}')
        lengths = dict(size=[height, width], counts=counts)
        return coco_mask.frPyObjects(lengths, height, width)
    encoded = counts.encode('ascii') if isinstance(counts, str) else bytes(counts)
    if counts_in(encoded).sum() != height * width:
        raise ValueError(
            f'broken run lengths, or of another size than {height} x {width}'
        )
    return dict(size=[height, width], counts=encoded)


def counts_in(encoded: bytes) -> np.ndarray:
    """The numbers of compressed run lengths; [-1] for broken ones, which pycocotools takes.

    A number is a group of characters with 5 bits each, the lowest first; 32 says that another
    follows, and 16 in the last one that the number is negative. From the fourth number on, it is
    the difference to the last but one.
    """
    codes = np.frombuffer(encoded, np.uint8).astype(np.int64) - 48
    is_last = (codes & 32) == 0
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or not is_last[-1]:
        return BROKEN
    ends = np.flatnonzero(is_last)
    starts = np.append(0, ends[:-1] + 1)
    place = np.arange(len(codes)) - np.repeat(starts, ends - starts + 1)
    if place.max() > 6:  # 35 bits are more than any image needs
        return BROKEN
    numbers = np.add.reduceat((codes & 31) << (5 * place), starts)
    numbers -= np.where(codes[ends] & 16, 1 << (5 * (place[ends] + 1)), 0)
    for start in (1, 2):
        numbers[start::2] = numbers[start::2].cumsum()
    if numbers.min() >= 0:
        return numbers
    return BROKEN


def outline_lengths(outline: Outline, size: tuple[int, int]) -> dict[str, Any]:
    """An outline as run lengths of an image of (height, width); polygons are clipped to it."""
    check_outline(outline, size)
    if isinstance(outline, dict):
        return run_lengths(outline)
    return coco_mask.merge(coco_mask.frPyObjects(outline, *size))


def check_outline(outline: Outline, size: tuple[int, int]) -> None:
    """Refuse run lengths of another size than (height, width), and corners far from the image.

    pycocotools takes memory for each pixel on the way to a corner.
    """
    if isinstance(outline, dict):
        if [*map(int, outline['size'])] != [*size]:
            raise ValueError(
                f'run lengths of {outline["size"]} for an image of {[*size]} (h, w)'
            )
        return
    farthest = max(max(max(one), -min(one)) for one in outline)
    if farthest > FAR * max(size):
        raise ValueError(
            f'a corner at {farthest:g} pixels, for an image of {[*size]} (h, w)'
        )


def merge_outlines(parts: Sequence[Outline]) -> Outline:
    """One outline of all parts: polygons, or run lengths if a part has run lengths."""
    polygons = list[list[float]]()
    for part in parts:
        if isinstance(part, dict):
            lengths = [outline_lengths(one, part['size']) for one in parts]
            return text_lengths(coco_mask.merge(lengths))
        polygons += part
    return polygons


def has_nested(polygons: Sequence[Sequence[float]], size: tuple[int, int]) -> bool:
    """Return whether a polygon is wholly within another one, in an image of (height, width)."""
    if len(polygons) < 2:
        return False
    lengths = coco_mask.frPyObjects(polygons, *size)
    areas = coco_mask.area(lengths)
    if coco_mask.area(coco_mask.merge(lengths)) == areas.sum():  # nothing in common
        return False
    for one, area in zip(lengths, areas, strict=True):
        # With 1 for each of the others, the area in common is divided by the area of the first.
        shares = coco_mask.iou([one], lengths, [1] * len(lengths))[0]
        if area and shares[areas > area].max(initial=0) == 1:
            return True
    return False


def outer_points(outline: Outline) -> list[float]:
    """Points [x, y, x, y, ...] around an outline: its corners, or the ends of a mask's runs."""
    if not isinstance(outline, dict):
        return [*chain(*outline)]
    height = outline['size'][0]
    # Start and end of each run.
    edges = counts_in(run_lengths(outline)['counts']).cumsum()
    starts = edges[:-1:2] if len(edges) % 2 else edges[::2]
    left, top = np.divmod(starts, height)
    right, bottom = np.divmod(edges[1::2] - 1, height)
    pixels = [(left, top), (right, bottom)]
    # A run of several columns has the end of the first, the start of the last, and others whole.
    long = left < right
    ends = (left, height - 1), (left + 1, 0), (right - 1, height - 1), (right, 0)
    for columns, row in ends:
        pixels.append((columns[long], np.full(long.sum(), row)))
    points = np.concatenate([np.stack(pair, 1) for pair in pixels])
    corners = points[:, None] + [[0, 0], [1, 0], [1, 1], [0, 1]]  # of each pixel
    return corners.reshape(-1).astype(float).tolist()


# Of EXIF orientations that exchange x and y: whether x, then y counts from the other side after it.
FLIPS = {5: (False, False), 6: (True, False), 7: (True, True), 8: (False, True)}


def apply_exif_rotation(item: Labelled, image: Header, report: Report) -> Labelled:
    """Labels for the picture that EXIF makes of a file, which tools and pipelines show.

    They are of the file's own pixels, and are rotated, if they say a size that only these have.
    """
    height = image.width
    width = image.height
    size = height, width
    if image.orientation < 5 or height == width or item.size != size:
        return item
    report.note('labels of an image before its EXIF rotation (rotated)', item.file.name)
    flip_x, flip_y = FLIPS[image.orientation]

    def rotated(points: Sequence[float]) -> list[float]:
        x, y = np.reshape(points, (-1, 2)).T
        pairs = height - y if flip_x else y, width - x if flip_y else x
        return np.stack(pairs, 1).ravel().tolist()

    shapes = []
    for shape in item.shapes:
        outline = shape.outline
        if isinstance(outline, dict):
            check_outline(outline, size)
            mask = coco_mask.decode(run_lengths(outline)).T
            mask = mask[:: -1 if flip_y else 1, :: -1 if flip_x else 1]
            outline = text_lengths(coco_mask.encode(np.asfortranarray(mask)))
        elif outline:
            outline = [*map(rotated, outline)]
        box = bounding_box(rotated(box_corners(shape.box)))
        shapes.append(replace(shape, box=box, outline=outline))
    return replace(item, shapes=shapes, size=(image.height, image.width))
