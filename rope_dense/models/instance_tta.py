"""Test-time augmentation for boxes with masks."""

import torch
from mmcv.ops import batched_nms
from mmdet.models.test_time_augs import DetTTAModel
from mmdet.structures import DetDataSample
from mmengine.registry import MODELS
from mmengine.structures import InstanceData

FLIPPED_AXES = {'horizontal': (2,), 'vertical': (1,), 'diagonal': (1, 2)}


@MODELS.register_module()
class InstanceTTAModel(DetTTAModel):
    """Merges boxes and masks of all views of an image by non-maximum suppression of the boxes.

    Each object that is kept has the mask of its own view. mmdet's ``DetTTAModel`` merges boxes in
    this way and refuses masks. Checked on objects drawn by hand in
    tests/models/test_instance_tta.py.
    """

    def merge_preds(
        self, data_samples_list: list[list[DetDataSample]]
    ) -> list[DetDataSample]:
        """Per image, its views -> one sample with at most ``tta_cfg.max_per_img`` objects."""
        return list(map(self._merge_views, data_samples_list))

    def _merge_views(self, views: list[DetDataSample]) -> DetDataSample:
        found = [view.pred_instances for view in views]
        masks = []  # [M, H, W] each, on the image as it is stored
        for view in views:
            some = view.pred_instances.masks
            if view.flip:
                some = some.flip(FLIPPED_AXES[view.flip_direction])
            masks.append(some)
        boxes, scores = self.merge_aug_bboxes(
            [instances.bboxes for instances in found],
            [instances.scores for instances in found],
            [view.metainfo for view in views],
        )
        objects = InstanceData(
            bboxes=boxes,
            scores=scores,
            labels=torch.cat([instances.labels for instances in found]),
            masks=torch.cat(masks),
        )
        if len(objects):  # else mmcv's function fails
            kept = batched_nms(boxes, scores, objects.labels, self.tta_cfg['nms'])[1]
            objects = objects[kept[: self.tta_cfg['max_per_img']]]
        views[0].pred_instances = objects
        return views[0]
