"""Random crops that keep objects."""

import random
from collections.abc import Sequence

import numpy as np
from mmcv.transforms import BaseTransform
from mmdet.structures.bbox import bbox_overlaps
from mmengine.registry import TRANSFORMS
from torch import Tensor

from ...utils.validation import refuse

Crop = tuple[int, int, int, int]  # left, top, right, bottom in pixels
SCALES = (0.3, 1.0)  # each side of a crop, as a share of the image's side
ASPECT_RATIOS = (0.5, 2.0)  # width over height of a crop
TRIALS = 40  # crops; if none fits, another threshold is drawn


@TRANSFORMS.register_module()
class RandomIoUCrop(BaseTransform):
    """A crop that overlaps one of its objects by at least a drawn IoU, as in SSD.

    As torchvision's class of that name: objects belong to a crop if their centres lie in it, and
    the best IoU of these has to reach the threshold; with a threshold of 1 or more the image stays
    whole. mmdet's ``MinIoURandomCrop`` asks it of the worst IoU of all objects instead. Ignored
    objects choose no crop, and are kept where any part of them is in it.

    Args:
        min_ious: the thresholds that one is drawn from, one of 1 or more, so that drawing ends.
    """

    def __init__(
        self,
        prob: float = 1.0,
        min_ious: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    ) -> None:
        if max(min_ious, default=0) < 1:
            refuse('min_ious', min_ious, 'IoUs, and 1.0 for the whole image')
        self.prob, self.min_ious = prob, tuple(min_ious)

    def transform(self, results: dict) -> dict:
        if random.random() >= self.prob:
            return results
        height, width = results['img'].shape[:2]
        boxes = results['gt_bboxes'].tensor
        if 'gt_ignore_flags' in results:
            boxes = boxes[results['gt_ignore_flags'] == 0]
        while True:
            least = random.choice(self.min_ious)
            if least >= 1:
                return results
            for _ in range(TRIALS):
                crop = self.draw(height, width)
                if crop is None:
                    continue
                inside = boxes[centres_within(boxes, crop)]
                ious = bbox_overlaps(inside, inside.new_tensor([crop]))
                if len(inside) and ious.max() >= least:
                    return crop_objects(results, crop)

    def draw(self, height: int, width: int) -> Crop | None:
        """Draw a crop; None if its shape is not allowed."""
        new_width = int(width * random.uniform(*SCALES))
        new_height = int(height * random.uniform(*SCALES))
        least, most = ASPECT_RATIOS
        if not (new_width and new_height and least <= new_width / new_height <= most):
            return None
        left = int((width - new_width) * random.random())
        top = int((height - new_height) * random.random())
        return left, top, left + new_width, top + new_height


def centres_within(boxes: Tensor, crop: Crop) -> Tensor:
    """True for boxes [N, 4] whose centres lie within a crop: [N]."""
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    left_top, right_bottom = centres.new_tensor(crop).split(2)
    is_inside = (centres > left_top) & (centres < right_bottom)
    return is_inside.all(1)


def crop_objects(results: dict, crop: Crop) -> dict:
    """Crop the image, its objects and their masks.

    Objects with centres outside are left out, ignored ones that are wholly outside.
    """
    left, top, right, bottom = crop
    image = results['img'][top:bottom, left:right]
    results['img'] = image
    results['img_shape'] = image.shape[:2]
    corners = results['gt_bboxes'].tensor
    keep = centres_within(corners, crop).numpy()
    if 'gt_ignore_flags' in results:
        overlaps = bbox_overlaps(corners, corners.new_tensor([crop]))[:, 0] > 0
        keep |= overlaps.numpy() & (results['gt_ignore_flags'] > 0)
    boxes = results['gt_bboxes'][keep]
    boxes.translate_([-left, -top])
    boxes.clip_(image.shape[:2])
    results['gt_bboxes'] = boxes
    for key in ('gt_bboxes_labels', 'gt_ignore_flags'):
        if key in results:
            results[key] = results[key][keep]
    if 'gt_masks' in results:
        masks = results['gt_masks'][keep.nonzero()[0]]
        results['gt_masks'] = masks.crop(np.array(crop))
    return results
