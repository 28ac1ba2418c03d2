"""Processes that end with their parent."""

import ctypes
import os
import signal
import sys
from multiprocessing import parent_process


def end_with_parent() -> None:
    """Let Linux kill this loading process when its parent ends; other systems do not.

    By itself, it looks for its parent only while it waits for work: it lives on for good if the
    parent ended before it was ready, or if the queue of its results is full.
    """
    if sys.platform != 'linux':
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if (parent := parent_process()) is None or os.getppid() != parent.pid:  # ended before
        os._exit(1)
