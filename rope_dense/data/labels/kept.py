"""Readings of data sets, kept for the next start: looked up in a second, read anew if changed.

A folder for each data set and its settings has the files that were written (in a folder named by
the digest of the content), the headers of its images, and ``state.json``, which says what they are
of.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...utils.disk import atomic_folder, atomic_write_text, read_json_or_empty
from ...utils.lock import exclusive
from ...utils.progress import progress
from .inventory import Inventory, cached_inventory
from .objects import Split

VERSION = 6  # of the rules that make the files; a new one makes them anew
WAIT = 3600.0  # seconds for another process that reads the same labels
SAMPLED = 50  # images whose bytes are compared, too
STATE, HEADERS, MOVED = 'state.json', 'headers.json', 'split.json'


class FoundData(Protocol):
    """The data set in a folder: both splits, and all that is known beside them."""

    @property
    def splits(self) -> Mapping[str, Split]: ...
    def known(self) -> object: ...


Data = TypeVar('Data', bound=FoundData)


def write_if_changed(
    inventory: Inventory,
    out: Path,
    settings: object,
    find: Callable[[Inventory], Data],
    write: Callable[[Data, Path], dict[str, Any]],
) -> tuple[Path, dict[str, Any]]:
    """The folder of what was written of a data set as it is now, and what ``write`` returned.

    Nothing is read where no file has changed its state. Where one has, the content decides: the
    same bytes, copied anew, are the same data. What was written of other content is removed, but
    not while a training uses it (see ``in_use``), and nothing is written where labels cannot be
    used.

    Args:
        out: the folder of all data sets.
        settings: which ``find`` and ``write`` depend on, with a telling ``repr``.
        write: writes files of the data set into a folder, and returns what JSON can hold.
    """
    name = re.sub(r'[^\w.-]+', '_', inventory.root.name)[:60] or 'data'
    home = out / f'{name}-{repr_digest(str(inventory.root), VERSION, settings)[:12]}'
    with suppress(OSError):
        out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise ValueError(
            f'{out.absolute()} cannot be written to; what is read of own data is kept in {out} of '
            'the current folder: start in a folder that you can write to'
        )
    with exclusive(home, WAIT) as is_alone:  # processes that train together write once
        state = read_json_or_empty(home / STATE)
        current = inventory.digest(state.get('outside', ()))
        is_whole = bool(state) and state['files'] == sizes_and_times(
            home / state['content']
        )
        if is_whole and state['state'] == current:
            return home / state['content'], state['summary']
        split = out / f'{name}-{repr_digest(str(inventory.root))[:12]}.{MOVED}'
        inventory.moved.update(read_json_or_empty(split))
        inventory.remembered = read_json_or_empty(home / HEADERS)
        found = find(inventory)
        content, summary = content_digest(found, inventory), state.get('summary')
        if content != state.get('content') or not is_whole:
            try:
                with atomic_folder(home / content) as fresh:
                    summary = write(found, fresh)
            finally:
                inventory.parsed.clear()  # their memory
                if not any(home.iterdir()):
                    home.rmdir()
        if inventory.moved:
            atomic_write_text(split, json.dumps(inventory.moved))
        atomic_write_text(home / HEADERS, json.dumps(inventory.known_headers()))
        said = dict(version=VERSION, state=inventory.digest(), content=content)
        files = sizes_and_times(home / content)
        said |= dict(outside=inventory.outside, summary=summary, files=files)
        atomic_write_text(home / STATE, json.dumps(said))
        for path in (
            home.iterdir() if is_alone else ()
        ):  # of other content, and what a kill left
            if path.is_dir() and path.name != content:
                remove_unused(path)
    return home / content, json.loads(json.dumps(summary))


@contextmanager
def in_use(files: Iterable[str]) -> Iterator[None]:
    """Within this context the folders of files that were written here stay."""
    with ExitStack() as stack:
        for folder in {Path(file).parent for file in files}:
            if folder.with_name(STATE).is_file():
                lease = folder.with_name(f'{folder.name}.{secrets.token_hex(4)}')
                stack.enter_context(exclusive(folder, file=lease))
        yield


def remove_unused(folder: Path) -> None:
    """Remove a folder unless a process is in ``in_use`` of it."""
    with suppress(BlockingIOError):
        for lease in folder.parent.glob(f'{folder.name}.*'):
            with exclusive(folder, file=lease):
                pass  # a killed process left it
        shutil.rmtree(folder)


def is_up_to_date(file: Path, root: Path) -> bool:
    """Return whether a file that was written here is of a data set's folder as it is now."""
    state, written = (
        read_json_or_empty(file.parent.parent / STATE),
        (VERSION, file.parent.name),
    )
    is_written = (state.get('version'), state.get('content')) == written
    if not is_written or state['files'] != sizes_and_times(file.parent):
        return False
    return state['state'] == cached_inventory(root).digest(state['outside'])


def sizes_and_times(folder: Path) -> dict[str, list[int]]:
    """Size and time of change of the files in a folder, by which damage and edits are known."""
    about = {path.name: path.stat() for path in sorted(folder.glob('*'))}
    return {name: [one.st_size, one.st_mtime_ns] for name, one in about.items()}


def content_digest(found: FoundData, inventory: Inventory) -> str:
    """A digest of the content of labels, and of names, sizes and headers of images."""
    parts = [part for _, part in sorted(found.splits.items())]
    about = [vars(x) | dict(inventory=None, names=sorted(x.names or ())) for x in parts]
    text = repr((found.known(), about)).replace(str(inventory.root), '')
    digest = hashlib.sha256(text.encode('utf-8', 'surrogateescape'))
    files = {path for part in parts for path in (*part.pairs, *part.orphans)}
    for source in {part.source for part in parts if not (part.pairs or part.orphans)}:
        files.update([source] if inventory.is_file(source) else inventory.below(source))
    for path in progress(sorted(files), 'comparing labels'):
        digest.update(f'\n{os.path.getsize(path)}\n'.encode())
        with open(path, 'rb') as file:
            while chunk := file.read(2**22):
                digest.update(chunk)
    given = {x for part in parts for x in (*part.pairs.values(), *part.unlabelled)}
    given |= {
        file
        for part in parts
        if not part.pairs
        for _, file in inventory.images(part.images)
    }
    images = sorted(given)
    for path in progress(images, 'reading headers of images'):
        try:
            header: object = inventory.header(path)
        except ValueError:
            header = None
        size = inventory.files.get(str(path), (0,))[0]
        digest.update(
            f'{path.name} {size} {header}\n'.encode('utf-8', 'surrogateescape')
        )
    for path in images[:: -(-len(images) // SAMPLED) or 1]:
        size = path.stat().st_size
        with open(path, 'rb') as file:
            for start in range(0, size, max(1, size // 16)):
                file.seek(start)
                digest.update(file.read(2**14))
    if inventory.channels:  # files of the other channels
        start = len(str(inventory.root))
        for name in inventory.paths(inventory.root, inventory.image_suffixes):
            text = f'{name[start:]} {inventory.files[name][0]}\n'
            digest.update(text.encode('utf-8', 'surrogateescape'))
    return digest.hexdigest()[:16]


def repr_digest(*parts: object) -> str:
    """A digest of what parts are in words."""
    return hashlib.sha256(repr(parts).encode('utf-8', 'surrogateescape')).hexdigest()
