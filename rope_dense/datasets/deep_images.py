"""Images of more than 8 bits a channel, scaled to 8 bits by their range.

mmcv takes the upper 8 of 16 bits, so what a camera of 12 bits writes to a 16-bit file is black.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS
from PIL import Image

SUFFIXES = ('.png', '.tif', '.tiff')
MAX_SAMPLE_VALUE = 281  # tag of TIFF
READ = 50  # files at most, to find their range


@TRANSFORMS.register_module()
class LoadDeepImage(BaseTransform):
    """After ``LoadImageFromFile``: a file of 16 bits again, scaled to 8 by its range.

    Files of 8 bits, and arrays without a file, stay as they were loaded.

    Args:
        max_value: becomes 255, as do larger values.
    """

    def __init__(self, max_value: int) -> None:
        self.max_value = max_value

    def transform(self, results: dict) -> dict:
        path = results.get('img_path')
        if path and Path(path).suffix.lower() in SUFFIXES:
            pixels = read_deep(Path(path))
            if pixels is not None:
                results['img'] = to_8_bits(pixels, self.max_value)
        return results


def read_deep(path: Path) -> np.ndarray | None:
    """Pixels of 16 bits, BGR uint16 [H, W, 3], turned as EXIF says; None for other files."""
    pixels = cv2.imread(str(path), cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    return pixels if pixels is not None and pixels.dtype == np.uint16 else None


def to_8_bits(pixels: np.ndarray, max_value: int) -> np.ndarray:
    """uint16 to uint8: 0 to ``max_value`` becomes 0 to 255, rounded."""
    scaled = np.minimum(pixels, max_value).astype(np.float32) * (255 / max_value)
    return (scaled + 0.5).astype(np.uint8)


def range_of(folder: Path) -> int | None:
    """The value that is white in the 16-bit images of a folder; None if they use all 16 bits.

    It is what TIFF files say (MaxSampleValue), else the end of the bits that the brightest of up to
    50 images uses: 4095 for 12 bits. None, too, where the first image has 8 bits.
    """
    files = sorted(file for file in folder.rglob('*') if file.suffix.lower() in SUFFIXES)
    if not files or read_deep(files[0]) is None:
        return None
    few = files[:: -(-len(files) // READ)]
    values = [value for file in few if (value := largest(file)) is not None]
    white = 2 ** max(values).bit_length() - 1
    return None if white >= 2**16 - 1 else white


def largest(file: Path) -> int | None:
    """The largest value that a 16-bit file can have, as it says, or that it has; None: 8 bits."""
    pixels = read_deep(file)
    if pixels is None:
        return None
    with Image.open(file) as image:
        said = image.tag_v2.get(MAX_SAMPLE_VALUE) if hasattr(image, 'tag_v2') else None
    said = max(said) if isinstance(said, tuple) else said
    return int(said or pixels.max())
