"""Anchors of dense heads, and RoIAlign and non-maximum suppression as operators.

``torch.export`` keeps these operators whole. ONNX has both (RoiAlign, NonMaxSuppression), plain
torch has neither. ``translations`` writes them; a .pt2 file would need this package to run. Checked
in tests/export/test_export_rcnn.py against mmcv.

Letters: B images, A anchors of a place, C classes or channels, H x W places of a map, n candidates;
R regions of all images, S x S places of a region, N boxes, G groups of boxes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from mmdet.models.dense_heads.anchor_head import AnchorHead
from mmdet.models.task_modules import AnchorGenerator, DeltaXYWHBBoxCoder
from torch import Tensor, nn

from ..utils.sizes import ImageSize

BOUND = abs(math.log(16 / 1000))  # of delta2bbox


class AnchorCandidates(nn.Module):
    """The candidates of a head with sigmoid scores.

    Args:
        head: its anchors, coder of boxes and number of scores.
        number: candidates of a map, n.
        threshold: scores that are not above it become 0.

    Raises:
        ValueError: another generator of anchors, or another coder, than mmdet's usual ones.
    """

    def __init__(self, head: AnchorHead, number: int, threshold: float) -> None:
        super().__init__()
        check_anchors(head)
        self.number = number
        self.threshold = threshold
        self.num_scores = head.cls_out_channels
        self.coder = head.bbox_coder
        self.strides = head.prior_generator.strides
        for level, anchors in enumerate(head.prior_generator.base_anchors):
            self.register_buffer(f'anchors{level}', anchors.float())  # [A, 4]

    def enough(self, size: ImageSize) -> ImageSize:
        """A size that is enlarged to two places of the coarsest map, (height, width)."""
        least = 2 * max(max(stride) for stride in self.strides)
        height, width = size
        return max(height, least), max(width, least)

    def forward(self, level: int, logits: Tensor, deltas: Tensor) -> tuple[Tensor, ...]:
        """The best of a map [B, A C, H, W]: scores [B, n], boxes [B, n, 4] and classes [B, n]."""
        height, width = logits.shape[2:]
        scores = logits.permute(0, 2, 3, 1).flatten(1).sigmoid()  # [B, H W A C]
        scores = scores * (scores > self.threshold)
        scores, index = top_scores(scores, self.number)
        anchors = self.anchors(level, height, width)  # [H W A, 4]
        place = index // self.num_scores
        deltas = deltas.permute(0, 2, 3, 1).reshape(logits.shape[0], -1, 4)
        deltas = deltas.gather(1, place[..., None].expand(-1, -1, 4))
        boxes = decode_boxes(self.coder, anchors[place], deltas)
        return scores, boxes, index % self.num_scores

    def anchors(self, level: int, height: int, width: int) -> Tensor:
        """The anchors (left, top, right, bottom) of a map, row by row: [H W A, 4]."""
        anchors = getattr(self, f'anchors{level}')
        across, down = self.strides[level]
        x = torch.arange(width, device=anchors.device).float() * across
        y = torch.arange(height, device=anchors.device).float() * down
        both = torch.broadcast_tensors(x[None, :], y[:, None])
        shift = torch.stack(both, -1)  # [H, W, 2]
        return (shift.repeat(1, 1, 2)[:, :, None] + anchors).flatten(0, 2)


def top_scores(scores: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The largest of each row [B, N] and their index, both [B, number].

    A row with fewer has zeros behind them, whose index is the last one.
    """
    last = scores.shape[1] - 1
    scores, index = F.pad(scores, (0, number)).topk(number)
    return scores, index.minimum(index.new_ones(()) * last)


def decode_boxes(coder: DeltaXYWHBBoxCoder, boxes: Tensor, deltas: Tensor) -> Tensor:
    """Boxes from others and what a head predicts of them; all [..., 4]."""
    deltas = deltas * deltas.new_tensor(coder.stds) + deltas.new_tensor(coder.means)
    sides = boxes[..., 2:] - boxes[..., :2]
    centre = (boxes[..., :2] + boxes[..., 2:]) / 2 + sides * deltas[..., :2]
    half = sides * deltas[..., 2:].clamp(-BOUND, BOUND).exp() / 2
    return torch.cat([centre - half, centre + half], -1)


def clip_boxes(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boxes [..., 4] cut at the border of the image."""
    x = boxes[..., 0::2].clamp(0, width)
    y = boxes[..., 1::2].clamp(0, height)
    return torch.stack([x, y], -1).flatten(-2)


def check_anchors(head: AnchorHead) -> None:
    """Raise ValueError for a head with other anchors, coder or scores than mmdet's usual ones."""
    check_coder(head.bbox_coder)
    kind = type(head.prior_generator)
    if kind is not AnchorGenerator:
        raise ValueError(
            f'prior_generator must be AnchorGenerator, it is {kind.__name__}'
        )
    if not head.use_sigmoid_cls or not head.test_cfg.get('nms_pre', -1) > 0:
        raise ValueError(
            f'{type(head).__name__} must have sigmoid scores, and test_cfg nms_pre'
        )
    check_nms(head.test_cfg.nms)


def check_coder(coder: Any) -> None:
    """Raise ValueError for a coder of boxes that ``decode_boxes`` does not compute."""
    if type(coder) is not DeltaXYWHBBoxCoder:
        raise ValueError(
            f'bbox_coder must be DeltaXYWHBBoxCoder, it is {type(coder).__name__}'
        )
    if coder.add_ctr_clamp or not coder.clip_border:
        raise ValueError('bbox_coder must clip to the border only')


def check_nms(settings: dict) -> None:
    """Raise ValueError for another suppression than the usual one within a class."""
    if settings.get('type', 'nms') != 'nms' or settings.get('class_agnostic'):
        raise ValueError(f'nms must be of type nms, by class; got {dict(settings)}')


@torch.library.custom_op('rope_dense::roi_align', mutates_args=())
def roi_align(
    maps: Tensor, rois: Tensor, size: int, scale: float, samples: int
) -> Tensor:
    """mmcv's ``RoIAlign`` (mean, aligned): maps [B, C, H, W] and rois [R, 5] to [R, C, S, S].

    Args:
        rois: index of the image, left, top, right, bottom in pixels of the image.
        size: S.
        scale: places of the map to a pixel.
        samples: in a row of a place; 0 for as many as the map has there.
    """
    from mmcv.ops import roi_align as align

    return align(maps, rois, size, scale, samples, 'avg', True)


@roi_align.register_fake
def _(maps: Tensor, rois: Tensor, size: int, scale: float, samples: int) -> Tensor:
    return maps.new_empty(rois.shape[0], maps.shape[1], size, size)


@torch.library.custom_op('rope_dense::suppress', mutates_args=())
def suppress(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Scores [G, N], 0 where a better box [G, N, 4] of the group overlaps by more than a threshold.

    Boxes whose score is 0 suppress nothing.
    """
    from mmcv.ops import nms

    kept = torch.zeros_like(scores)
    for group, values in enumerate(scores):
        index = values.nonzero()[:, 0]
        if len(index):
            _, order = nms(boxes[group, index], values[index], threshold)
            index = index[order]
            kept[group, index] = values[index]
    return kept


@suppress.register_fake
def _(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    return torch.empty_like(scores)
