"""The files of a data set: listed once, and asked by everything that looks for a file."""

from __future__ import annotations

import hashlib
import os
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ...utils.results import read_records
from ..images.band_files import ARRAY, is_first
from ..images.headers import Header, read_header
from ..images.plug_ins import MISSING
from .files import IMAGE_SUFFIXES, fold_case, parts_of

# macOS writes '._a.jpg' and '__MACOSX'; disks of Synology have thumbnails, and what was deleted.
HIDDEN = ('.', '__MACOSX', '@eaDir', '#recycle')
TWO_IMAGES = 'two images of one name (the first is taken)'
VAL_PART = 5  # one of so many images is for validation where nothing says which
TICK = 0.01  # seconds: a file system's clock may be as coarse
Content = TypeVar('Content')
State = tuple[int, ...]  # what any write changes: size, both times, inode


class Inventory:
    """All files in a folder and below it, and in folders elsewhere that labels name.

    Without hidden files, links to files that are not there, and the results of commands that a
    record below the root names. Links to folders are followed, but for links to a folder above. If
    ``channels`` are files of their own, images are the files of the first; .npy files are images,
    too, with ``arrays``.

    Attributes:
        asked: the split that an evaluation asks for, see ``evaluated``; '' for a training.
        hides: folders, and label files, whose names have this are not there.
    """

    def __init__(
        self,
        root: Path,
        channels: Sequence[str] = (),
        *,
        arrays: bool = False,
        asked: str = '',
        hides: re.Pattern[str] | None = None,
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.asked = asked
        self.hides = hides
        self.channels = tuple(channels)
        self.image_suffixes = (*IMAGE_SUFFIXES, ARRAY) if arrays else IMAGE_SUFFIXES
        self.files = dict[str, State]()  # by absolute paths
        self.folders = dict[str, list[str]]()  # names of the folders in it
        self.times = dict[
            str, int | None
        ]()  # see ``time_of``: of folders, and what is not read
        self.results = set[str]()  # of commands, which are no data
        self.skipped = list[str]()  # those that are there
        self.by_suffix = dict[str, list[str]]()  # paths, sorted
        self.found = dict[Path, Images]()
        # The best name of an image file until now, see ``Images.claim``.
        self.named = dict[Path, tuple[int, int]]()
        self.headers = dict[Path, Header]()
        self.remembered = dict[str, list]()  # ``known_headers`` of an earlier start
        self.parsed = dict[tuple[Path, State], Any]()
        self.val_share = 1 / VAL_PART
        # For validation or not, see ``splits.validation_of``.
        self.moved = dict[str, bool]()
        time.sleep(TICK)  # so that whatever is written later has other times
        self.include(self.root)

    def without(self, hides: re.Pattern[str]) -> Inventory:
        """The files of the same folder, but those that the names hide."""
        arrays = ARRAY in self.image_suffixes
        return Inventory(
            self.root, self.channels, arrays=arrays, asked=self.asked, hides=hides
        )

    def at(self, folder: Path) -> Inventory:
        """The same inventory, of whose files the ones below a folder are the data set."""
        part = copy(self)
        part.root = folder
        return part

    def include(self, place: Path) -> None:
        """List a folder, or take in a file alone, that is not in the inventory yet."""
        if str(place) in self.folders or self.is_file(place):
            return
        if place.is_file():
            self.files[str(place)] = state_of(place.stat())
        else:
            self.walk(str(place), ())
        self.by_suffix.clear()
        for path in sorted(self.files):
            suffix = os.path.splitext(path)[1].lower()
            self.by_suffix.setdefault(suffix, []).append(path)

    def walk(self, folder: str, above: tuple[tuple[int, int], ...]) -> None:
        """List a folder and those in it; none ``above`` (device, inode): a link may lead back."""
        self.times[folder] = time_of(folder)
        try:
            about = os.stat(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:  # a folder that is not there, or that others own, has no files
            return
        identity = about.st_dev, about.st_ino
        if identity in above:
            return
        names = self.folders[folder] = []
        if folder != str(self.root):
            # The results of commands, in the place of data or below it.
            for name in read_records(Path(folder)):
                self.results.add(os.path.join(folder, name))
        for entry in entries:
            if entry.name.startswith(HIDDEN):
                continue
            if entry.path in self.results:
                self.skipped.append(entry.path)
                continue
            try:
                is_folder = entry.is_dir()
                is_file = entry.is_file()
            except OSError:  # a link to itself, as one to nothing
                is_folder = is_file = False
            path = os.path.join(folder, entry.name)
            is_image = entry.name.lower().endswith(self.image_suffixes)
            if self.hides and not is_image and self.hides.search(entry.name):
                continue
            if is_folder:
                names.append(entry.name)
                self.walk(path, (*above, identity))
            elif is_file:
                self.files[path] = state_of(entry.stat())
            else:
                self.times[path] = time_of(path)

    def digest(self, outside: Collection[str] = ()) -> str:
        """The state of all files in the data set, and in folders elsewhere, as a digest."""
        for folder in outside:
            self.include(Path(folder))
        return digest_of(self.files)

    @property
    def outside(self) -> list[str]:
        """The files, and the highest folders, elsewhere that labels name."""
        start = os.path.join(self.root, '')
        known = (*self.folders, *self.files)
        others = [x for x in known if not os.path.join(x, '').startswith(start)]
        return [path for path in others if os.path.dirname(path) not in self.folders]

    def paths(self, folder: Path, suffixes: Sequence[str] | None = None) -> list[str]:
        """The files in a folder and below it, sorted; all, or of suffixes such as '.txt'."""
        self.include(folder)
        start = os.path.join(folder, '')
        found = []
        for suffix in self.by_suffix if suffixes is None else suffixes:
            some = self.by_suffix.get(suffix, [])
            first = bisect_left(some, start)
            found += some[first : bisect_left(some, f'{start}\U0010ffff')]
        return sorted(found)

    def below(self, folder: Path, suffixes: Sequence[str] | None = None) -> list[Path]:
        """``paths`` as paths."""
        return [*map(Path, self.paths(folder, suffixes))]

    def directly(self, folder: Path, suffixes: Sequence[str]) -> list[Path]:
        """The files in a folder, and not below it; a folder elsewhere is not taken in."""
        if str(folder) in self.folders:
            return [
                path for path in self.below(folder, suffixes) if path.parent == folder
            ]
        found = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            is_visible = not path.name.startswith(HIDDEN)
            if is_visible and path.suffix.lower() in suffixes and path.is_file():
                found.append(path)
        return found

    def suffixes_in(self, folder: Path) -> str:
        """The suffixes of the files in a folder, with their number: '12 .jpg, 3 .txt'."""
        paths = self.paths(folder)
        found = []
        counts = Counter(os.path.splitext(path)[1] or '(none)' for path in paths)
        for name, number in counts.most_common():
            found.append(f'{number} {name}{MISSING.get(name.lower(), "")}')
        return ', '.join(found) or 'no files'

    def is_file(self, path: Path) -> bool:
        """Return whether a file is in the inventory."""
        return str(path) in self.files

    def subfolders(self, folder: Path) -> dict[str, Path]:
        """The folders in a folder by their names in lower case; ValueError if two are alike."""
        self.include(folder)
        found: dict[str, Path] = {}
        for name in self.folders.get(str(folder), ()):
            other = found.setdefault(name.lower(), folder / name)
            if other.name != name:
                raise case_error(other, folder / name)
        return found

    def images(self, folder: Path) -> Images:
        """The image files in a folder and below it."""
        if folder not in self.found:
            start = len(os.path.join(folder, ''))
            files = {}
            for file in self.below(folder, self.image_suffixes):
                if not self.channels or is_first(file, self.channels, self.root):
                    files[str(file)[start:]] = file
            self.found[folder] = Images(folder, files, self.named)
        return self.found[folder]

    def header(self, image: Path) -> Header:
        """The header of an image file, read once; ValueError if it is no image, or cut off."""
        if image not in self.headers:
            state, *values = self.remembered.get(str(image), ([],))
            is_same = state == [*self.files.get(str(image), (0,))]
            self.headers[image] = Header(*values) if is_same else read_header(image)
        return self.headers[image]

    def known_headers(self) -> dict[str, list]:
        """The headers of images with the states of the files, for ``remembered``."""
        known = {}
        for image, header in self.headers.items():
            if self.is_file(image):
                known[str(image)] = [self.files[str(image)], *astuple(header)]
        return known

    def content(self, path: Path, parse: Callable[[Path], Content]) -> Content:
        """The content of a label file of many images, parsed once for its classes and splits."""
        key = path, state_of(os.stat(path))
        if key not in self.parsed:
            self.parsed.clear()
            self.parsed[key] = parse(path)
        return self.parsed[key]


class Images:
    """The image files of a folder, by their paths in it, found by the names that labels give."""

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, Path],
        named: dict[Path, tuple[int, int]],
    ) -> None:
        self.folder = folder
        self.named = named
        self.by_path = files
        self.by_stem = dict[str, Path]()  # by paths in the folder, without suffix
        self.by_name = dict[str, list[Path]]()  # without folders and suffix
        # (File, the file of its stem that is taken).
        self.doubles = list[tuple[Path, Path]]()
        for path, file in files.items():
            stem = os.path.splitext(path)[0]
            first = self.by_stem.setdefault(stem, file)
            same = self.by_name.setdefault(os.path.basename(stem), [])
            if first != file:
                self.doubles.append((file, first))
            elif file not in same:
                same.append(file)
        self.folders = {os.path.dirname(path) for path in files} - {''}

    def find(self, name: str) -> Path | None:
        """The file of a path or name, with a suffix or without; None if it is not there.

        Leading folders, of the machine or the project of a labelling tool, may be missing here; in
        a folder that is here, the file has to be, too. A bare name has to belong to one file only.
        Case and Unicode form may differ if only one path is alike. See ``claim``.
        """
        return self.claim(name, self.find_any(name))

    def claim(self, name: str, found: Path | None) -> Path | None:
        """A file of a name, unless another has had more of its folders, or as many and no others.

        The names of a data set have all to be asked for before an answer is final.
        """
        if found is None:
            return None
        rank = common_folders(name, str(found)), -len(parts_of(name))
        best = self.named[found] = max(rank, self.named.get(found, rank))
        return found if rank == best else None

    def find_any(self, name: str) -> Path | None:
        """``find``, whatever the other names are."""
        path = stem = ''
        for path in ends_of(name, self.folders):
            stem = os.path.splitext(path)[0]
            found = self.by_path.get(path) or self.by_stem.get(path)
            found = found or self.by_stem.get(stem)
            if found:
                return found
        same = self.by_name.get(path) or self.by_name.get(stem) or ()
        return same[0] if len(same) == 1 else self.find_alike(name)

    def find_alike(self, name: str) -> Path | None:
        """The only file whose path is alike in another case or Unicode form."""
        for path in ends_of(name, self.folders):
            stem = os.path.splitext(path)[0]
            same = self.by_folded.get(fold_case(path))
            same = same or self.by_folded.get(fold_case(stem))
            if same:
                return same[0] if len(same) == 1 else None
        return None

    @cached_property
    def by_folded(self) -> dict[str, list[Path]]:
        """The files by their folded paths without suffix; made when a name is not found."""
        found: dict[str, list[Path]] = {}
        for stem, file in self.by_stem.items():
            found.setdefault(fold_case(stem), []).append(file)
        return found

    def stem_of(self, file: Path) -> str:
        """The path of an image in the folder, without suffix."""
        start = len(os.path.join(self.folder, ''))
        return os.path.splitext(str(file)[start:])[0]

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """(Path in the folder without suffix, file) of each image."""
        return iter(self.by_stem.items())


def ends_of(path: str, folders: Container[str]) -> Iterator[str]:
    """A path with fewer and fewer leading folders, down to the first that is in one of folders."""
    parts = parts_of(path)
    for start in range(len(parts)):
        end = '/'.join(parts[start:])
        yield end
        if os.path.dirname(end) in folders:
            return


def common_folders(one: str, other: str) -> int:
    """How many folders above the file two paths have in common."""
    above = [parts_of(fold_case(path))[-2::-1] for path in (one, other)]
    return len(os.path.commonprefix(above))  # noqa: RUF071  # of lists


def are_elsewhere(one: str, other: str) -> bool:
    """Return whether two paths of a file are in different folders: neither is the other's end."""
    fewest = min(map(len, map(parts_of, (one, other))))
    return common_folders(one, other) < fewest - 1


def case_error(one: object, other: object) -> ValueError:
    """The error of two folders that some systems take for one."""
    return ValueError(f'{one} and {other} differ by their case: rename one')


def state_of(about: os.stat_result) -> State:
    """The state of a file."""
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino


def time_of(path: str) -> int | None:
    """When a folder changed; None if it is not there, or may not be read."""
    try:
        return os.stat(path).st_mtime_ns if os.access(path, os.R_OK) else None
    except OSError:  # it has just gone
        return None


def digest_of(files: Mapping[str, State]) -> str:
    """A digest of the states of files."""
    lines = '\n'.join(f'{path}{state}' for path, state in sorted(files.items()))
    return hashlib.sha256(lines.encode('utf-8', 'surrogateescape')).hexdigest()


def list_files(folder: Path, suffixes: Sequence[str] | None = None) -> list[Path]:
    """The files in a folder and below it, as ``Inventory`` has them."""
    inventory = Inventory(folder)
    found = inventory.below(inventory.root, suffixes)
    return [folder / path.relative_to(inventory.root) for path in found]


def suffixes_in(folder: Path) -> str:
    """The suffixes of the files in a folder, see ``Inventory``."""
    inventory = Inventory(folder)
    return inventory.suffixes_in(inventory.root)
