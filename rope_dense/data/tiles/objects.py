"""The objects of a tile, cut from the objects of its image as mmdet's data sets have them.

Checked against mmrotate's splitter and supervision's slicer in tests/tiles/test_slicers.py.
"""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from ..labels.annotations import LEAST_SIDE
from ..labels.geometry import counts_in, mask_lengths, outline_box
from .plan import Window

if find_spec('shapely'):  # mmdet needs it
    import shapely

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
    edges = np.array([0, 0, size[1], size[0]])
    beyond = np.array([-BEYOND, -BEYOND, BEYOND, BEYOND])
    reach = np.where(np.equal(window, edges), beyond, window)
    low = np.maximum(boxes[:, :2], window[:2])
    high = np.minimum(boxes[:, 2:], window[2:])
    is_near = ((high - low) >= LEAST_SIDE).all(1)
    starts_inside = (boxes[:, :2] >= reach[:2]).all(1)
    ends_inside = (boxes[:, 2:] <= reach[2:]).all(1)
    is_whole = is_near & starts_inside & ends_inside
    offset = np.array(window[:2] * 2)
    found = []
    for index in np.flatnonzero(is_near):
        item = dict(instances[index])
        share = 1.0
        box = np.concatenate([low[index], high[index]])
        if 'mask' in item:
            outline, share = outline_in(item['mask'], boxes[index], window, reach)
            if not outline:
                continue
            item['mask'] = outline
            if not is_whole[index]:
                x, y, width, height = outline_box(outline)
                box = np.array([x, y, x + width, y + height]) + offset
        elif not is_whole[index]:
            whole = boxes[index, 2:] - boxes[index, :2]
            share = float(np.prod(box[2:] - box[:2]) / np.prod(whole))
        item['bbox'] = (box - offset).tolist()
        item['ignore_flag'] = int(item['ignore_flag'] or share < least_share)
        if (box[2:] - box[:2] >= LEAST_SIDE).all():
            found.append(item)
    return found, is_whole


def outline_in(
    outline: list | dict,
    box: np.ndarray,
    window: Window,
    reach: np.ndarray,
) -> tuple[list | dict, float]:
    """The part of an outline in a window, in its pixels, empty for none; and its share.

    The outline is polygons [x, y, x, y, ...] or run lengths, with a box around it; ``reach`` is the
    window, beyond the sides of the image.
    """
    if isinstance(outline, dict):
        return lengths_in(outline, box, window)
    parts = []
    area = 0.0
    inside = 0.0
    for points in outline:
        polygon = shapely.Polygon(np.reshape(points, (-1, 2)))
        rest = shapely.clip_by_rect(polygon, *reach)
        area += polygon.area
        inside += rest.area
        for part in shapely.get_parts(rest):
            if part.geom_type == 'Polygon' and part.area > 0:
                corners = shapely.get_coordinates(part)[:-1] - window[:2]
                parts.append(corners.ravel().tolist())
    return parts, inside / area if area else 0.0


def lengths_in(outline: dict, box: np.ndarray, window: Window) -> tuple[dict, float]:
    """``outline_in`` of run lengths; only the columns of the object in the window are decoded."""
    left, top, right, bottom = window
    height = outline['size'][0]
    counts = outline['counts']
    if isinstance(counts, str):
        counts = counts.encode()
    if not isinstance(counts, list):
        counts = counts_in(counts)
    edges = np.cumsum(counts)  # start and end of each run, down the columns
    edges = edges[: len(edges) // 2 * 2]
    first = max(left, int(box[0]))
    last = min(right, int(np.ceil(box[2])))
    columns = last - first
    inside = edges.clip(first * height, last * height) - first * height
    flags = np.zeros(columns * height + 1, np.int8)
    np.add.at(flags, inside[::2], 1)
    np.add.at(flags, inside[1::2], -1)
    pixels = flags.cumsum(dtype=np.int8)[:-1]
    mask = pixels.reshape(columns, height).T[top:bottom]
    if not mask.any():
        return {}, 0.0
    area = (edges[1::2] - edges[::2]).sum()
    part = mask_lengths(mask, first - left, 0, (bottom - top, right - left))
    return part, float(mask.sum() / area)
