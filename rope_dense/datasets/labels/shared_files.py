"""Label files of several images each: the images that a file may be of, and both splits."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from .inventory import Images, Inventory
from .objects import Part, Report
from .pairs import SPLIT_NAMES, SPLITS, Kind, Places
from .splits import Splits, by_hash, check_unlabelled


class SharedFiles:
    """The label files of a kind in a data set, of which each has labels of several images."""

    def __init__(self, kind: Kind, inventory: Inventory) -> None:
        self.inventory, self.places = inventory, Places(kind, inventory.root)
        self.all = inventory.images(inventory.root)
        self.of_split: dict[str, Images] = {}

    def split_of_image(self, image: Path) -> str:
        """The split that the folders of an image say; '' for none."""
        return self.places.of(str(image)).split

    def split_of_file(self, file: Path) -> str:
        """The split that the folders of a label file say, or its name: 'train_boxes.json'."""
        words = SPLIT_NAMES.intersection(re.split(r'[^a-z0-9]+', file.stem.lower()))
        return self.places.of(str(file)).split or (words.pop() if len(words) == 1 else '')

    def images(self, file: Path) -> Images:
        """The images that a label file may be of: of its split, or of none."""
        if not (split := self.split_of_file(file)):
            return self.all
        if split not in self.of_split:
            may = {
                path: image
                for path, image in self.all.by_path.items()
                if self.split_of_image(image) in ('', split)
            }
            self.of_split[split] = Images(self.inventory.root, may)
        return self.of_split[split]

    def split(self, images_of: Mapping[Path, Collection[Path]]) -> Splits:
        """Both splits by words in paths of files and images, else by a hash of the images.

        Args:
            images_of: the labelled images of each file.

        Raises:
            ValueError: images of only one split are labelled.
        """
        root, split_of = self.inventory.root, dict[Path, str]()
        for file, images in images_of.items():
            for image in images:
                split_of.setdefault(image, self.split_of_file(file) or self.split_of_image(image))
        there = {*split_of.values()}
        train = [name for name in SPLITS['train'] if name in there]
        val = [name for name in SPLITS['val'] if name in there]
        val = [name for name in val if name != 'test'] or val
        source = Path(os.path.commonpath(images_of))
        if val and not train:
            raise ValueError(f'{source} has labels for validation, but no train/ has labels')
        rest = [
            image
            for _, image in self.all
            if image not in split_of and self.split_of_image(image) in ('', *train, *val)
        ]
        part = Part(source, root, None, {}, self.inventory, orphans=dict.fromkeys(images_of, ''))
        if not val:
            homes = [root, *self.inventory.subfolders(root).values()]
            check_unlabelled(self.inventory, homes, source)
            parts, by = by_hash(part, [self.all.stem_of(image) for image in split_of])
        else:
            by = 'folder' if 'test' not in val else 'folder (test/ is for validation)'
            some = {
                split: [image for image, name in split_of.items() if name in names]
                for split, names in (('train', train), ('val', val))
            }
            parts = {split: self.part(part, names, images_of) for split, names in some.items()}
        kind = 'labelled image in no split (neither trained nor evaluated)'
        notes = [(kind, i.name) for i, name in split_of.items() if val and not name]
        parts['train'] = replace(parts['train'], unlabelled=rest, notes=notes)
        # A file of both splits: what is of no image is counted in training only.
        counted = [*map(str, parts['train'].orphans)]
        parts['val'] = replace(parts['val'], options=dict(counted=counted))
        return parts, by

    def part(
        self, part: Part, images: Collection[Path], images_of: Mapping[Path, Collection[Path]]
    ) -> Part:
        """The labels of some images: the files that have some, in the folder of the images."""
        chosen = {*images}
        files = [file for file, labelled in images_of.items() if chosen.intersection(labelled)]
        folder = Path(os.path.commonpath({self.places.of(str(image)).top for image in images}))
        stems = frozenset(os.path.splitext(os.path.relpath(x, folder))[0] for x in images)
        source = Path(os.path.commonpath(files))
        orphans = dict.fromkeys(files, '')
        return replace(part, source=source, images=folder, names=stems, orphans=orphans)


def files_of(part: Part, suffixes: tuple[str, ...]) -> list[Path]:
    """The label files of a split."""
    if part.orphans:
        return [*part.orphans]
    return [part.source] if part.source.is_file() else part.inventory.list(part.source, suffixes)


def takes(part: Part, image: Path) -> bool:
    """Return whether an image, of any folder, is of a split."""
    return image.is_relative_to(part.images) and part.takes(image)


def counts(part: Part, file: Path) -> bool:
    """Return whether labels of no image are counted with this split, and not with the other."""
    return str(file) not in part.options.get('counted', ())


def note_rest(part: Part, kind: str, report: Report) -> None:
    """Note the images of a split without labels, and images in no split."""
    for image in part.unlabelled:
        report.note(kind, image.name)
    for note in part.notes:
        report.note(*note)
