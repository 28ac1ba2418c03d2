"""One process at a time for each result."""

from __future__ import annotations

import errno
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def exclusive(path: str | Path) -> Iterator[None]:
    """Within this context, no other process can enter it for the same path.

    The lock is on a file beside ``path``, .NAME.lock, which names the process and stays. The
    operating system releases the lock when the process ends, even if it is killed.

    Args:
        path: of the file or folder that is written; it need not exist.

    Raises:
        BlockingIOError: another process has the lock; the message names it.
    """
    path = Path(os.path.abspath(path))
    file = path.with_name(f'.{path.name}.lock')
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        holder = file.read_text(errors='replace') or 'another process'
        reason = f'is being written by {holder}; wait until it ends, or write elsewhere'
        raise BlockingIOError(errno.EAGAIN, reason, str(path)) from error
    try:
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        file.write_text(f'process {os.getpid()} on {socket.gethostname()}: {command}')
        yield
    finally:
        lock.release()
