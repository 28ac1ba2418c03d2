"""DOTA's metric for images that are not labelled for all classes."""

from collections.abc import Sequence

import torch
from mmcv.ops import box_iou_rotated
from mmengine.registry import METRICS
from mmrotate.evaluation.metrics import DOTAMetric

from .partial_labels import SLACK

LEAST_IOU = 0.5  # of a prediction that has found its object


@METRICS.register_module()
class PartialDOTAMetric(DOTAMetric):
    """mmrotate's metric; predictions of a class count only on images that are labelled for it.

    Elsewhere, where an object as large as the image is ignored, those alone count that have found
    one of its objects with an IoU of 0.5.
    """

    def process(self, data_batch: Sequence[dict], data_samples: Sequence[dict]) -> None:
        """Add a batch of data samples, without the predictions that do not count."""
        super().process(data_batch, [*map(counted, data_samples)])


def counted(sample: dict) -> dict:
    """A sample with the predictions that count."""
    found = sample['pred_instances']
    truth = sample['gt_instances']
    if not truth:  # a test without labels
        return sample
    ignored = sample['ignored_instances']
    sides = ignored['bboxes'][:, 2:4].sort(1).values
    least = sides.new_tensor(sorted(sample['ori_shape'][:2])) - SLACK
    unlabelled = ignored['labels'][(sides >= least).all(1)]
    labels = found['labels']
    overlaps = box_iou_rotated(found['bboxes'].float(), truth['bboxes'].float())
    is_same = labels[:, None] == truth['labels'].to(labels)
    has_found = ((overlaps >= LEAST_IOU) & is_same).any(1)
    kept = has_found | ~torch.isin(labels, unlabelled.to(labels))
    return dict(sample, pred_instances={name: x[kept] for name, x in found.items()})
