"""Detectors with anchors: Faster, Mask and Cascade R-CNN, and RetinaNet.

Letters: B images, H x W pixels, C channels, K classes, N candidates of all maps, P proposals of an
image, M detections of an image, L maps, S x S places of a region, h x w places of its mask.
"""

from collections.abc import Sequence
from typing import Any

import torch
from mmcv.ops import RoIAlign
from mmdet.models.dense_heads import RetinaHead, RPNHead
from mmdet.models.detectors import RetinaNet, TwoStageDetector
from mmdet.models.roi_heads import CascadeRoIHead, StandardRoIHead
from mmdet.models.roi_heads.bbox_heads import ConvFCBBoxHead
from mmdet.models.roi_heads.mask_heads import FCNMaskHead
from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
from torch import Tensor, nn

from ..models.deim.predictions import take
from ..utils.sizes import ImageSize
from .anchors import (
    AnchorCandidates,
    check_coder,
    check_nms,
    clip_boxes,
    decode_boxes,
    roi_align,
    suppress,
    top_scores,
)
from .client import Frame
from .graphs import Graph, Outputs, check_methods


class RCNNGraph(Graph):
    """mmdet's ``FasterRCNN``, ``MaskRCNN`` and ``CascadeRCNN``, for ONNX alone.

    uint8 images to scores [B, M], boxes [B, M, 4], labels [B, M] and, with a mask head, masks
    [B, M, H, W] (bool), pasted as by mmdet. Boxes are (left, top, right, bottom) in pixels of the
    input. M is ``test_cfg.rcnn.max_per_img``; where an image has fewer detections, the scores of
    the last are 0. Images are padded as by the data preprocessor, and all of a batch have one size.
    """

    task = 'detection'
    formats = ('onnx',)
    num_classes: int

    def __init__(self, model: TwoStageDetector, dtype: torch.dtype) -> None:
        check_methods(model, TwoStageDetector, 'extract_feat', 'predict')
        check_roi_head(model.roi_head)
        super().__init__(model, dtype)
        rpn = self.model.rpn_head
        head = self.model.roi_head
        if type(rpn) is not RPNHead:
            raise ValueError(f'rpn_head must be RPNHead, it is {type(rpn).__name__}')
        self.rpn_settings = rpn.test_cfg
        self.settings = head.test_cfg
        self.candidates = AnchorCandidates(rpn, rpn.test_cfg.nms_pre, 0.0)
        self.box_stages = stages(head.bbox_roi_extractor, head.bbox_head)
        self.mask_stages: list[tuple[Any, Any]] = []
        self.outputs = ('scores', 'boxes', 'labels')
        if head.with_mask:
            self.mask_stages = stages(head.mask_roi_extractor, head.mask_head)
            self.outputs += ('masks',)
        self.num_classes = self.box_stages[-1][1].num_classes
        self.cast_backbone()
        self.generic = self.candidates.enough(self.generic)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        maps = self.model.extract_feat(x)
        size = frame.size
        scores, boxes, labels = self.detect(maps, *self.propose(maps, size), size)
        found = scores, frame.points(boxes), labels
        if not self.mask_stages:
            return found
        return *found, self.masks(maps, self.first(boxes), self.first(labels), frame)

    def propose(self, maps: Sequence[Tensor], size: ImageSize) -> tuple[Tensor, Tensor]:
        """Boxes [B, P, 4] of the RPN, and their scores [B, P], 0 where there are fewer."""
        all_scores = []
        all_boxes = []
        settings = self.rpn_settings
        levels = zip(*self.model.rpn_head(maps), strict=True)
        for level, pair in enumerate(levels):
            scores, boxes, _ = self.candidates(level, *pair)
            boxes = clip_boxes(boxes, *size)
            scores = without_small(scores, boxes, settings)
            all_scores.append(suppress(boxes, scores, settings.nms.iou_threshold))
            all_boxes.append(boxes)
        scores, index = top_scores(torch.cat(all_scores, 1), settings.max_per_img)
        return take(torch.cat(all_boxes, 1), index), scores

    def detect(
        self, maps: Sequence[Tensor], boxes: Tensor, objectness: Tensor, size: ImageSize
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores [B, M], boxes [B, M, 4] and labels [B, M] from proposals [B, P, 4].

        A cascade moves the proposals stage by stage, and averages the logits of its stages.
        """
        logits = torch.zeros(())
        for stage, (extractor, head) in enumerate(self.box_stages):
            classes, deltas = head(pool_boxes(extractor, maps, boxes))
            logits = logits + classes.unflatten(0, boxes.shape[:2])  # [B, P, K + 1]
            deltas = deltas.unflatten(0, boxes.shape[:2])
            deltas = deltas.unflatten(2, (-1, 4))  # [B, P, K or 1, 4]
            moved = decode_boxes(head.bbox_coder, boxes[:, :, None], deltas)
            moved = clip_boxes(moved, *size)
            if stage + 1 < len(self.box_stages):
                boxes = moved.squeeze(2)
        scores = (logits / len(self.box_stages)).softmax(-1)
        scores = scores[..., :-1].transpose(1, 2)  # [B, K, P]
        counts = (scores > self.settings.score_thr) & (objectness > 0)[:, None]
        scores = torch.where(counts, scores, 0.0)
        moved = moved.transpose(1, 2)
        moved = moved.expand(-1, self.num_classes, -1, -1)  # [B, K, P, 4]
        threshold = self.settings.nms.iou_threshold
        kept = suppress(moved.flatten(0, 1), scores.flatten(0, 1), threshold)
        kept = kept.view_as(scores).flatten(1)  # [B, K P]
        scores, index = top_scores(kept, self.settings.max_per_img)
        boxes = take(moved.flatten(1, 2), index)
        return scores, boxes, index // moved.shape[2]

    def masks(
        self, maps: Sequence[Tensor], boxes: Tensor, labels: Tensor, frame: Frame
    ) -> Tensor:
        """Masks [B, M, H, W] of detections; a cascade takes the mean of its stages."""
        total = torch.zeros(())
        for extractor, head in self.mask_stages:
            logits = head(pool_boxes(extractor, maps, boxes))  # [B M, K or 1, h, w]
            if not head.class_agnostic:
                label = labels.flatten()[:, None, None, None]
                logits = logits.gather(1, label.expand(-1, -1, *logits.shape[2:]))
            total = total + logits[:, 0].sigmoid()
        ends = frame.points(boxes).flatten(0, 1)
        mean = total / len(self.mask_stages)
        pasted = paste_masks(mean, ends, frame.input)  # [B M, H, W]
        return (pasted >= self.settings.mask_thr_binary).unflatten(0, boxes.shape[:2])


def stages(extractors: Any, heads: nn.Module) -> list[tuple[Any, Any]]:
    """The extractor and the head of each stage: of a cascade several, else one."""
    if isinstance(heads, nn.ModuleList):
        return list(zip(extractors, heads, strict=True))
    return [(extractors, heads)]


def without_small(scores: Tensor, boxes: Tensor, settings: dict) -> Tensor:
    """Scores, 0 where a side of the box is not above ``min_bbox_size`` of the settings."""
    sides = boxes[..., 2:] - boxes[..., :2]
    is_large = (sides > settings.get('min_bbox_size', -1)).all(-1)
    return torch.where(is_large, scores, 0.0)


def pool_boxes(
    extractor: SingleRoIExtractor, maps: Sequence[Tensor], boxes: Tensor
) -> Tensor:
    """Features [B P, C, S, S] of boxes [B, P, 4], each from the map of its size.

    Every map pools all boxes; boxes of other maps have no area there, which costs nothing.
    """
    image = torch.arange(boxes.shape[0], device=boxes.device).to(boxes)[:, None, None]
    rois = torch.cat([image.expand(-1, boxes.shape[1], -1), boxes], -1).flatten(0, 1)
    sides = rois[:, 3:] - rois[:, 1:3]
    # Without area the operator is 0 in one program, NaN in another.
    has_area = (sides > 0).all(-1)
    share = sides.prod(-1).sqrt() / extractor.finest_scale
    levels = torch.floor(torch.log2(share + 1e-6)).clamp(0, extractor.num_inputs - 1)
    pooled = torch.zeros(())
    for level, layer in enumerate(extractor.roi_layers):
        here = ((levels == level) & has_area)[:, None]
        regions = torch.cat([rois[:, :1], rois[:, 1:] * here], 1)
        size = layer.output_size[0]
        scale = layer.spatial_scale
        part = roi_align(maps[level], regions, size, scale, layer.sampling_ratio)
        pooled = torch.where(here[:, :, None, None], part, pooled)
    return pooled


def paste_masks(masks: Tensor, boxes: Tensor, size: ImageSize) -> Tensor:
    """Masks [N, h, w], stretched to their boxes [N, 4] in images of H x W: [N, H, W].

    Bilinear, 0 outside, as mmdet's ``_do_paste_mask``; as a product with weights of rows and one
    with weights of columns.
    """
    rows = paste_weights(boxes[:, 1::2], size[0], masks.shape[1])  # [N, H, h]
    columns = paste_weights(boxes[:, 0::2], size[1], masks.shape[2])  # [N, W, w]
    return rows @ masks @ columns.transpose(1, 2)


def paste_weights(ends: Tensor, side: int, places: int) -> Tensor:
    """Weights [N, side, places] of a mask's places in each pixel, from its two ends [N, 2]."""
    pixels = torch.arange(side, device=ends.device) + 0.5
    start = ends[:, :1]
    length = (ends[:, 1:] - ends[:, :1]).clamp(min=1e-6)
    position = (pixels - start) / length * places - 0.5  # [N, side], in places
    index = torch.arange(places, device=ends.device)
    return (1 - (position[..., None] - index).abs()).clamp(min=0)


def check_roi_head(head: Any) -> None:
    """Raise ValueError for a head that differs from the heads of mmdet's R-CNNs."""
    if type(head) not in (StandardRoIHead, CascadeRoIHead) or head.with_shared_head:
        raise ValueError(
            'roi_head must be StandardRoIHead or CascadeRoIHead without a shared head, it is '
            f'{type(head).__name__}'
        )
    check_nms(head.test_cfg.nms)
    is_cascade = isinstance(head, CascadeRoIHead)
    for _, part in stages(head.bbox_roi_extractor, head.bbox_head):
        check_coder(part.bbox_coder)
        is_usual = isinstance(part, ConvFCBBoxHead) and part.with_reg
        if not is_usual or part.custom_cls_channels:
            raise ValueError(
                f'bbox_head must be a ConvFCBBoxHead with softmax scores, got {part}'
            )
        if is_cascade and not part.reg_class_agnostic:
            raise ValueError('bbox_head of a cascade must have reg_class_agnostic=True')
    if head.with_mask:
        for _, part in stages(head.mask_roi_extractor, head.mask_head):
            if type(part) is not FCNMaskHead:
                raise ValueError(
                    f'mask_head must be FCNMaskHead, it is {type(part).__name__}'
                )
    for part in head.modules():
        if isinstance(part, SingleRoIExtractor):
            check_extractor(part)


def check_extractor(extractor: SingleRoIExtractor) -> None:
    """Raise ValueError for other pooling than mmcv's ``RoIAlign``, aligned, of squares."""
    for layer in extractor.roi_layers:
        if type(layer) is not RoIAlign or layer.pool_mode != 'avg' or not layer.aligned:
            raise ValueError(
                f'roi_layer must be RoIAlign, aligned, of the mean; got {layer}'
            )
        if len({*layer.output_size}) > 1:
            raise ValueError(f'roi_layer must have a square output_size, got {layer}')


class RetinaNetGraph(Graph):
    """mmdet's ``RetinaNet``, for ONNX alone.

    uint8 images to scores [B, M], boxes [B, M, 4] and labels [B, M]. Boxes are (left, top, right,
    bottom) in pixels of the input. As in mmdet, at most ``test_cfg.nms_pre`` candidates of a map
    above ``test_cfg.score_thr`` are suppressed by class; M is ``test_cfg.max_per_img``. Where an
    image has fewer detections, the scores of the last are 0. All images of a batch fill their
    input.
    """

    task = 'detection'
    outputs = ('scores', 'boxes', 'labels')
    formats = ('onnx',)
    num_classes: int

    def __init__(self, model: RetinaNet, dtype: torch.dtype) -> None:
        check_methods(model, RetinaNet, 'extract_feat', 'predict')
        super().__init__(model, dtype)
        self.head = self.model.bbox_head
        if type(self.head) is not RetinaHead:
            raise ValueError(
                f'bbox_head must be RetinaHead, it is {type(self.head).__name__}'
            )
        self.num_classes = self.head.num_classes
        self.settings = self.head.test_cfg
        self.candidates = AnchorCandidates(
            self.head, self.settings.get('nms_pre', -1), self.settings.score_thr
        )
        self.cast_backbone()
        self.generic = self.candidates.enough(self.generic)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        maps = self.head(self.model.extract_feat(x))
        pairs = enumerate(zip(*maps, strict=True))
        levels = [self.candidates(level, *pair) for level, pair in pairs]
        parts = zip(*levels, strict=True)
        scores, boxes, labels = [torch.cat(part, 1) for part in parts]
        boxes = clip_boxes(boxes, *frame.size)  # [B, N, 4]
        scores = without_small(scores, boxes, self.settings)
        # As in mmdet, each class has a place of its own, where boxes of no other class overlap.
        apart = boxes + labels[..., None] * (boxes.amax((1, 2), keepdim=True) + 1)
        kept = suppress(apart, scores, self.settings.nms.iou_threshold)
        scores, index = top_scores(kept, self.settings.max_per_img)
        return scores, frame.points(take(boxes, index)), labels.gather(1, index)


GRAPHS = {TwoStageDetector: RCNNGraph, RetinaNet: RetinaNetGraph}
