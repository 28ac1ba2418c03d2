"""One process at a time for each result."""

import errno
import fcntl
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from weakref import WeakSet

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
LINE = 10.0  # seconds from one line to the next while a process waits
OPEN = WeakSet[IO[str]]()  # lock files
SAID = set[Path]()  # folders of a file system without locks

# A loading worker that outlives its parent would hold the parent's locks.
os.register_at_fork(after_in_child=lambda: [file.close() for file in OPEN])


@contextmanager
def exclusive(
    path: str | Path, seconds: float = 0.0, file: str | Path | None = None
) -> Iterator[bool]:
    """Within this context, no other process can enter it for the same path.

    The lock is on a file that names the process. The operating system releases the lock when the
    process ends, even if it is killed; else the file is removed. Where the file system has no locks
    (Lustre without -o flock, NFS without lockd), one line says so.

    Args:
        path: of the file or folder that is written; it need not exist.
        seconds: to wait for another process; a line says for which.
        file: of the lock; by default .NAME.lock, beside ``path``.

    Yields:
        False if there are no locks.

    Raises:
        BlockingIOError: another process has the lock; the message names it and the lock file.
    """
    path = Path(os.path.abspath(path))
    if file is None:
        file = path.with_name(f'.{path.name}.lock')
    name = Path(os.path.abspath(file))
    name.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    while True:
        with open(name, 'a+', errors='replace', opener=follow_no_link) as opened:
            OPEN.add(opened)
            is_locked = lock(opened, path, end - time.monotonic())
            if is_locked and not is_at(opened, name):
                continue  # the process that had the lock has removed the file
            if is_locked:
                command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
                opened.truncate(0)
                about = f'process {os.getpid()} on {socket.gethostname()}'
                opened.write(f'{about}: {command}')
                opened.flush()
            try:
                yield is_locked
            finally:
                if is_locked and not opened.closed and is_at(opened, name):
                    name.unlink()
            return


def is_at(file: IO[str], path: Path) -> bool:
    """Return whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except OSError:
        return False


def lock(file: IO[str], path: Path, seconds: float) -> bool:
    """Lock a file as soon as no other process has the lock; False if its file system has none."""
    start = last = time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            file.seek(0)
            holder = file.read() or 'another process'
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            folder = Path(file.name).parent
            if folder not in SAID:
                advice = 'start no second process here'
                print(f'{file.name}: {error.strerror}: {advice}', file=sys.stderr)
            SAID.add(folder)
            return False
        now = time.monotonic()
        if now - start >= seconds:
            reason = (
                f'is being written by {holder}; wait until it ends, or write elsewhere '
                f'(lock: {file.name})'
            )
            raise BlockingIOError(errno.EAGAIN, reason, str(path))
        if now - last >= LINE and os.environ.get('LOCAL_RANK', '0') == '0':
            last = now
            waited = f'{now - start:.0f} s'
            print(f'{file.name}: {waited}; waiting for {holder}', file=sys.stderr)
        time.sleep(0.1)


def follow_no_link(name: str, flags: int) -> int:
    """Open a file that is no symbolic link."""
    return os.open(name, flags | os.O_NOFOLLOW, 0o644)
