"""The canonical COCO file of a split, which mmdet and the evaluator see for labels of any format.

Ids of images and annotations count from 1 (the evaluator takes 0 for "no match"), names of classes
are text, sizes refer to the image as it is shown, areas are computed, boxes are within their
image, outlines can be drawn. So mmdet leaves out nothing, and no convention of the evaluator is
met by surprise.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock

from ...utils.atomic_write import atomic_folder, atomic_write_text
from ...utils.progress import progress
from .annotations import NO_OUTLINE, Rules, annotate, chosen_classes
from .files import IMAGE_SUFFIXES, class_name, list_files
from .inventory import inventory_of
from .objects import LabelFolder, Labelled, Labels, Report
from .splits import WORDS

VERSION = 3  # of the rules that make the files; a new one makes them anew
SUMMARY = 'summary.json'
MOST_CUT, LEAST_CUT = 0.5, 4  # share and number of objects that leave their image
MOST_LEFT_OUT = 0.1  # of a split's objects, without own.partial=True


@dataclass(frozen=True)
class CanonicalSplit:
    """A canonical COCO file.

    Attributes:
        ann_file, images: the file, and the folder of its images; absolute.
        classes: names, in the order of their numbers; the same in all splits.
        num_images, num_with_objects: of the file, all and those with an object.
        num_objects, num_ignored: annotations of the file, and those that are not evaluated.
        num_cut: objects of which the image lacks a tenth or more.
        labelled, left_out: objects in the labels, and how many of them the file lacks.
    """

    ann_file: Path
    images: Path
    classes: tuple[str, ...]
    num_images: int
    num_with_objects: int
    num_objects: int
    num_ignored: int
    num_cut: int
    labelled: int
    left_out: int


def as_canonical(
    folder: LabelFolder,
    out: Path,
    classes: Sequence[str] | None = None,
    *,
    oriented: bool = False,
    outlines: bool = False,
) -> tuple[dict[str, CanonicalSplit], str]:
    """The splits of a data set as canonical COCO files in a folder of ``out``, and the report.

    Files that were written for the same labels, images and settings are taken as they are.

    Args:
        classes: names to use, or None for all of the labels.
        oriented, outlines: see ``Rules``.

    Raises:
        ValueError: labels cannot be used; the message names the file.
    """
    folder = with_inventory(folder)
    target = out / key_of(folder, (classes and tuple(classes), oriented, outlines))
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / f'.{target.name}.lock'):  # processes that train together write once
        if not (target / SUMMARY).is_file():
            try:
                with atomic_folder(target) as fresh:
                    write(folder, fresh, classes, oriented, outlines)
            finally:
                release(folder)
    release(folder)
    summary = json.loads((target / SUMMARY).read_text(encoding='utf-8'))
    splits = {
        split: CanonicalSplit(
            ann_file=(target / f'{split}.json').absolute(),
            images=folder.splits[split].images.absolute(),
            **dict(values, classes=tuple(values['classes'])),
        )
        for split, values in summary['splits'].items()
    }
    return splits, summary['text']


def release(folder: LabelFolder) -> None:
    """Give back the memory of parsed label files."""
    for part in folder.splits.values():
        part.inventory.parsed.clear()


def with_inventory(folder: LabelFolder) -> LabelFolder:
    """A data set whose formats do not take its inventory yet."""
    splits = {
        split: replace(part, inventory=part.inventory or inventory_of(part.images))
        for split, part in folder.splits.items()
    }
    return replace(folder, splits=splits)


def key_of(folder: LabelFolder, settings: object) -> str:
    """A name for labels, images and settings as they are now: paths, sizes, times of change."""
    about = VERSION, folder.format.name, folder.classes, folder.split_by, folder.notes, settings
    digest = hashlib.sha256(repr(about).encode())
    listed: dict[tuple[Path, tuple[str, ...]], str] = {}
    for split, labels in sorted(folder.splits.items()):
        names = None if labels.names is None else sorted(labels.names)
        digest.update(repr((split, labels.source, labels.images, names, labels.options)).encode())
        for place, suffixes in (
            (labels.source, folder.format.suffixes),
            (labels.images, IMAGE_SUFFIXES),
        ):
            if (place, suffixes) not in listed:
                listed[place, suffixes] = state_of(place, suffixes)
            digest.update(listed[place, suffixes].encode())
    return digest.hexdigest()[:16]


def state_of(place: Path, suffixes: tuple[str, ...]) -> str:
    """A digest of the paths, sizes and times of a file, or of the files in a folder."""
    digest = hashlib.sha256()
    for path in list_files(place, suffixes) if place.is_dir() else [place]:
        state = os.stat(path)
        digest.update(f'{path} {state.st_size} {state.st_mtime_ns}\n'.encode())
    return digest.hexdigest()


def write(
    folder: LabelFolder,
    target: Path,
    classes: Sequence[str] | None,
    oriented: bool,
    outlines: bool,
) -> None:
    """Write the file of each split, and the summary with the report."""
    names, total = labelled_classes(folder), Report()
    chosen = chosen_classes(classes, names, folder.splits['train'].source)
    summaries, files = {}, {}
    for split, labels in folder.splits.items():
        rules = Rules(
            {name: number for number, name in enumerate(chosen, start=1)},
            frozenset(names) - frozenset(chosen),
            oriented=oriented,
            outlines=outlines,
            ignore_difficult=split == 'val',
            is_choice=classes is not None,
        )
        report, counts = Report(), Counts()
        _, items = folder.format.read(labels, folder.classes, report)
        items = shown(items, split, labels)
        images = counts.counted(annotate(items, labels, rules, report))
        write_coco(target / f'{split}.json', images, chosen)
        if not counts.num_images:
            raise ValueError(nothing_read(folder, split, report))
        summaries[split] = asdict(counts) | dict(
            classes=chosen,
            num_cut=report.num_cut,
            labelled=report.kept + report.num_left_out,
            left_out=report.num_left_out,
        )
        files[split] = counts.files
        del summaries[split]['files']
        total.merge(report)
    if total.kept and total.count(NO_OUTLINE) == total.kept:
        raise ValueError(
            f'{folder.splits["train"].source}: no object has an outline, which masks need: '
            'label polygons or masks, or train boxes by configs/own/detection.py or realtime.py'
        )
    if oriented and not total.num_rotated:
        total.note('upright object: none is rotated, so no angle is learned', 'all', total.kept)
    for name in chosen:
        if (lower := name.lower()) != name and lower in chosen:
            total.note('class that differs from another by its case only', f'{name} and {lower}')
    text = describe(folder, summaries, files, total)
    atomic_write_text(target / SUMMARY, json.dumps(dict(splits=summaries, text=text)) + '\n')


@dataclass
class Counts:
    """Numbers of a file, counted while it is written."""

    num_images: int = 0
    num_with_objects: int = 0
    num_objects: int = 0
    num_ignored: int = 0
    files: set[str] = field(default_factory=set)

    def counted(
        self, images: Iterator[tuple[dict, list[dict]]]
    ) -> Iterator[tuple[dict, list[dict]]]:
        """The images, each counted."""
        for image, objects in images:
            self.num_images += 1
            self.num_with_objects += bool(objects)
            self.num_objects += len(objects)
            self.num_ignored += sum(item['iscrowd'] for item in objects)
            self.files.add(image['file_name'])
            yield image, objects


def labelled_classes(folder: LabelFolder) -> tuple[str, ...]:
    """The names of the classes in the labels: in the order of a list, else sorted."""
    if folder.classes:
        return tuple(map(class_name, folder.classes))
    found, report = set[str](), Report()
    for split, labels in folder.splits.items():
        names, items = folder.format.read(labels, None, report)
        if names:
            return tuple(map(class_name, names))
        items = shown(items, split, labels)
        found |= {class_name(shape.label) for item in items for shape in item.shapes}
    if not found and report.lines():  # the cause of it
        raise ValueError(nothing_read(folder, 'train', report))
    return tuple(sorted(found))


def shown(items: Iterable[Labelled], split: str, labels: Labels) -> Iterator[Labelled]:
    """The items, with their progress."""
    total = len(labels.names) if labels.names else None
    return progress(items, f'reading {WORDS[split]} labels', total)


def write_coco(
    path: Path, images: Iterable[tuple[dict, list[dict]]], classes: Sequence[str]
) -> None:
    """Write a COCO file image by image, so that the memory does not depend on their number."""
    encode = json.JSONEncoder(allow_nan=False).encode
    categories = [dict(id=number, name=name) for number, name in enumerate(classes, start=1)]
    with TemporaryFile('w+', encoding='utf-8') as held, open(path, 'w', encoding='utf-8') as file:
        file.write(f'{{"categories": {json.dumps(categories)},\n"images": [')
        number = 0
        for image_id, (image, objects) in enumerate(images, start=1):
            file.write(',\n' if image_id > 1 else '\n')
            file.write(encode(dict(id=image_id, **image)))
            for item in objects:
                number += 1
                held.write(',\n' if number > 1 else '\n')
                held.write(encode(dict(id=number, image_id=image_id, **item)))
        file.write('\n],\n"annotations": [')
        held.seek(0)
        shutil.copyfileobj(held, file)
        file.write('\n]}\n')


def nothing_read(folder: LabelFolder, split: str, report: Report) -> str:
    """The error of a split without an image."""
    labels = folder.splits[split]
    return (
        f'{labels.source}: no image of the {WORDS[split]} split with labels as '
        f'{folder.format.title}; its images are looked for in {labels.images}: '
        f'{"; ".join(report.lines()) or "nothing was found"}'
    )


def describe(
    folder: LabelFolder, summaries: dict[str, dict], files: dict[str, set[str]], report: Report
) -> str:
    """The report: a line on the data set, and one for each kind of what is unusual."""
    counts = ' and '.join(
        f'{values["num_images"]} {WORDS[split]} images' for split, values in summaries.items()
    )
    objects = ' and '.join(str(values['num_objects']) for values in summaries.values())
    lines = [f'{folder.format.title}, {counts}, by {folder.split_by}; {objects} objects']
    empty = summaries['train']['num_images'] - summaries['train']['num_with_objects']
    if empty:
        lines[0] += f'; {empty} training images have no object'
    if same := trained_on(folder, files):
        lines.append(
            f'{same} of {len(files["val"])} validation images are training images, too, so figures '
            'of the evaluation are too good'
        )
    return '\n'.join([*lines, *folder.notes, *report.lines()])


def trained_on(folder: LabelFolder, files: dict[str, set[str]]) -> int:
    """Number of validation images that are training images, or copies of the same name."""
    train, val = (
        [folder.splits[split].images / name for name in files.get(split, ())]
        for split in ('train', 'val')
    )
    by_name = {path.name: path for path in train}
    paths = {str(path) for path in train}
    return sum(
        str(path) in paths
        or (path.name in by_name and filecmp.cmp(path, by_name[path.name], shallow=False))
        for path in val
    )


def check_left_out(splits: dict[str, CanonicalSplit], text: str, partial: bool) -> None:
    """Refuse a data set of which much is left out, or whose boxes mostly leave their images.

    Args:
        text: the report.
        partial: ``own.partial``, which allows it.

    Raises:
        ValueError: a split lacks more than a tenth of its objects, or half of them are cut.
    """
    if partial:
        return
    for split, part in splits.items():
        found = '; '.join(text.splitlines())
        if part.num_cut >= LEAST_CUT and part.num_cut > MOST_CUT * part.num_objects:
            raise ValueError(
                f'{part.num_cut} of {part.num_objects} {WORDS[split]} objects leave their image: '
                'do the labels have corners in place of a size? If they are right, give '
                f'own.partial=True. {found}'
            )
        if part.left_out > MOST_LEFT_OUT * part.labelled:
            raise ValueError(
                f'{part.left_out} of {part.labelled} {WORDS[split]} objects are left out: mend the '
                f'labels, or train on the rest by own.partial=True. {found}'
            )
