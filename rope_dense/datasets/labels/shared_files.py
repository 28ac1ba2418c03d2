"""Label files of several images each: the images that a file may be of, and both splits."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from .coco_files import words_of
from .inventory import Images, Inventory
from .objects import NO_IMAGE, Part
from .pairs import SPLITS, Kind, Places
from .splits import Splits, by_hash, unlabelled

SPLIT_OF = {word: split for split, words in SPLITS.items() for word in words} | {'test': 'test'}


class SharedFiles:
    """The images of a data set, and the splits ('train', 'val', 'test' or '') that paths say."""

    def __init__(self, kind: Kind, inventory: Inventory) -> None:
        self.inventory, self.places = inventory, Places(kind, inventory.root)
        self.all = inventory.images(inventory.root)
        self.known: dict[str, Images] = {}

    def said_by_folders(self, path: Path) -> str:
        """The split that the folders of an image or of a label file say."""
        return SPLIT_OF.get(self.places.of(str(path)).split, '')

    def split_of(self, file: Path) -> str:
        """The split that the folders of a label file say, or its name: 'train_boxes.json'."""
        words = {SPLIT_OF[word] for word in words_of(file.stem) if word in SPLIT_OF}
        return self.said_by_folders(file) or (words.pop() if len(words) == 1 else '')

    def images_for(self, file: Path) -> Images:
        """The images that a label file may be of: of its split, or of none."""
        if (split := self.split_of(file)) not in self.known:
            images = self.all.by_path.items()
            own = {x: one for x, one in images if self.said_by_folders(one) in ('', split)}
            self.known[split] = Images(self.all.folder, own if split else self.all.by_path)
        return self.known[split]

    def split(self, labelled: Mapping[Path, Collection[Path]], unlike: str) -> Splits:
        """Both splits by words in paths of files and images, else by a hash of the images.

        Args:
            labelled: the images of each file.
            unlike: what the report says of images without labels.

        Raises:
            ValueError: images of only one split are labelled.
        """
        said = {
            image: self.split_of(file) or self.said_by_folders(image)
            for file, images in labelled.items()
            for image in images
        }
        val = next((split for split in ('val', 'test') if split in said.values()), '')
        part = Part(Path(os.path.commonpath(labelled)), self.all.folder, inventory=self.inventory)
        if val and 'train' not in said.values():
            raise ValueError(f'{part.source} has labels for validation, but no train/ has labels')
        if val:
            parts, by = {}, 'folder' if val == 'val' else 'folder (test/ is for validation)'
            for name, split in (('train', 'train'), ('val', val)):
                chosen = (image for image, word in said.items() if word == split)
                parts[name] = replace(part, names=frozenset(map(self.all.stem_of, chosen)))
        else:
            for _, image in self.all:
                if self.said_by_folders(image) == 'val':
                    raise unlabelled(image.parent, part.source)
            parts, by = by_hash(part, [*map(self.all.stem_of, said)])
        files: dict[str, dict[Path, str]] = {name: {} for name in parts}
        for file, images in labelled.items():
            names = [name for name, one in parts.items() if any(map(one.takes, images))]
            if not images and (split := self.split_of(file)) in ('', 'train', val):
                names = ['val' if split and split == val else 'train']
            for name in names:  # labels of images that are not there are counted in the first
                files[name][file] = NO_IMAGE if name == names[0] else ''
        rest = [image for _, image in self.all if image not in said]
        notes = [(unlike, x.name) for x in rest if self.said_by_folders(x) in ('', 'train', val)]
        kind = 'labelled image in no split (neither trained nor evaluated)'
        notes += [(kind, image.name) for image, split in said.items() if val and not split]
        parts = {name: replace(one, orphans=files[name]) for name, one in parts.items()}
        return parts | dict(train=replace(parts['train'], notes=notes)), by


def files_of(part: Part, suffixes: tuple[str, ...]) -> Mapping[Path, str]:
    """The label files of a split, with the reason of labels without an image; '' to skip them."""
    files = [part.source] if part.source.is_file() else part.inventory.below(part.source, suffixes)
    return part.orphans or dict.fromkeys(files, NO_IMAGE)
