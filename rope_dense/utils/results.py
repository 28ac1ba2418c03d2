"""What commands write for a user: never onto an input, and over nothing that the user made.

A folder of results has a hidden folder, ``.rope_dense``, with a record of what was written there. A
file that no record names, or that was changed since, is the user's: it is not replaced or removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from .disk import atomic_write, named_disk_errors, read_json_lines
from .lock import exclusive

HOME = '.rope_dense'
RECORD, FRESH = 'record.jsonl', 'fresh'
# Bytes of a file that is known by its content; a larger one is by its size and time.
COMPARED = 2**26

Write = Callable[[Path], AbstractContextManager[Path]]  # see ``Results.write``
Owner = Literal['nobody', 'program', 'input', 'edited', 'other', 'user']
REASONS: dict[Owner, str] = dict(
    input='is read by this command, and would be replaced',
    edited='was changed after rope-dense wrote it, and would be replaced',
    other='is an edited result of another image, and would be replaced',
    user='was not written by rope-dense, and would be replaced',
)


class ForeignFileError(ValueError):
    """A result would replace a file of the user's; the message names it."""


@dataclass(frozen=True)
class Written:
    """A file as it was written.

    Args:
        path: below the folder of results.
        size: in bytes.
        digest: of its content; of a large file, its time of change.
        source: the image that it is a result of.
    """

    path: str
    size: int
    digest: str
    source: str = ''


class Results:
    """The files that a command writes into a folder.

    Within ``with`` no other process writes there by the same name, and what a killed one left
    unfinished is removed.

    Args:
        folder: of the results; it need not exist.
        name: of what writes, such as 'predict'; what others have written there is known, too.
        inputs: files that the command reads.
        is_flushed: each file is on the disk before it gets its name, for what a crash of the
            machine must not lose.

    Attributes:
        home: the hidden folder of this name, for unfinished work.
        edited: paths whose files the user has edited, and that stayed as they are.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        inputs: Iterable[str | Path] = (),
        is_flushed: bool = True,
    ) -> None:
        self.folder, self.is_flushed = Path(folder), is_flushed
        self.home = self.folder / HOME / name
        self.inputs = {file_identity(path) for path in inputs if os.path.exists(path)}
        self.edited: list[Path] = []
        self.known = read_records(self.folder)
        self.stack = ExitStack()
        self.folders: list[Path] = []  # that are made, and removed if they stay empty

    def __enter__(self) -> Self:
        if self.folder.exists() and not self.folder.is_dir():
            reason = 'is a file, and the results need a folder'
            raise ForeignFileError(f'{self.folder} {reason}')
        above = [self.home, *self.home.parents]
        self.folders = [folder for folder in above if not folder.exists()]
        self.stack.enter_context(exclusive(self.folder, file=self.home / 'lock'))
        self.known = read_records(self.folder)
        for path in self.home.iterdir():
            if path.is_file() and path.name not in (RECORD, 'lock'):
                path.unlink()  # of a process that was killed
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()
        for folder in self.folders:
            with suppress(OSError):  # it is not empty
                folder.rmdir()

    def owner(self, path: str | Path, source: str = '') -> Owner:
        """Whose the file of a path is: an edited result counts as such for its source alone."""
        path = Path(path)
        if not os.path.lexists(path):
            return 'nobody'
        if path.exists() and file_identity(path) in self.inputs:
            return 'input'
        past = self.known.get(self.name_of(path), [])
        if not past:
            return 'user'
        if path.is_file() and not path.is_symlink():
            size = path.stat().st_size
            digests = {written.digest for written in past if written.size == size}
            if digests and digest_of(path) in digests:
                return 'program'
        sources = {written.source for written in past}
        return 'edited' if source in sources else 'other'

    def check(
        self, paths: Iterable[str | Path], source: str = '', keeps: bool = False
    ) -> None:
        """Raise ForeignFileError if one of the paths is not to be written.

        Args:
            source: of the results, see ``Written``.
            keeps: a result that the user has edited stays as it is, and is no error.
        """
        for path in paths:
            owner = self.owner(path, source)
            if owner in REASONS and not (keeps and owner == 'edited'):
                raise ForeignFileError(
                    f'{path} {REASONS[owner]}: write elsewhere, or move it away'
                )

    @contextmanager
    def write(
        self, path: str | Path, source: str = '', keeps: bool = False
    ) -> Iterator[Path]:
        """Yield a new file with the suffix of ``path``, which it becomes on leaving.

        After an error ``path`` is as it was. Arguments and errors: see ``check``; OSError: see
        ``atomic_write``.
        """
        path = Path(path)
        self.check([path], source, keeps)
        with atomic_write(path, self.home, self.is_flushed) as partial:
            yield partial
            self.check([path], source, keeps)  # it may have come meanwhile
            if self.owner(path, source) == 'edited':
                self.edited.append(path)
                partial.unlink()
                return
            self.note(path, partial, source)

    def write_bytes(
        self, path: str | Path, content: bytes, source: str = '', keeps: bool = False
    ) -> None:
        """Write a file as a whole; see ``write``."""
        with self.write(path, source, keeps) as partial:
            partial.write_bytes(content)

    def write_text(
        self, path: str | Path, text: str, source: str = '', keeps: bool = False
    ) -> None:
        """Write a text; names that are no UTF-8 keep their bytes."""
        self.write_bytes(path, text.encode('utf-8', 'surrogateescape'), source, keeps)

    @contextmanager
    def fresh(self, becomes: Path | None = None) -> Iterator[Path]:
        """Yield a new hidden folder; after an error nothing of it is written.

        On leaving its files go to their paths below the folder of results, NAME.onnx.data before
        NAME.onnx; or it becomes another folder, where nothing may be.
        """
        fresh = self.home / FRESH
        shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
        fresh.mkdir(parents=True)
        try:
            with named_disk_errors(becomes or self.folder / self.home.name):
                yield fresh
            if becomes is not None:
                os.rename(fresh, becomes)
                return
            places = {}
            for path in sorted(fresh.rglob('*'), reverse=True):
                if path.is_file():
                    places[path] = self.folder / path.relative_to(fresh)
            self.check(places.values())
            for file, place in places.items():
                with self.write(place) as partial:
                    os.replace(file, partial)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def note(self, path: str | Path, content: str | Path, source: str = '') -> None:
        """Record that a path has, or is about to have, the content of a file."""
        size = Path(content).stat().st_size
        entry = Written(self.name_of(path), size, digest_of(Path(content)), source)
        self.known.setdefault(entry.path, []).append(entry)
        self.home.mkdir(parents=True, exist_ok=True)
        with open(self.home / RECORD, 'a', encoding='utf-8') as file:
            file.write(json.dumps(asdict(entry)) + '\n')

    def remove(self, path: str | Path) -> None:
        """Remove a file that the program wrote, and its folder if it is empty then.

        One of the user's stays.
        """
        if self.owner(path) == 'program':
            Path(path).unlink()
            *above, _ = Path(self.name_of(path)).parents
            for name in above:
                with suppress(OSError):  # it is not empty
                    (self.folder / name).rmdir()

    def paths(self, name: str = '') -> list[Path]:
        """The recorded files that are there as they were written; all, or by one name."""
        found = [self.folder / path for path in sorted(read_records(self.folder, name))]
        return [path for path in found if self.owner(path) == 'program']

    def recorded(self, folder: Path) -> dict[Path, str]:
        """The recorded paths below a folder with the sources of the last; they may be gone."""
        below = f'{self.name_of(folder)}/'
        sources = {}
        for name, written in self.known.items():
            if name.startswith(below):
                sources[self.folder / name] = written[-1].source
        return sources

    def edited_text(self) -> str:
        """A line on the files that the user has edited; '' for none."""
        if not self.edited:
            return ''
        first, *others = self.edited
        if not others:
            return f'{first} was edited, and stays as it is'
        return f'{len(self.edited)} edited files stay as they are, such as {first}'

    def name_of(self, path: str | Path) -> str:
        """The path of a file below the folder."""
        return Path(os.path.relpath(path, self.folder)).as_posix()


def read_records(folder: Path, name: str = '') -> dict[str, list[Written]]:
    """All that was ever written in a folder of results, by its path below it; or by one name."""
    known: dict[str, list[Written]] = {}
    for record in sorted(folder.joinpath(HOME, name).rglob(RECORD)):
        for line in read_json_lines(record):
            with suppress(TypeError):  # a damaged line
                entry = Written(**line)
                known.setdefault(entry.path, []).append(entry)
    return known


def results_below(folder: Path) -> set[Path]:
    """The absolute paths of all results in a folder and below it."""
    found = set[Path]()
    for home in folder.absolute().rglob(HOME):
        found.update(home.parent / name for name in read_records(home.parent))
    return found


def file_identity(path: str | Path) -> tuple[int, int]:
    """Device and inode of a file: the same for all its names and links."""
    about = os.stat(path)
    return about.st_dev, about.st_ino


def digest_of(path: Path) -> str:
    """What a file is known by, beside its size: its content or, of a large one, its time."""
    about = path.stat()
    if about.st_size > COMPARED:
        return f'{about.st_mtime_ns}'
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
