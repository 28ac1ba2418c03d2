"""The files of a data set: listed once, and asked by everything that looks for a file."""

from __future__ import annotations

import hashlib
import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ...utils.results import read_records
from ..images.band_files import ARRAY, is_first
from ..images.headers import Header, read_header
from ..images.plug_ins import MISSING
from .files import IMAGE_SUFFIXES, fold_case, parts_of

HIDDEN = ('.', '__MACOSX')  # macOS writes '._a.jpg' and '__MACOSX'
VAL_PART = 5  # one of so many images is for validation where nothing says which
TICK = 0.01  # seconds: a file system's clock may be as coarse
Content = TypeVar('Content')
State = tuple[int, ...]  # what any write changes: size, both times, inode


class Inventory:
    """All files in a folder and below it, and in folders elsewhere that labels name.

    Without hidden files, links to files that are not there, and the results of commands that a
    record below the root names. Links to folders are followed, but
    for links to a folder above. If ``channels`` are files of their own, images are the files of the
    first; .npy files are images, too, with ``arrays``.
    """

    def __init__(
        self, root: Path, channels: Sequence[str] = (), *, arrays: bool = False
    ) -> None:
        self.root, self.channels = Path(os.path.realpath(root)), tuple(channels)
        self.image_suffixes = (*IMAGE_SUFFIXES, ARRAY) if arrays else IMAGE_SUFFIXES
        self.files: dict[str, State] = {}  # by absolute paths
        self.results = set[str]()  # of commands, which are no data
        self.skipped = list[str]()  # those that are there
        self.folders: dict[
            str, tuple[int, list[str]]
        ] = {}  # time of change, folders in it
        self.by_suffix: dict[str, list[str]] = {}  # paths, sorted
        self.found: dict[Path, Images] = {}
        self.headers: dict[Path, Header] = {}
        self.remembered: dict[str, list] = {}  # ``known_headers`` of an earlier start
        self.parsed: dict[tuple[Path, State], Any] = {}
        self.val_part = VAL_PART
        self.moved: dict[
            str, bool
        ] = {}  # for validation or not, see ``splits.validation_of``
        time.sleep(TICK)  # so that whatever is written later has other times
        self.include(self.root)

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
            self.by_suffix.setdefault(os.path.splitext(path)[1].lower(), []).append(
                path
            )

    def walk(self, folder: str, above: tuple[tuple[int, int], ...]) -> None:
        """List a folder and those in it; none ``above`` (device, inode): a link may lead back."""
        try:
            about = os.stat(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:  # a folder that is not there, or that others own, has no files
            return
        identity = about.st_dev, about.st_ino
        if identity in above:
            return
        names = list[str]()
        self.folders[folder] = about.st_mtime_ns, names
        if folder != str(
            self.root
        ):  # the results of commands, in the place of data or below it
            self.results.update(
                os.path.join(folder, name) for name in read_records(Path(folder))
            )
        for entry in entries:
            if entry.name.startswith(HIDDEN):
                continue
            if entry.path in self.results:
                self.skipped.append(entry.path)
                continue
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError:  # a link to itself, as one to nothing
                continue
            if is_folder:
                names.append(entry.name)
                self.walk(os.path.join(folder, entry.name), (*above, identity))
            elif is_file:
                self.files[os.path.join(folder, entry.name)] = state_of(entry.stat())

    def is_current(self) -> bool:
        """Return whether no file has changed, come or gone since the files were listed."""
        try:
            for folder, (changed, _) in self.folders.items():
                if os.stat(folder).st_mtime_ns != changed:
                    return False
            return all(
                state_of(os.stat(path)) == state for path, state in self.files.items()
            )
        except OSError:
            return False

    def digest(self, outside: Collection[str] = ()) -> str:
        """The state of all files in the data set, and in folders elsewhere, as a digest."""
        for folder in outside:
            self.include(Path(folder))
        lines = (f'{path}{state}' for path, state in sorted(self.files.items()))
        return hashlib.sha256(
            '\n'.join(lines).encode('utf-8', 'surrogateescape')
        ).hexdigest()

    @property
    def outside(self) -> list[str]:
        """The files, and the highest folders, elsewhere that labels name."""
        start = os.path.join(self.root, '')
        known = (*self.folders, *self.files)
        others = [
            path for path in known if not os.path.join(path, '').startswith(start)
        ]
        return [path for path in others if os.path.dirname(path) not in self.folders]

    def paths(self, folder: Path, suffixes: Sequence[str] | None = None) -> list[str]:
        """The files in a folder and below it, sorted; all, or of suffixes such as '.txt'."""
        self.include(folder)
        start = os.path.join(folder, '')
        found = list[str]()
        for suffix in self.by_suffix if suffixes is None else suffixes:
            some = self.by_suffix.get(suffix, [])
            found += some[
                bisect_left(some, start) : bisect_left(some, f'{start}\U0010ffff')
            ]
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
        there = sorted(folder.iterdir()) if folder.is_dir() else []
        there = [path for path in there if path.suffix.lower() in suffixes]
        return [
            path
            for path in there
            if not path.name.startswith(HIDDEN) and path.is_file()
        ]

    def suffixes_in(self, folder: Path) -> str:
        """The suffixes of the files in a folder, with their number: '12 .jpg, 3 .txt'."""
        counts = Counter(
            os.path.splitext(path)[1] or '(none)' for path in self.paths(folder)
        )
        found = [
            f'{n} {name}{MISSING.get(name.lower(), "")}'
            for name, n in counts.most_common()
        ]
        return ', '.join(found) or 'no files'

    def is_file(self, path: Path) -> bool:
        """Return whether a file is in the inventory."""
        return str(path) in self.files

    def subfolders(self, folder: Path) -> dict[str, Path]:
        """The folders in a folder by their names in lower case; ValueError if two are alike."""
        self.include(folder)
        _, names = self.folders.get(str(folder), (0, []))
        found: dict[str, Path] = {}
        for name in names:
            if (other := found.setdefault(name.lower(), folder / name)).name != name:
                raise ValueError(
                    f'{other} and {folder / name} differ by their case: rename one'
                )
        return found

    def images(self, folder: Path) -> Images:
        """The image files in a folder and below it."""
        if folder not in self.found:
            files = self.below(folder, self.image_suffixes)
            if self.channels:
                files = [
                    file for file in files if is_first(file, self.channels, self.root)
                ]
            start = len(os.path.join(folder, ''))
            self.found[folder] = Images(
                folder, {str(file)[start:]: file for file in files}
            )
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
        known = {str(image): header for image, header in self.headers.items()}
        return {
            x: [self.files[x], *astuple(known[x])] for x in known if x in self.files
        }

    def content(self, path: Path, parse: Callable[[Path], Content]) -> Content:
        """The content of a label file of many images, parsed once for its classes and splits."""
        key = path, state_of(os.stat(path))
        if key not in self.parsed:
            self.parsed.clear()
            self.parsed[key] = parse(path)
        return self.parsed[key]


class Images:
    """The image files of a folder, by their paths in it, found by the names that labels give."""

    def __init__(self, folder: Path, files: Mapping[str, Path]) -> None:
        self.folder, self.by_path = folder, files
        self.by_stem: dict[str, Path] = {}  # by paths in the folder, without suffix
        self.by_name: dict[str, list[Path]] = {}  # without folders and suffix
        self.doubles: list[
            tuple[Path, Path]
        ] = []  # (file, the file of its stem that is taken)
        for path, file in files.items():
            stem = os.path.splitext(path)[0]
            if (first := self.by_stem.setdefault(stem, file)) != file:
                self.doubles.append((file, first))
            elif file not in (
                same := self.by_name.setdefault(os.path.basename(stem), [])
            ):
                same.append(file)
        self.folders = {os.path.dirname(path) for path in files} - {''}

    def find(self, name: str) -> Path | None:
        """The file of a path or name, with a suffix or without; None if it is not there.

        Leading folders, of the machine or the project of a labelling tool, may be missing here; in
        a folder that is here, the file has to be, too. A bare name has to belong to one file only.
        Case and Unicode form may differ if only one path is alike.
        """
        path = ''
        for path in ends_of(name, self.folders):
            stem = os.path.splitext(path)[0]
            if (
                found := self.by_path.get(path)
                or self.by_stem.get(path)
                or self.by_stem.get(stem)
            ):
                return found
        same = (
            self.by_name.get(path) or self.by_name.get(os.path.splitext(path)[0]) or []
        )
        return same[0] if len(same) == 1 else self.find_alike(name)

    def find_alike(self, name: str) -> Path | None:
        """The only file whose path is alike in another case or Unicode form."""
        for path in ends_of(name, self.folders):
            stem = os.path.splitext(path)[0]
            if same := self.by_folded.get(fold_case(path)) or self.by_folded.get(
                fold_case(stem)
            ):
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
        return os.path.splitext(str(file)[len(os.path.join(self.folder, '')) :])[0]

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        """(Path in the folder without suffix, file) of each image."""
        return iter(self.by_stem.items())


def ends_of(path: str, folders: Container[str]) -> Iterator[str]:
    """A path with fewer and fewer leading folders, down to the first that is in one of folders."""
    parts = parts_of(path)
    for start in range(len(parts)):
        yield (end := '/'.join(parts[start:]))
        if os.path.dirname(end) in folders:
            return


def state_of(about: os.stat_result) -> State:
    """The state of a file."""
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino


KEPT: dict[tuple[object, ...], Inventory] = {}  # the last one


def inventory_of(
    root: Path, channels: Sequence[str] = (), *, arrays: bool = False
) -> Inventory:
    """The inventory of a folder, see ``Inventory``; not listed anew while no file changes."""
    key = os.fspath(root), os.getcwd(), tuple(channels), arrays
    kept = KEPT.pop(key, None)
    KEPT.clear()
    KEPT[key] = (
        kept if kept and kept.is_current() else Inventory(root, channels, arrays=arrays)
    )
    return KEPT[key]


def cached_inventory(root: Path) -> Inventory:
    """The inventory of a folder that is kept, of any images; see ``inventory_of``."""
    kept = [one for one in KEPT.values() if str(one.root) == os.path.realpath(root)]
    return kept[0] if kept and kept[0].is_current() else inventory_of(root)


def list_files(folder: Path, suffixes: Sequence[str] | None = None) -> list[Path]:
    """The files in a folder and below it, as ``Inventory`` has them."""
    inventory = Inventory(folder)
    found = inventory.below(inventory.root, suffixes)
    return [folder / path.relative_to(inventory.root) for path in found]


def suffixes_in(folder: Path) -> str:
    """The suffixes of the files in a folder, see ``Inventory``."""
    inventory = Inventory(folder)
    return inventory.suffixes_in(inventory.root)
