"""Horizontal boxes scored by rotated IoU, to measure what an angle is worth.

A config asks for it with ``custom_imports``, after ``rope_dense.models.mmrotate``.
"""

from collections.abc import Sequence

import torch
from mmengine.registry import METRICS
from mmrotate.evaluation import DOTAMetric
from mmrotate.structures.bbox import hbox2rbox


@METRICS.register_module()
class HorizontalDOTAMetric(DOTAMetric):
    """``DOTAMetric`` of detectors that predict horizontal boxes: oriented ones at angle 0."""

    def process(self, data_batch: Sequence[dict], data_samples: Sequence[dict]) -> None:
        """See ``DOTAMetric``."""
        for sample in data_samples:
            found = sample['pred_instances']
            found['bboxes'] = hbox2rbox(torch.as_tensor(found['bboxes']))
        super().process(data_batch, data_samples)
