"""Label files of several images each: the images that a file may be of, and both splits."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from .coco_files import words_of
from .inventory import Images, Inventory
from .objects import NO_IMAGE, Split
from .pairs import SPLIT_NAMES, SPLITS, FileKind, FilePairs, Places
from .splits import Splits, split_files

GROUPS = {word: split for split, words in SPLITS.items() for word in words}
GROUPS |= {'test': 'test', '': ''}


class SharedFiles:
    """Label files of several images each, and the images in the folder of a data set."""

    def __init__(self, kind: FileKind, inventory: Inventory) -> None:
        self.inventory, self.places = inventory, Places(kind, inventory.root)
        self.images = inventory.images(inventory.root)
        self.known: dict[str, Images] = {}

    def split_of(self, file: Path) -> str:
        """The split that the folders of a label file say, or its name: 'train_boxes.json'."""
        words = SPLIT_NAMES.intersection(words_of(file.stem))
        return self.places.of(str(file)).split or (
            words.pop() if len(words) == 1 else ''
        )

    def images_for(self, file: Path) -> Images:
        """The images that a label file may be of: of its split, or of none."""
        if (split := GROUPS[self.split_of(file)]) not in self.known:
            own = dict[str, Path]()
            for path, image in self.images.by_path.items():
                if not split or GROUPS[self.places.of(str(image)).split] in ('', split):
                    own[path] = image
            self.known[split] = Images(self.images.folder, own)
        return self.known[split]

    def split(self, labelled: Mapping[Path, Collection[Path]]) -> Splits:
        """Both splits, as of images that have a label file each.

        ValueError if images of only one split are labelled.
        """
        images = {
            path: self.places.of(path)
            for path in map(str, self.images.by_path.values())
        }
        pairs = FilePairs(self.places.kind, self.images.folder, images, {})
        for file, some in labelled.items():
            for path in map(str, some):
                pairs.files[path] = images[path]._replace(split=self.split_of(file))
                pairs.image_of[path] = path
        parts, by = split_files(pairs, self.inventory)
        files: dict[str, dict[Path, str]] = {name: {} for name in parts}
        for file, some in labelled.items():
            names = [
                x for x, part in parts.items() if not part.pairs.keys().isdisjoint(some)
            ]
            if not some and (word := self.split_of(file)) != 'test':
                names = ['val' if word in SPLITS['val'] else 'train']
            for name in names:  # what is of no image is counted in the first
                files[name][file] = NO_IMAGE if name == names[0] else ''
        lacking = f'image without {pairs.kind.what} (not labelled, so left out)'
        for name, part in parts.items():
            parts[name] = Split(
                source=Path(os.path.commonpath(labelled)),
                images=self.images.folder,
                names=frozenset(map(self.images.stem_of, part.pairs)),
                inventory=self.inventory,
                orphans=files[name],
                notes=[
                    *part.notes,
                    *((lacking, image.name) for image in part.unlabelled),
                    *(('listed image that is not there', path) for path in part.absent),
                ],
            )
        return parts, by


def label_files(part: Split, suffixes: tuple[str, ...]) -> Mapping[Path, str]:
    """The label files of a split, with the reason of labels without an image; '' to skip them."""
    files = (
        [part.source]
        if part.source.is_file()
        else part.inventory.below(part.source, suffixes)
    )
    return part.orphans or dict.fromkeys(files, NO_IMAGE)
