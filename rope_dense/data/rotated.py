"""Rectangles of any orientation: around outlines, from five numbers, and conventions of angles.

A rectangle is (x, y, w, h, angle): centre and sides in pixels, and the angle in radians by which
the side w is rotated clockwise from the x axis (y points down). Four such tuples are the same
rectangle; a convention, as mmrotate names them, chooses one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from ..utils.validation import check_choice

# Least angle, range of angles, whether w is the longer side.
CONVENTIONS: Mapping[str, tuple[float, float, bool]] = {
    'le90': (-np.pi / 2, np.pi, True),
    'le135': (-np.pi / 4, np.pi, True),
    'oc': (-np.pi / 2, np.pi / 2, False),
}
ROUNDING = 1e-4  # radians and share of a side that float32 and decimals may add


def fixed_convention(kind: object) -> str | None:
    """The ``box_convention`` of the registered class of a config's ``type``, None without one."""
    # It imports PyTorch, which labels are read without.
    from mmengine.registry import MODELS

    MODELS.import_from_location()  # what is registered at the first look
    for registry in (MODELS, *MODELS.children.values()):
        found = registry.module_dict.get(str(kind))
        convention = getattr(found, 'box_convention', None)
        if convention:
            return convention
    return None


def smallest_rectangle(points: Sequence[float]) -> np.ndarray:
    """The rectangle [5] of least area around points [x, y, x, y, ...], its angle in (0, pi / 2]."""
    corners = np.reshape(points, (-1, 2)).astype(float)
    middle = corners.mean(0)  # OpenCV computes in float32
    near = (corners - middle).astype(np.float32)
    centre, sides, degrees = cv2.minAreaRect(near)
    return np.array([*(middle + centre), *sides, np.deg2rad(degrees)])


def rectangle_corners(boxes: np.ndarray) -> np.ndarray:
    """Corners [..., 8] (x, y, x, y, ...) of rectangles [..., 5], around them."""
    columns = np.moveaxis(np.asarray(boxes, float), -1, 0)
    x, y, width, height, angle = columns[..., None]
    along = np.array([-1, 1, 1, -1]) * width / 2  # [..., 4]
    across = np.array([-1, -1, 1, 1]) * height / 2
    corners = turned(x, y, along, across, angle)
    return corners.reshape(*corners.shape[:-2], 8)


def turned(x: Any, y: Any, along: Any, across: Any, angle: Any) -> np.ndarray:
    """Points [..., 2] around (x, y), rotated clockwise by an angle in radians."""
    cos = np.cos(angle)
    sin = np.sin(angle)
    columns = x + along * cos - across * sin
    rows = y + along * sin + across * cos
    return np.stack([columns, rows], -1)


def to_convention(boxes: np.ndarray, convention: str) -> np.ndarray:
    """The same rectangles [..., 5] as a convention has them."""
    least, span, is_long = CONVENTIONS[convention]
    x, y, width, height, angle = np.moveaxis(np.asarray(boxes, float), -1, 0)
    steps = np.floor((angle - least) / (np.pi / 2))
    swap = width < height if is_long else steps % 2 == 1
    along = np.where(swap, height, width)
    across = np.where(swap, width, height)
    turned = angle + swap * np.pi / 2
    angle = least + np.mod(turned - least, span)
    return np.stack([x, y, along, across, angle], -1)


def check_rectangle(box: Sequence[float], convention: str) -> None:
    """Raise ValueError for a rectangle (x, y, w, h, angle) that its convention does not have.

    The angle is in degrees then, or the convention is another one.
    """
    check_choice('angle_version', convention, tuple(CONVENTIONS))
    least, span, is_long = CONVENTIONS[convention]
    _, _, width, height, angle = box
    most = least + span
    if not least - ROUNDING <= angle <= most + ROUNDING:
        raise ValueError(
            f'angle {angle:g} is not from {least:.4f} to {most:.4f} radians, '
            f'as {convention} has it'
        )
    if is_long and width < height * (1 - ROUNDING):
        raise ValueError(
            f'w={width:g} is less than h={height:g}: {convention} has w >= h'
        )
