"""Objects of many images as rows of one array: as dicts, a million would take a gigabyte."""

from collections.abc import Sequence

import numpy as np
from pycocotools import mask as coco_mask

Objects = np.ndarray  # [N] of OBJECT
# Classes are from 1; a box is left, top, width, height; a label has the score NaN; what is crowd is
# ignored; a mask has COCO's run-lengths, or is None.
OBJECT = np.dtype(
    [
        ('id', 'i8'),
        ('image', 'i4'),
        ('label', 'i4'),
        ('box', 'f8', 4),
        ('area', 'f8'),
        ('score', 'f8'),
        ('crowd', '?'),
        ('mask', 'O'),
    ]
)


def objects_of(items: Sequence[dict], image: int | None = None) -> Objects:
    """Annotations of COCO, of one image or of those that they name."""
    rows = []
    for item in items:
        index = item.get('id', 0), item['image_id'] if image is None else image
        box, mask = tuple(item.get('bbox', (0, 0, 0, 0))), item.get('segmentation')
        area, score = item.get('area', box[2] * box[3]), item.get('score', np.nan)
        rows.append((*index, item['category_id'], box, area, score, item.get('iscrowd', 0), mask))
    return np.array(rows, OBJECT)


def by_image(objects: Objects) -> dict[int, np.ndarray]:
    """The places of the objects of each image."""
    order = np.argsort(objects['image'], kind='stable')
    images, starts = np.unique(objects['image'][order], return_index=True)
    return dict(zip(images.tolist(), np.split(order, starts[1:]), strict=False))  # of none, none


def overlaps(first: Objects, second: Objects, masks: bool) -> np.ndarray:
    """IoU [N, M] of boxes or masks; of what is crowd, the share of the first that is in it."""
    shapes = [x['mask'].tolist() if masks else x['box'] for x in (first, second)]
    rows = coco_mask.iou(*shapes, second['crowd'].tolist())
    return np.asarray(rows, float).reshape(len(first), len(second))


def corners(boxes: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of boxes, [N, 4]."""
    return np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
