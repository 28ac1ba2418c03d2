"""The objects of a tile, cut from the objects of its image as mmdet's data sets have them.

Checked against mmrotate's splitter and supervision's slicer in tests/tiles/test_slicers.py.
"""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from ..labels.geometry import counts_in, mask_lengths, outline_box
from .plan import Window

if find_spec('shapely'):  # mmdet needs it
    import shapely

LEAST_SIDE = 1.0  # pixels: less of an object is nothing to see
BEYOND = 1e9  # pixels: an object is not cut at the sides of its image


def objects_in(
    instances: Sequence[dict],
    boxes: np.ndarray,
    window: Window,
    size: tuple[int, int],
    least_share: float,
) -> tuple[list[dict], np.ndarray]:
    """The objects that a window has a part of, in its pixels, and which of all are whole in it.

    An object that is cut keeps what is inside: its box, its outline, or the smallest rectangle
    around the rest of a rotated box. If that is less than a share of its area, it is ignored.

    Args:
        instances: of the image, with `bbox` (left, top, right, bottom), `ignore_flag` and perhaps
            `mask`: polygons, or run lengths.
        boxes: [N, 4], their `bbox`.
        size: (height, width) of the image.
        least_share: of the outline, or of the box of an object without one.

    Returns:
        Copies of the instances, and bool [N].
    """
    ends = zip(
        window,
        (0, 0, size[1], size[0]),
        (-BEYOND, -BEYOND, BEYOND, BEYOND),
        strict=True,
    )
    reach = np.array([far if side == end else side for side, end, far in ends])
    low, high = (
        np.maximum(boxes[:, :2], window[:2]),
        np.minimum(boxes[:, 2:], window[2:]),
    )
    is_near = ((high - low) >= LEAST_SIDE).all(1)
    is_whole = (
        is_near
        & (boxes[:, :2] >= reach[:2]).all(1)
        & (boxes[:, 2:] <= reach[2:]).all(1)
    )
    found, offset = [], np.array(window[:2] * 2)
    for index in np.flatnonzero(is_near):
        item, share = dict(instances[index]), 1.0
        box = np.concatenate([low[index], high[index]])
        if 'mask' in item:
            item['mask'], share = outline_in(item['mask'], boxes[index], window, reach)
            if not item['mask']:
                continue
            if not is_whole[index]:
                x, y, *sides = outline_box(item['mask'])
                box = np.array([x, y, x + sides[0], y + sides[1]]) + offset
        elif not is_whole[index]:
            share = float(
                np.prod(box[2:] - box[:2])
                / np.prod(boxes[index, 2:] - boxes[index, :2])
            )
        item['bbox'] = (box - offset).tolist()
        item['ignore_flag'] = int(item['ignore_flag'] or share < least_share)
        if (box[2:] - box[:2] >= LEAST_SIDE).all():
            found.append(item)
    return found, is_whole


def outline_in(
    outline: list | dict, box: np.ndarray, window: Window, reach: np.ndarray
) -> tuple[list | dict, float]:
    """The part of an outline in a window, in its pixels, empty for none; and its share.

    The outline is polygons [x, y, x, y, ...] or run lengths, with a box around it; ``reach`` is the
    window, beyond the sides of the image.
    """
    if isinstance(outline, dict):
        return lengths_in(outline, box, window)
    offset, parts, area, inside = np.array(window[:2]), [], 0.0, 0.0
    for points in outline:
        polygon = shapely.Polygon(np.reshape(points, (-1, 2)))
        rest = shapely.clip_by_rect(polygon, *reach)
        area, inside = area + polygon.area, inside + rest.area
        for part in shapely.get_parts(rest):
            if part.geom_type == 'Polygon' and part.area > 0:
                parts.append(
                    (shapely.get_coordinates(part)[:-1] - offset).ravel().tolist()
                )
    return parts, inside / area if area else 0.0


def lengths_in(outline: dict, box: np.ndarray, window: Window) -> tuple[dict, float]:
    """``outline_in`` of run lengths; only the columns of the object in the window are decoded."""
    left, top, right, bottom = window
    height, counts = outline['size'][0], outline['counts']
    if not isinstance(counts, list):
        counts = counts_in(counts.encode() if isinstance(counts, str) else counts)
    edges = np.cumsum(counts)  # start and end of each run, down the columns
    edges = edges[: len(edges) // 2 * 2]
    first, last = max(left, int(box[0])), min(right, int(np.ceil(box[2])))
    inside = edges.clip(first * height, last * height) - first * height
    flags = np.zeros((last - first) * height + 1, np.int8)
    np.add.at(flags, inside[::2], 1)
    np.add.at(flags, inside[1::2], -1)
    mask = flags.cumsum(dtype=np.int8)[:-1].reshape(last - first, height).T[top:bottom]
    if not mask.any():
        return {}, 0.0
    size = bottom - top, right - left
    part = mask_lengths(mask, first - left, 0, size)
    return part, float(mask.sum() / (edges[1::2] - edges[::2]).sum())
