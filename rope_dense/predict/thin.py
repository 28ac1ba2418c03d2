"""Pictures so long and thin that a test pipeline leaves less than two patches of one side.

They are predicted with repeated pixels at the bottom or the right, which are cut off the results.
"""

import math
from collections.abc import Iterable, Mapping

import cv2
import numpy as np
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from ..utils.config_parts import size_steps
from ..utils.sizes import ImageSize

MOST = 8.0  # times as long as wide: with DINO's queries for less, there are too few tokens
MOST_PIXELS = 10**8  # of a padded image
UNBOUNDED = 16.0  # likewise where the shorter side has one size, and memory grows with the longer


def max_aspect_ratio(pipeline: Iterable[Mapping], patch: int) -> float:
    """The largest ratio of sides for a test pipeline and a patch in pixels, or infinity."""
    for _, step, _ in size_steps([*pipeline]):
        name, scale = str(step.get('type')).rpartition('.')[2], step['scale']
        if name == 'Resize' and not step.get('keep_ratio'):
            continue
        sides = sorted(scale) if isinstance(scale, (list, tuple)) else [scale, scale]
        if name == 'ResizeShortestEdge':
            sides = [sides[0], step.get('max_size') or math.inf]
        if name in ('Resize', 'ResizeShortestEdge'):
            bounded = 0 < sides[1] <= UNBOUNDED * sides[0]
            return min(MOST, max(1.0, sides[1] / (2 * patch))) if bounded else UNBOUNDED
    return math.inf


def pad_to_ratio(image: np.ndarray, ratio: float) -> np.ndarray:
    """An image [H, W, 3], or one whose last row or column is repeated until the ratio is kept.

    Raises:
        ValueError: it would need too much memory.
    """
    height, width = image.shape[:2]
    least = math.ceil(max(height, width) / ratio)
    below, right = max(0, least - height), max(0, least - width)
    if not below and not right:
        return image
    if (pixels := (height + below) * (width + right)) > MOST_PIXELS:
        raise ValueError(
            f'{width} x {height} pixels are too thin: padded, they would be {pixels / 1e6:.0f} '
            'megapixels; cut the image into parts'
        )
    return cv2.copyMakeBorder(image, 0, below, 0, right, cv2.BORDER_REPLICATE)


def crop_sample(sample: BaseDataElement, size: ImageSize, whole: ImageSize) -> None:
    """Cut a prediction to ``size`` at the top left of its image of the size ``whole``, in place."""
    sample.set_metainfo(dict(ori_shape=size))
    for name, value in sample.items():
        if isinstance(value, PixelData):  # of pixels, or of patches
            sides = zip(value.shape, size, whole, strict=True)
            rows, columns = (math.ceil(given * part / all_) for given, part, all_ in sides)
            setattr(sample, name, value[:rows, :columns])
        elif name == 'pred_instances':
            sample.pred_instances = crop_instances(value, size)
        elif isinstance(value, BaseDataElement) and not isinstance(value, InstanceData):
            crop_sample(value, size, whole)  # of one of several tasks


def crop_instances(instances: InstanceData, size: ImageSize) -> InstanceData:
    """The objects in the top left of an image, without what is outside of it."""
    height, width = size
    boxes = getattr(instances.bboxes, 'tensor', instances.bboxes)
    if boxes.shape[1] == 4:
        instances.bboxes = torch.minimum(boxes, boxes.new_tensor([width, height, width, height]))
        inside = (instances.bboxes[:, 2:] > instances.bboxes[:, :2]).all(1)
    else:  # rotated, with the centre first
        inside = (boxes[:, :2] < boxes.new_tensor([width, height])).all(1)
    if 'masks' in instances:
        instances.masks = instances.masks[:, :height, :width]
        inside = instances.masks.flatten(1).any(1)
    return instances[inside]
