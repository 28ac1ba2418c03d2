"""Predictions of an interrupted run, with which the same command continues.

Processes have a journal each, which the others read: the same command with another number of them
continues.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..utils.journal import Journal, JournalError
from ..utils.json_lines import object_in

SECONDS = 2.0  # of work that a kill may cost
UNFINISHED = 'unfinished'  # folder in the output folder

Entry = dict[str, Any]


class ImageJournal:
    """A line of JSON for each predicted image, kept until the run is complete.

    Args:
        out: output folder, in which it has a folder of its own.
        settings: what the predictions depend on; JSON.
        rank: of the process.

    Attributes:
        entries: of the images that are done, by their ``file_name``.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any], rank: int = 0) -> None:
        self.folder, self.entries = out / UNFINISHED, dict[str, Entry]()
        self.steps = journal_or_anew(self.folder / str(rank), dict(settings), SECONDS)
        self.gather()

    def gather(self, names: Sequence[str] = ()) -> None:
        """Note the images of this process, and take all processes', in the order of ``names``."""
        self.steps.note()
        for file in sorted(self.folder.glob('*/state.json')):
            state = object_in(file.read_bytes()) or {}
            if state.get('settings') == self.steps.settings:
                lines = file.with_name('content').read_bytes()[: state['size']].splitlines()
                entries = filter(None, map(object_in, lines))
                self.entries |= {entry['file_name']: entry for entry in entries}
        known = [name for name in names if name in self.entries]
        self.entries = {name: self.entries[name] for name in dict.fromkeys([*known, *self.entries])}

    def add(self, entry: Entry) -> None:
        """Note that an image is done, with all that is to be remembered of it."""
        self.steps.finish_step(json.dumps(entry, allow_nan=False).encode() + b'\n')
        self.entries[entry['file_name']] = entry

    def remove(self) -> None:
        """Remove the folder of all processes: the run is complete."""
        shutil.rmtree(self.folder)


def journal_or_anew(folder: Path, settings: dict, seconds: float = 0.0) -> Journal:
    """A journal, which begins anew where its folder has other settings or is damaged."""
    try:
        return Journal(folder, settings, seconds)
    except JournalError as error:
        print(f'{error}: begun anew')
        shutil.rmtree(folder)
        return Journal(folder, settings, seconds)
