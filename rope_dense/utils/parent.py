"""Processes that end with their parent."""

import ctypes
import os
import signal
import sys
from multiprocessing import parent_process

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that Linux sends when the parent ends


def end_with_parent() -> None:
    """Let this loading process end when its parent does, even if that is killed.

    By itself, it looks for its parent only while it waits for work: it lives on for good if the
    parent ended before it was ready, or when the queue of its results is full.
    """
    parent = parent_process()
    if sys.platform == 'linux' and parent is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # ended before
            os._exit(1)
