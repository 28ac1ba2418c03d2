"""Pixels without data: no predictions there."""

from __future__ import annotations

import numpy as np
import torch
from mmengine.structures import BaseDataElement

from ..mask_colours import ignored_label


def no_data(image: np.ndarray) -> np.ndarray | None:
    """The pixels of an image [H, W, n] without any channel (NaN): bool [H, W], or None for none."""
    if image.dtype.kind != 'f':
        return None
    missing = np.isnan(image[..., 0])
    for channel in range(1, image.shape[2] if missing.any() else 1):
        missing &= np.isnan(image[..., channel])
    return missing if missing.any() else None


def drop_no_data(sample: BaseDataElement, image: np.ndarray) -> None:
    """Drop predictions for pixels without data in an image [H, W, n], in place.

    Labels are ``ignored_label`` there, and depth is 0 (unknown). Of objects the centre has to have
    data; of those with masks half of the pixels.
    """
    if (missing := no_data(image)) is None:
        return
    if 'pred_sem_seg' in sample:
        labels = sample.pred_sem_seg.data  # [1, H, W]
        number = len(sample.seg_logits.data) if 'seg_logits' in sample else 1
        labels[:, torch.from_numpy(missing).to(labels.device)] = ignored_label(number)
    if 'pred_depth_map' in sample:
        depth = sample.pred_depth_map.data
        depth[:, torch.from_numpy(missing).to(depth.device)] = 0
    if 'pred_instances' not in sample:
        return
    found = sample.pred_instances
    if 'masks' in found:
        masks = torch.as_tensor(found.masks).cpu().numpy().astype(bool)  # [N, H, W]
        has_data = [2 * (mask & missing).sum() <= mask.sum() for mask in masks]
    else:
        boxes = getattr(found.bboxes, 'tensor', found.bboxes).cpu().numpy()
        is_rotated = boxes.shape[1] == 5  # x, y, width, height, angle
        centres = boxes[:, :2] if is_rotated else (boxes[:, :2] + boxes[:, 2:]) / 2
        last = [missing.shape[1] - 1, missing.shape[0] - 1]
        columns, rows = centres.astype(int).clip(0, last).T
        has_data = ~missing[rows, columns]
    sample.pred_instances = found[torch.tensor(has_data, dtype=torch.bool)]
