"""RoIAlign and non-maximum suppression as operators that ``torch.export`` keeps whole.

ONNX has both (RoiAlign, NonMaxSuppression), plain torch has neither. ``translations`` writes them;
a .pt2 file would need this package to run. Checked in tests/export/test_export_rcnn.py against
mmcv.

Letters: R regions of all images, C channels, S x S places of a region, N boxes, G groups of boxes.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op('rope_dense::roi_align', mutates_args=())
def roi_align(maps: Tensor, rois: Tensor, size: int, scale: float, samples: int) -> Tensor:
    """mmcv's ``RoIAlign`` (mean, aligned): maps [B, C, H, W] and rois [R, 5] to [R, C, S, S].

    Args:
        rois: index of the image, left, top, right, bottom in pixels of the image.
        size: S.
        scale: places of the map to a pixel.
        samples: in a row of a place; 0 for as many as the map has there.
    """
    from mmcv.ops import roi_align as align

    return align(maps, rois, size, scale, samples, 'avg', True)


@roi_align.register_fake
def _(maps: Tensor, rois: Tensor, size: int, scale: float, samples: int) -> Tensor:
    return maps.new_empty(rois.shape[0], maps.shape[1], size, size)


@torch.library.custom_op('rope_dense::suppress', mutates_args=())
def suppress(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Scores [G, N], 0 where a better box [G, N, 4] of the group overlaps by more than a threshold.

    Boxes whose score is 0 suppress nothing.
    """
    from mmcv.ops import nms

    kept = torch.zeros_like(scores)
    for group, values in enumerate(scores):
        index = values.nonzero()[:, 0]
        if len(index):
            index = index[nms(boxes[group, index], values[index], threshold)[1]]
            kept[group, index] = values[index]
    return kept


@suppress.register_fake
def _(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    return torch.empty_like(scores)
