"""One process at a time for each result."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: str | Path) -> Iterator[None]:
    """Within this context, no other process can enter it for the same path.

    The lock is on a file beside ``path``, .NAME.lock, which names the process and is removed on
    leaving. The operating system releases the lock when the process ends, even if it is killed.
    On a file system without locks there is a warning in place of the lock.

    Args:
        path: of the file or folder that is written; it need not exist.

    Raises:
        BlockingIOError: another process has the lock; the message names it.
    """
    path = Path(os.path.abspath(path))
    file_path = path.with_name(f'.{path.name}.lock')
    file_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _lock(path, file_path)
    try:
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        holder = f'process {os.getpid()} on {socket.gethostname()}: {command}'
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        yield
    finally:
        file_path.unlink(missing_ok=True)
        os.close(descriptor)  # releases the lock


def _lock(path: Path, file_path: Path) -> int:
    """The descriptor of the lock file, locked.

    A POSIX lock, which processes that are forked, those of data loaders, do not inherit.
    """
    while True:
        descriptor = os.open(file_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(descriptor, file_path):
                return descriptor
        except BlockingIOError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors='replace') or 'another process'
            os.close(descriptor)
            reason = f'is being written by {holder}; wait until it ends, or write elsewhere'
            raise BlockingIOError(errno.EAGAIN, reason, str(path)) from error
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
                warnings.warn(f'{path}: its file system has no locks ({error})', stacklevel=4)
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed it meanwhile


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
