"""Images of more than 8 bits a channel, scaled to 8 bits by their range.

mmcv takes the upper 8 of 16 bits, so what a camera of 12 bits writes to a 16-bit file is black.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS

from .headers import Header, read_header

READ = 50  # files at most, to find their range


@TRANSFORMS.register_module()
class LoadDeepImage(BaseTransform):
    """After ``LoadImageFromFile``: 16 bits again, ``max_value`` and more become 255."""

    def __init__(self, max_value: int) -> None:
        self.max_value = max_value

    def transform(self, results: dict) -> dict:
        path = results.get('img_path')
        if path and read_header(Path(path)).is_deep:
            results['img'] = to_8_bits(read_deep(Path(path)), self.max_value)
        return results


def read_deep(path: Path) -> np.ndarray:
    """Pixels of 16 bits, BGR uint16 [H, W, 3], turned as EXIF says; ValueError if unreadable."""
    flags, pixels = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH, None
    with suppress(cv2.error):
        pixels = cv2.imread(str(path), flags)
        if pixels is None:  # as of a TIFF that is turned by 90 degrees
            pixels = cv2.imdecode(np.fromfile(path, np.uint8), flags)
    if pixels is None or pixels.dtype != np.uint16:
        raise ValueError(f'{path}: OpenCV cannot read its 16 bits')
    return pixels


def to_8_bits(pixels: np.ndarray, max_value: int) -> np.ndarray:
    """uint16 to uint8: 0 to ``max_value`` becomes 0 to 255, rounded."""
    scaled = np.minimum(pixels, max_value).astype(np.float32) * (255 / max_value)
    return (scaled + 0.5).astype(np.uint8)


def read_white_value(headers: Mapping[Path, Header]) -> int | None:
    """The value that is white in 16-bit images; None if they use all 16 bits, or are black.

    It is what TIFF files say (MaxSampleValue), else the end of the bits that the brightest of up to
    50 images uses: 4095 for 12 bits. Images of 8 bits among them do not count.
    """
    deep = sorted(path for path, header in headers.items() if header.is_deep)
    few = deep[:: -(-len(deep) // READ)] if deep else []
    values = [headers[path].max_value or int(read_deep(path).max()) for path in few]
    white = 2 ** max(values, default=0).bit_length() - 1
    return white if 0 < white < 2**16 - 1 else None
