"""All masks of a split, looked at once before a training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..utils.progress import progress
from .classes import IGNORED
from .labels.splits import WORDS
from .map_files import Pair, check_header
from .mask_labels import (
    COLOURS,
    Number,
    StoredMask,
    in_short,
    no_class,
    numbers_in,
    ranges,
    read_mask,
)

BINARY = [0, IGNORED]


def survey_masks(
    pairs: Sequence[Pair], split: str, labels: Mapping[float, int], classes: Sequence[str]
) -> dict[str, Any]:
    """Look at all masks of a split.

    Args:
        pairs: images and their masks.
        split: 'train' or 'val'.
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
    counts, found = Counter[Number](), set[int]()
    unknown, palettes = dict[Number, Path](), Palettes(labels)  # the first mask of a number
    binary = wrong = 0
    for image, path in progress(pairs, f'{WORDS[split]} masks'):
        check_header(image, path, 'mask')
        mask = read_mask(path)
        palettes.add(path, mask)
        _, numbers, without = mask.known_by(labels)
        found |= {labels[number] for number in numbers if number in labels}
        stored = numbers_in(mask.stored)
        counts.update(stored)
        binary += stored == BINARY
        unknown |= {number: path for number in without if number not in unknown}
        wrong += bool(without)
        if len(unknown) > IGNORED:  # such as depths
            break
    survey = dict(
        split=split,
        masks=len(pairs),
        numbers=[[number, counts[number], labels.get(number)] for number in sorted(counts)],
        labels=sorted(found),
        binary=binary,
    )
    if unknown:
        refuse_unknown(unknown, f'{wrong} of {len(pairs)} masks', counts, labels, classes)
    check_found(survey, pairs[0][1].parent, classes)
    return survey


def refuse_unknown(
    unknown: Mapping[Number, Path],
    masks: str,
    counts: Iterable[Number],
    labels: Mapping[float, int],
    classes: Sequence[str],
) -> NoReturn:
    """Raise the ValueError for numbers that are neither classes nor ignored, with their cause.

    Args:
        unknown: the first mask of each.
        masks: in how many masks they are, in words.
        counts: all numbers in the masks.
    """
    path = next(iter(unknown.values()))
    first = [number for number in unknown if unknown[number] == path]
    text = f'{path} has {in_short(first)}'
    if [*unknown] == [len(classes)] and {*range(len(classes))} <= labels.keys():
        given = ranges(sorted({*counts} - {IGNORED}))
        raise ValueError(  # masks of ADE20K's form, with names from 1
            f'{text} (in {masks}): the masks have {given} for {len(classes)} names: is 0 '
            "'unlabelled'? Put its name first (classes.txt, own.classes) and own.void=[0]"
        )
    others = f'; also {in_short(others)}' if (others := [*unknown][len(first) :]) else ''
    raise ValueError(f'{text}: {no_class(labels)} (in {masks}{others})')


def check_found(survey: Mapping[str, Any], folder: Path, classes: Sequence[str]) -> None:
    """Raise ValueError for masks that have nothing, or one thing only, to be trained."""
    found, numbers = survey['labels'], [number for number, _, _ in survey['numbers']]
    if found == [IGNORED]:
        raise ValueError(
            f'{folder}: all pixels of the masks are ignored; they have the numbers '
            f'{in_short(numbers)}'
        )
    if numbers == BINARY and IGNORED in found and len(classes) > 1:
        advice = 'own.values gives the number of each class'
        if len(classes) == 2:
            advice = f'own.values=[0,{IGNORED}] reads them as {classes[0]} and {classes[1]}'
        raise ValueError(
            f'{folder}: the masks have 0 and 255 only, and 255 means ignored, so that '
            f'{classes[0]} would be all that is trained: {advice}'
        )
    trained = [label for label in found if label != IGNORED]
    if survey['split'] == 'train' and len(trained) == 1 < len(classes):
        raise ValueError(
            f'{folder}: all pixels of its {survey["masks"]} masks are {classes[trained[0]]}: check '
            'the masks'
        )


def mask_lines(survey: Mapping[str, Any], classes: Sequence[str]) -> list[str]:
    """The lines of a report about masks: classes without a pixel, and masks of 0 and 255."""
    lines, masks = [], f'{survey["masks"]} {WORDS[survey["split"]]} masks'
    lacking = [name for label, name in enumerate(classes) if label not in survey['labels']]
    if lacking:
        lines.append(
            f'{len(lacking)} of {len(classes)} classes have no pixel in {masks}: '
            f'{in_short(lacking)}'
        )
        are_last = [*classes[-len(lacking) :]] == lacking
        if are_last and any(number == label == 0 for number, _, label in survey['numbers']):
            lines[-1] += " (is 0 'unlabelled'? Put its name first and own.void=[0])"
    if survey['binary'] and IGNORED in survey['labels']:
        lines.append(f'{survey["binary"]} of {masks} have 0 and 255 only, and 255 is ignored')
    return lines


class Palettes:
    """The palettes of masks that are read by their indices.

    Args:
        labels: of the numbers in masks.
    """

    def __init__(self, labels: Mapping[float, int]) -> None:
        self.labels = labels
        self.classes = {number for number, label in labels.items() if label != IGNORED}
        self.first: dict[int, tuple[Path, str]] = {}  # mask and colour of an index

    def add(self, path: Path, mask: StoredMask) -> None:
        """Raise ValueError if a palette says that the indices are not the classes.

        Its greys are numbers of classes, too, or another mask has other colours for an index.
        """
        used = numbers_in(mask.stored)
        if mask.palette is None or not self.labels.keys() >= {*used}:
            return
        colours = {int(index): mask.palette[int(index)] for index in used}
        shown = {index: int(colour[0]) for index, colour in colours.items()}
        if (
            mask.shown is not None
            and {*shown.values()} <= self.classes
            and any(grey != index for index, grey in shown.items())
        ):
            said = ', '.join(f'{index} as {grey}' for index, grey in shown.items())
            raise ValueError(
                f'{path} has a palette that shows {said}, which are numbers of classes, too: '
                f'{COLOURS}'
            )
        for index, colour in colours.items():
            code = f'#{colour.tobytes().hex()}'
            other, there = self.first.setdefault(index, (path, code))
            if there != code:
                raise ValueError(
                    f'index {index} is {there} in {other} and {code} in {path}: {COLOURS}'
                )
