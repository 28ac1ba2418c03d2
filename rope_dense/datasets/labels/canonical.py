"""The canonical COCO file of a split, which mmdet and the evaluator see for labels of any format.

Ids of images and annotations count from 1 (the evaluator takes 0 for "no match"), names of classes
are text, sizes refer to the image as it is shown, areas are computed, boxes are within their
image, outlines can be drawn. So mmdet leaves out nothing, and no convention of the evaluator is
met by surprise.
"""

from __future__ import annotations

import filecmp
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ...utils.progress import progress
from .annotations import NO_OUTLINE, Rules, annotate, chosen_classes
from .files import class_name
from .inventory import Inventory
from .kept import kept
from .objects import LabelFolder, Labelled, Report
from .splits import WORDS

MOST_CUT, LEAST_CUT = 0.5, 4  # share and number of objects that leave their image
MOST_LEFT_OUT = 0.1  # of a split's objects, without own.partial=True
LEAST_WITH_FILE = 0.1  # of a split's images, where each may have a label file; else as before


@dataclass(frozen=True)
class CanonicalSplit:
    """A canonical COCO file.

    Attributes:
        ann_file, images: the file, and the folder of its images; absolute.
        classes: names, in the order of their numbers; the same in all splits.
        num_images, num_with_objects: of the file, all and those with an object.
        num_objects, num_ignored: annotations of the file, and those that are not evaluated.
        num_cut: objects of which the image lacks a tenth or more.
        num_without_file: images without a label file, which have no objects.
        most_objects: the largest number of objects in an image.
        labelled, left_out: objects in the labels, and how many of them the file lacks.
    """

    ann_file: Path
    images: Path
    classes: tuple[str, ...]
    num_images: int
    num_with_objects: int
    num_objects: int
    num_ignored: int
    most_objects: int
    num_cut: int
    num_without_file: int
    labelled: int
    left_out: int


@dataclass(frozen=True)
class Canonical:
    """The canonical files of a data set.

    Attributes:
        text: the report.
        survey: what was kept of the images, see ``as_canonical``.
        state: a digest of the content of labels and of the names, sizes and headers of images.
    """

    splits: dict[str, CanonicalSplit]
    text: str
    survey: Any
    state: str


def as_canonical(
    inventory: Inventory,
    find: Callable[[Inventory], LabelFolder],
    out: Path,
    classes: Sequence[str] | None = None,
    *,
    oriented: bool = False,
    outlines: bool = False,
    survey: Callable[[dict[str, list[Path]]], Any] = lambda images: None,
    settings: object = None,
) -> Canonical:
    """The splits of a data set as canonical COCO files in a folder of ``out``, and the report.

    Files that were written for the same labels, images and settings are taken as they are.

    Args:
        find: the data set in the folder.
        classes: names to use, or None for all of the labels.
        oriented, outlines: see ``Rules``.
        survey: what is to be kept of the images of each split, as JSON can hold it.
        settings: others that ``find`` and ``survey`` depend on.

    Raises:
        ValueError: labels cannot be used; the message names the file.
    """
    classes = classes and tuple(classes)

    def written(folder: LabelFolder, fresh: Path) -> dict[str, Any]:
        summary = write(folder, fresh, classes, oriented, outlines)
        images = {
            split: [folder.splits[split].images / name for name in values.pop('files')]
            for split, values in summary['splits'].items()
        }
        return dict(summary, survey=survey(images))

    about = classes, oriented, outlines, settings
    target, summary = kept(inventory, out, about, find, written)
    splits = {
        split: CanonicalSplit(
            ann_file=(target / f'{split}.json').absolute(),
            **dict(values, images=Path(values['images']), classes=tuple(values['classes'])),
        )
        for split, values in summary['splits'].items()
    }
    return Canonical(splits, summary['text'], summary['survey'], target.name)


def write(
    folder: LabelFolder,
    target: Path,
    classes: Sequence[str] | None,
    oriented: bool = False,
    outlines: bool = False,
) -> dict[str, Any]:
    """Write the file of each split; each label is read once.

    Returns:
        'splits': what is known of each, with the names of its images; 'text': the report.
    """
    first = next(iter(folder.splits.values()))
    listed = folder.classes or folder.format.read(first, None, Report())[0]
    names = dict.fromkeys(map(class_name, listed))  # of the labels
    given = None if classes is None else tuple(dict.fromkeys(map(class_name, classes)))
    chosen = chosen_classes(given, [*names], first.source) if listed else given or ()
    numbers = {name: number for number, name in enumerate(chosen, start=1)}
    unchosen = {*names} - {*chosen}

    def named(items: Iterable[Labelled]) -> Iterator[Labelled]:
        """The items; classes that no list has get their numbers as they come."""
        for item in items:
            for label in () if listed else {class_name(shape.label) for shape in item.shapes}:
                names.setdefault(label)
                if given is None:
                    numbers.setdefault(label, len(numbers) + 1)
                elif label not in numbers:
                    unchosen.add(label)
            yield item

    files, total = dict[str, SplitFile](), Report()
    for split, part in folder.splits.items():
        rules = Rules(
            numbers,
            unchosen,
            oriented=oriented,
            outlines=outlines,
            ignore_difficult=split == 'val',
            is_choice=given is not None,
        )
        _, items = folder.format.read(part, folder.classes, report := Report())
        count = len(part.pairs) or len(part.names or ()) or None
        items = progress(named(items), f'reading {WORDS[split]} labels', count)
        files[split] = SplitFile(target / f'{split}.json')
        for image, objects in annotate(items, part, rules, report):
            files[split].add(image, objects)
        files[split].report = report
        total.merge(report)
    for split, file in files.items():
        if not file.names:
            raise ValueError(nothing_read(folder, split, total))
    if not listed:
        chosen = chosen_classes(given, sorted(names), first.source)
    for file in files.values():
        file.close(chosen, {number: chosen.index(name) + 1 for name, number in numbers.items()})
    if total.kept and total.count(NO_OUTLINE) == total.kept:
        raise ValueError(
            f'{first.source}: no object has an outline, which masks need: '
            'label polygons or masks, or train boxes by configs/own/detection.py or realtime.py'
        )
    if oriented and not total.num_rotated:
        total.note('upright object: none is rotated, so no angle is learned', 'all', total.kept)
    for name in chosen:
        if (lower := name.lower()) != name and lower in chosen:
            total.note('class that differs from another by its case only', f'{name} and {lower}')
    are_negative = bool(folder.format.kind and folder.format.kind.negatives)
    splits = {
        split: dict(
            files[split].counts(),
            images=str(part.images),
            classes=chosen,
            num_without_file=len(part.unlabelled) if are_negative else 0,
        )
        for split, part in folder.splits.items()
    }
    return dict(splits=splits, text=describe(folder, splits, total))


class SplitFile:
    """A COCO file that is written image by image, so that memory does not depend on their number.

    Attributes:
        names: of its images.
        report: of its labels.
    """

    def __init__(self, path: Path) -> None:
        self.file = open(path, 'w', encoding='utf-8')  # noqa: SIM115
        # On the disk that has to have the space.
        self.objects = TemporaryFile('w+', encoding='utf-8', dir=path.parent)  # noqa: SIM115
        self.encode = json.JSONEncoder(allow_nan=False).encode
        self.names, self.report, self.numbers = list[str](), Report(), Counter[str]()

    def add(self, image: dict[str, Any], objects: Sequence[dict[str, Any]]) -> None:
        """Add an image and its annotations, both without ids."""
        self.names.append(image['file_name'])
        image_id = len(self.names)
        self.file.write(',\n' if image_id > 1 else '{"images": [\n')
        self.file.write(self.encode(dict(id=image_id, **image)))
        numbers = self.numbers
        for item in objects:
            numbers['num_objects'] += 1
            numbers['num_ignored'] += item['iscrowd']
            about = dict(id=numbers['num_objects'], image_id=image_id, **item)
            self.objects.write(f'{self.encode(about)}\n')
        numbers['num_with_objects'] += bool(objects)
        numbers['most_objects'] = max(numbers['most_objects'], len(objects))

    def counts(self) -> dict[str, Any]:
        """The numbers of a ``CanonicalSplit``, and the names of the images as 'files'."""
        names = ('num_with_objects', 'num_objects', 'num_ignored', 'most_objects')
        return {name: self.numbers[name] for name in names} | dict(
            files=self.names,
            num_images=len(self.names),
            num_cut=self.report.num_cut,
            labelled=self.report.kept + self.report.num_left_out,
            left_out=self.report.num_left_out,
        )

    def close(self, classes: Sequence[str], number_of: Mapping[int, int]) -> None:
        """Write annotations and categories.

        Args:
            number_of: the number of each class by the number that its annotations have.
        """
        self.objects.seek(0)
        self.file.write('\n],\n"annotations": [')
        for index, line in enumerate(self.objects):
            line = CATEGORY.sub(lambda found: f'{found[1]}{number_of[int(found[2])]}', line, 1)
            self.file.write(f'{"," if index else ""}\n{line[:-1]}')
        categories = [dict(id=number, name=name) for number, name in enumerate(classes, start=1)]
        self.file.write(f'\n],\n"categories": {json.dumps(categories)}}}\n')
        self.objects.close()
        self.file.close()


CATEGORY = re.compile(r'("category_id": )(\d+)')


def nothing_read(folder: LabelFolder, split: str, report: Report) -> str:
    """The error of a split without an image."""
    labels = folder.splits[split]
    return (
        f'{labels.source}: no image of the {WORDS[split]} split with labels as '
        f'{folder.format.title}; its images are looked for in {labels.images}: '
        f'{"; ".join(report.lines()) or "nothing was found"}'
    )


def describe(folder: LabelFolder, summaries: dict[str, dict], report: Report) -> str:
    """The report: a line on the data set, and one for each kind of what is unusual."""
    counts = ' and '.join(
        f'{values["num_images"]} {WORDS[split]} images' for split, values in summaries.items()
    )
    objects = ' and '.join(str(values['num_objects']) for values in summaries.values())
    lines = [f'{folder.format.title}, {counts}, by {folder.split_by}; {objects} objects']
    train = summaries.get('train', dict(num_images=0, num_with_objects=0))
    empty = train['num_images'] - train['num_with_objects']
    if empty:
        lines[0] += f'; {empty} training images have no object'
    if same := trained_on(folder, summaries):
        lines.append(
            f'{same} of {len(summaries["val"]["files"])} validation images are training images, '
            'too, so figures of the evaluation are too good'
        )
    return '\n'.join([*lines, *folder.notes, *report.lines()])


def trained_on(folder: LabelFolder, summaries: dict[str, dict]) -> int:
    """Number of validation images that are training images, or copies of the same name."""
    train, val = (
        [folder.splits[split].images / name for name in summaries[split]['files']]
        if split in summaries
        else []
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
        with_file = part.num_images - part.num_without_file
        if 0 < with_file < LEAST_WITH_FILE * part.num_images:
            raise ValueError(
                f'{part.num_without_file} of {part.num_images} {WORDS[split]} images have no label '
                'file: copy the rest, or train them as images without objects by '
                f'own.partial=True. {found}'
            )
        if part.left_out > MOST_LEFT_OUT * part.labelled:
            raise ValueError(
                f'{part.left_out} of {part.labelled} {WORDS[split]} objects are left out: mend the '
                f'labels, or train on the rest by own.partial=True. {found}'
            )
