"""The image of each label file, mask or depth map."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .files import fold_case, without_suffix
from .inventory import are_elsewhere, case_error, ends_of
from .objects import NO_IMAGE
from .places import FilePairs, FilePlace, stem_without

TAKEN = 'object of an image that has another label file'
HASHED = re.compile(r'(^|/)[0-9a-f]{8}-(?=[^/]+$)')  # names of Label Studio's files
ELSEWHERE = 'in another folder than its image (taken by its name)'
ALIKE = 'label file whose name has another case or Unicode form than its image (taken)'


class Step(NamedTuple):
    """A way to find the images of files."""

    find: Callable[[str, FilePlace, str], str | None]  # by path, place and key
    note: str = (
        ''  # for the report, if images without a file are negatives, or elsewhere
    )
    is_loose: bool = False  # only where a split has no image of a file yet
    by_content: bool = False


class FileMatcher:
    """Finds the image of each file.

    By the key, in this case or any; else by the name, where the folder of the file is none of the
    images; else by the name that is in the file. No image is of two files.
    """

    def __init__(self, pairs: FilePairs) -> None:
        self.pairs = pairs
        self.kind = pairs.kind
        if self.kind.is_map:
            take_maps_apart(pairs)
        self.by_key = defaultdict(list)  # paths of images
        self.by_form = defaultdict(list)
        self.by_name = defaultdict(list)
        self.folders = defaultdict(set)  # the splits of the images in each
        self.file_of: dict[str, str] = {}
        for path, place in pairs.images.items():
            key = place.key
            self.folders[os.path.dirname(key)].add(place.split)
            short = stem_without(key, self.kind.image_words)
            for like in {key, key + os.path.splitext(path)[1], short}:
                self.by_key[like].append(path)
            for form in {fold_case(key), fold_case(short)}:
                self.by_form[form].append(path)
            for name in set(map(os.path.basename, (key, path, short))):
                self.by_name[name].append(path)

    def match(self) -> FilePairs:
        """The pairs with the image of each file, the orphans and the notes filled in."""
        pairs = self.pairs
        negatives = self.kind.negatives
        keys = {}
        for path, place in [*pairs.files.items()]:
            keys[path] = self.image_key(place)
            if not keys[path]:
                del pairs.files[path]
        second = {}  # why a file is not taken
        for step in (
            Step(self.same_key),
            Step(self.same_form, ALIKE),
            Step(self.same_name, f'{self.kind.noun} {ELSEWHERE}', is_loose=negatives),
            Step(self.same_content, by_content=True),
        ):
            matched = {pairs.images[image].split for image in self.file_of}
            for path, place in pairs.files.items():
                if path in pairs.image_of or path in second:
                    continue
                has_images = place.split in matched if place.split else matched
                if step.is_loose and has_images:
                    continue
                image = step.find(path, place, keys[path])
                if image in self.file_of:
                    second[path] = self.why_second(image, path, step.by_content)
                elif image:
                    pairs.image_of[path] = image
                    self.file_of[image] = path
                    own = pairs.images[image].key
                    if step.note and (negatives or are_elsewhere(keys[path], own)):
                        pairs.notes.append((step.note, os.path.basename(path)))
        for path in pairs.files:
            if path not in pairs.image_of:
                pairs.orphans[path] = second.get(path, NO_IMAGE)
        return pairs

    def image_key(self, place: FilePlace) -> str:
        """The key of its image, 'a' for 'a_mask', 'a.jpg.png' or '1a2b3c4d-a'; '' for none."""
        key = place.key
        if key in self.by_key:
            return key
        if not self.kind.is_map:
            plain = HASHED.sub(r'\1', key)
            return plain if plain in self.by_key else key
        inner = stem_without(key, self.kind.words)
        if inner in self.by_key:
            return inner
        is_other = stem_without(key, self.kind.others) != key
        return '' if is_other else without_suffix(inner)

    def fitting(self, found: Sequence[str], split: str) -> str | None:
        """The only image of a split, else the only one that may be of it.

        ValueError for folders of images that differ by their case.
        """
        own = []
        others = []
        for path in found:
            its_split = self.pairs.images[path].split
            if its_split == split:
                own.append(path)
            elif not split or not its_split:
                others.append(path)
        own = own or others
        folders = sorted({*map(os.path.dirname, own)})
        if len(folders) > 1 and len({*map(fold_case, folders)}) == 1:
            raise case_error(*folders[:2])
        return own[0] if len(own) == 1 else None

    def is_among(self, folder: str, split: str) -> bool:
        """Return whether a folder, as of keys, has images that may be of a split."""
        splits = self.folders.get(folder, set())
        if not split:
            return bool(splits)
        return not splits.isdisjoint((split, ''))

    def same_key(self, path: str, place: FilePlace, key: str) -> str | None:
        return self.fitting(self.by_key.get(key, ()), place.split)

    def same_form(self, path: str, place: FilePlace, key: str) -> str | None:
        return self.fitting(self.by_form.get(fold_case(key), ()), place.split)

    def same_name(self, path: str, place: FilePlace, key: str) -> str | None:
        if self.is_among(os.path.dirname(key), place.split):
            return None
        same = self.by_name.get(os.path.basename(key), ())
        image = self.fitting(same, place.split)
        if image is None and (self.kind.negatives or self.kind.is_map):
            free = [self.pairs.images[p].key for p in same if p not in self.file_of]
            if len(free) > 1:
                raise ValueError(
                    f'{path}: which images are labelled there, of {", ".join(free)}? Put the files '
                    'into folders like the folders of the images'
                )
        return image

    def same_content(self, path: str, place: FilePlace, key: str) -> str | None:
        given = self.kind.named(Path(path)) or ''
        for named in ends_of(given, self.folders):
            name = os.path.basename(named)
            end = f'/{without_suffix(named)}'
            same = self.by_name.get(name) or self.by_name.get(without_suffix(name), [])
            found = []
            for image in same:
                stem, _ = os.path.splitext(image)
                if f'/{stem}'.endswith(end):
                    found.append(image)
            if found:
                only = self.fitting(found, place.split)
                is_renamed = only and Path(only).stem != Path(path).stem
                is_here = self.is_among(os.path.dirname(place.key), place.split)
                return only if is_renamed or not is_here else None
        return None

    def why_second(self, image: str, path: str, by_content: bool) -> str:
        """Why a second file of an image is not taken.

        ValueError unless its name or its folder says which of both files is right.
        """
        pairs = self.pairs
        first = self.file_of[image]
        one = pairs.files[first]
        other = pairs.files[path]
        here = os.path.dirname(path)
        there = os.path.dirname(first)
        is_same = fold_case(one.key) == fold_case(other.key) and not by_content
        if self.kind.negatives and one.of_labels and not other.of_labels:
            note = 'label file beside an image that has one in labels/'
            pairs.notes.append((note, path))
        elif there != here and is_same:
            raise ValueError(
                f'{there} and {here} have files of the same '
                f'images, such as {Path(image).name}: move one of the folders elsewhere'
            )
        elif is_same or self.kind.is_map:
            raise ValueError(
                f'{first} and {path}: which images are labelled there? Both may be of {image}: '
                'leave one'
            )
        if here == there:
            return TAKEN
        here = os.path.relpath(here, pairs.home)
        there = os.path.relpath(there, pairs.home)
        return f'object in {here} of an image that has a label file in {there}'


def take_maps_apart(pairs: FilePairs) -> None:
    """Leave in ``files`` the maps, and in ``images`` the others; maps are in folders of maps.

    Where there is none, they are beside the images: a_mask.png beside a.png, else a.png beside
    a.jpg, or files that are no images.
    """
    kind = pairs.kind
    files = pairs.files
    maps = [path for path, place in files.items() if place.of_labels]
    if not maps:
        stems = set()
        photographs = set()
        others = []
        for path in pairs.images:
            stem, suffix = os.path.splitext(path)
            stems |= {stem, stem_without(stem, kind.image_words)}
            if suffix.lower() != '.png':
                photographs.add(stem)
        for path in files:
            stem, suffix = os.path.splitext(path)
            short = stem_without(stem, kind.words + kind.others)
            is_beside = suffix.lower() == '.png' and stem in photographs
            if short != stem and short in stems:
                maps.append(path)
            elif is_beside or path not in pairs.images:
                others.append(path)
        maps = maps or others
    pairs.files = {}
    for path in maps:
        pairs.files[path] = files[path]
        pairs.images.pop(path, None)
