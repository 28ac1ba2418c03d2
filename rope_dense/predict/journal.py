"""Predictions of an interrupted run, with which the same command continues.

Processes have a journal each, which the others read: the same command with another number of them
continues.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..utils.journal import Journal, JournalError, remove_journal
from ..utils.json_lines import object_in
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

    def __init__(self, results: Results, settings: Mapping[str, Any], name: str = '') -> None:
        self.processes, self.place = results.home.parent, Path('images', name)
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
        for file in sorted(self.processes.glob(str(Path('*', self.place, 'state.json')))):
            noted = object_in(file.read_bytes()) or {}
            if noted.get('settings') != self.steps.settings:
                continue
            for line in file.with_name('content').read_bytes()[: noted['size']].splitlines():
                if entry := object_in(line):
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
