"""RetinaNet: scores and boxes of anchors, and non-maximum suppression.

Letters: B images, A anchors of a place, C classes, H x W places of a map, K candidates of all maps,
M detections of an image.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from mmdet.models.dense_heads import RetinaHead
from mmdet.models.detectors import RetinaNet
from mmdet.models.task_modules import AnchorGenerator, DeltaXYWHBBoxCoder
from torch import Tensor
from torch._higher_order_ops.scan import scan

from .graphs import Graph, Preprocess, check_methods


class RetinaNetGraph(Graph):
    """mmdet's ``RetinaNet``: uint8 images to scores [B, M], boxes [B, M, 4] and labels [B, M].

    Boxes are (left, top, right, bottom) in pixels of the input. As in mmdet, at most
    ``test_cfg.nms_pre`` candidates of a map above ``test_cfg.score_thr`` are suppressed by class;
    M is ``test_cfg.max_per_img``. Where an image has fewer detections, the scores of the last are
    0. All images of a batch fill their input.
    """

    task, outputs = 'detection', ('scores', 'boxes', 'labels')
    num_classes: int

    def __init__(self, model: RetinaNet, dtype: torch.dtype) -> None:
        check_methods(model, RetinaNet, 'extract_feat', 'predict')
        super().__init__(model, dtype)
        self.head = self.model.bbox_head
        check_head(self.head)
        self.num_classes, self.settings = self.head.num_classes, self.head.test_cfg
        for level, anchors in enumerate(self.head.prior_generator.base_anchors):
            self.register_buffer(f'anchors{level}', anchors.float())  # [A, 4]
        self.preprocess = Preprocess(model.data_preprocessor)
        self.multiple = self.preprocess.divisor
        self.cast_backbone()
        coarsest = max(max(stride) for stride in self.head.prior_generator.strides)
        height, width = (max(side, 2 * coarsest) for side in self.least)
        self.least = height, width

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        height, width = image.shape[2:]
        maps = self.head(self.model.extract_feat(self.preprocess(image)))
        levels = [
            self.candidates(level, *pair) for level, pair in enumerate(zip(*maps, strict=True))
        ]
        scores, boxes, labels = (torch.cat(parts, 1) for parts in zip(*levels, strict=True))
        x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
        boxes = torch.stack([x, y], -1).flatten(2)  # [B, K, 4]
        sides = boxes[..., 2:] - boxes[..., :2]
        enough = (sides > self.settings.get('min_bbox_size', -1)).all(-1)
        return self.suppress(scores * enough, boxes, labels)

    def candidates(self, level: int, logits: Tensor, deltas: Tensor) -> tuple[Tensor, ...]:
        """The best of a map [B, A C, H, W]: scores [B, n], boxes [B, n, 4] and classes [B, n].

        n is ``nms_pre``; scores that are not above the threshold are 0.
        """
        height, width = logits.shape[2:]
        scores = logits.permute(0, 2, 3, 1).flatten(1).sigmoid()  # [B, H W A C]
        scores = scores * (scores > self.settings.score_thr)
        # A small map has fewer candidates: zeros behind them, whose index is cut to the last one.
        scores, index = F.pad(scores, (0, self.settings.nms_pre)).topk(self.settings.nms_pre)
        anchors = self.anchors(level, height, width)  # [H W A, 4]
        index = index.minimum(index.new_ones(()) * (anchors.shape[0] * self.num_classes - 1))
        place = index // self.num_classes
        deltas = deltas.permute(0, 2, 3, 1).reshape(logits.shape[0], -1, 4)
        deltas = deltas.gather(1, place[..., None].expand(-1, -1, 4))
        return scores, self.decode(anchors[place], deltas), index % self.num_classes

    def anchors(self, level: int, height: int, width: int) -> Tensor:
        """The anchors (left, top, right, bottom) of a map, row by row: [H W A, 4]."""
        anchors = getattr(self, f'anchors{level}')
        across, down = self.head.prior_generator.strides[level]
        x = torch.arange(width, device=anchors.device).float() * across
        y = torch.arange(height, device=anchors.device).float() * down
        shift = torch.stack(torch.broadcast_tensors(x[None, :], y[:, None]), -1)  # [H, W, 2]
        return (shift.repeat(1, 1, 2)[:, :, None] + anchors).flatten(0, 2)

    def decode(self, anchors: Tensor, deltas: Tensor) -> Tensor:
        """Boxes from anchors and what the head predicts of them; all [B, n, 4]."""
        coder = self.head.bbox_coder
        deltas = deltas * deltas.new_tensor(coder.stds) + deltas.new_tensor(coder.means)
        sides = anchors[..., 2:] - anchors[..., :2]
        centre = (anchors[..., :2] + anchors[..., 2:]) / 2 + sides * deltas[..., :2]
        bound = abs(math.log(16 / 1000))  # of delta2bbox
        half = sides * deltas[..., 2:].clamp(-bound, bound).exp() / 2
        return torch.cat([centre - half, centre + half], -1)

    def suppress(self, scores: Tensor, boxes: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The best candidate M times, each without the candidates of its class that it overlaps.

        This is the order in which non-maximum suppression keeps boxes, so its first M are the same.
        """
        areas = (boxes[..., 2:] - boxes[..., :2]).prod(-1)  # [B, K]
        place = torch.arange(scores.shape[1], device=scores.device)

        def step(scores: Tensor, _: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            score, best = scores.max(1, keepdim=True)  # [B, 1]
            box = boxes.gather(1, best[..., None].expand(-1, -1, 4))  # [B, 1, 4]
            label = labels.gather(1, best)
            start = boxes[..., :2].maximum(box[..., :2])
            end = boxes[..., 2:].minimum(box[..., 2:])
            shared = (end - start).clamp(0).prod(-1)  # [B, K]
            union = areas + areas.gather(1, best) - shared
            overlaps = (shared > self.settings.nms.iou_threshold * union) & (labels == label)
            return scores * ~(overlaps | (place == best)), (score, box, label)

        steps = torch.zeros(self.settings.max_per_img, 1)
        _, found = scan(step, scores, steps)  # one step in the file, not M of them
        scores, boxes, labels = (part.squeeze(2).transpose(0, 1) for part in found)  # [B, M, ...]
        return scores, boxes, labels


def check_head(head: RetinaHead) -> None:
    """Raise ValueError for a head that differs from mmdet's RetinaNet."""
    kinds = dict(bbox_coder=DeltaXYWHBBoxCoder, prior_generator=AnchorGenerator)
    for name, kind in kinds.items():
        if type(part := getattr(head, name)) is not kind:
            raise ValueError(
                f'bbox_head.{name} must be {kind.__name__}, it is {type(part).__name__}'
            )
    if type(head) is not RetinaHead:
        raise ValueError(f'bbox_head must be RetinaHead, it is {type(head).__name__}')
    nms = head.test_cfg.nms
    if not head.use_sigmoid_cls or nms.get('type', 'nms') != 'nms' or nms.get('class_agnostic'):
        raise ValueError('bbox_head must have sigmoid scores, and nms of type nms by class')
    coder = head.bbox_coder
    if coder.add_ctr_clamp or not coder.clip_border or not head.test_cfg.get('nms_pre', -1) > 0:
        raise ValueError('bbox_coder must clip to the border only, and test_cfg have nms_pre')


GRAPHS = {RetinaNet: RetinaNetGraph}
