"""Panoptic labels as COCO stores them: the ids of an image's segments as colours, and a JSON file.

H x W pixels. https://cocodataset.org/#format-data, section 4.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from PIL import Image

from .classes import Colour

# The name of the JSON file, and of the folder of images beside it.
PANOPTIC = 'panoptic'
OFFSET = 1000  # mmdet's INSTANCE_OFFSET: a label is class + 1000 x number of the object
PARTS = np.array([1, 2**8, 2**16])  # of an id: red, green and blue


def panoptic_segments(
    labels: np.ndarray,
    category_ids: Sequence[int],
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The segments of an image.

    Args:
        labels: as mmdet predicts them, [H, W]; those of no class are void.
        category_ids: of each class.

    Returns:
        Ids [H, W], int32: 0 is void; and for each of 1, 2 ... its entry in COCO's file.
    """
    ids = np.zeros(labels.shape, np.int32)
    segments: list[dict] = []
    for label in np.unique(labels).tolist():
        kind = label % OFFSET
        if kind >= len(category_ids):
            continue
        mask = labels == label
        number = len(segments) + 1
        ids[mask] = number
        box = cv2.boundingRect(mask.astype(np.uint8))
        segment = dict(
            id=number,
            category_id=category_ids[kind],
            iscrowd=0,
            area=int(mask.sum()),
            bbox=list(box),
        )
        segments.append(segment)
    return ids, segments


def write_ids(ids: np.ndarray, file: Path | BinaryIO) -> None:
    """Write ids [H, W] as the colours of a PNG."""
    colours = (ids[..., None] // PARTS % 256).astype(np.uint8)
    Image.fromarray(colours).save(file, 'png')


def panoptic_content(
    entries: Iterable[Mapping[str, Any]],
    classes: Sequence[str],
    colours: Sequence[Colour],
    num_things: int,
    category_ids: Sequence[int],
) -> dict[str, Any]:
    """The content of COCO's panoptic file.

    Args:
        entries: of each image ``file_name``, ``height``, ``width``, ``png``, the path of its ids
            below the folder of the PNGs, and ``segments``; ``image_id``, if it is not 1, 2 ...
        classes, colours, category_ids: of each class; the first ``num_things`` are things.
    """
    images = []
    annotations = []
    for number, entry in enumerate(entries, start=1):
        image = dict(
            file_name=entry['file_name'],
            height=entry['height'],
            width=entry['width'],
            id=entry.get('image_id', number),
        )
        images.append(image)
        annotation = dict(
            file_name=entry['png'],
            segments_info=entry['segments'],
            image_id=image['id'],
        )
        annotations.append(annotation)
    categories = []
    for label, name in enumerate(classes):
        category = dict(
            id=category_ids[label],
            name=name,
            isthing=int(label < num_things),
            color=list(colours[label]),
        )
        categories.append(category)
    return dict(
        images=images,
        annotations=annotations,
        categories=categories,
    )
