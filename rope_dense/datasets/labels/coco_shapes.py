"""The shapes of COCO's annotations: boxes, rotated boxes, polygons, run lengths."""

from __future__ import annotations

import ast
import math
import re
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

from ..rotated import check_rectangle, rectangle_corners
from . import geometry
from .files import finite
from .geometry import coco_mask, run_lengths
from .objects import Box, Outline, Report, Shape

UNLIKE = 'box unlike its outline (boxes are trained on it, masks on the outline)'
ARE_CORNERS = 'box that its outline shows to be [left, top, right, bottom]'
NO_BOX = 'object without a box (the box of its outline is taken)'
OTHER_FORM = 'run lengths in another form than COCO has (read as run lengths)'
NUMBERS = re.compile(r'\s*\d+([\s,]+\d+)+\s*')
CORNERS = 0  # the bbox_mode of detectron2 for [left, top, right, bottom]


def outline_of(
    given: Any, size: tuple[int, int] | None, where: str, report: Report
) -> Outline | None:
    """The outline of an object; None for none.

    Args:
        size: (height, width) of the image, which run lengths must have; None if it is unknown.

    Raises:
        ValueError: it is neither polygons of finite numbers nor run lengths of the image.
    """
    given = unquoted(given)
    if not given:
        return None
    if isinstance(given, dict):
        return lengths_of(given, size, where, report)
    if are_polygons(given):
        return given
    if not isinstance(given, list):
        raise ValueError(f'segmentation is {given!r:.80}, neither polygons nor run lengths')
    if all(isinstance(part, dict) for part in given):
        report.note(OTHER_FORM, where)
        lengths = [lengths_of(part, size, where, report) for part in given]
        return geometry.merged([one for one in lengths if one]) or None
    parts = [given] if is_points(given) or not isinstance(given[0], (list, dict)) else given
    if odd := [part for part in parts if not isinstance(part, list)]:
        raise ValueError(f'segmentation has {odd[0]!r:.80}, which is no polygon')
    flat: list[Any] = [[*chain(*part)] if is_points(part) else part for part in parts]
    polygons = [finite(points, 'a coordinate') for points in flat]
    kept = [points for points in polygons if len(points) >= 6 and len(points) % 2 == 0]
    if len(kept) < len(polygons):
        rest = 'its other parts are taken' if kept else 'its box is taken'
        report.note(f'outline with a part of less than three corners ({rest})', where)
    if kept and kept != given:
        report.note('polygons in another form than COCO has (read as polygons)', where)
    return kept or None


def are_polygons(given: Any) -> bool:
    """Return whether an outline is as COCO has it, [[x, y, x, y, ...], ...] of finite numbers."""
    try:
        return all(
            len(points) >= 6 and len(points) % 2 == 0 and math.isfinite(sum(points))
            for points in given
        )
    except (TypeError, OverflowError):
        return False


def is_points(given: Any) -> bool:
    """Return whether something is a list of at least three points [x, y]."""
    return (
        isinstance(given, list)
        and len(given) > 2
        and all(isinstance(point, list) and len(point) == 2 for point in given)
    )


def lengths_of(
    given: dict[str, Any], size: tuple[int, int] | None, where: str, report: Report
) -> Outline | None:
    """COCO's run lengths, compressed; None if they are incomplete or of no pixel.

    Raises:
        ValueError: they are broken, or of another size than the image.
    """
    counts, sides = unquoted(given.get('counts')), unquoted(given.get('size'))
    if not counts or not sides:
        report.note('run lengths without counts or size (left out)', where)
        return None
    if counts is not given['counts'] or sides is not given['size']:
        report.note(OTHER_FORM, where)
    if isinstance(counts, (list, tuple)):
        counts = [int(n) for n in finite(counts, 'a run length')]
    if isinstance(sides, (list, tuple)):
        sides = [int(side) for side in finite(sides, 'a side of run lengths')]
        if size and sides != [*size]:
            raise ValueError(f'run lengths of {sides} for an image of {[*size]} (height, width)')
    lengths = run_lengths(dict(size=sides, counts=counts))
    if not coco_mask.area(lengths):
        report.note('run lengths without a pixel (left out)', where)
        return None
    return geometry.text_lengths(lengths)


def unquoted(given: Any) -> Any:
    """A value that is given as its text in Python or JSON: "b'...'", '[5, 5]', '5 5', '{...}'."""
    if not isinstance(given, str):
        return given
    if NUMBERS.fullmatch(given):
        return re.split(r'[\s,]+', given.strip())
    if given.startswith(('{', '[', '(', "b'", 'b"')):  # as compressed counts also may
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(given)
    return given


def shape_of(
    annotation: dict[str, Any],
    label: str,
    outline: Outline | None,
    convention: str | None,
    where: str,
    report: Report,
) -> Shape | None:
    """The object of an annotation; None without a box and an outline.

    Args:
        convention: of the angle of five numbers (x, y, w, h, angle), as `angle_version` of `info`
            names it. Else an angle beside a box is CVAT's.

    Raises:
        ValueError: its numbers are no box.
    """
    five = annotation.get('rbox') or annotation.get('bbox')
    if isinstance(five, list) and len(five) == 5:
        if convention is None:
            raise ValueError('a box of five numbers, and no info.angle_version in the file')
        values = finite(five, 'a number of the box')
        check_rectangle(values, convention)
        return geometry.polygon_shape(label, rectangle_corners(np.asarray(values)))
    if (box := box_of(annotation, outline, where, report)) is None:
        return None
    if 0 in box[2:] and annotation.get('keypoints'):
        return None
    attributes = annotation.get('attributes')
    rotation = attributes.get('rotation') if isinstance(attributes, dict) else None
    if not rotation or outline or 0 in box[2:]:
        return Shape(label, box, outline)
    return geometry.rotated_shape(label, box, finite([rotation], 'attributes.rotation')[0])


def box_of(
    annotation: dict[str, Any], outline: Outline | None, where: str, report: Report
) -> Box | None:
    """The box of an object, else the box of its outline; None without both.

    Raises:
        ValueError: it is not four finite numbers.
    """
    given, mode = annotation.get('bbox'), annotation.get('bbox_mode')
    if mode not in (None, CORNERS, 1):
        raise ValueError(f'bbox_mode is {mode!r}, not 0 (two corners) or 1 (corner, width, height)')
    if given and not (isinstance(given, list) and len(given) == 4):
        raise ValueError(f'bbox is {given!r:.80}, not [left, top, width, height]')
    if given and not is_plain(given):
        given = finite(given, 'a number of bbox')
        report.note('box whose numbers are text (read as numbers)', where)
    around: Box | None = None
    if isinstance(outline, dict):
        around = tuple(coco_mask.toBbox(run_lengths(outline)).tolist())
    elif outline:
        around = geometry.bounding_box([value for points in outline for value in points])
    if not given or (around and 0 in given[2:]):
        if around:
            report.note(NO_BOX, where)
        return around or (tuple(given) if given else None)
    left, top, width, height = given
    if mode == CORNERS:
        width, height = width - left, height - top
    if width < 0 or height < 0:
        report.note('box of negative width or height (its corners put in order)', where)
        left, top, width, height = geometry.bounding_box([left, top, left + width, top + height])
    boxes = np.array([(left, top, width, height), around or (0, 0, 0, 0)], float)
    if around and coco_mask.iou(boxes[:1], boxes[1:], [0])[0, 0] < 0.5:
        corners = (left, top, width - left, height - top)
        are_corners = (left or top) and np.allclose(corners, around, atol=2)
        report.note(ARE_CORNERS if are_corners else UNLIKE, where)
    return left, top, width, height


def is_plain(box: Any) -> bool:
    """Return whether a box is a list of four finite numbers."""
    try:
        return type(box) is list and len(box) == 4 and math.isfinite(sum(box))
    except (TypeError, OverflowError):
        return False
