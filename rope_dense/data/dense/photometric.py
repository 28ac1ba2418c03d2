"""Random colours."""

import random
from collections.abc import Sequence

import cv2
import mmcv
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS


@TRANSFORMS.register_module()
class PhotometricJitter(BaseTransform):
    """Brightness, contrast, saturation, hue and the order of channels, each with a probability.

    As torchvision's ``RandomPhotometricDistort``: brightness is a factor, contrast blends with the
    mean grey, saturation with the grey image; contrast comes before saturation and hue, or after
    them, with equal chances. mmdet's ``PhotoMetricDistortion`` adds to brightness and multiplies
    for contrast and saturation instead. The colours are changed by mmcv's functions, which follow
    Pillow's.

    Args:
        brightness, contrast, saturation: ranges of the factors.
        hue: range of the shift, as a share of the circle of hues.
        prob: of each change.
    """

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5),
        hue: Sequence[float] = (-0.05, 0.05),
        prob: float = 0.5,
    ) -> None:
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation
        self.hue = hue
        self.prob = prob

    def transform(self, results: dict) -> dict:
        image = results['img']  # [H, W, 3] uint8, BGR
        steps = [
            (mmcv.adjust_brightness, self.brightness),
            (mmcv.adjust_color, self.saturation),
            (shift_hue, self.hue),
        ]
        contrast = (mmcv.adjust_contrast, self.contrast)
        steps.insert(1 if random.random() < 0.5 else 3, contrast)
        for adjust, values in steps:
            if self.happens():
                image = adjust(image, random.uniform(*values))
        if self.happens():
            image = image[..., random.sample(range(3), 3)]
        results['img'] = np.ascontiguousarray(image)
        return results

    def happens(self) -> bool:
        """Draw whether a change is made."""
        return random.random() < self.prob


def shift_hue(image: np.ndarray, share: float) -> np.ndarray:
    """Rotate the hues of an image [H, W, 3], uint8 and BGR, by a share of their circle.

    As ``mmcv.adjust_hue``, which in mmcv 2.1 fails for negative shares with NumPy 2.
    """
    hsv: np.ndarray = cv2.cvtColor(image, cv2.COLOR_BGR2HSV_FULL)
    hsv[..., 0] += np.uint8(int(share * 255) % 256)  # wraps around
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR_FULL)
