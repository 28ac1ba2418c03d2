"""Labels of any format as one COCO file, for the command that only converts."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from .annotations import Rules, annotate, chosen_classes
from .canonical import labelled_classes
from .files import IMAGE_SUFFIXES, numbered_lines
from .folders import FORMATS
from .inventory import inventory_of
from .objects import LabelFolder, Labels, Report

Entry = tuple[dict, list[dict]]  # an image of a COCO file, and its annotations, without ids


@dataclass(frozen=True)
class Conversion:
    """Images with their annotations, the names of the classes, and what was changed or left out."""

    entries: list[Entry]
    classes: tuple[str, ...]
    report: Report


def convert(
    name: str,
    source: Path,
    images: Path | None = None,
    classes: Sequence[str] | None = None,
    names: Collection[str] | None = None,
) -> Conversion:
    """Read the labels of a file or folder by the rules of the canonical file.

    Args:
        name: a key of ``FORMATS``.
        source: folder of label files (yolo, voc, labelme, dota), or the file (coco, cvat).
        images: folder of the images; by default beside the labels, as the format has it.
        classes: names in the order of their numbers; by default all in the labels.
        names: paths of the images to take, in their folder and without suffix; None for all.

    Raises:
        ValueError: labels that cannot be used, or no image; the message names the file.
    """
    folder = images or default_images(name, source)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no such folder of images; give it with --images')
    part_names = None if names is None else frozenset(names)
    labels = Labels(source, folder, part_names, inventory=inventory_of(folder))
    listed = classes if name == 'yolo' else None  # names of numbers; else a choice
    data_set = LabelFolder(FORMATS[name], {'train': labels}, 'the command', listed)
    occurring = labelled_classes(data_set)
    chosen = chosen_classes(None, occurring, source) if classes is None else tuple(classes)
    rules = Rules({name: number for number, name in enumerate(chosen, start=1)})
    report = Report()
    _, items = data_set.format.read(labels, listed, report)
    entries = list(annotate(items, labels, rules, report))
    if not entries:
        found = '; '.join(report.lines()) or 'nothing'
        raise ValueError(f'{source}: no image in {folder} has labels as {name}; found {found}')
    return Conversion(entries, chosen, report)


def default_images(name: str, source: Path) -> Path:
    """The folder in which a format has its images by default."""
    if name == 'yolo' and 'labels' in source.parts:
        place = len(source.parts) - 1 - source.parts[::-1].index('labels')
        return Path(*source.parts[:place], 'images', *source.parts[place + 1 :])
    if name == 'dota':
        return source.parent / 'images'
    if name == 'voc' and (source.parent / 'JPEGImages').is_dir():
        return source.parent / 'JPEGImages'
    if source.is_dir():
        return source
    return source.parent / 'images' if (source.parent / 'images').is_dir() else source.parent


def listed_names(file: Path) -> set[str]:
    """The images that a file lists, one a line, as paths without suffix.

    A last word of -1, 0 or 1, as in Pascal VOC's lists of a class, is no part of the name.
    """
    found = set()
    for _, line in numbered_lines(file):
        name, _, last = line.rpartition(' ')
        path = Path(name.strip() if name and last in ('-1', '0', '1') else line)
        is_image = path.suffix.lower() in IMAGE_SUFFIXES
        found.add((path.with_suffix('') if is_image else path).as_posix())
    return found


def split_entries(entries: Sequence[Entry], share: float) -> tuple[list[Entry], list[Entry]]:
    """The images without and with a random share of them, which is the same each time.

    Raises:
        ValueError: one image cannot be split.
    """
    count = min(max(1, round(share * len(entries))), len(entries) - 1)
    if count < 1:
        raise ValueError('--val-share: one image cannot be split')
    chosen = set(random.Random(0).sample(range(len(entries)), count))
    parts: tuple[list[Entry], list[Entry]] = [], []
    for index, entry in enumerate(entries):
        parts[index in chosen].append(entry)
    return parts
