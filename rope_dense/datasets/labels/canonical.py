"""The canonical COCO file of a split, which mmdet and the evaluator see for labels of any format.

Ids of images and annotations count from 1 (the evaluator takes 0 for "no match"), names of classes
are text, sizes refer to the image as it is shown, areas are computed, boxes are within their
image, outlines can be drawn. So mmdet leaves out nothing, and no convention of the evaluator is
met by surprise.
"""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ...utils.progress import progress
from .annotations import NO_OUTLINE, Rules, annotate, chosen_classes
from .files import class_name
from .inventory import Inventory
from .kept import kept
from .objects import LabelFolder, Labelled, Part, Report
from .splits import WORDS

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
    """Write the file of each split.

    Returns:
        'splits': what is known of each, with the names of its images; 'text': the report.
    """
    names, total = labelled_classes(folder), Report()
    source = next(iter(folder.splits.values())).source
    chosen = chosen_classes(classes, names, source)
    summaries = dict[str, dict[str, Any]]()
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
            images=str(labels.images),
            classes=chosen,
            num_cut=report.num_cut,
            labelled=report.kept + report.num_left_out,
            left_out=report.num_left_out,
        )
        total.merge(report)
    if total.kept and total.count(NO_OUTLINE) == total.kept:
        raise ValueError(
            f'{source}: no object has an outline, which masks need: '
            'label polygons or masks, or train boxes by configs/own/detection.py or realtime.py'
        )
    if oriented and not total.num_rotated:
        total.note('upright object: none is rotated, so no angle is learned', 'all', total.kept)
    for name in chosen:
        if (lower := name.lower()) != name and lower in chosen:
            total.note('class that differs from another by its case only', f'{name} and {lower}')
    return dict(splits=summaries, text=describe(folder, summaries, total))


@dataclass
class Counts:
    """Numbers of a file, counted while it is written."""

    num_images: int = 0
    num_with_objects: int = 0
    num_objects: int = 0
    num_ignored: int = 0
    most_objects: int = 0
    files: list[str] = field(default_factory=list)

    def counted(
        self, images: Iterator[tuple[dict, list[dict]]]
    ) -> Iterator[tuple[dict, list[dict]]]:
        """The images, each counted."""
        for image, objects in images:
            self.num_images += 1
            self.num_with_objects += bool(objects)
            self.num_objects += len(objects)
            self.most_objects = max(self.most_objects, len(objects))
            self.num_ignored += sum(item['iscrowd'] for item in objects)
            self.files.append(image['file_name'])
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
        raise ValueError(nothing_read(folder, split, report))
    return tuple(sorted(found))


def shown(items: Iterable[Labelled], split: str, part: Part) -> Iterator[Labelled]:
    """The items, with their progress."""
    total = len(part.pairs) or (len(part.names) if part.names else None)
    return progress(items, f'reading {WORDS[split]} labels', total)


def write_coco(
    path: Path, images: Iterable[tuple[dict, list[dict]]], classes: Sequence[str]
) -> None:
    """Write a COCO file image by image, so that the memory does not depend on their number."""
    encode = json.JSONEncoder(allow_nan=False).encode
    categories = [dict(id=number, name=name) for number, name in enumerate(classes, start=1)]
    place = path.parent  # the disk that has to have the space
    with (
        TemporaryFile('w+', encoding='utf-8', dir=place) as held,
        open(path, 'w', encoding='utf-8') as file,
    ):
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
        if part.left_out > MOST_LEFT_OUT * part.labelled:
            raise ValueError(
                f'{part.left_out} of {part.labelled} {WORDS[split]} objects are left out: mend the '
                f'labels, or train on the rest by own.partial=True. {found}'
            )
