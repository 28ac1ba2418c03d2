"""Horizontal boxes scored as oriented ones, against areas computed by hand."""

import math

import cv2
import pytest
import torch

import helpers.oriented  # noqa: F401, skips where mmrotate is not installed
from research.oriented import HorizontalDOTAMetric

CENTRE, WIDTH, HEIGHT = (50.0, 40.0), 40.0, 10.0


def scored(angle: float, thresholds: list[float]) -> dict[str, float]:
    """AP of the horizontal box around one oriented box, and of an upright one that is right."""
    corners = cv2.boxPoints((CENTRE, (WIDTH, HEIGHT), math.degrees(angle)))
    boxes = torch.tensor([[*corners.min(0), *corners.max(0)], [5, 5, 25, 15]])
    labels = torch.tensor([0, 1])
    truth = torch.tensor([[*CENTRE, WIDTH, HEIGHT, angle], [15, 10, 20, 10, 0]])
    sample = dict(
        img_id=0,
        gt_instances=dict(bboxes=truth, labels=labels),
        ignored_instances=dict(bboxes=torch.zeros(0, 5), labels=labels[:0]),
        pred_instances=dict(
            bboxes=boxes, labels=labels, scores=torch.tensor([0.9, 0.8])
        ),
    )
    metric = HorizontalDOTAMetric(iou_thrs=thresholds)
    metric.dataset_meta = dict(classes=('ship', 'tank'))
    metric.process([], [sample])
    return metric.evaluate(size=1)


@pytest.mark.parametrize('angle', [math.pi / 4, -math.pi / 4, 0.3])
def test_an_angle_costs_what_the_boxes_around_it_miss(angle: float) -> None:
    """The box around covers all of the oriented box, so their IoU is the ratio of the areas."""
    cosine, sine = abs(math.cos(angle)), abs(math.sin(angle))
    width, height = WIDTH * cosine + HEIGHT * sine, WIDTH * sine + HEIGHT * cosine
    iou = WIDTH * HEIGHT / (width * height)
    assert [scored(angle, [iou + x])['dota/mAP'] for x in (-0.02, 0.02)] == [1.0, 0.5]


def test_upright_boxes_lose_nothing() -> None:
    assert scored(0.0, [0.5, 0.95]) == {
        'dota/mAP': 1.0,
        'dota/AP50': 1.0,
        'dota/AP95': 1.0,
    }
