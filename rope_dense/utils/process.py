"""This process: its parent, and the peak of its memory."""

import ctypes
import os
import re
import resource
import signal
import sys
from multiprocessing import parent_process
from pathlib import Path


def end_with_parent() -> None:
    """Let Linux kill this loading process when its parent ends; other systems do not.

    By itself, it looks for its parent only while it waits for work: it lives on for good if the
    parent ended before it was ready, or if the queue of its results is full.
    """
    if sys.platform != 'linux':
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    parent = parent_process()
    if parent is None or os.getppid() != parent.pid:  # it ended before
        os._exit(1)


STATUS = Path('/proc/self/status')


def peak_rss() -> int:
    """Return the bytes that were resident at once, at most so far.

    ``ru_maxrss``, the fallback without /proc, starts at the parent's value.
    """
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if STATUS.exists():
        match = re.search(r'VmHWM:\s+(\d+) kB', STATUS.read_text())
        kilobytes = int(match[1]) if match else kilobytes
    return kilobytes * 2**10
