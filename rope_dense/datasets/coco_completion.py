"""Annotation files in COCO's format that lack what mmdet and pycocotools ask for."""

from __future__ import annotations

import functools
import logging
from typing import Any

from mmengine.logging import print_log
from pycocotools import mask as coco_mask

REQUIRED = ('area', 'iscrowd')
SEEN: set[str] = set()  # files whose report was given


def complete_annotations() -> None:
    """Let mmdet read COCO files without `area` or `iscrowd`, and say once what is odd in a file.

    Areas are computed from polygons, run lengths or else boxes. mmdet leaves out boxes that are
    less than a pixel wide or high without a word; here their number is logged.
    """
    from mmdet.datasets.api_wrappers import COCO  # segmentors do without mmdet

    if hasattr(COCO.__init__, '__wrapped__'):  # done before
        return
    create_index, initialise = COCO.createIndex, COCO.__init__

    def complete_index(self: Any) -> None:
        self.odd = completed(self.dataset)
        create_index(self)

    @functools.wraps(initialise)
    def report(self: Any, annotation_file: str | None = None) -> None:
        initialise(self, annotation_file)
        if annotation_file and str(annotation_file) not in SEEN:
            SEEN.add(str(annotation_file))
            for line in self.odd if hasattr(self, 'odd') else ():
                print_log(f'{annotation_file}: {line}', 'current', logging.WARNING)

    COCO.createIndex, COCO.__init__ = complete_index, report


def completed(content: dict) -> list[str]:
    """Add what annotations lack, in place; returns what is odd, in words."""
    annotations = content.get('annotations', [])
    sizes = {image['id']: (image['height'], image['width']) for image in content.get('images', [])}
    lines = []
    for name in REQUIRED:
        lacking = [annotation for annotation in annotations if name not in annotation]
        for annotation in lacking:
            annotation[name] = 0 if name == 'iscrowd' else area_of(annotation, sizes)
        if lacking:
            how = 'computed' if name == 'area' else 'set to 0'
            lines.append(f'{len(lacking)} of {len(annotations)} objects have no {name}: {how}')
    flat = [a for a in annotations if 'bbox' in a and min(a['bbox'][2:]) < 1]
    if flat:
        lines.append(
            f'{len(flat)} of {len(annotations)} boxes are less than a pixel wide or high, such as '
            f'{flat[0]["bbox"]} of image {flat[0]["image_id"]}: they are left out'
        )
    return lines


def area_of(annotation: dict, sizes: dict[int, tuple[int, int]]) -> float:
    """Area of an object in pixels."""
    outline = annotation.get('segmentation')
    if isinstance(outline, list) and outline:
        outline = coco_mask.merge(coco_mask.frPyObjects(outline, *sizes[annotation['image_id']]))
    elif isinstance(outline, dict) and isinstance(outline['counts'], list):
        outline = coco_mask.frPyObjects(outline, *outline['size'])
    if outline:
        return float(coco_mask.area(outline))
    *_, width, height = annotation.get('bbox', (0, 0, 0, 0))
    return float(max(width, 0) * max(height, 0))
