"""Images and the mask or depth map of each, matched by the names of their files."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from .images.band_files import ARRAY, is_first
from .labels.files import IMAGE_SUFFIXES, Images, list_files, numbered_lines, suffixes_in
from .labels.objects import EXAMPLES, Labels, Report
from .labels.splits import is_for_validation

Pair = tuple[Path, Path]  # an image, and its mask or depth map
IMAGE_WORDS = ('leftImg8bit', 'image', 'img', 'sat', 'rgb')  # of an image beside 'a_mask.png'
UNREAD = ('.jpg', '.jpeg', '.webp', '.npy')  # of maps, unless a kind has them
MISSING_PART = 10  # not more than a tenth of the images may lack a mask


@dataclass(frozen=True)
class Kind:
    """A kind of files that belong to images.

    Attributes:
        name: in settings.
        title: of one.
        suffixes: of its files.
        images, maps: common names of the folders of both, in lower case.
        words: before or behind the name of the image, as in 'a_mask.png'.
        others: words of files that belong to the image and are something else.
        channels: names of channels that are files of their own: images are the files of the first,
            and maps may have their names without it.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    images: tuple[str, ...]
    maps: tuple[str, ...]
    words: tuple[str, ...]
    others: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


IMAGES = ('images', 'image', 'imgs', 'img', 'jpegimages', 'leftimg8bit', 'image_2', 'input')
MASKS = Kind(
    'masks',
    'mask',
    ('.png', '.tif', '.tiff', '.bmp', '.gif'),
    IMAGES,
    (
        *('annotations', 'masks', 'labels', 'annotation', 'mask', 'label', 'annot', 'ann', 'gt'),
        *('ground_truth', 'segmentation', 'semantic', 'target', 'segmentationclass'),
        *('segmentationclasspng', 'gtfine'),
    ),
    (
        *('gtFine_labelTrainIds', 'gtCoarse_labelTrainIds', 'labelTrainIds', 'annotation', 'mask'),
        *('masks', 'label', 'labels', 'seg', 'segmentation', 'gt', 'L', 'P', 'manual1'),
    ),
    tuple(
        f'{start}{what}'
        for start in ('gtFine_', 'gtCoarse_', '')
        for what in ('labelIds', 'instanceIds', 'instanceTrainIds', 'color')
    ),
)
DEPTH = Kind(
    'depth',
    'depth map',
    ('.png', '.tif', '.tiff', '.npy'),
    (*IMAGES, 'rgb', 'color'),
    ('depth', 'depths', 'annotations', 'depth_maps'),
    ('depth', 'sync_depth'),
)


@dataclass
class Match:
    """The images and maps of two folders.

    Attributes:
        folder, maps: of the images and of the maps.
        images: by their stems.
        doubles: images that differ by their suffix from another one.
        map_of: the map of each image that has one.
        orphans: maps without an image.
    """

    folder: Path
    maps: Path
    kind: Kind
    images: dict[str, Path]
    doubles: list[Path]
    map_of: dict[Path, Path] = field(default_factory=dict)
    orphans: list[Path] = field(default_factory=list)

    def pairs(
        self, ann_file: str = '', part: str | None = None, report: Report | None = None
    ) -> list[Pair]:
        """(Image, map) of each image of a split.

        Args:
            ann_file: list of the images; '' for all.
            part: 'train' or 'val' for that part of the images by a hash of their names, or None.
            report: gets the images that are left out.

        Raises:
            ValueError: no pair, or more than a tenth of the images have no map.
        """
        wanted, absent = [*self.images.values()], list[str]()
        if ann_file:
            wanted, absent = listed_images(Path(ann_file), self.folder)
        unpaired = [file for file in wanted if file not in self.map_of]
        names = [*absent, *(file.name for file in unpaired)]
        self.check_number(names, len(wanted) + len(absent), ann_file or self.folder)

        def is_chosen(file: Path) -> bool:
            if part is None:
                return True
            return is_for_validation(stem_of(file, self.folder)) == (part == 'val')

        if report is not None:
            for name in absent:
                report.note(f'image that {ann_file} names and that is not there (left out)', name)
            for file in filter(is_chosen, unpaired):
                report.note(f'image without a {self.kind.title} (left out)', file.name)
            for file in filter(is_chosen, self.doubles):
                report.note('second image of one name (left out)', file.name)
        chosen = [file for file in wanted if is_chosen(file)]
        return [(file, self.map_of[file]) for file in chosen if file in self.map_of]

    def check_number(self, missing: Sequence[str], count: int, place: Path | str) -> None:
        """Raise ValueError if too many of the images at a place have no map."""
        if len(missing) < count and len(missing) * MISSING_PART <= count:
            return
        refuse_lossy(self.maps, self.kind)
        names = f': {", ".join(missing[:EXAMPLES])}' if missing else ''
        title, suffixes = self.kind.title, ', '.join(self.kind.suffixes)
        raise ValueError(
            f'{len(missing)} of {count} images of {place} have no {title} of their name in '
            f'{self.maps}{names}. Looked for images {", ".join(IMAGE_SUFFIXES)} and {title}s '
            f'{suffixes}; there are {suffixes_in(self.folder)} and {suffixes_in(self.maps)}'
        )


def check_size(path: Path, shape: tuple[int, ...], results: Mapping[str, Any]) -> None:
    """Raise ValueError if the size of a map is not the size of its image, where that is known."""
    if shape != results.get('ori_shape', shape):
        raise ValueError(
            f'{path} and its image {results["img_path"]} differ in size, {shape} and '
            f'{results["ori_shape"]} (height, width)'
        )


def listed_images(ann_file: Path, images: Path) -> tuple[list[Path], list[str]]:
    """The images in a list, and the lines that name none.

    A line is the name or path of an image, with or without a suffix; behind it may be the path of
    its mask, after a blank or a comma.
    """
    folder, found, missing = Images(Labels(ann_file, images), Report()), list[Path](), list[str]()
    for _, line in numbered_lines(ann_file):
        ends = [len(line), *(gap.start() for gap in re.finditer(r'[\s,;]+', line))]
        starts = (line[:end] for end in sorted(ends, reverse=True))
        file = next((file for start in starts if (file := folder.find(start))), None)
        found += [file] if file else []
        missing += [] if file else [line]
    return list(dict.fromkeys(found)), missing


def match(folder: Path, maps: Path, kind: Kind) -> Match:
    """Find the map of each image in two folders, or in one.

    A map has the path of its image in their folders, with another suffix, and perhaps with a word
    such as 'mask' at its start or end; or only its name, where no path agrees.

    Raises:
        ValueError: an image has two maps, or there are only files that are something else.
    """
    files, candidates = list_files(folder, IMAGE_SUFFIXES), list_files(maps, kind.suffixes)
    if not files and kind.name == MASKS.name:
        files = list_files(folder, (ARRAY,))  # of any number of channels
    root = Path(os.path.commonpath([folder, maps]))
    files = [file for file in files if is_first(file, kind.channels, root)]
    if folder == maps:
        candidates = maps_among(files, candidates, kind)
        apart = {*candidates}
        files = [file for file in files if file not in apart]
    elif folder in maps.parents:
        files = [file for file in files if maps not in file.parents]
    stems = {file: stem_of(file, folder) for file in files}
    found = with_maps(Match(folder, maps, kind, *by_stem(stems)), candidates)
    if found.map_of or folder == maps or not candidates:
        return found
    names, doubles = by_stem({file: file.stem for file in files})
    named = with_maps(Match(folder, maps, kind, names, doubles), candidates, by_name=True)
    if named.map_of and len(names) + len(found.doubles) < len(files):
        raise ValueError(
            f'{folder}: {doubles[0].name} is the name of several images, and {maps} has no '
            'folders like theirs'
        )
    return replace(named, images=found.images, doubles=found.doubles)


def by_stem(stems: Mapping[Path, str]) -> tuple[dict[str, Path], list[Path]]:
    """The first file of each stem, and the others."""
    first: dict[str, Path] = {}
    others = [file for file, stem in stems.items() if first.setdefault(stem, file) != file]
    return first, others


def with_maps(found: Match, candidates: Sequence[Path], by_name: bool = False) -> Match:
    """Add the maps of the images; ValueError for two of an image, or only files of another kind.

    Args:
        by_name: without the folders of the candidates.
    """
    images, kind = found.images, found.kind
    words = *IMAGE_WORDS, *map(re.escape, kind.channels)
    short = {without(stem, words): file for stem, file in images.items()}
    stems = {file: file.stem if by_name else stem_of(file, found.maps) for file in candidates}
    used = {file: stem for file, stem in stems.items() if not is_other(stem, images, kind)}
    if candidates and not used:
        refuse_others(candidates, kind)
    for file, stem in used.items():
        key = image_stem(stem, images, kind)
        image = images.get(key) or short.get(key)
        if image is None:
            found.orphans.append(file)
        elif image in found.map_of:
            raise ValueError(
                f'{image}: two files may be its {kind.title}, {found.map_of[image]} and {file}: '
                'move one of them'
            )
        else:
            found.map_of[image] = file
    loose = by_form((image_stem(used[file], images, kind), file) for file in found.orphans)
    free = by_form((stem, file) for stem, file in images.items() if file not in found.map_of)
    for form in loose.keys() & free.keys():
        found.map_of[free[form]] = loose[form]
        found.orphans.remove(loose[form])
    return found


def by_form(stems: Iterable[tuple[str, Path]]) -> dict[str, Path]:
    """Files by their stems whatever the case and the form of Unicode; not two of one stem.

    macOS decomposes letters with accents, and Windows keeps no case.
    """
    files: dict[str, list[Path]] = {}
    for stem, file in stems:
        files.setdefault(unicodedata.normalize('NFC', stem).casefold(), []).append(file)
    return {form: found[0] for form, found in files.items() if len(found) == 1}


def image_stem(stem: str, images: Mapping[str, Path], kind: Kind) -> str:
    """The stem of the image that a map is of, from 'a', 'a_mask' or 'a.jpg' (of a.jpg.png)."""
    if stem in images or (inner := without(stem, kind.words)) in images:
        return stem if stem in images else inner
    short, suffix = os.path.splitext(inner)
    return short if suffix.lower() in IMAGE_SUFFIXES else inner


def maps_among(files: Sequence[Path], candidates: Sequence[Path], kind: Kind) -> list[Path]:
    """The maps in a folder of images: a_mask.png beside a.png; or a.png beside a.jpg."""
    stems = {str(file.with_suffix('')) for file in files}
    stems |= {without(stem, IMAGE_WORDS) for stem in stems}
    words = (*kind.words, *kind.others)
    named = [
        file
        for file in candidates
        if (stem := str(file.with_suffix(''))) != (key := without(stem, words)) and key in stems
    ]
    photographs = {str(file.with_suffix('')) for file in files if file.suffix.lower() != '.png'}
    return named or [
        file
        for file in candidates
        if file.suffix.lower() not in IMAGE_SUFFIXES
        or (file.suffix.lower() == '.png' and str(file.with_suffix('')) in photographs)
    ]


def is_other(stem: str, images: Mapping[str, Path], kind: Kind) -> bool:
    """Return whether a file is no map: of the colours or instances that Cityscapes has."""
    return stem not in images and without(stem, kind.others) != stem


def refuse_others(files: Sequence[Path], kind: Kind) -> NoReturn:
    """Raise the ValueError for files of which none is a map."""
    endings = {file.stem[len(without(file.stem, kind.others)) :] for file in files}
    raise ValueError(
        f'{files[0].parent}: no {kind.title} of class numbers, only files that end with '
        f'{", ".join(sorted(endings))}. Of Cityscapes, *_labelTrainIds.png have them '
        '(createTrainIdLabelImgs of cityscapesScripts); of colours, `rope-dense convert-data '
        'colours` makes them'
    )


def refuse_lossy(folder: Path, kind: Kind) -> None:
    """Raise ValueError for a folder whose maps are files that are not read, such as JPEG."""
    suffixes = {file.suffix.lower() for file in list_files(folder)}
    if suffixes.isdisjoint(kind.suffixes) and (unread := suffixes.intersection(UNREAD)):
        raise ValueError(
            f'{folder}: {kind.title}s are {", ".join(sorted(unread))}, which is not read (JPEG '
            'changes the numbers): save them as PNG'
        )


def without(stem: str, words: tuple[str, ...]) -> str:
    """A path without suffix, without the words at the end or at the start of its name."""
    end, start = patterns(words)
    folder, slash, name = stem.rpartition('/')
    return f'{folder}{slash}{end.sub("", name) if end.search(name) else start.sub("", name)}'


@cache
def patterns(words: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Words at the end of a name, and a word at its start, with what separates them."""
    either = '|'.join(sorted(words, key=len, reverse=True))
    forms = rf'(?<=.)(?:[-_. ](?:{either}))+$', rf'^(?:{either})[-_. ](?=.)'
    end, start = (re.compile(form, re.IGNORECASE) for form in forms)
    return end, start


def stem_of(file: Path, folder: Path) -> str:
    """The path in a folder, without suffix; for many files, so without ``relative_to``."""
    path = str(file) if folder == Path() else str(file)[len(str(folder)) + 1 :]
    return os.path.splitext(path)[0].replace(os.sep, '/')
