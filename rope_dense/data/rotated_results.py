"""Rotated boxes as results: annotations of COCO json, and the submission form of DOTA."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .labels.geometry import bounding_box
from .rotated import rectangle_corners, to_convention

LONGEST = 100  # bytes of a class in the name of a file


def rotated_annotation(box: Sequence[float], convention: str) -> dict[str, Any]:
    """The keys of a COCO annotation for a box (x, y, w, h, angle).

    `rbox` has the five numbers as the convention has them, `segmentation` the corners, `bbox` the
    upright box around these.
    """
    rbox = to_convention(np.asarray(box, float), convention)
    corners = rectangle_corners(rbox).tolist()
    return dict(
        bbox=list(bounding_box(corners)),
        area=float(rbox[2] * rbox[3]),
        segmentation=[corners],
        rbox=rbox.tolist(),
    )


def about_convention(convention: str) -> dict[str, str]:
    """The `info` of a COCO file with `rbox`."""
    return dict(angle_version=convention, angle_unit='radian')


def dota_texts(
    classes: Sequence[str],
    objects: Iterable[tuple[str, dict]],
) -> dict[str, str]:
    """The text of Task1_CLASS.txt for each class, which DOTA's server takes in a zip file.

    An object is the name of its image without suffix, and the annotation with its score.
    """
    lines = defaultdict[int, list[str]](list)
    for name, item in objects:
        corners = ' '.join(f'{value:.2f}' for value in item['segmentation'][0])
        lines[item['category_id']].append(f'{name} {item["score"]:.4f} {corners}\n')
    texts = {}
    for index, name in enumerate(names_of_files(classes), start=1):
        texts[f'Task1_{name}.txt'] = ''.join(lines[index])
    return texts


def names_of_files(classes: Sequence[str]) -> list[str]:
    """A name of a file or folder for each class: changed if it cannot be one, numbered if taken."""
    # In lower case, which some file systems do not tell apart.
    names: dict[str, int] = {}
    found = []
    for index, label in enumerate(classes, start=1):
        name = re.sub(r'[/\0]|^\.', '_', label)
        name = name.encode()[:LONGEST].decode(errors='ignore')
        if names.setdefault(name.lower(), index) != index:
            name = f'{name}_{index}'
        found.append(name)
    return found
