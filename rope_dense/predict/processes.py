"""The processes of a prediction, which share a list by index and keep a journal each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from ..project.building import building
from ..project.errors import UsageError
from ..project.launch import join_group
from ..utils.lock import exclusive

T = TypeVar('T')
LONGEST = 30 * 24 * 3600  # seconds that a process waits for the others


@dataclass(frozen=True)
class Processes:
    """This process and how many there are, by RANK and WORLD_SIZE of the environment.

    torchrun sets them. Without MASTER_ADDR, as in a job array, processes do not wait for each
    other: a process that is alone merges when the others have ended.

    Attributes:
        rank: of this process; the first, 0, merges.
        count: of all.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def started(cls) -> Processes:
        """The processes that were started; this one takes the GPU of its number.

        Raises:
            UsageError: RANK is no number below WORLD_SIZE.
        """
        rank, count = (os.environ.get(*x) for x in (('RANK', '0'), ('WORLD_SIZE', '1')))
        if not (rank.isdecimal() and count.isdecimal() and int(rank) < int(count)):
            raise UsageError(f'RANK={rank}: give a number below WORLD_SIZE={count}, from 0 on')
        if 'LOCAL_RANK' in os.environ and torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        return cls(int(rank), int(count))

    @contextmanager
    def exclusive(self, folder: Path, journals: Path) -> Iterator[None]:
        """Within this context, no others write there: the first has the folder, each its journal.

        A process that is alone has the journals of all, which it merges.
        """
        places = [journals / str(self.rank)] if self.rank else [folder]
        with ExitStack() as stack:
            for place in [*places, *journals.glob('[0-9]*')] if self.count == 1 else places:
                stack.enter_context(exclusive(place))
            yield

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """The items of this process."""
        return items[self.rank :: self.count]

    def merges(self) -> bool:
        """True if this process is to merge: the first one, as soon as the others are here, too.

        They are connected here and no earlier: mmengine draws in the first process of a group only.

        Raises:
            UsageError: another process does not come.
        """
        if self.count > 1 and 'MASTER_ADDR' not in os.environ:
            number = self.rank + 1
            print(f'process {number} of {self.count} is done: one alone merges when all are')
            return False
        if self.count > 1:
            with building('another process'):
                join_group({'backend': 'gloo', 'timeout': LONGEST})
        return self.rank == 0
