"""Rotated boxes as results: annotations of COCO json, and the submission form of DOTA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.atomic_write import atomic_write_text
from .labels.geometry import bounding_box
from .rotated import rectangle_corners, regularized


def rotated_annotation(box: Sequence[float], convention: str) -> dict[str, Any]:
    """The keys of a COCO annotation for a box (x, y, w, h, angle).

    `rbox` has the five numbers as the convention has them, `segmentation` the corners, `bbox` the
    upright box around these.
    """
    rbox = regularized(np.asarray(box, float), convention)
    corners = rectangle_corners(rbox).tolist()
    left, top, width, height = bounding_box(corners)
    area = float(rbox[2] * rbox[3])
    about = dict(bbox=[left, top, width, height], area=area)
    return dict(about, segmentation=[corners], rbox=rbox.tolist())


def about_convention(convention: str) -> dict[str, str]:
    """The `info` of a COCO file with `rbox`."""
    return dict(angle_version=convention, angle_unit='radian')


def write_dota(folder: Path, classes: Sequence[str], objects: Iterable[tuple[str, dict]]) -> None:
    """Write Task1_CLASS.txt for each class, which DOTA's server takes in a zip file.

    Args:
        objects: name of the image without suffix, and the annotation with its score.
    """
    lines: dict[int, list[str]] = {index: [] for index in range(1, len(classes) + 1)}
    for name, item in objects:
        corners = ' '.join(f'{value:.2f}' for value in item['segmentation'][0])
        lines[item['category_id']].append(f'{name} {item["score"]:.4f} {corners}\n')
    folder.mkdir(parents=True, exist_ok=True)
    for index, label in enumerate(classes, start=1):
        path = folder / f'Task1_{label.replace("/", "_")}.txt'
        atomic_write_text(path, ''.join(lines[index]))
