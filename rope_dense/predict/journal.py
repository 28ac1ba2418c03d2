"""Predictions of an interrupted run, with which the same command continues."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..utils.journal import Journal, JournalError
from ..utils.json_lines import read_json_lines

SECONDS = 2.0  # of work that a kill may cost
UNFINISHED = 'unfinished'  # folder in the output folder

Entry = dict[str, Any]


class ImageJournal:
    """A line of JSON for each predicted image, kept until the run is complete.

    Args:
        out: output folder, in which it has a folder of its own.
        settings: what the predictions depend on; JSON.

    Attributes:
        entries: of the images that are done, by their ``file_name``.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        self.steps = journal_or_anew(out / UNFINISHED, dict(settings), SECONDS)
        lines = read_json_lines(self.steps.content)
        self.entries: dict[str, Entry] = {entry['file_name']: entry for entry in lines}

    def add(self, entry: Entry) -> None:
        """Note that an image is done, with all that is to be remembered of it."""
        self.steps.finish_step(json.dumps(entry, allow_nan=False).encode() + b'\n')
        self.entries[entry['file_name']] = entry

    def close(self) -> None:
        """Remove the folder: the run is complete."""
        shutil.rmtree(self.steps.folder)


def journal_or_anew(folder: Path, settings: dict, seconds: float = 0.0) -> Journal:
    """A journal, which begins anew where its folder has other settings or is damaged."""
    try:
        return Journal(folder, settings, seconds)
    except JournalError as error:
        print(f'{error}: begun anew')
        shutil.rmtree(folder)
        return Journal(folder, settings, seconds)
