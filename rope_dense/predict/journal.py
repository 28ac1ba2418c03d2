"""Predictions of an interrupted run, with which the same command continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """A line of JSON for each predicted image, written as it comes; removed at the end of the run.

    The first line has the settings of the run. A run with other settings begins anew; the line
    that a killed process was writing is left out.

    Args:
        path: of the file.
        settings: what the predictions depend on; JSON.

    Attributes:
        entries: of the images that are done, by their ``file_name``.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        first, *others = read_lines(path) or [None]
        self.entries = {e['file_name']: e for e in others} if first == settings else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open('w', encoding='utf-8')
        for line in (settings, *self.entries.values()):
            self.file.write(json.dumps(line) + '\n')
        self.file.flush()

    def add(self, entry: Entry) -> None:
        """Note that an image is done, with all that is to be remembered of it."""
        self.entries[entry['file_name']] = entry
        self.file.write(json.dumps(entry, allow_nan=False) + '\n')
        self.file.flush()

    def close(self) -> None:
        """Remove the file: the run is complete."""
        self.file.close()
        self.path.unlink(missing_ok=True)


def read_lines(path: Path) -> list[Any]:
    """The lines of a file of JSON lines, up to the first that is not whole."""
    lines = []
    for line in path.read_text(encoding='utf-8').splitlines() if path.is_file() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
