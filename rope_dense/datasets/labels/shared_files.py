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
from .splits import Splits, by_hash, unlabelled


class SharedFiles:
    """The label files of a kind in a data set, of which each has labels of several images."""

    def __init__(self, kind: Kind, inventory: Inventory) -> None:
        self.inventory, self.places = inventory, Places(kind, inventory.root)
        self.all = inventory.images(inventory.root)
        self.known: dict[str, Images] = {}
        self.by_key: dict[str, list[Path]] = {}
        for _, image in self.all:
            self.by_key.setdefault(self.places.of(str(image)).key, []).append(image)

    def split_of(self, file: Path) -> str:
        """The split that the folders of a label file say, or its name: 'train_boxes.json'."""
        words = SPLIT_NAMES.intersection(re.split(r'[^a-z0-9]+', file.stem.lower()))
        return self.places.of(str(file)).split or (words.pop() if len(words) == 1 else '')

    def images(self, file: Path) -> Images:
        """The images that a label file may be of: of its split, or of none."""
        if (split := self.split_of(file)) not in self.known:
            all_images = self.all.by_path.items()
            may = {path: image for path, image in all_images if self.may_be_of(file, image)}
            self.known[split] = Images(self.inventory.root, may)
        return self.known[split]

    def may_be_of(self, file: Path, image: Path) -> bool:
        """Return whether no word in their paths puts a label file and an image apart."""
        split, other = self.split_of(file), self.places.of(str(image)).split
        return not split or other in ('', split)

    def named(self, file: Path) -> Path | None:
        """The image that has the name of a label file."""
        key = self.places.of(str(file)).key
        some = [x for x in self.by_key.get(key, ()) if self.may_be_of(file, x)]
        return some[0] if len(some) == 1 else self.images(file).find(key)

    def split(self, images_of: Mapping[Path, Collection[Path]]) -> Splits:
        """Both splits by words in paths of files and images, else by a hash of the images.

        Args:
            images_of: the labelled images of each file.

        Raises:
            ValueError: images of only one split are labelled.
        """
        root, source = self.inventory.root, Path(os.path.commonpath(images_of))
        said = {
            image: self.split_of(file) or self.places.of(str(image)).split
            for file, images in images_of.items()
            for image in images
        }
        train, val = ([x for x in SPLITS[split] if x in said.values()] for split in SPLITS)
        val = [name for name in val if name != 'test'] or val
        if val and not train:
            raise ValueError(f'{source} has labels for validation, but no train/ has labels')
        part = Part(source, root, inventory=self.inventory, orphans=dict.fromkeys(images_of, ''))
        if val:
            parts, by = {}, 'folder (test/ is for validation)' if 'test' in val else 'folder'
            for split, names in (('train', train), ('val', val)):
                chosen = {image for image, name in said.items() if name in names}
                some = [
                    file
                    for file, images in images_of.items()
                    if chosen.intersection(images)
                    or (not images and (self.split_of(file) or train[0]) in names)
                ]
                stems = frozenset(map(self.all.stem_of, chosen))
                parts[split] = replace(part, names=stems, orphans=dict.fromkeys(some, ''))
        else:
            for _, image in self.all:
                if self.places.of(str(image)).split in {*SPLITS['val']} - {'test'}:
                    raise unlabelled(image.parent, source)
            parts, by = by_hash(part, [*map(self.all.stem_of, said)])
        rest = [
            image
            for _, image in self.all
            if image not in said and self.places.of(str(image)).split in ('', *train, *val)
        ]
        kind = 'labelled image in no split (neither trained nor evaluated)'
        notes = [(kind, image.name) for image, name in said.items() if val and not name]
        parts['train'] = replace(parts['train'], unlabelled=rest, notes=notes)
        both = parts['train'].orphans.keys() & parts['val'].orphans.keys()
        parts['val'] = replace(parts['val'], options=dict(counted=sorted(map(str, both))))
        return parts, by


def files_of(part: Part, suffixes: tuple[str, ...]) -> list[Path]:
    """The label files of a split."""
    if part.orphans:
        return [*part.orphans]
    return [part.source] if part.source.is_file() else part.inventory.below(part.source, suffixes)


def counts(part: Part, file: Path) -> bool:
    """Return whether labels of no image are counted in this split, and not in the other."""
    return str(file) not in part.options.get('counted', ())


def note_rest(part: Part, kind: str, report: Report) -> None:
    """Note the images of a split without labels, and images in no split."""
    for image in part.unlabelled:
        report.note(kind, image.name)
    for note in part.notes:
        report.note(*note)
