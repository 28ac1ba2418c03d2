"""Mask R-CNN for images that are not labelled for all classes."""

from typing import Any

import torch
import torch.nn.functional as F
from mmdet.models.detectors import MaskRCNN
from mmdet.models.roi_heads.bbox_heads import Shared4Conv1FCBBoxHead
from mmdet.structures import DetDataSample, SampleList
from mmdet.structures.bbox import get_box_tensor
from mmengine.registry import MODELS
from torch import Tensor

SLACK = 1.0  # pixels between the sides of an image and of a box that covers it


@MODELS.register_module()
class PartialMaskRCNN(MaskRCNN):
    """mmdet's MaskRCNN; a class that is ignored in all of an image is no background there.

    Proposals without an object are learned as background all the same: they have no class. Only in
    an image where all classes are ignored they are not. Its ``bbox_head`` is a
    ``PartialBBoxHead``.
    """

    def loss(self, batch_inputs: Tensor, batch_data_samples: SampleList) -> dict:
        """mmdet's losses."""
        head = self.roi_head.bbox_head
        number = head.num_classes
        unlabelled = [take_unlabelled(x, number) for x in batch_data_samples]
        head.unlabelled = torch.stack(unlabelled)
        return super().loss(batch_inputs, batch_data_samples)


@MODELS.register_module()
class PartialBBoxHead(Shared4Conv1FCBBoxHead):
    """mmdet's head; background says nothing of the classes that its image is not labelled for.

    Attributes:
        unlabelled: these classes of each image, bool [B, K], set before each loss.
    """

    unlabelled: Tensor

    def loss(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor,
        rois: Tensor,
        labels: Tensor,
        *targets: Any,
        **options: Any,
    ) -> dict:
        """mmdet's losses, of the background without the logits of such classes."""
        is_background = labels == self.num_classes
        is_hidden = self.unlabelled[rois[:, 0].long()] & is_background[:, None]
        cls_score = cls_score.masked_fill(F.pad(is_hidden, (0, 1)), -torch.inf)
        return super().loss(cls_score, bbox_pred, rois, labels, *targets, **options)


def take_unlabelled(sample: DetDataSample, num_classes: int) -> Tensor:
    """True for the classes [K] that a sample ignores in all of its image.

    They are left out of what it ignores, unless they are all classes.
    """
    ignored = sample.ignored_instances
    boxes = get_box_tensor(ignored.bboxes)
    height, width = sample.img_shape
    far = boxes.new_tensor([width, height]) - SLACK
    is_whole = (boxes[:, :2] <= SLACK).all(1) & (boxes[:, 2:] >= far).all(1)
    classes = boxes.new_zeros(num_classes, dtype=torch.bool)
    classes[ignored.labels[is_whole]] = True
    if not classes.all():
        sample.ignored_instances = ignored[~is_whole]
    return classes
