"""Loading processes end with a parent that is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

from rope_dense.utils import process as parent

LOADERS = """
import multiprocessing, os, runpy, signal, sys, time
from functools import partial

import torch
from torch.utils.data import DataLoader

end_with_parent = runpy.run_path(sys.argv[1])['end_with_parent']


class Data:
    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 99

    def __getitem__(self, index):
        time.sleep(60 if self.kind == 'slow' else 0)
        return bytes(2**24 if self.kind == 'large' else 1)


def start(late, worker):
    time.sleep(1.5 if late else 0)
    end_with_parent()


def loader(kind):
    begin = partial(start, kind == 'late')
    return iter(DataLoader(Data(kind), num_workers=1, collate_fn=list, worker_init_fn=begin))


torch.set_num_threads(1)
kept = [loader(kind) for kind in ('slow', 'large', 'late')]
print(*(each.pid for each in multiprocessing.active_children()), flush=True)
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_loading_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """PyTorch's own check is between two batches: each of these would live on.

    One works on an image, one cannot hand over what it loaded, and one starts after the kill.
    """
    command = [sys.executable, '-c', LOADERS, parent.__file__]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    workers = [int(number) for number in process.stdout.split()]
    assert len(workers) == 3
    end = time.monotonic() + 5
    while (
        left := [each for each in workers if is_running(each)]
    ) and time.monotonic() < end:
        time.sleep(0.1)
    for each in left:
        os.kill(each, 9)
    assert not left


def is_running(process: int) -> bool:
    try:
        return Path(f'/proc/{process}/stat').read_text().split()[2] != 'Z'
    except FileNotFoundError:
        return False
