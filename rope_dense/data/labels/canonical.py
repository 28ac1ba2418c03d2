"""The canonical COCO file of a split, which mmdet and the evaluator see for labels of any format.

Ids of images and annotations count from 1 (the evaluator takes 0 for "no match"), names of classes
are text, sizes refer to the image as it is shown, areas are computed, boxes are within their
image, outlines can be drawn. So mmdet leaves out nothing, and no convention of the evaluator is
met by surprise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...utils.progress import progress
from .annotations import NO_OUTLINE, Rules, annotate, chosen_classes
from .files import check_parts, class_name
from .inventory import Inventory
from .kept import write_if_changed
from .label_folder import LabelFolder, Split
from .objects import MOST_LEFT_OUT, Labelled, Report
from .split_file import SplitFile
from .splits import WORDS, copies_in, split_word, unused_tests

MOST_CUT = 0.5  # share of objects that leave their image
LEAST_CUT = 4  # number of them
# Of a split's images, where each may have a label file; else as before.
LEAST_WITH_FILE = 0.1


@dataclass(frozen=True)
class CanonicalSplit:
    """A canonical COCO file, and the numbers of what is in it."""

    ann_file: Path  # absolute
    images: Path  # their folder, absolute
    classes: tuple[str, ...]  # in the order of their numbers; the same in all splits
    num_images: int
    num_with_objects: int  # images
    num_objects: int
    num_ignored: int  # objects that are not evaluated
    most_objects: int  # of an image
    num_cut: int  # objects of which the image lacks a tenth or more
    num_without_file: int  # images without a label file, which have no objects
    labelled: int  # objects in the labels
    left_out: int  # how many of them the file lacks
    # Percentiles 0 to 100 of the sides of objects (root of the box) as shares of their image's.
    sides: Sequence[float] = ()
    num_partial: int = 0  # images that are not labelled for all classes


@dataclass(frozen=True)
class Canonical:
    """The canonical files of a data set."""

    splits: dict[str, CanonicalSplit]
    text: str  # the report
    survey: Any  # what was kept of the images, see ``write_canonical``
    state: str  # a digest of the content of labels and of the names, sizes and headers of images
    renamed: Sequence[str]  # names of ``Rules.same_as`` that labels have


def write_canonical(
    inventory: Inventory,
    find: Callable[[Inventory], LabelFolder],
    out: Path,
    classes: Sequence[str] | None,
    rules: Rules,
    *,
    survey: Callable[[dict[str, list[Path]]], Any] = lambda images: None,
    settings: object = None,
) -> Canonical:
    """The splits of a data set as canonical COCO files in a folder of ``out``, and the report.

    Files that were written for the same labels, images and settings are taken as they are.

    Args:
        find: the data set in the folder; ValueError, which names the file, if it is of no use.
        classes: names to use, or None for all of the labels.
        rules: without classes, see ``Rules``.
        survey: what is to be kept of the images of each split, as JSON can hold it.
        settings: others that ``find`` and ``survey`` depend on.
    """
    classes = classes and tuple(classes)

    def written(folder: LabelFolder, fresh: Path) -> dict[str, Any]:
        summary = write_splits(folder, fresh, classes, rules)
        images = {}
        for split, values in summary['splits'].items():
            images[split] = values.pop('files')
        return dict(summary, survey=survey(images))

    about = classes, rules, settings
    target, summary = write_if_changed(inventory, out, about, find, written)
    splits = {}
    for split, values in summary['splits'].items():
        values['images'] = Path(values['images'])
        values['classes'] = tuple(values['classes'])
        ann_file = target / f'{split}.json'
        splits[split] = CanonicalSplit(ann_file.absolute(), **values)
    return Canonical(
        splits, summary['text'], summary['survey'], target.name, summary['renamed']
    )


def write_splits(
    folder: LabelFolder,
    target: Path,
    classes: Sequence[str] | None,
    rules: Rules,
) -> dict[str, Any]:
    """Write the file of each split; each label is read once.

    Returns what is known of each as 'splits', with its images as 'files', the report as 'text', and
    names of ``Rules.same_as`` that labels have as 'renamed'.
    """
    first = next(iter(folder.splits.values()))
    listed = folder.classes
    if not listed:
        listed, _ = folder.format.read(first, None, Report())
    seen = {*map(class_name, listed)}
    names = dict.fromkeys(map(rules.name_of, listed))  # of the labels
    given = None if classes is None else tuple(dict.fromkeys(map(class_name, classes)))
    if given and first.inventory.asked:  # a class of a run may have no object here
        names |= dict.fromkeys(given)
    chosen = chosen_classes(given, [*names], first.source) if listed else given or ()
    numbers = {name: number for number, name in enumerate(chosen, start=1)}
    unchosen = {*names} - {*chosen}
    rules = replace(
        rules, numbers=numbers, unchosen=unchosen, is_choice=given is not None
    )

    def named(items: Iterable[Labelled]) -> Iterator[Labelled]:
        """The items; classes that no list has get their numbers as they come."""
        for item in items:
            for shape in () if listed else item.shapes:
                seen.add(class_name(shape.label))
                label = rules.name_of(shape.label)
                names.setdefault(label)
                if given is None:
                    numbers.setdefault(label, len(numbers) + 1)
                elif label not in numbers:
                    unchosen.add(label)
            yield item

    files = {}
    total = Report()
    for split, part in folder.splits.items():
        file = files[split] = SplitFile(target / f'{split}.json')
        _, items = folder.format.read(part, folder.classes, file.report)
        count = len(part.files.pairs) or len(part.names or ()) or None
        items = progress(named(items), f'reading {WORDS[split]} labels', count)
        for image, objects, known in annotate(items, part, rules, file.report):
            file.add(image, objects, known)
        total.merge(file.report)
    for split, file in files.items():
        if not file.names:
            part = folder.splits[split]
            raise ValueError(
                f'{part.source}: no image of the {WORDS[split]} split with labels as '
                f'{folder.format.title}; its images are looked for in {part.images}: '
                f'{"; ".join(total.lines()) or "nothing was found"}'
            )
    if not listed:
        chosen = chosen_classes(given, sorted(names), first.source)
    number_of = {number: chosen.index(name) + 1 for name, number in numbers.items()}
    are_negative = bool(folder.format.kind and folder.format.kind.negatives)
    splits = {}
    for split, part in folder.splits.items():
        file = files[split]
        splits[split] = file.finish(chosen, number_of) | dict(
            images=str(part.images),
            files=[part.images / name for name in file.names],
            num_without_file=len(part.files.unlabelled) if are_negative else 0,
        )
    note_whole(total, first, chosen, rules.oriented)
    note_classes(total, files, numbers)
    note_labelled(total, files, chosen)
    if not first.inventory.asked:  # of the training's own folder
        check_parts(rules.labelled, chosen, first.inventory.root, first.inventory.files)
    for name in sorted(unchosen) if first.inventory.asked else ():
        total.note('class that the run does not have (not evaluated)', name)
    text = report_text(folder, splits, total)
    return dict(splits=splits, text=text, renamed=sorted(rules.same_as.keys() & seen))


def note_whole(
    report: Report,
    part: Split,
    classes: Sequence[str],
    oriented: bool,
) -> None:
    """Note what only the objects and classes of all splits show.

    ValueError if masks are trained, and no object has one.
    """
    if report.kept and report.count(NO_OUTLINE) == report.kept:
        raise ValueError(
            f'{part.source}: no object has a polygon or mask, which masks are '
            'trained on: label them, or train boxes by configs/own/detection.py or realtime.py'
        )
    if oriented and not report.num_rotated:
        kind = 'upright object: none is rotated, so no angle is learned'
        report.note(kind, 'all', report.kept)
    report.note_results(part.inventory.skipped)
    alike = defaultdict(list)
    for name in classes:
        alike[name.lower().removesuffix('s')].append(name)
    for some in alike.values():
        if len(some) > 1:
            kind = 'class that differs from another by its case or a plural only (own.same_as?)'
            report.note(kind, ' and '.join(some))


def note_classes(
    report: Report,
    files: Mapping[str, SplitFile],
    numbers: Mapping[str, int],
) -> None:
    """Note the classes that only one split has, or of which a split has only ignored objects."""
    seen = Counter[tuple[int, int]]()
    for file in files.values():
        seen.update(file.seen)
    for split, file in files.items():
        for name, number in numbers.items():
            if file.seen[number, 0]:
                continue
            if file.seen[number, 1]:
                kind = f'class whose {WORDS[split]} objects are all ignored'
                report.note(kind, name)
            elif seen[number, 0]:
                report.note(f'class without a {WORDS[split]} object', name)


def note_labelled(
    report: Report,
    files: Mapping[str, SplitFile],
    classes: Sequence[str],
) -> None:
    """Note in how many images each class is labelled, where it is not in all."""
    for split, file in files.items():
        total = len(file.names)
        for name in classes:
            count = sum(name not in region.labelled for region in file.regions)
            if count:
                kind = f'class that not all {WORDS[split]} images label (not learned in the others)'
                report.note(kind, f'{name} ({total - count} of {total})')


def report_text(
    folder: LabelFolder,
    splits: dict[str, dict[str, Any]],
    report: Report,
) -> str:
    """The report: a line on the data set, and one for each kind of what is unusual."""
    numbers = []
    for split, of in splits.items():
        word = split_word(split, folder.splits[split].inventory)
        numbers.append(f'{of["num_images"]} {word} images')
    counts = ' and '.join(numbers)
    objects = ' and '.join(str(values['num_objects']) for values in splits.values())
    lines = [
        f'{folder.format.title}, {counts}, by {folder.split_by}; {objects} objects'
    ]
    if 'train' in splits:
        empty = splits['train']['num_images'] - splits['train']['num_with_objects']
        if empty:
            lines[0] += f'; {empty} training images have no object'
    if len(splits) == len(WORDS):
        train = splits['train']['files']
        val = splits['val']['files']
        lines += unused_tests(folder.splits['val'].inventory, {*train, *val})
        same = copies_in(train, val)
        if same:
            lines.append(
                f'{len(same)} of {len(val)} validation images are training images, too, '
                'so figures of the evaluation are too good'
            )
    return '\n'.join([*lines, *folder.notes, *report.lines()])


def check_left_out(splits: dict[str, CanonicalSplit], text: str, partial: bool) -> None:
    """Refuse a data set of which much is left out, or whose boxes mostly leave their images.

    Not so with ``own.partial``. The ValueError has the ``text`` of the report.
    """
    if partial:
        return
    for split, part in splits.items():
        kind = WORDS[split]
        problem = ''
        with_file = part.num_images - part.num_without_file
        if part.num_cut >= LEAST_CUT and part.num_cut > MOST_CUT * part.num_objects:
            problem = (
                f'{part.num_cut} of {part.num_objects} {kind} objects leave their image: do the '
                'labels have corners in place of a size? If they are right, train on them'
            )
        elif 0 < with_file < LEAST_WITH_FILE * part.num_images:
            problem = (
                f'{part.num_without_file} of {part.num_images} {kind} images have no label file: '
                'copy the rest, or train them as images without objects'
            )
        elif part.left_out > MOST_LEFT_OUT * part.labelled:
            problem = (
                f'{part.left_out} of {part.labelled} {kind} objects are left out: mend the labels, '
                'or train on the rest'
            )
        if problem:
            raise ValueError(
                f'{problem} by own.partial=True. {"; ".join(text.splitlines())}'
            )
