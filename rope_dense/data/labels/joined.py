"""Several data sets in one: splits of a folder, or the folders in a folder, of any formats."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from .files import class_name
from .inventory import Inventory
from .label_folder import Format, LabelFolder, Read, Split, SplitFiles
from .objects import Labelled, Report
from .splits import WORDS

FOLDERS = 'folders'  # in the place of a format


def find_in_folders(
    inventory: Inventory, find: Callable[[Inventory], LabelFolder]
) -> LabelFolder:
    """The folders of a folder, each a data set of its own, as one data set.

    Images are labelled for the classes of their folder, see ``Labelled``. ``find`` finds the data
    set in a folder; ValueError as of ``find``, or if there is no folder.
    """
    root = inventory.root
    found = {}
    for place in inventory.subfolders(root).values():
        try:
            found[place.name] = find(inventory.at(place))
        except ValueError as error:
            raise ValueError(
                f'{error} (own.format={FOLDERS}: each folder in {root} is a data set; move away '
                'what is none)'
            ) from error
    if not found:
        raise ValueError(f'own.format={FOLDERS}: {root} has no folder')
    known = {name: classes_of(folder) for name, folder in found.items()}
    images = [*inventory.images(root).by_path.values()]
    splits = {}
    for split in WORDS:
        whole = join([folder.splits[split] for folder in found.values()])
        splits[split] = replace(
            whole,
            images=root,
            inventory=inventory,
            options=dict(split=split),
            files=replace(whole.files, unlabelled=images),  # of what is kept
        )

    def read(whole: Split, classes: Sequence[str] | None, report: Report) -> Read:
        reads = []
        for name, folder in found.items():
            part = folder.splits[whole.options['split']]
            listed, items = folder.format.read(part, folder.classes, report)
            reads.append((listed, labelled_for(items, frozenset(known[name]))))
        return together(reads)

    titles = ' and '.join(dict.fromkeys(x.format.title for x in found.values()))
    return LabelFolder(
        Format(FOLDERS, titles, (), find, read),
        splits,
        '; '.join(f'{name}/: {folder.split_by}' for name, folder in found.items()),
        [*dict.fromkeys(chain.from_iterable(known.values()))],
        (*chain.from_iterable(folder.notes for folder in found.values()),),
    )


def classes_of(folder: LabelFolder) -> list[str]:
    """The names of the classes of a data set: those that it lists, or that its objects have."""
    names = dict[str, None]()
    for part in folder.splits.values():
        listed, items = folder.format.read(part, folder.classes, Report())
        if not listed:
            listed = sorted({shape.label for item in items for shape in item.shapes})
        names |= dict.fromkeys(map(class_name, listed))
    return [*names]


def labelled_for(
    items: Iterator[Labelled], classes: frozenset[str]
) -> Iterator[Labelled]:
    """The images, labelled for some classes, unless they say for which."""
    for item in items:
        if item.labelled is None:
            item.labelled = classes
        yield item


def together(reads: Sequence[Read]) -> Read:
    """Several readings as one, each image of the first that has it."""

    def each_once() -> Iterator[Labelled]:
        seen = set[Path]()
        for _, items in reads:
            for item in items:
                if item.file not in seen:
                    seen.add(item.file)
                    yield item

    listed = chain.from_iterable(names for names, _ in reads)
    return [*dict.fromkeys(listed)], each_once()


def join(parts: Sequence[Split]) -> Split:
    """One split with the files of several."""
    # Of ``SplitFiles``, whose lists are keys of dicts, so that each is there once.
    files = dict[str, Any]()
    for part in parts:
        for name, some in vars(part.files).items():
            known = files.setdefault(name, {})
            known |= some if isinstance(some, Mapping) else dict.fromkeys(some)
        if part.source.is_file():
            files['orphans'][part.source] = ''
    return replace(
        parts[0],
        source=Path(os.path.commonpath([part.source for part in parts])),
        images=Path(os.path.commonpath([part.images for part in parts])),
        names=None,
        files=SplitFiles(**files),
    )
