"""Label files of several images each: the images that a file may be of, and both splits."""

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from .coco_files import words_of
from .inventory import Images, Inventory
from .label_folder import Split, SplitFiles
from .objects import NO_IMAGE
from .places import SPLIT_NAMES, SPLITS, FileKind, FilePairs, Places
from .splits import Splits, split_files

# Splits by words: those for training and for validation are alike, but for a test.
GROUPS = dict.fromkeys(SPLITS['train'], 'train') | dict.fromkeys(SPLITS['val'], 'val')
GROUPS |= {'test': 'test', '': ''}


class SharedFiles:
    """Label files of several images each, and the images in the folder of a data set."""

    def __init__(self, kind: FileKind, inventory: Inventory) -> None:
        self.inventory = inventory
        self.places = Places(kind, inventory.root)
        self.images = inventory.images(inventory.root)
        self.known: dict[str, Images] = {}

    def split_of(self, file: Path) -> str:
        """The split that the folders of a label file say, or its name: 'train_boxes.json'."""
        words = SPLIT_NAMES.intersection(words_of(file.stem))
        by_name = words.pop() if len(words) == 1 else ''
        return self.places.of(str(file)).split or by_name

    def images_for(self, file: Path) -> Images:
        """The images that a label file may be of: of its split, or of none."""
        split = GROUPS[self.split_of(file)]
        if split not in self.known:
            own = {}
            for path, image in self.images.by_path.items():
                group = GROUPS[self.places.of(str(image)).split]
                if not split or group in ('', split):
                    own[path] = image
            self.known[split] = Images(self.images.folder, own, self.images.named)
        return self.known[split]

    def claim(self, file: Path, name: str, image: Path | None) -> Path | None:
        """The image of a name in a label file, see ``Images.claim``."""
        return self.images.claim(os.path.join(file.parent, name), image)

    def split(self, labelled: Mapping[Path, Collection[Path]]) -> Splits:
        """Both splits, as of images that have a label file each.

        ValueError if images of only one split are labelled.
        """
        paths = map(str, self.images.by_path.values())
        images = {path: self.places.of(path) for path in paths}
        pairs = FilePairs(self.places.kind, self.images.folder, images, {})
        for file, own in labelled.items():
            for path in map(str, own):
                pairs.files[path] = images[path]._replace(split=self.split_of(file))
                pairs.image_of[path] = path
        splits, by = split_files(pairs, self.inventory)
        files: dict[str, dict[Path, str]] = defaultdict(dict)
        for file, own in labelled.items():
            word = self.split_of(file)
            names = []
            for name, split in splits.items():
                if not split.files.pairs.keys().isdisjoint(own):
                    names.append(name)
            if not own and word != 'test':
                names = [GROUPS[word] or 'train']
            for name in names:  # what is of no image is counted in the first
                files[name][file] = NO_IMAGE if name == names[0] else ''
        lacking = f'image without {pairs.kind.what} (not labelled, so left out)'
        for name, split in splits.items():
            notes = [*split.files.notes]
            for image in split.files.unlabelled:
                notes.append((lacking, image.name))
            for path in split.files.absent:
                notes.append(('listed image that is not there', path))
            splits[name] = Split(
                source=Path(os.path.commonpath(labelled)),
                images=self.images.folder,
                names=frozenset(map(self.images.stem_of, split.files.pairs)),
                inventory=self.inventory,
                files=SplitFiles(orphans=files[name], notes=notes),
            )
        return splits, by


def label_files(split: Split, suffixes: tuple[str, ...]) -> Mapping[Path, str]:
    """The label files of a split, with the reason of labels without an image; '' to skip them."""
    if split.files.orphans:
        return split.files.orphans
    if split.source.is_file():
        return {split.source: NO_IMAGE}
    return dict.fromkeys(split.inventory.below(split.source, suffixes), NO_IMAGE)
