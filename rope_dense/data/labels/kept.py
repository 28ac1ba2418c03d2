"""Readings of data sets, kept for the next start: looked up in a second, read anew if changed.

A folder for each data set and its settings has the files that were written (in a folder named by
the digest of the content), the headers of its images, the paths of its files, and ``state.json``,
which says what they are of.
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
from .inventory import Inventory, digest_of, state_of, time_of
from .label_folder import Split

Json = dict[str, Any]
VERSION = 9  # of the rules that make the files; a new one makes them anew
WAIT = 3600.0  # seconds for another process that reads the same labels
SAMPLED = 50  # images whose bytes are compared, too
STATE, HEADERS, MOVED = 'state.json', 'headers.json', 'split.json'
LISTED = 'files.json'  # the paths of all files, so that a look at them lists no folder


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
    write: Callable[[Data, Path], Json],
) -> tuple[Path, Json]:
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
    root = str(inventory.root)
    name = re.sub(r'[^\w.-]+', '_', inventory.root.name)[:60] or 'data'
    home = out / f'{name}-{repr_digest(root, VERSION, settings)[:12]}'
    split = out / f'{name}-{repr_digest(root)[:12]}.{MOVED}'
    with suppress(OSError):
        out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise ValueError(
            f'{out.absolute()} cannot be written to; what is read of own data is kept in {out} of '
            'the current folder: start in a folder that you can write to'
        )
    with exclusive(home, WAIT) as is_alone:  # processes that train together write once
        state = _whole_state(home)
        is_same = state and state['state'] == inventory.digest(state['outside'])
        if not is_same:
            inventory.moved.update(read_json_or_empty(split))
            inventory.remembered = read_json_or_empty(home / HEADERS)
            content, summary = _write_anew(inventory, home, state, find, write)
            if inventory.moved:
                atomic_write_text(split, json.dumps(inventory.moved))
            atomic_write_text(home / HEADERS, json.dumps(inventory.known_headers()))
            state = dict(
                version=VERSION,
                content=content,
                summary=summary,
                files=sizes_and_times(home / content),
            )
        if state.get('times') != inventory.times:
            state |= dict(
                state=inventory.digest(),
                outside=inventory.outside,
                root=root,
                times=inventory.times,
            )
            atomic_write_text(home / LISTED, json.dumps(dict(paths=[*inventory.files])))
            atomic_write_text(home / STATE, json.dumps(state))
        target = home / state['content']
        for path in home.iterdir() if is_alone and not is_same else ():
            if path.is_dir() and path != target:  # of other content, or a kill left it
                remove_unused(path)
    return target, json.loads(json.dumps(state['summary']))


def _write_anew(
    inventory: Inventory,
    home: Path,
    state: Json,
    find: Callable[[Inventory], Data],
    write: Callable[[Data, Path], Json],
) -> tuple[str, Json]:
    """The digest of the content, and what ``write`` returned; of known content it did so before."""
    found = find(inventory)
    content = content_digest(found, inventory)
    if content == state.get('content'):
        return content, state['summary']
    try:
        with atomic_folder(home / content) as fresh:
            return content, write(found, fresh)
    finally:
        inventory.parsed.clear()  # their memory
        if not any(home.iterdir()):
            home.rmdir()


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


def is_up_to_date(file: str, root: str) -> bool:
    """Return whether a file that was written here is of a data set's folder as it is now.

    No folder is listed, so a folder that has changed is another one, whatever changed in it.
    """
    home = Path(file).parent.parent
    state = _whole_state(home)
    if state.get('content') != Path(file).parent.name:
        return False
    if state.get('root') != os.path.realpath(root):
        return False
    if state['times'] != {path: time_of(path) for path in state['times']}:
        return False
    paths = read_json_or_empty(home / LISTED).get('paths', ())
    with suppress(OSError):  # one is gone
        files = {path: state_of(os.stat(path)) for path in paths}
        return state['state'] == digest_of(files)
    return False


def _whole_state(home: Path) -> Json:
    """What is known of the files in a folder; {} if they are not as they were written."""
    state = read_json_or_empty(home / STATE)
    if state.get('version') != VERSION:
        return {}
    is_whole = state['files'] == sizes_and_times(home / state['content'])
    return state if is_whole else {}


def sizes_and_times(folder: Path) -> dict[str, list[int]]:
    """Size and time of change of the files in a folder, by which damage and edits are known."""
    about = {path.name: path.stat() for path in sorted(folder.glob('*'))}
    return {name: [one.st_size, one.st_mtime_ns] for name, one in about.items()}


def content_digest(found: FoundData, inventory: Inventory) -> str:
    """A digest of the content of labels, and of names, sizes and headers of images."""
    about = []
    labels = set[Path]()
    images = set[Path]()
    for _, part in sorted(found.splits.items()):
        said = vars(part) | dict(inventory=None, names=sorted(part.names or ()))
        said |= vars(said.pop('files'))
        about.append(said)
        files = {*part.files.pairs, *part.files.orphans}
        if not files and inventory.is_file(part.source):
            files.add(part.source)
        labels.update(files or inventory.below(part.source))
        images.update(part.files.pairs.values(), part.files.unlabelled)
        if not part.files.pairs:
            images.update(file for _, file in inventory.images(part.images))
    text = repr((found.known(), about)).replace(str(inventory.root), '')
    digest = hashlib.sha256(text.encode('utf-8', 'surrogateescape'))
    for path in progress(sorted(labels), 'comparing labels'):
        digest.update(f'\n{os.path.getsize(path)}\n'.encode())
        with open(path, 'rb') as file:
            while chunk := file.read(2**22):
                digest.update(chunk)
    for path in progress(sorted(images), 'reading headers of images'):
        header: object = None
        with suppress(ValueError):
            header = inventory.header(path)
        size = inventory.files.get(str(path), (0,))[0]
        line = f'{path.name} {size} {header}\n'
        digest.update(line.encode('utf-8', 'surrogateescape'))
    for path in sorted(images)[:: -(-len(images) // SAMPLED) or 1]:
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
