"""A long piece of work that a killed process leaves so that the next one goes on with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..utils.atomic_write import atomic_write_text


class Journal:
    """A folder with what is finished: a file that grows, and how many steps are in it.

    A step is in the file whole or, after a kill, not at all.

    Args:
        folder: made if it is not there.
        settings: what the work depends on, as JSON has it; a folder of other settings is not gone
            on with.

    Attributes:
        finished: number of steps.
        content: path of the file.

    Raises:
        ValueError: the folder belongs to other settings, and how they differ.
    """

    def __init__(self, folder: Path, settings: dict) -> None:
        self.folder, self.settings = folder, settings
        self.state, self.content = folder / 'state.json', folder / 'content'
        self.finished, size = 0, 0
        if self.state.exists():
            stored = json.loads(self.state.read_text(encoding='utf-8'))
            self.check(stored['settings'])
            self.finished, size = stored['finished'], stored['size']
        folder.mkdir(parents=True, exist_ok=True)
        self.content.touch()
        os.truncate(self.content, size)

    def check(self, stored: dict) -> None:
        """Raises: ValueError."""
        names = dict.fromkeys([*self.settings, *stored])
        differences = [
            f'{name} {stored.get(name)}, now {self.settings.get(name)}'
            for name in names
            if stored.get(name) != self.settings.get(name)
        ]
        if differences:
            raise ValueError(
                f'{self.folder} has the unfinished result of other settings: '
                f'{"; ".join(differences)}'
            )

    def finish_step(self, content: bytes) -> None:
        """Add the content of the next step, for good."""
        with self.content.open('ab') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self.finished += 1
        state = dict(settings=self.settings, finished=self.finished, size=size)
        atomic_write_text(self.state, json.dumps(state, indent=1) + '\n')
