"""Matching against transformers', mmdet's and plain loops."""

from __future__ import annotations

from itertools import permutations
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.models.task_modules.assigners import HungarianAssigner
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy, bbox_overlaps
from mmengine.structures import InstanceData
from torch import Tensor

from rope_dense.models.deim.matching import Matcher, box_overlaps, unite
from rope_dense.models.deim.predictions import Pairs, Prediction, Targets

COUNTS = [3, 0, 5]
QUERIES, CLASSES = 9, 4


def boxes(*shape: int) -> Tensor:
    return torch.cat([torch.rand(*shape, 2), 0.05 + 0.3 * torch.rand(*shape, 2)], -1)


def targets(counts: list[int] = COUNTS) -> Targets:
    return Targets(
        torch.randint(0, CLASSES, (sum(counts),)), boxes(sum(counts)), counts
    )


def predictions(layers: int = 3, batch: int = 3) -> list[Prediction]:
    return [
        Prediction(2 * torch.randn(batch, QUERIES, CLASSES), boxes(batch, QUERIES))
        for _ in range(layers)
    ]


def found(pairs: Pairs) -> set[tuple[int, int]]:
    return set(zip(pairs.queries.tolist(), pairs.targets.tolist(), strict=True))


def test_pairs_are_those_of_transformers(transformers: ModuleType) -> None:
    from transformers.loss.loss_rt_detr import RTDetrHungarianMatcher

    settings = dict(
        matcher_class_cost=2.0, matcher_bbox_cost=5.0, matcher_giou_cost=2.0
    )
    settings |= dict(matcher_alpha=0.25, matcher_gamma=2.0, use_focal_loss=True)
    reference = RTDetrHungarianMatcher(SimpleNamespace(**settings))
    given, layers = targets(), predictions()
    each, _ = Matcher()(layers, given)
    starts = np.cumsum([0, *COUNTS])
    labels = [dict(class_labels=c, boxes=b) for c, b in given.per_image]
    for layer, pairs in zip(layers, each, strict=True):
        expected = reference(dict(logits=layer.logits, pred_boxes=layer.boxes), labels)
        assert found(pairs) == {
            (image * QUERIES + query, starts[image] + target)
            for image, (queries, matched) in enumerate(expected)
            for query, target in zip(queries.tolist(), matched.tolist(), strict=True)
        }


def test_pairs_are_those_of_mmdet() -> None:
    assigner = HungarianAssigner(
        match_costs=[
            dict(type='mmdet.FocalLossCost', weight=2.0),
            dict(type='mmdet.BBoxL1Cost', weight=5.0, box_format='xywh'),
            dict(type='mmdet.IoUCost', iou_mode='giou', weight=2.0),
        ]
    )
    given, (layer,) = targets([6]), predictions(1, 1)
    (pairs,), _ = Matcher()([layer], given)
    corners = [bbox_cxcywh_to_xyxy(x) for x in (layer.boxes[0], given.boxes)]
    result = assigner.assign(
        InstanceData(scores=layer.logits[0], bboxes=corners[0]),
        InstanceData(labels=given.labels, bboxes=corners[1]),
        dict(img_shape=(1, 1)),
    )
    queries = (result.gt_inds > 0).nonzero().flatten().tolist()
    expected = {(query, int(result.gt_inds[query]) - 1) for query in queries}
    assert found(pairs) == expected


def iou(first: list[float], second: list[float]) -> float:
    """Of two boxes (cx, cy, w, h)."""
    area = 1.0
    for axis in range(2):
        low, high = (
            [box[axis] + sign * box[2 + axis] / 2 for box in (first, second)]
            for sign in (-1, 1)
        )
        area *= max(0.0, min(high) - max(low))
    return area / (first[2] * first[3] + second[2] * second[3] - area)


def test_late_pairs_are_the_best_of_all() -> None:
    """All ways to match three boxes, one by one; before the epoch they are matched as ever."""
    given, (layer,) = targets([3]), predictions(1, 1)
    layer.boxes[0, :6] = given.boxes.repeat(2, 1) + 0.02 * torch.randn(6, 4)
    matcher = Matcher(late_epoch=5)
    scores = layer.logits[0].sigmoid().tolist()
    gains = [
        [
            scores[q][label] * iou(box, target) ** 4
            for q, box in enumerate(layer.boxes[0].tolist())
        ]
        for label, target in zip(
            given.labels.tolist(), given.boxes.tolist(), strict=True
        )
    ]
    best = max(
        permutations(range(QUERIES), 3),
        key=lambda chosen: sum(gains[t][q] for t, q in enumerate(chosen)),
    )
    (late,), _ = matcher([layer], given, epoch=5)
    assert found(late) == {(query, target) for target, query in enumerate(best)}
    (early,), _ = matcher([layer], given, epoch=4)
    (never,), _ = Matcher()([layer], given, epoch=10**6)
    assert found(early) == found(never)
    costs = matcher.late_costs(layer.logits[0], layer.boxes[0], *given.per_image[0])
    assert torch.allclose(-costs.T, torch.tensor(gains), atol=1e-6)


def test_the_union_has_a_query_once_with_the_target_of_most_layers() -> None:
    layers = [([0, 1], [0, 1]), ([0, 2], [1, 0]), ([0, 2], [1, 2])]
    matches = [(np.array(queries), np.array(found)) for queries, found in layers]
    queries, matched = unite(matches, 4)
    assert queries.tolist() == [0, 1, 2]
    assert matched.tolist() == [1, 1, 0]  # the first of two with one layer each


def test_more_boxes_than_queries_and_none_at_all() -> None:
    each, union = Matcher()(predictions(), targets([QUERIES + 2, 0, 1]))
    assert [len(pairs) for pairs in each] == [QUERIES + 1] * 3
    assert len(set(union.queries.tolist())) == len(union)
    each, union = Matcher()(predictions(), targets([0, 0, 0]))
    assert [len(pairs) for pairs in (*each, union)] == [0] * 4


def test_each_box_is_matched_with_several_queries() -> None:
    """The least sum of costs of all choices; the image of five keeps one query for each box."""
    given, (layer,) = targets([2, 5]), predictions(1, 2)
    matcher = Matcher(repeats=3)
    (pairs,), _ = matcher([layer], given)
    assert pairs.counts == [4, 5]  # at most half of nine queries over the boxes
    assert sorted(pairs.targets.tolist()) == [0, 0, 1, 1, 2, 3, 4, 5, 6]
    assert len(set(pairs.queries.tolist())) == len(pairs)
    costs = matcher.costs(layer.logits[0], layer.boxes[0], *given.per_image[0])
    least = min(
        (costs[list(some), [0, 0, 1, 1]].sum().item())
        for some in permutations(range(QUERIES), 4)
    )
    queries, matched = pairs.queries[:4], pairs.targets[:4]
    assert costs[queries, matched].sum().item() == pytest.approx(least, abs=1e-5)


def test_repeats_are_positive() -> None:
    with pytest.raises(
        ValueError, match=r'matching.repeats must be an integer from 1 up'
    ):
        Matcher(repeats=0)


def test_predictions_that_are_no_numbers_are_matched_last() -> None:
    given, (layer,) = targets([2]), predictions(1, 1)
    layer.logits[0, 0] = torch.nan
    layer.boxes[0, 1] = torch.inf
    (pairs,), _ = Matcher(bbox_cost=0.0, giou_cost=0.0)([layer], given)
    assert len(pairs) == 2
    assert 0 not in pairs.queries


@pytest.mark.parametrize('mode', ['iou', 'giou'])
def test_overlaps_are_those_of_mmdet(mode: str) -> None:
    first = torch.cat(
        [boxes(7), torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 0.0, 0.2]])]
    )
    second = torch.cat([boxes(8), torch.zeros(1, 4)])
    corners = [bbox_cxcywh_to_xyxy(x) for x in (first, second)]
    expected = bbox_overlaps(*corners, mode=mode)
    assert torch.equal(box_overlaps(first, second, mode), expected)
    aligned = bbox_overlaps(*corners, mode=mode, is_aligned=True)
    assert torch.equal(box_overlaps(first, second, mode, aligned=True), aligned)
