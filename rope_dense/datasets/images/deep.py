"""Images of more than 8 bits a channel, scaled to 8 bits by their range.

mmcv takes the upper 8 of 16 bits, so what a camera of 12 bits writes to a 16-bit file is black.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS
from PIL import Image
from PIL.ImageFile import ImageFile

from ..labels.files import PILLOW_SUFFIXES

DEEP_SUFFIXES = ('.png', '.tif', '.tiff')
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
        if path and Path(path).suffix.lower() in DEEP_SUFFIXES:
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


def range_of(files: Iterable[Path]) -> int | None:
    """The value that is white in 16-bit images; None if they use all 16 bits, or are black.

    It is what TIFF files say (MaxSampleValue), else the end of the bits that the brightest of up to
    50 images uses: 4095 for 12 bits. Images of 8 bits among them do not count.
    """
    candidates = sorted(file for file in files if file.suffix.lower() in DEEP_SUFFIXES)
    few = candidates[:: -(-len(candidates) // READ)] if candidates else []
    values = [value for file in few if is_deep(file) and (value := largest(file))]
    white = 2 ** max(values, default=0).bit_length() - 1
    return white if 0 < white < 2**16 - 1 else None


def is_deep(file: Path) -> bool:
    """Return whether a file has 16 bits a channel."""
    try:
        with Image.open(file) as image:
            return '16' in stored_mode(image)
    except (OSError, SyntaxError, ValueError):  # GDAL's formats, which OpenCV may read
        return read_deep(file) is not None


def stored_mode(image: ImageFile) -> str:
    """The mode of an image in its file, such as 'RGB;16B' of one that Pillow reads as 'RGB'.

    Only before its pixels are loaded.
    """
    settings = image.tile[0][3] if image.tile else None
    mode = settings[0] if isinstance(settings, tuple) and settings else settings
    return mode if isinstance(mode, str) else image.mode


def largest(file: Path) -> int | None:
    """The largest value that a 16-bit file can have, as it says, or that it has; None: 8 bits."""
    pixels = read_deep(file)
    if pixels is None:
        return None
    with Image.open(file) as image:
        said = image.tag_v2.get(MAX_SAMPLE_VALUE) if hasattr(image, 'tag_v2') else None
    said = max(said) if isinstance(said, tuple) else said
    return int(said or pixels.max())


def image_backend(files: Iterable[Path]) -> str | None:
    """'pillow' if OpenCV cannot read some images that Pillow can, such as .heic; else None.

    It is the ``imdecode_backend`` of the ``LoadImageFromFile`` of training on these files.
    """
    few = (file for file in files if file.suffix.lower() in PILLOW_SUFFIXES)
    return None if all(cv2.haveImageReader(str(file)) for file in few) else 'pillow'
