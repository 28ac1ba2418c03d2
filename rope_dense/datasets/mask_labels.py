"""The labels of masks: files of class numbers, of any format and depth of bits.

H x W pixels. A number in a mask stands for a class, is ignored, or is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageOps

from .classes import IGNORED
from .images.deep import stored_mode
from .map_files import why_unread

COLOURS = '`rope-dense convert-data colours` makes class numbers of them'
GREY_STEPS = {'L;2': 85, 'L;4': 17}  # between the greys that Pillow makes of 2 and 4 bits
TABLED = (np.uint8, np.uint16)
SHOWN = 8  # numbers that are neither a class nor ignored, in an error
Number = float  # or a whole one


def label_map(
    classes: Sequence[str], values: Sequence[int] | None = None, void: Sequence[int] = ()
) -> dict[float, int]:
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
    ignored: dict[float, int] = dict.fromkeys((*void, IGNORED), IGNORED)
    return ignored | {value: label for label, value in enumerate(values)}


def labels_in(path: Path, labels: Mapping[float, int]) -> np.ndarray:
    """The labels of a mask, uint8 [H, W].

    Args:
        labels: of the numbers in masks.

    Raises:
        ValueError: colours, or a number without a label.
    """
    pixels, numbers, unknown = read_mask(path).known_by(labels)
    if unknown:
        raise ValueError(f'{path} has {in_short(unknown)}: {no_class(labels)}')
    found = np.array([labels[number] for number in numbers], np.uint8)
    if pixels.dtype not in TABLED:
        return found[np.searchsorted(numbers, pixels)]
    table = np.zeros(int(numbers[-1]) + 1, np.uint8)  # faster than a search
    table[np.array(numbers, int)] = found
    return table[pixels]


def no_class(labels: Mapping[float, int]) -> str:
    """The words for numbers that have no label."""
    classes = sorted(number for number, label in labels.items() if label != IGNORED)
    return (
        f'neither the number of a class ({ranges(classes)}) nor ignored ({IGNORED}, own.void); '
        'own.values gives the number of each class'
    )


def in_short(items: Sequence[object]) -> str:
    """The first of some numbers or names."""
    return ', '.join(map(str, items[:SHOWN])) + (' ...' if len(items) > SHOWN else '')


@dataclass(frozen=True)
class StoredMask:
    """The content of a mask.

    Attributes:
        stored: numbers [H, W] of the file; of a palette its indices.
        shown: greys [H, W]; None where they are the numbers, or the mask shows colours.
        palette: colour [256, 3] of each index, or None.
    """

    stored: np.ndarray
    shown: np.ndarray | None = None
    palette: np.ndarray | None = None

    def known_by(
        self, labels: Mapping[float, int]
    ) -> tuple[np.ndarray, list[Number], list[Number]]:
        """The numbers [H, W] that have labels: as stored, else as shown; as stored if neither.

        With the sorted numbers that occur, and those of them that have no label.
        """
        stored = numbers_in(self.stored)
        unknown = [number for number in stored if number not in labels]
        if unknown and self.shown is not None and labels.keys() >= {*(n := numbers_in(self.shown))}:
            return self.shown, n, []
        return self.stored, stored, unknown


def numbers_in(pixels: np.ndarray) -> list[Number]:
    """The numbers that occur, sorted."""
    if pixels.dtype in TABLED:  # faster than sorting
        return np.flatnonzero(np.bincount(pixels.reshape(-1))).tolist()
    return [int(n) if float(n).is_integer() else n for n in np.unique(pixels).tolist()]


def read_mask(path: Path) -> StoredMask:
    """Read a mask. Channels that are equal are read as one, and alpha is dropped.

    Raises:
        ValueError: the mask has colours, or cannot be read.
    """
    try:
        with Image.open(path) as image:
            mode = stored_mode(image)
            turned = ImageOps.exif_transpose(image)
            pixels = np.asarray(turned)
            colours = turned.getpalette('RGB') if turned.mode == 'P' else None
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(
            f'{path} cannot be read as a mask ({why_unread(path, error)}): save class numbers as '
            'one channel of 8 or 16 bits, such as a PNG'
        ) from error
    if colours is not None:
        palette = np.zeros((256, 3), np.uint8)
        palette.reshape(-1)[: len(colours)] = colours
        used = palette[np.array(numbers_in(pixels), int)]
        is_grey = (used == used[:, :1]).all()
        return StoredMask(pixels, palette[pixels, 0] if is_grey else None, palette)
    if pixels.dtype == bool:
        return StoredMask(pixels.astype(np.uint8), pixels * np.uint8(255))
    if step := GREY_STEPS.get(mode[:3]):
        return StoredMask(pixels // np.uint8(step), pixels)
    return StoredMask(pixels if pixels.ndim == 2 else one_channel(path, pixels, mode))


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


def ranges(numbers: Sequence[Number]) -> str:
    """Sorted numbers in short: '0 to 2, 7'."""
    starts = [n for i, n in enumerate(numbers) if not i or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if n + 1 not in numbers[i + 1 : i + 2]]
    pairs = zip(starts, ends, strict=True)
    return ', '.join(f'{a} to {b}' if b > a else f'{a}' for a, b in pairs)
