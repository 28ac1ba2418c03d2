"""RoIAlign and non-maximum suppression as operators that ``torch.export`` keeps whole.

ONNX has both (RoiAlign, NonMaxSuppression), plain torch has neither. ``TRANSLATIONS`` writes them;
a .pt2 file would need this package to run. Checked in tests/export/test_export_rcnn.py against
mmcv.

Letters: R regions of all images, C channels, S x S places of a region, N boxes, G groups of boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def translations() -> dict[Callable, Callable]:
    """From these operators to functions that write them to an ONNX graph."""
    from onnxscript import opset18

    op: Any = opset18  # whose types do not know that constants become tensors

    def write_roi_align(maps: Any, rois: Any, size: int, scale: float, samples: int) -> Any:
        image = op.Cast(op.Squeeze(op.Slice(rois, [0], [1], [1]), [1]), to=7)  # int64
        return op.RoiAlign(
            maps,
            op.Slice(rois, [1], [5], [1]),
            image,
            coordinate_transformation_mode='half_pixel',
            mode='avg',
            output_height=size,
            output_width=size,
            sampling_ratio=samples,
            spatial_scale=scale,
        )

    def write_suppress(boxes: Any, scores: Any, threshold: float) -> Any:
        number = op.Slice(op.Shape(scores), [1], [2])
        chosen = op.NonMaxSuppression(
            boxes,
            op.Unsqueeze(scores, [1]),  # one class for each group
            number,
            op.Constant(value_floats=[threshold]),
            op.Constant(value_floats=[0.0]),
        )  # [kept, 3]: group, class, box
        index = op.Gather(chosen, [0, 2], axis=1)
        none = op.Expand(op.Constant(value_float=0.0), op.Shape(scores))
        return op.ScatterND(none, index, op.GatherND(scores, index))

    return {
        torch.ops.rope_dense.roi_align.default: write_roi_align,
        torch.ops.rope_dense.suppress.default: write_suppress,
    }
