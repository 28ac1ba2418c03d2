"""COCO metrics by faster-coco-eval."""

from __future__ import annotations

from importlib.util import find_spec


def use_faster_coco_eval() -> bool:
    """Let mmdet's ``CocoMetric`` evaluate with faster-coco-eval where it is installed.

    It computes the figures of pycocotools in less time (tests/evaluation/test_coco_eval.py).
    mmdet's ``use_mp_eval`` still evaluates with pycocotools.

    Returns:
        Whether it is installed.
    """
    if find_spec('faster_coco_eval') is None:
        return False
    from faster_coco_eval import COCOeval_faster
    from mmdet.evaluation.metrics import coco_metric

    coco_metric.COCOeval = COCOeval_faster
    return True
