"""The meaning of paths in a data set: of which split and which image a file is.

In 'ships/train/labels/cam 1/a.txt' and 'ships/images/train/cam 1/a.jpg' the words of the layout are
`train`, `labels` and `images`; `ships` before them is the folder of the data set, and what is left,
'cam 1/a', is the key of both.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SPLITS = {
    'train': ('train2017', 'train', 'training'),
    'val': ('val2017', 'val', 'valid', 'validation', 'test'),
}
SPLIT_NAMES = {*SPLITS['train'], *SPLITS['val']}
IMAGE_FOLDERS = 'images?|imgs?|jpe?gimages|pngimages|obj_data'
SPLIT = '|'.join(sorted(SPLIT_NAMES, key=len, reverse=True))


class FolderWord(NamedTuple):
    """The meaning of a folder's name."""

    split: str  # '' for none
    of_labels: bool | None  # labels or images; None if it says a split only


@dataclass(frozen=True)
class FileKind:
    """A kind of files that belong to an image each."""

    title: str  # of the format, for messages
    what: str  # one of its files, such as 'an XML file'
    suffixes: tuple[str, ...]
    # Names of folders of its files; this, ``images`` and words: regular expressions.
    folders: str
    images: str = IMAGE_FOLDERS
    # Asked of few; ValueError for a broken file.
    is_one: Callable[[Path], bool] = lambda path: True
    # The image by the content of a file.
    named: Callable[[Path], str | None] = lambda path: None
    is_apart: bool = False  # its files are in ``folders`` only
    # Its files are images, told by folders and words, one for each image.
    is_map: bool = False
    # An image without a file has no objects, so it is in a split.
    negatives: bool = False
    # Folder in ImageSets/ of the lists of splits; None without lists.
    lists: str | None = None
    # Before or behind the name of the image, as in 'a_mask.png'.
    words: tuple[str, ...] = ()
    # Words of files that belong to the image and are something else.
    others: tuple[str, ...] = ()
    image_words: tuple[str, ...] = ()  # of images beside 'a_mask.png'

    @property
    def noun(self) -> str:
        """One of its files, without an article."""
        return self.what.split(maxsplit=1)[1]

    @property
    def plural(self) -> str:
        """Its files in words."""
        return f'{self.noun}s' if self.is_map else 'labels'

    def word(self, name: str) -> FolderWord | None:
        """The meaning of a folder's name, None for none.

        The name has words of a split, of images or of labels, or two of them in one.
        """
        either = rf'(?P<labels>{self.folders})|(?P<images>{self.images})'
        layout = rf'(?P<first>{SPLIT})?[-_ ]?(?:{either})?[-_ ]?(?P<last>{SPLIT})?'
        found = re.fullmatch(rf'(?:obj_)?{layout}(?:_(?:data|dir))?', name, re.I)
        if not found or not any(found.groups()) or (found['first'] and found['last']):
            return None
        split = (found['first'] or found['last'] or '').lower()
        has_word = found['labels'] or found['images']
        return FolderWord(split, bool(found['labels']) if has_word else None)


class FilePlace(NamedTuple):
    """The meaning of the path of a file."""

    split: str  # '' for none
    key: str  # the path without suffix and words of the layout
    top: str  # the folder down to the last of these words
    of_labels: bool | None  # whether the words say labels or images; None without words


class Places:
    """The places of files, by words in their paths below the folder of the data set."""

    def __init__(self, kind: FileKind, home: Path) -> None:
        self.kind = kind
        self.home = os.path.join(home, '')
        self.of_folder: dict[str, FilePlace] = {}  # with the start of keys

    def of(self, path: str) -> FilePlace:
        """The place of a file."""
        folder, _, name = path.rpartition('/')
        found = self.of_folder.get(folder)
        if found is None:
            start = self.home if f'{folder}/'.startswith(self.home) else ''
            below = f'{folder}/'[len(start) :]
            names = [*filter(None, below.split('/'))]
            split = ''
            inner = ''
            last = 0
            of_labels = None
            for number, name_above in enumerate(names, start=1):
                word = self.kind.word(name_above)
                if word is None:
                    inner += f'{name_above}/'
                    continue
                split = split or word.split
                last = number
                of_labels = (
                    bool(of_labels) if word.of_labels is None else word.of_labels
                )
            top = (start + '/'.join(names[:last])).rstrip('/') or '/'
            found = self.of_folder[folder] = FilePlace(split, inner, top, of_labels)
        key = found.key + os.path.splitext(name)[0]
        return FilePlace(found.split, key, found.top, found.of_labels)


@dataclass
class FilePairs:
    """Files of a kind and the images in a folder, with their places, matched."""

    kind: FileKind
    home: Path  # folder of the data set
    images: dict[str, FilePlace]
    files: dict[str, FilePlace]
    source: Path | None = None  # folder of the files, where there may be none
    image_of: dict[str, str] = field(default_factory=dict)  # by files
    # The other files, and the reason.
    orphans: dict[str, str] = field(default_factory=dict)
    # (kind, place) for the report.
    notes: list[tuple[str, str]] = field(default_factory=list)

    def split_of(self, path: str) -> str:
        """The name of the split of a file, or of its image."""
        image = self.image_of.get(path)
        split = self.images[image].split if image else ''
        return split or self.files[path].split


def stem_without(stem: str, words: tuple[str, ...]) -> str:
    """A path without suffix, without the words at the end or at the start of its name."""
    if not words:
        return stem
    either = '|'.join(sorted(words, key=len, reverse=True))
    folder, slash, name = stem.rpartition('/')
    short = re.sub(rf'(?<=.)(?:[-_. ](?:{either}))+$', '', name, flags=re.I)
    if short == name:
        short = re.sub(rf'^(?:{either})[-_. ](?=.)', '', name, flags=re.I)
    return f'{folder}{slash}{short}'
