"""Masks of class numbers, of any format and depth of bits: their labels, and a look at all.

H x W pixels. A number in a mask stands for a class, is ignored, or is an error.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from ..utils.progress import progress
from .classes import IGNORED
from .images.copies import read_map
from .images.headers import read_header
from .labels.splits import WORDS
from .map_files import Pair, check_header, why_unread

COLOURS = '`rope-dense convert-data colours` makes class numbers of them'
GREY_STEPS = {'uint2': 85, 'uint4': 17}  # of the greys that Pillow makes of few bits
TABLED = (np.uint8, np.uint16)
BINARY = [0, IGNORED]
UINT16 = 2**16
CHUNK = 2**24  # pixels that are counted at a time
SHOWN = 8  # numbers that are neither a class nor ignored, in an error
Number = float  # or a whole one


def label_map(
    classes: Sequence[str],
    values: Sequence[int] | None = None,
    void: Sequence[int] = (),
) -> dict[float, int]:
    """The label of each number in masks: of a class, or 255; see ``ImageMaskDataset``.

    ValueError if there is not one number for each class.
    """
    values = class_numbers(classes, values, void)
    if len(classes) > IGNORED:
        raise ValueError(f'{len(classes)} classes: masks can have {IGNORED}')
    distinct = set(values)
    if len(distinct) != len(classes) or not distinct.isdisjoint(void):
        raise ValueError(
            f'own.values={list(values)}: give one number for each of {len(classes)} classes, '
            f'{", ".join(classes)}, that is not in own.void={list(void)}'
        )
    labels: dict[float, int] = dict.fromkeys((*void, IGNORED), IGNORED)
    for label, value in enumerate(values):
        labels[value] = label
    return labels


def class_numbers(
    classes: Sequence[str],
    values: Sequence[int] | None,
    void: Sequence[int],
) -> Sequence[int]:
    """The number of each class in masks: ``values``, else 0, 1, 2 ... without those in ``void``."""
    if values is not None:
        return values
    numbers = range(len(classes) + len(void))
    return [number for number in numbers if number not in void][: len(classes)]


def stored_numbers(values: Sequence[int], void: Sequence[int] = ()) -> np.ndarray:
    """The number in masks of each label, [256], the inverse of ``label_map``.

    Args:
        values: the numbers of the classes; ValueError for one that no PNG can have.
        void: of ignored pixels, if 255 is the number of a class; without any, a number that is
            neither.
    """
    if not set(values).issubset(range(UINT16)):
        raise ValueError(
            f'own.values={list(values)}: masks are written as PNGs, of 0 to {UINT16 - 1}'
        )
    others = (IGNORED, *void, *range(IGNORED))
    ignored = next(number for number in others if number >= 0 and number not in values)
    is_small = max([*values, ignored]) <= IGNORED
    numbers = np.arange(IGNORED + 1, dtype=np.uint8 if is_small else np.uint16)
    numbers[: len(values)] = values
    numbers[IGNORED] = ignored
    return numbers


def read_labels(path: Path, labels: Mapping[float, int]) -> np.ndarray:
    """The labels of a mask by its numbers, uint8 [H, W]; ValueError for a number without one."""
    pixels, numbers, unknown = read_mask(path).known_by(labels)
    if unknown:
        raise ValueError(f'{path} has {short_text(unknown)}: {no_class_text(labels)}')
    found = np.array([labels[number] for number in numbers], np.uint8)
    if pixels.dtype not in TABLED:
        return found[np.searchsorted(numbers, pixels)]
    table = np.zeros(int(numbers[-1]) + 1, np.uint8)  # faster than a search
    table[np.array(numbers, int)] = found
    return table[pixels]


def read_mask_labels(results: Mapping[str, Any]) -> np.ndarray:
    """The labels of an image's mask, uint8 [H, W]; of a tile, in its window."""
    path = Path(results['seg_map_path'])
    labels = results['label_map']
    return read_map(path, results, labels, partial(read_labels, path, labels))


@dataclass(frozen=True)
class StoredMask:
    """The content of a mask."""

    stored: np.ndarray  # numbers [H, W] of the file; of a palette its indices
    # Greys [H, W] unless they are the numbers, or it has colours.
    shown: np.ndarray | None = None
    palette: np.ndarray | None = None  # colour [256, 3] of each index

    @cached_property
    def numbers(self) -> list[Number]:
        """The stored numbers that occur, sorted."""
        return distinct_numbers(self.stored)

    def known_by(
        self,
        labels: Mapping[float, int],
    ) -> tuple[np.ndarray, list[Number], list[Number]]:
        """The numbers [H, W] that have labels: as stored, else as shown; as stored if neither.

        With the sorted numbers that occur, and the numbers without a label.
        """
        unknown = [number for number in self.numbers if number not in labels]
        if unknown and self.shown is not None:
            numbers = distinct_numbers(self.shown)
            if labels.keys() >= set(numbers):
                return self.shown, numbers, []
        return self.stored, self.numbers, unknown


def distinct_numbers(pixels: np.ndarray) -> list[Number]:
    """The numbers that occur, sorted."""
    if pixels.dtype not in TABLED:
        found = np.unique(pixels).tolist()
        return [int(n) if float(n).is_integer() else n for n in found]
    flat = pixels.reshape(-1)
    counts = np.zeros(np.iinfo(pixels.dtype).max + 1, int)  # faster than sorting
    for start in range(0, flat.size, CHUNK):  # bincount has eight bytes a pixel
        counts += np.bincount(flat[start : start + CHUNK], minlength=len(counts))
    return np.flatnonzero(counts).tolist()


def read_mask(path: Path) -> StoredMask:
    """Read a mask. Channels that are equal are read as one, and alpha is dropped.

    ValueError if the mask has colours, or cannot be read.
    """
    try:
        with Image.open(path) as image:
            turned = ImageOps.exif_transpose(image)
            pixels: Any = np.asarray(turned)
            colours = turned.getpalette('RGB') if turned.mode == 'P' else None
        dtype = read_header(path).dtype
        if dtype == 'uint16' and pixels.ndim == 3:  # Pillow keeps the upper 8 bits
            pixels = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED)
            if pixels is None:
                raise ValueError('OpenCV cannot read its 16 bits')
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(
            f'{path} cannot be read as a mask ({why_unread(path, error)}): '
            'save class numbers as one channel of 8 or 16 bits, such as a PNG'
        ) from error
    if colours is not None:
        palette = np.zeros((256, 3), np.uint8)
        palette.reshape(-1)[: len(colours)] = colours
        used = palette[np.array(distinct_numbers(pixels), int)]
        is_grey = (used == used[:, :1]).all()
        return StoredMask(pixels, palette[pixels, 0] if is_grey else None, palette)
    if pixels.ndim == 3:
        return StoredMask(grey_of(path, pixels))
    if pixels.dtype == bool:
        return StoredMask(pixels.astype(np.uint8), pixels * np.uint8(255))
    step = GREY_STEPS.get(dtype)
    if step:
        return StoredMask(pixels // np.uint8(step), pixels)
    return StoredMask(pixels)


def grey_of(path: Path, pixels: np.ndarray) -> np.ndarray:
    """The one number of each pixel [H, W, 2 to 4]; ValueError for colours."""
    count = pixels.shape[2]
    grey = pixels[..., : 3 if count > 2 else 1]
    if (grey != grey[..., :1]).any():
        raise ValueError(f'{path}: the mask has colours; {COLOURS}')
    if count in (2, 4) and np.ptp(grey) == 0 < np.ptp(pixels[..., -1]):
        raise ValueError(
            f'{path}: only the alpha of the mask varies: '
            'save class numbers as one channel'
        )
    return grey[..., 0]


def survey_masks(
    pairs: Sequence[Pair],
    split: str,
    labels: Mapping[float, int],
    classes: Sequence[str],
) -> dict[str, Any]:
    """Look at all masks of a split, 'train' or 'val'.

    Args:
        labels: of the numbers in masks, see ``label_map``.
        classes: names of the labels 0, 1, 2 ...

    Returns:
        Plain values: `split`; `masks`, their number; `numbers`, each number that files store as
        [number, masks that have it, label or None]; `labels` that occur; `binary`, the number of
        masks of 0 and 255 only.

    Raises:
        ValueError: a mask that cannot be read, is of another size than its image, or has several
            pages, colours, numbers of no class or another palette than the others; or masks that
            have nothing to be trained.
    """
    counts = Counter[Number]()
    found: set[int] = set()
    unknown: dict[Number, Path] = {}  # the first mask of a number
    # The first mask and the colour of an index.
    colours: dict[Number, tuple[Path, str]] = {}
    binary = 0
    wrong = 0
    for image, path in progress(pairs, f'{WORDS[split]} masks'):
        check_header(image, path, 'mask')
        mask = read_mask(path)
        check_palette(path, mask, labels, colours)
        _, numbers, without = mask.known_by(labels)
        found.update(labels[number] for number in numbers if number in labels)
        counts.update(mask.numbers)
        if mask.numbers == BINARY:
            binary += 1
        if without:
            wrong += 1
        for number in without:
            unknown.setdefault(number, path)
        if len(unknown) > IGNORED:  # such as depths
            break
    survey = dict(
        split=split,
        masks=len(pairs),
        numbers=[[n, counts[n], labels.get(n)] for n in sorted(counts)],
        labels=sorted(found),
        binary=binary,
    )
    if unknown:
        masks = f'in {wrong} of {len(pairs)} masks'
        raise ValueError(unknown_numbers_text(unknown, masks, counts, labels, classes))
    check_found(survey, pairs[0][1].parent, classes)
    return survey


def check_palette(
    path: Path,
    mask: StoredMask,
    labels: Mapping[float, int],
    first: dict[Number, tuple[Path, str]],
) -> None:
    """Raise ValueError if a palette says that the indices are not the classes.

    Its greys are numbers of classes, too, or another mask has other colours for an index: ``first``
    has the mask and colour of each index that was seen, and is updated.
    """
    if mask.palette is None or not labels.keys() >= set(mask.numbers):
        return
    colours = mask.palette[np.array(mask.numbers, int)]
    greys = colours[:, 0].tolist()
    classes = {number for number, label in labels.items() if label != IGNORED}
    is_grey = mask.shown is not None
    if is_grey and classes.issuperset(greys) and greys != mask.numbers:
        pairs = zip(mask.numbers, greys, strict=True)
        said = ', '.join(f'{index} as {grey}' for index, grey in pairs)
        raise ValueError(
            f'{path} has a palette that shows {said}, which are numbers of classes, too: {COLOURS}'
        )
    for index, colour in zip(mask.numbers, colours, strict=True):
        code = f'#{colour.tobytes().hex()}'
        other, there = first.setdefault(index, (path, code))
        if there != code:
            raise ValueError(
                f'index {index} is {there} in {other} and {code} in {path}: {COLOURS}'
            )


def unknown_numbers_text(
    unknown: Mapping[Number, Path],
    masks: str,
    counts: Iterable[Number],
    labels: Mapping[float, int],
    classes: Sequence[str],
) -> str:
    """The line for numbers that are neither classes nor ignored, with their cause.

    ``masks`` says in words in how many masks they are, ``counts`` are all numbers in the masks.
    """
    path = next(iter(unknown.values()))
    first = [number for number in unknown if unknown[number] == path]
    text = f'{path} has {short_text(first)}'
    if list(unknown) == [len(classes)] and labels.keys() >= set(range(len(classes))):
        given = ranges_text(sorted(set(counts) - {IGNORED}))
        return (  # masks of ADE20K's form, with names from 1
            f'{text} ({masks}): the masks have {given} for {len(classes)} names: is 0 '
            "'unlabelled'? Put its name first (classes.txt, own.classes) and own.void=[0]"
        )
    others = list(unknown)[len(first) :]
    also = f'; also {short_text(others)}' if others else ''
    return f'{text}: {no_class_text(labels)} ({masks}{also})'


def check_found(
    survey: Mapping[str, Any],
    folder: Path,
    classes: Sequence[str],
) -> None:
    """Raise ValueError for masks that have nothing, or one thing only, to be trained."""
    found = survey['labels']
    numbers = [number for number, _, _ in survey['numbers']]
    trained = [label for label in found if label != IGNORED]
    if not trained:
        raise ValueError(
            f'{folder}: all pixels of the masks are ignored; '
            f'they have the numbers {short_text(numbers)}'
        )
    if numbers == BINARY and IGNORED in found and len(classes) > 1:
        advice = 'own.values gives the number of each class'
        if len(classes) == 2:
            advice = (
                f'own.values=[0,{IGNORED}] reads them as {classes[0]} and {classes[1]}'
            )
        raise ValueError(
            f'{folder}: the masks have 0 and 255 only, and 255 means ignored, so that '
            f'{classes[0]} would be all that is trained: {advice}'
        )
    if survey['split'] == 'train' and len(trained) == 1 < len(classes):
        raise ValueError(
            f'{folder}: all pixels of its {survey["masks"]} masks are '
            f'{classes[trained[0]]}: check the masks'
        )


def mask_lines(survey: Mapping[str, Any], classes: Sequence[str]) -> list[str]:
    """The lines of a report about masks: classes without a pixel, and masks of 0 and 255."""
    lines = []
    masks = f'{survey["masks"]} {WORDS[survey["split"]]} masks'
    found = survey['labels']
    lacking = [name for label, name in enumerate(classes) if label not in found]
    if lacking:
        line = f'{len(lacking)} of {len(classes)} classes have no pixel in {masks}: '
        line += short_text(lacking)
        are_last = list(classes[-len(lacking) :]) == lacking
        is_0_first = any(number == label == 0 for number, _, label in survey['numbers'])
        if are_last and is_0_first:
            line += " (is 0 'unlabelled'? Put its name first and own.void=[0])"
        lines.append(line)
    binary = survey['binary']
    if binary and IGNORED in found:
        lines.append(f'{binary} of {masks} have 0 and 255 only, and 255 is ignored')
    return lines


def no_class_text(labels: Mapping[float, int]) -> str:
    """The words for numbers that have no label."""
    classes = sorted(number for number, label in labels.items() if label != IGNORED)
    return (
        f'neither the number of a class ({ranges_text(classes)}) nor ignored ({IGNORED}, '
        'own.void); own.values gives the number of each class'
    )


def short_text(items: Sequence[object]) -> str:
    """The first of some numbers or names."""
    shown = ', '.join(map(str, items[:SHOWN]))
    return f'{shown} ...' if len(items) > SHOWN else shown


def ranges_text(numbers: Sequence[Number]) -> str:
    """Sorted numbers in short: '0 to 2, 7'."""
    ranges: list[list[Number]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ', '.join(f'{a} to {b}' if b > a else f'{a}' for a, b in ranges)
