"""The place of predictions: what the user wants there, and which images are done.

The same command continues an interrupted run. Each process has a journal, which the others read, so
that another number of processes can continue.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..data.labels.coco_files import load_coco
from ..project.identity import Identity
from ..utils.disk import object_in
from ..utils.errors import UsageError
from ..utils.journal import Journal, JournalError, remove_journal
from ..utils.results import Results

SECONDS = 2.0  # of work that a kill may cost

Entry = dict[str, Any]
State = list[int] | None  # size and time of change of an image file; None of a frame


class ImageJournal:
    """A line of JSON for each predicted image, kept until all images are predicted.

    Args:
        results: of the process.
        settings: what the predictions depend on; JSON.
        name: of one of several tasks.

    Attributes:
        entries: of the images that are done, by their ``file_name``.
    """

    def __init__(
        self, results: Results, settings: Mapping[str, Any], name: str = ''
    ) -> None:
        self.processes = results.home.parent
        self.place = Path('images', name)
        self.entries = dict[str, Entry]()
        self.steps = journal_or_anew(results.home / self.place, dict(settings), SECONDS)

    def gather(self, states: Mapping[str, State]) -> None:
        """Note the images of this process, and take the images of all processes.

        Args:
            states: of all images by their names, which give the order; an image that has changed
                since, or is not among them, is not done.
        """
        self.steps.note()
        found = dict(self.entries)
        pattern = str(Path('*', self.place, 'state.json'))
        for file in sorted(self.processes.glob(pattern)):
            noted = object_in(file.read_bytes()) or {}
            if noted.get('settings') != self.steps.settings:
                continue
            content = file.with_name('content').read_bytes()
            for line in content[: noted['size']].splitlines():
                entry = object_in(line)
                if entry:
                    found[entry['file_name']] = entry
        self.entries = {}
        for name, state in states.items():
            if name in found and found[name].get('state') == state:
                self.entries[name] = found[name]

    def add(self, entry: Entry) -> None:
        """Note that an image is done, with all that is to be remembered of it."""
        self.steps.finish_step(json.dumps(entry, allow_nan=False).encode() + b'\n')
        self.entries[entry['file_name']] = entry

    def remove(self) -> None:
        """Remove the journals of all processes: all images are predicted."""
        for folder in self.processes.glob(str(Path('*', self.place))):
            remove_journal(folder)


def journal_or_anew(folder: Path, settings: dict, seconds: float = 0.0) -> Journal:
    """A journal, which begins anew where its folder has other settings or is damaged."""
    try:
        return Journal(folder, settings, seconds)
    except JournalError as error:
        print(f'{error}: begun anew')
        remove_journal(folder)
        return Journal(folder, settings, seconds)


def file_state(path: Path) -> State:
    """Size and time of change of a file, by which an image is known; None where there is none."""
    try:
        about = path.stat()
    except OSError:
        return None
    return [about.st_size, about.st_mtime_ns]


@dataclass(frozen=True)
class Wanted:
    """What is written of predictions.

    Args:
        formats: detectors: names in ``FORMATS``.
        scores: segmentors: also the probability of each class; of 'yolo' the score of a box.
        ids: COCO file with the ids of images and classes, for 'results'.
    """

    formats: Sequence[str] = ('coco',)
    scores: bool = False
    ids: Path | None = None

    def say_lacking(self, classes: Sequence[str], names: Sequence[str]) -> None:
        """Print what ``ids`` lacks of the classes, and of the names of images."""
        if self.ids is None:
            return
        for kind, given in (('categories', classes), ('images', names)):
            lacking = sorted({*given} - ids_of(self.ids, kind, given).keys())
            if lacking:
                said = f'{len(lacking)} {kind}, such as {lacking[0]}'
                print(f'{self.ids} lacks {said}: left out')


@dataclass(frozen=True)
class Output:
    """The place of predictions.

    Args:
        results: which all files go through.
        folder: for all files, ``results.folder`` or, of one of several tasks, below it.
        wanted: what is written.
        settings: what the predictions depend on; JSON.
        min_scores: detectors: score of a box that is written, by class, see ``least_scores``.
        read: the pixels of an image by its ``file_name``, BGR, for 'crops'.
        name: of one of several tasks.
        journals: of the images, one for each task.
    """

    results: Results
    folder: Path
    wanted: Wanted
    settings: Mapping[str, Any]
    min_scores: Mapping[str, float]
    read: Callable[[str], np.ndarray]
    name: str = ''
    journals: list[ImageJournal] = field(default_factory=list)

    def within(self, name: str, identity: Identity | None = None) -> 'Output':
        """The output of one of several tasks, in a folder of its own."""
        settings = dict(self.settings)
        if identity is not None:
            settings[name] = identity.described()
        return replace(self, folder=self.folder / name, settings=settings, name=name)

    def journal(self) -> ImageJournal:
        """The journal of the images that are done, by this run or an interrupted one."""
        self.journals.append(ImageJournal(self.results, self.settings, self.name))
        return self.journals[-1]

    def gather(self, states: Mapping[str, State]) -> None:
        """Take the images of all processes, in the order of their names."""
        for journal in self.journals:
            journal.gather(states)

    def forget(self) -> None:
        """Remove the journals: all images are predicted."""
        for journal in self.journals:
            journal.remove()


whole_file = cache(partial(load_coco, is_whole=True))


def ids_of(file: Path, kind: str, names: Sequence[str]) -> dict[str, Any]:
    """The ids of the images or categories in a COCO file that have one of the names.

    An image may be in another folder there if no two have the last part of its name. UsageError,
    ValueError if the file is no COCO file, or has none of the names.
    """
    content = whole_file(file).content
    key = 'file_name' if kind == 'images' else 'name'
    if not isinstance(content, dict) or not isinstance(content.get(kind), list):
        raise UsageError(f'--ids {file}: no COCO file, which has a list of {kind}')
    known = {}
    for entry in content[kind]:
        if key in entry and 'id' in entry:
            known[entry[key]] = entry['id']
    ids = {name: known[name] for name in names if name in known}
    if kind == 'images':
        last = {Path(name).name: number for name, number in known.items()}
        there = Counter(Path(name).name for name in known)
        here = Counter(Path(name).name for name in names)
        for name in names:
            part = Path(name).name
            if there[part] == here[part] == 1:
                ids[name] = last[part]
    if names and not ids:
        few = ', '.join(map(str, [*known][:3]))
        raise UsageError(
            f'--ids {file}: its {kind} ({few} ...) have no {names[0]}, or any other'
        )
    return ids


def check_beside(given: Path, out: Path) -> None:
    """Raise UsageError if the images of a folder would be among the results."""
    if given.resolve().is_relative_to(out.resolve()):
        raise UsageError(
            f'--out {out} contains the images of {given}: give a folder beside or below them'
        )
