"""Long work that another process can continue after the first one was killed."""

import json
import os
import shutil
import time
from pathlib import Path

from .disk import atomic_write_text, named_disk_errors
from .validation import checked_integer


class Journal:
    """A folder with the finished steps of a long computation, in a file that grows.

    After a kill, a step is in the file completely or not at all. For one process at a time.

    Args:
        folder: made if it does not exist.
        settings: all that the results depend on, as values of JSON.
        seconds: between two times that finished steps are noted; a kill loses those after the last.

    Attributes:
        finished: number of steps.
        content: path of the file.

    Raises:
        JournalError: the folder belongs to other settings, or its files are damaged.
    """

    def __init__(self, folder: Path, settings: dict, seconds: float = 0.0) -> None:
        self.folder, self.settings, self.seconds = folder, settings, seconds
        self.state = folder / 'state.json'
        self.content = folder / 'content'
        self.finished, size = 0, 0
        if self.state.exists():
            self.finished, size = self._read_state()
        folder.mkdir(parents=True, exist_ok=True)
        self.content.touch()
        found = self.content.stat().st_size
        if found < size:
            raise damaged_error(self.content, f'{found} bytes, {size} were written')
        os.truncate(self.content, size)
        self.noted = time.monotonic()

    def finish_step(self, content: bytes) -> None:
        """Add the content of the next step; with ``seconds=0`` it is on the disk afterwards."""
        with named_disk_errors(self.content), self.content.open('ab') as file:
            file.write(content)
        self.finished += 1
        if time.monotonic() - self.noted >= self.seconds:
            self.note()

    def note(self) -> None:
        """Put all finished steps on the disk."""
        with self.content.open('ab') as file:
            os.fsync(file.fileno())
            size = file.tell()
        state = dict(settings=self.settings, finished=self.finished, size=size)
        atomic_write_text(self.state, json.dumps(state, indent=1) + '\n')
        self.noted = time.monotonic()

    def remove(self) -> None:
        """Remove the folder: the work is complete."""
        remove_journal(self.folder)

    def _read_state(self) -> tuple[int, int]:
        """Finished steps, and the bytes of their content."""
        try:
            stored = json.loads(self.state.read_text(encoding='utf-8'))
            self._check_settings(dict(stored['settings']))
            finished = checked_integer('finished', stored['finished'], 0)
            return finished, checked_integer('size', stored['size'], 0)
        except JournalError:
            raise
        except (ValueError, LookupError, TypeError) as error:
            raise damaged_error(self.state, repr(error)) from error

    def _check_settings(self, stored: dict) -> None:
        differences = []
        for name in self.settings | stored:
            before, now = stored.get(name), self.settings.get(name)
            if before != now:
                differences.append(f'{name} {before}, now {now}')
        if differences:
            raise JournalError(
                f'{self.folder} has the unfinished result of other settings: '
                f'{"; ".join(differences)}'
            )


def remove_journal(folder: Path) -> None:
    """Remove the hidden folder of a journal, or of several, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


class JournalError(ValueError):
    """Unfinished work that cannot be continued: of other settings, or damaged."""


def damaged_error(path: Path, found: str) -> JournalError:
    """An error that names a file of unfinished work."""
    return JournalError(f'{path} is damaged ({found})')
