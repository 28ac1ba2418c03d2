"""Anchors and proposals in ignored objects, which are no background."""

from typing import Any

from mmdet.models.task_modules.assigners import AssignResult, MaxIoUAssigner
from mmengine.registry import TASK_UTILS
from mmengine.structures import InstanceData


@TASK_UTILS.register_module()
class IgnoringAssigner(MaxIoUAssigner):
    """mmdet's MaxIoUAssigner with ``ignore_iof_thr`` for background alone.

    A box of which more than that share is in an ignored object belongs to its object, if it has
    one, and else to nothing. mmdet's takes such boxes from the objects, too, and makes them
    background in images without objects.
    """

    def assign(
        self,
        pred_instances: InstanceData,
        gt_instances: InstanceData,
        gt_instances_ignore: InstanceData | None = None,
        **more: Any,
    ) -> AssignResult:
        found = super().assign(pred_instances, gt_instances, **more)
        boxes = pred_instances.priors
        if gt_instances_ignore is not None and len(gt_instances_ignore) and len(boxes):
            ignored = gt_instances_ignore.bboxes
            share = self.iou_calculator(boxes, ignored, mode='iof').amax(1)
            is_background = found.gt_inds == 0
            found.gt_inds[is_background & (share > self.ignore_iof_thr)] = -1
        return found
