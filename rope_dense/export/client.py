"""Images of any size in the file: to the size of the test pipeline, and results back.

Traced, the size of the test pipeline would be a formula in all sizes after it. So the program has a
second input, ``resized``, with a size of its own; in the file it is computed from the first.
"""

from fractions import Fraction
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.maps import size_of
from ..utils.sizes import ImageSize, Size, larger


class Resize(NamedTuple):
    """Images at the size that a test pipeline gives them, as by mmcv's ``Resize``.

    Bilinear as in OpenCV or, with ``antialias``, in Pillow, within one grey level. Checked in
    tests/export/test_export_client.py.

    Attributes:
        scale: (width, height) in pixels.
        keep_ratio: the scale bounds both sides.
        shortest: side of an image after it.
        antialias: a pixel is the weighted mean of all that it covers.
        ratio: of the sides at most; the last row or column of longer images is repeated.
    """

    scale: tuple[int, int]
    keep_ratio: bool
    shortest: int = 1
    antialias: bool = False
    ratio: float | None = None

    def padded(self, size: ImageSize) -> ImageSize:
        """(height, width) with the repeated rows or columns."""
        if self.ratio is None:
            return size
        height, width = size
        times, parts = self.whole_ratio()
        least = (larger(height, width) * parts + times - 1) // times
        return larger(height, least), larger(width, least)

    def whole_ratio(self) -> tuple[int, int]:
        """``ratio`` in whole numbers, which programs do not round."""
        share = Fraction(self.ratio or 1).limit_denominator(1000)
        return share.numerator, share.denominator

    def size(self, height: int, width: int) -> ImageSize:
        """(height, width) of an image after it, in whole numbers: programs differ in others."""
        if not self.keep_ratio:
            return self.scale[1], self.scale[0]
        sides = sorted((height, width))
        limits = list(zip(sorted(self.scale), sides, strict=True))
        size = []
        for side in (height, width):
            fitted = [(2 * side * limit + of) // (2 * of) for limit, of in limits]
            size.append(max(self.shortest, min(fitted)))
        return size[0], size[1]

    def __call__(self, image: Tensor) -> Tensor:
        """Images [B, C, H, W], uint8 or float32, to float32."""
        height, width = self.padded(size_of(image))
        size = self.size(height, width)
        repeated = (0, width - image.shape[3], 0, height - image.shape[2])
        image = F.pad(image.float(), repeated, 'replicate')
        return F.interpolate(image, size, mode='bilinear', antialias=self.antialias)


class Frame(NamedTuple):
    """Sizes of an image: what the model sees without padding, and the input, ``padded``."""

    size: ImageSize
    input: ImageSize

    def points(self, points: Tensor) -> Tensor:
        """Points [..., 2 n], (x, y) each, in pixels of the model, to pixels of the input."""
        if self.input is self.size:
            return points
        ratios = sizes_like(points, self.input) / sizes_like(points, self.size)
        return points * ratios.repeat(points.shape[-1] // 2)

    def maps(self, maps: Tensor) -> Tensor:
        """Maps [B, C, H, W] on the pixels of the model, to pixels of the input; bilinear."""
        if self.input is self.size:
            return maps
        return F.interpolate(maps, self.input, mode='bilinear')


def sizes_like(x: Tensor, size: Size) -> Tensor:
    """(W, H) as a tensor [2]."""
    height, width = (x.new_ones(()) * side for side in size)
    return torch.stack([width, height])
