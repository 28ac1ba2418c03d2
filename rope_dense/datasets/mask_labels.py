"""The labels of masks: files of class numbers, of any format and depth of bits.

H x W pixels. A number in a mask stands for a class, is ignored, or is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageOps

from .classes import IGNORED
from .images.deep import stored_mode

COLOURS = '`rope-dense convert-data colours` makes class numbers of them'
GREY_STEPS = {'L;2': 85, 'L;4': 17}  # between the greys that Pillow makes of 2 and 4 bits
SHOWN = 8  # numbers that are neither a class nor ignored, in an error


def label_map(
    classes: Sequence[str], values: Sequence[int] | None = None, void: Sequence[int] = ()
) -> dict[int, int]:
    """The label of each number in masks: of a class, or 255; see ``ImageMaskDataset``.

    Raises:
        ValueError: not one number for each class.
    """
    if values is None:
        numbers = range(len(classes) + len(void))
        values = [number for number in numbers if number not in void][: len(classes)]
    if len(classes) > IGNORED:
        raise ValueError(f'{len(classes)} classes: masks can have {IGNORED}')
    if len({*values}) != len(classes) or not {*values}.isdisjoint(void):
        raise ValueError(
            f'own.values={[*values]}: give one number for each of {len(classes)} classes, '
            f'{", ".join(classes)}, that is not in own.void={[*void]}'
        )
    ignored = dict.fromkeys((*void, IGNORED), IGNORED)
    return ignored | {value: label for label, value in enumerate(values)}


def labels_in(path: Path, labels: Mapping[int, int]) -> np.ndarray:
    """The labels of a mask, uint8 [H, W].

    Args:
        labels: of the numbers in masks.

    Raises:
        ValueError: colours, or a number without a label.
    """
    stored, shown = read_mask(path)
    found, unknown = looked_up(stored, labels)
    if unknown and shown is not None:
        of_greys, others = looked_up(shown, labels)
        found, unknown = (found, unknown) if others else (of_greys, [])
    if unknown:
        numbers = ', '.join(map(str, unknown[:SHOWN])) + (' ...' if len(unknown) > SHOWN else '')
        classes = sorted(number for number, label in labels.items() if label != IGNORED)
        raise ValueError(
            f'{path} has {numbers}: neither the number of a class ({ranges(classes)}) nor ignored '
            f'({IGNORED}, own.void); own.values gives the number of each class'
        )
    return found


def looked_up(
    numbers: np.ndarray, labels: Mapping[int, int]
) -> tuple[np.ndarray, list[int | float]]:
    """The label of each number, uint8 [H, W], and the numbers that have none, whose label is 0."""
    if numbers.dtype in (np.uint8, np.uint16):  # a table is faster than sorting
        given = np.flatnonzero(np.bincount(numbers.reshape(-1)))
        places, size = given, int(given[-1]) + 1
    else:
        given, inverse = np.unique(numbers, return_inverse=True)
        places, size, numbers = np.arange(len(given)), len(given), inverse.reshape(numbers.shape)
    table = np.zeros(size, np.uint8)
    table[places] = [labels.get(number, 0) for number in given.tolist()]
    return table[numbers], [number for number in given.tolist() if number not in labels]


def read_mask(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The numbers of a mask [H, W] as its file stores them, and the greys [H, W] that it shows.

    Of a palette the numbers are its indices. The greys are None where they are the numbers, or
    there are none. Channels that are equal are read as one, and alpha is dropped.

    Raises:
        ValueError: the mask has colours, or cannot be read.
    """
    try:
        with Image.open(path) as image:
            mode = stored_mode(image)
            shown = ImageOps.exif_transpose(image)
            pixels = np.asarray(shown)
            if shown.mode == 'P':
                return pixels, greys_of(shown)
    except (OSError, SyntaxError) as error:
        raise ValueError(f'{path} cannot be read as a mask ({error})') from error
    if pixels.dtype == bool:
        return pixels.astype(np.uint8), pixels * np.uint8(255)
    if step := GREY_STEPS.get(mode[:3]):
        return pixels // np.uint8(step), pixels
    if pixels.ndim == 2:
        return pixels, None
    return one_channel(path, pixels, mode), None


def one_channel(path: Path, pixels: np.ndarray, mode: str) -> np.ndarray:
    """The one channel [H, W] of pixels [H, W, C] that are grey.

    Raises:
        ValueError: they have colours, or are one number with an alpha that varies.
    """
    if '16' in mode and (deep := cv2.imread(str(path), cv2.IMREAD_UNCHANGED)) is not None:
        pixels = deep  # Pillow keeps the upper 8 bits of several channels
    if pixels.ndim == 3:
        colours = pixels[..., : 3 if pixels.shape[2] > 2 else 1]
        if (colours != colours[..., :1]).any():
            raise ValueError(f'{path}: the mask has colours; {COLOURS}')
        alpha = pixels[..., -1]
        if pixels.shape[2] in (2, 4) and np.ptp(colours) == 0 < np.ptp(alpha):
            raise ValueError(
                f'{path}: only the alpha of the mask varies: save class numbers as one channel'
            )
        pixels = colours[..., 0]
    return pixels


def greys_of(image: Image.Image) -> np.ndarray | None:
    """The greys [H, W] that an image with a palette shows; None if it shows colours."""
    colours = np.asarray(image.convert('RGB'))
    return None if (colours != colours[..., :1]).any() else colours[..., 0]


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers in short: '0 to 2, 7'."""
    starts = [n for i, n in enumerate(numbers) if not i or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if n + 1 not in numbers[i + 1 : i + 2]]
    pairs = zip(starts, ends, strict=True)
    return ', '.join(f'{a} to {b}' if b > a else f'{a}' for a, b in pairs)
