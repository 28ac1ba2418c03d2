"""Rows, records and folders by one name, as tests look at them; and made annotations."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask


def read_json(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def column(rows: Iterable[dict], name: str) -> list:
    return [row[name] for row in rows]


def attributes(records: Iterable, name: str) -> list:
    return [getattr(record, name) for record in records]


def file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def annotations(items: Iterable, image: int = 0, start: int = 0) -> list[dict]:
    """Annotations of COCO of (box, class), or predictions of (box, class, score)."""
    results = []
    for number, (box, label, *score) in enumerate(items, start):
        item = dict(id=number, image_id=image, category_id=label, bbox=box, iscrowd=0)
        item['area'] = box[2] * box[3]
        if score:
            item['score'] = score[0]
        results.append(item)
    return results


def add_masks(items: Iterable[dict], height: int = 64, width: int = 80) -> None:
    """Give annotations the masks of their boxes, whose sides are whole pixels."""
    for item in items:
        left, top, columns, rows = item['bbox']
        drawn = np.zeros((height, width), np.uint8, order='F')
        drawn[top : top + rows, left : left + columns] = 1
        item['segmentation'] = coco_mask.encode(drawn)
