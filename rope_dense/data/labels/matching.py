"""The image of each label file, mask or depth map."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .files import fold_case, without_suffix
from .inventory import ends_of
from .objects import NO_IMAGE

if TYPE_CHECKING:
    from .pairs import FilePairs, FilePlace

TAKEN = 'object of an image that has another label file'
HASHED = re.compile(
    r'(^|/)[0-9a-f]{8}-(?=[^/]+$)'
)  # before names of Label Studio's files
ELSEWHERE = 'label file in another folder than its image (taken by its name)'
ALIKE = 'label file whose name has another case or Unicode form than its image (taken)'


class FileMatcher:
    """Finds the image of each file.

    By the key, in this case or any; else by the name, where the folder of the file is none of the
    images; else by the name that is in the file. No image is of two files.
    """

    def __init__(self, pairs: FilePairs) -> None:
        self.pairs, self.kind = pairs, pairs.kind
        self.by_key: dict[str, list[str]] = defaultdict(list)
        self.by_form: dict[str, list[str]] = defaultdict(list)
        self.by_name: dict[str, list[str]] = defaultdict(list)
        self.folders: dict[str, set[str]] = defaultdict(
            set
        )  # the splits of the images in each
        self.file_of: dict[str, str] = {}
        for path, one in pairs.images.items():
            self.folders[os.path.dirname(one.key)].add(one.split)
            short = stem_without(one.key, self.kind.image_words)
            for key in {one.key, one.key + os.path.splitext(path)[1], short}:
                self.by_key[key].append(path)
            for form in {fold_case(one.key), fold_case(short)}:
                self.by_form[form].append(path)
            for name in {*map(os.path.basename, (one.key, path, short))}:
                self.by_name[name].append(path)

    def match(self) -> FilePairs:
        """The pairs with the image of each file, the orphans and the notes filled in."""
        pairs = self.pairs
        names = {path: self.image_key(path, one) for path, one in pairs.files.items()}
        if self.kind.others:
            pairs.files = {
                path: pairs.files[path] for path, name in names.items() if name
            }
        second = dict[str, str]()  # why a file is not taken
        for step in (self.same_key, self.same_form, self.same_name, self.same_content):
            matched = {pairs.images[image].split for image in self.file_of}
            for path, one in pairs.files.items():
                if path in pairs.image_of or path in second:
                    continue
                is_loose = step == self.same_name and self.kind.negatives
                if is_loose and (one.split in matched or (matched and not one.split)):
                    continue
                image = step(path, one, names[path])
                if image and image in self.file_of:
                    self.check_second(image, path, step == self.same_content)
                    places = (os.path.dirname(x) for x in (path, self.file_of[image]))
                    here, there = (
                        os.path.relpath(place, pairs.home) for place in places
                    )
                    apart = (
                        f'object in {here} of an image that has a label file in {there}'
                    )
                    second[path] = TAKEN if here == there else apart
                elif image:
                    pairs.image_of[path], self.file_of[image] = image, path
                    if is_loose or (step == self.same_form and self.kind.negatives):
                        note = ELSEWHERE if is_loose else ALIKE
                        pairs.notes.append((note, os.path.basename(path)))
        rest = [path for path in pairs.files if path not in pairs.image_of]
        pairs.orphans = {path: second.get(path, NO_IMAGE) for path in rest}
        return pairs

    def image_key(self, path: str, one: FilePlace) -> str:
        """The key of its image, 'a' for 'a_mask', 'a.jpg.png' or '1a2b3c4d-a'; '' for none."""
        if one.key in self.by_key:
            return one.key
        if not self.kind.is_map:
            plain = HASHED.sub(r'\1', one.key)
            return plain if plain in self.by_key else one.key
        if (inner := stem_without(one.key, self.kind.words)) in self.by_key:
            return inner
        if stem_without(one.key, self.kind.others) != one.key:
            return ''
        return without_suffix(inner)

    def fitting(self, found: Sequence[str], split: str) -> str | None:
        """The only image of a split, else the only one that may be of it."""
        own = [path for path in found if self.pairs.images[path].split == split]
        own = own or [p for p in found if not split or not self.pairs.images[p].split]
        return own[0] if len(own) == 1 else None

    def is_among(self, folder: str, split: str) -> bool:
        """Return whether a folder, as of keys, has images that may be of a split."""
        splits = self.folders.get(folder, set())
        return bool(splits) and (not split or not splits.isdisjoint((split, '')))

    def same_key(self, path: str, one: FilePlace, key: str) -> str | None:
        return self.fitting(self.by_key.get(key, ()), one.split)

    def same_form(self, path: str, one: FilePlace, key: str) -> str | None:
        return self.fitting(self.by_form.get(fold_case(key), ()), one.split)

    def same_name(self, path: str, one: FilePlace, key: str) -> str | None:
        if self.is_among(os.path.dirname(key), one.split):
            return None
        some = self.by_name.get(os.path.basename(key), ())
        if (image := self.fitting(some, one.split)) is None and len(some) > 1:
            free = [self.pairs.images[p].key for p in some if p not in self.file_of]
            if len(free) > 1 and (self.kind.negatives or self.kind.is_map):
                raise ValueError(
                    f'{path}: which images are labelled there, of {", ".join(free)}? Put the files '
                    'into folders like the folders of the images'
                )
        return image

    def same_content(self, path: str, one: FilePlace, key: str) -> str | None:
        if not (name := self.kind.named(Path(path))):
            return None
        for named in ends_of(name, self.folders):
            last, end = os.path.basename(named), without_suffix(named)
            same = self.by_name.get(last, []) or self.by_name.get(
                without_suffix(last), []
            )
            if found := [
                p for p in same if f'/{os.path.splitext(p)[0]}'.endswith(f'/{end}')
            ]:
                image = self.fitting(found, one.split)
                is_renamed = image and Path(image).stem != Path(path).stem
                is_here = self.is_among(os.path.dirname(one.key), one.split)
                return image if is_renamed or not is_here else None
        return None

    def check_second(self, image: str, path: str, by_content: bool) -> None:
        """Refuse a second file of an image, unless its name or its folder says which is right."""
        first = self.file_of[image]
        one, other = self.pairs.files[first], self.pairs.files[path]
        is_same = fold_case(one.key) == fold_case(other.key) and not by_content
        if self.kind.negatives and one.of_labels and not other.of_labels:
            self.pairs.notes.append(
                ('label file beside an image that has one in labels/', path)
            )
        elif os.path.dirname(first) != os.path.dirname(path) and is_same:
            raise ValueError(
                f'{os.path.dirname(first)} and {os.path.dirname(path)} have files of the same '
                f'images, such as {Path(image).name}: move one of the folders elsewhere'
            )
        elif is_same or self.kind.is_map:
            raise ValueError(
                f'{first} and {path}: which images are labelled there? Both may be of {image}: '
                'leave one'
            )


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
