"""One process at a time for each result."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
LINE = 10.0  # seconds from one line to the next while a process waits
OPEN = set[int]()  # descriptors of lock files


def close_locks() -> None:
    """Close the parent's locks: a loading worker that outlives its parent would hold them."""
    while OPEN:
        os.close(OPEN.pop())


os.register_at_fork(after_in_child=close_locks)


@contextmanager
def exclusive(path: str | Path, seconds: float = 0.0) -> Iterator[bool]:
    """Within this context, no other process can enter it for the same path.

    The lock is on a file beside ``path``, .NAME.lock, which names the process and stays. The
    operating system releases the lock when the process ends, even if it is killed. A file system
    without locks (Lustre without -o flock, NFS without lockd) is said in one line; a file in the
    temporary folder is locked there, if that has locks, for the processes of this machine.

    Args:
        path: of the file or folder that is written; it need not exist.
        seconds: to wait for another process; a line says for which.

    Yields:
        True if processes of other machines are kept out, too.

    Raises:
        BlockingIOError: another process has the lock; the message names it and the lock file.
    """
    path = Path(os.path.abspath(path))
    beside = file = path.with_name(f'.{path.name}.lock')
    beside.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        is_locked = lock(files.enter_context(opened(file)), file, path, seconds)
        if not is_locked:
            name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
            file = Path(tempfile.gettempdir(), f'rope_dense_{os.getuid()}_{name}.lock')
            is_locked = lock(files.enter_context(opened(file)), file, path, seconds)
            rest = f'{file} keeps out other processes of this machine' if is_locked else 'none used'
            say(f'{beside}: no locks on this file system; {rest}')
        if is_locked:
            command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
            file.write_text(f'process {os.getpid()} on {socket.gethostname()}: {command}')
        yield is_locked and file == beside


@contextmanager
def opened(file: Path) -> Iterator[int]:
    """The descriptor of a file, which is closed at the end, and in processes that are forked."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    OPEN.add(descriptor)
    try:
        yield descriptor
    finally:
        if descriptor in OPEN:  # not in a forked process
            OPEN.remove(descriptor)
            os.close(descriptor)


def lock(descriptor: int, file: Path, path: Path, seconds: float) -> bool:
    """Lock a file, as soon as no other process has the lock; False if its file system has none."""
    start = last = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in NO_LOCKS:
                return False
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            holder = file.read_text(errors='replace') or 'another process'
            now = time.monotonic()
            if now - start >= seconds:
                reason = f'is being written by {holder}; wait until it ends, or write elsewhere'
                reason += f' (lock: {file})'
                raise BlockingIOError(errno.EAGAIN, reason, str(path)) from error
        if now - last >= LINE:
            last = now
            say(f'{path}: waiting for {holder}, {now - start:.0f} s (lock: {file})')
        time.sleep(0.1)


def say(line: str) -> None:
    """Print a line on standard error, once for processes of a machine that train together."""
    if os.environ.get('LOCAL_RANK', '0') == '0':
        print(line, file=sys.stderr, flush=True)
