"""RetinaNet: scores and boxes of anchors, and non-maximum suppression.

Letters: B images, K candidates of all maps, M detections of an image.
"""

import torch
from mmdet.models.dense_heads import RetinaHead
from mmdet.models.detectors import RetinaNet
from torch import Tensor

from ..models.deim.predictions import take
from .anchors import AnchorCandidates, clip_boxes, top_scores
from .client import Frame
from .graphs import Graph, Preprocess, check_methods
from .rois import suppress


class RetinaNetGraph(Graph):
    """mmdet's ``RetinaNet``, for ONNX alone.

    uint8 images to scores [B, M], boxes [B, M, 4] and labels [B, M]. Boxes are (left, top, right,
    bottom) in pixels of the input. As in mmdet, at most ``test_cfg.nms_pre`` candidates of a map
    above ``test_cfg.score_thr`` are suppressed by class; M is ``test_cfg.max_per_img``. Where an
    image has fewer detections, the scores of the last are 0. All images of a batch fill their
    input.
    """

    task, outputs = 'detection', ('scores', 'boxes', 'labels')
    formats = ('onnx',)
    num_classes: int

    def __init__(self, model: RetinaNet, dtype: torch.dtype) -> None:
        check_methods(model, RetinaNet, 'extract_feat', 'predict')
        super().__init__(model, dtype)
        self.head = self.model.bbox_head
        if type(self.head) is not RetinaHead:
            raise ValueError(f'bbox_head must be RetinaHead, it is {type(self.head).__name__}')
        self.num_classes, self.settings = self.head.num_classes, self.head.test_cfg
        self.candidates = AnchorCandidates(
            self.head, self.settings.get('nms_pre', -1), self.settings.score_thr
        )
        self.preprocess = Preprocess(model.data_preprocessor)
        self.cast_backbone()
        height, width = (max(side, 2 * self.candidates.coarsest) for side in self.generic)
        self.generic = height, width

    def results(self, x: Tensor, frame: Frame) -> tuple[Tensor, ...]:
        maps = self.head(self.model.extract_feat(x))
        levels = [
            self.candidates(level, *pair) for level, pair in enumerate(zip(*maps, strict=True))
        ]
        scores, boxes, labels = (torch.cat(parts, 1) for parts in zip(*levels, strict=True))
        boxes = clip_boxes(boxes, *frame.size)  # [B, K, 4]
        sides = boxes[..., 2:] - boxes[..., :2]
        enough = (sides > self.settings.get('min_bbox_size', -1)).all(-1)
        scores = torch.where(enough, scores, 0.0)
        # As in mmdet, each class has a place of its own, where boxes of no other class overlap.
        apart = boxes + labels[..., None] * (boxes.amax((1, 2), keepdim=True) + 1)
        kept = suppress(apart, scores, self.settings.nms.iou_threshold)
        scores, index = top_scores(kept, self.settings.max_per_img)
        return scores, frame.points(take(boxes, index)), labels.gather(1, index)


GRAPHS = {RetinaNet: RetinaNetGraph}
