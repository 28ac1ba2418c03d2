"""Duplicates are found by a tree, exactly as by comparing each box with all others."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from mmcv.ops import box_iou_rotated
from mmdet.structures.bbox import bbox_overlaps

from rope_dense.data.tiles.detection import suppress_duplicates, upright


def random_lines(count: int, side: int, is_rotated: bool, seed: int = 0) -> list[dict]:
    """Three boxes or so of each object, of 40 tiles, two classes and tied scores."""
    random = np.random.default_rng(seed)
    objects = np.c_[
        random.uniform(0, side, (count // 3, 2)), random.uniform(6, 30, (count // 3, 2))
    ]
    boxes = objects[random.integers(len(objects), size=count)] * random.uniform(
        0.98, 1.02, (count, 4)
    )
    rboxes = np.c_[boxes, random.uniform(-1.5, 1.5, count)]
    hulls = np.c_[boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2]
    if is_rotated:
        hulls = upright(torch.from_numpy(rboxes)).numpy()
    return [
        dict(
            box=hull,
            score=float(random.integers(50) / 64),
            label=int(random.integers(2)),
            tile=int(random.integers(40)),
            cut=bool(random.random() < 0.3),
            **(dict(rbox=rbox) if is_rotated else {}),
        )
        for hull, rbox in zip(hulls.tolist(), rboxes.tolist(), strict=True)
    ]


def by_comparing_all(lines: list[dict], threshold: float) -> list[dict]:
    """The lines that are left: complete before cut, then by falling score; a class at a time."""
    queue = sorted(lines, key=lambda line: (line['label'], line['cut'], -line['score']))
    left = []
    while queue:
        first, *queue = queue
        left.append(first)
        union, share = (
            overlaps(queue, first, mode) > threshold for mode in ('iou', 'iof')
        )
        queue = [
            line
            for line, same, inside in zip(
                queue, union.tolist(), share.tolist(), strict=True
            )
            if line['label'] != first['label']
            or line['tile'] == first['tile']
            or not (same or (line['cut'] and inside))
        ]
    return sorted(left, key=lambda line: -line['score'])


def overlaps(lines: list[dict], other: dict, mode: str) -> torch.Tensor:
    boxes, box = (
        torch.tensor([x['box'] for x in some], dtype=torch.float64)
        for some in (lines, [other])
    )
    result = bbox_overlaps(boxes.reshape(-1, 4), box, mode)[:, 0]
    if 'rbox' not in other or not lines:
        return result
    boxes, box = (
        torch.tensor([x['rbox'] for x in some], dtype=torch.float64)
        for some in (lines, [other])
    )
    centre = torch.cat([box[:, :2], torch.zeros(1, 3)], 1)
    rotated = box_iou_rotated((boxes - centre).float(), (box - centre).float(), mode)[
        :, 0
    ]
    return torch.where(result > 0, rotated.double(), 0)


@pytest.mark.parametrize('is_rotated', [False, True])
@pytest.mark.parametrize('side', [60, 400])
@pytest.mark.parametrize('threshold', [0.0, 0.1, 0.5])
def test_the_result_is_exactly_the_same(
    is_rotated: bool, side: int, threshold: float
) -> None:
    """Crowded and sparse; more boxes than are compared at a time."""
    lines = random_lines(300, side, is_rotated)
    found = suppress_duplicates(lines, threshold)
    assert found == by_comparing_all(lines, threshold)
    assert 0 < len(found) < len(lines)


def test_the_time_grows_with_the_number_of_boxes() -> None:
    """20,000 boxes took 21 s by comparing all; a tenth of that on a busy machine."""
    lines, started = random_lines(20_000, 20_000, is_rotated=False), time.process_time()
    assert 5_000 < len(suppress_duplicates(lines, 0.5)) < 20_000
    assert time.process_time() - started < 5
