"""DOTA's metric for images that are not labelled for all classes."""

from collections.abc import Sequence

from mmcv.ops import box_iou_rotated
from mmengine.registry import METRICS
from mmrotate.evaluation.metrics import DOTAMetric
from torch import Tensor

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
        counted = []
        for sample in data_samples:
            found = sample['pred_instances']
            kept = (
                counted_predictions(sample) if sample['gt_instances'] else slice(None)
            )
            found = {name: found[name][kept] for name in ('bboxes', 'scores', 'labels')}
            counted.append(dict(sample, pred_instances=found))
        super().process(data_batch, counted)


def counted_predictions(sample: dict) -> Tensor:
    """Which predictions [N] of a sample count."""
    found = sample['pred_instances']
    truth = sample['gt_instances']
    ignored = sample['ignored_instances']
    height, width = sample['ori_shape'][:2]
    sides = ignored['bboxes'][:, 2:4].sort(1).values
    least = sides.new_tensor(sorted([height, width])) - SLACK
    unlabelled = ignored['labels'][(sides >= least).all(1)]
    is_open = (found['labels'][:, None] == unlabelled.to(found['labels'])).any(1)
    overlaps = box_iou_rotated(found['bboxes'].float(), truth['bboxes'].float())
    is_same = found['labels'][:, None] == truth['labels'].to(found['labels'])
    has_found = ((overlaps >= LEAST_IOU) & is_same).any(1)
    return has_found | ~is_open
