"""Files that are either complete or as they were."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = '.partial'
DISK_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    errno.EISDIR,  # the path is a folder
)
WRITER_SIGNS = ('PytorchStreamWriter', 'inline_container', 'iostream')  # in errors of torch.save


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a name beside ``path`` to write to; on leaving, bring that file to the disk and rename
    it to ``path``. After an error what was written is removed.

    Raises:
        OSError: the disk is full or cannot be written to; it names ``path`` and says how much the
            disk has left.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'{path.name}.{os.getpid()}{PARTIAL}')
    try:
        yield partial
        with open(partial, 'rb') as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:
        if not is_of_the_disk(error):
            raise
        free = shutil.disk_usage(path.parent).free / 1e9
        reason = f'cannot be written ({error}); its disk has {free:.1f} GB left'
        raise OSError(getattr(error, 'errno', None) or errno.EIO, reason, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def is_of_the_disk(error: OSError | RuntimeError) -> bool:
    """Whether a file could not be written; not, say, a connection that failed, or Ctrl-C."""
    if isinstance(error, OSError):
        return error.errno in DISK_ERRORS
    return any(sign in str(error) for sign in WRITER_SIGNS) and not is_interrupt(error)


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: torch.save fails with a RuntimeError when interrupted."""
    return error is not None and (
        isinstance(error, KeyboardInterrupt) or is_interrupt(error.__context__)
    )


def write_whole(path: str | Path, text: str) -> None:
    """Write a text to a file that is either complete or as it was."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding='utf-8')
