"""Processes that share a list of images by index, and keep a journal each."""

import os

import torch

from ..project.building import building
from ..project.errors import UsageError
from ..project.launch import join_group

LONGEST = 30 * 24 * 3600  # seconds that a process waits for the others


def init_rank() -> tuple[int, int]:
    """The rank of this process, which takes the GPU of its number, and the count of all.

    They are RANK and WORLD_SIZE of the environment, which torchrun sets; 0 and 1 without them.
    UsageError if RANK is no number below WORLD_SIZE.
    """
    rank, count = (os.environ.get(*x) for x in (('RANK', '0'), ('WORLD_SIZE', '1')))
    if not (rank.isdecimal() and count.isdecimal() and int(rank) < int(count)):
        raise UsageError(f'RANK={rank}: give a number below WORLD_SIZE={count}, from 0 on')
    if 'LOCAL_RANK' in os.environ and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    return int(rank), int(count)


def should_merge(rank: int, count: int) -> bool:
    """True if this process is to merge: the first one, as soon as the others are here, too.

    Without MASTER_ADDR, as in a job array, none does: one alone merges later. Processes are
    connected here and no earlier: in a group, mmengine draws in the first process only.
    """
    if count > 1 and 'MASTER_ADDR' not in os.environ:
        print(f'process {rank + 1} of {count} is done: when all are, the command alone merges')
        return False
    if count > 1:
        with building('another process'):
            join_group({'backend': 'gloo', 'timeout': LONGEST})
    return rank == 0
