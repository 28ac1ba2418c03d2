"""Files that are written whole, lines of JSON, and the names of a run's files."""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PARTIAL = '.partial'
SAID = 'cannot be written'
DISK_ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM,
    errno.EISDIR,  # the path is a folder
)  # fmt: skip
# In errors of torch.save and of safetensors, with their kind.
WRITER_SIGNS = (
    'PytorchStreamWriter',
    'inline_container',
    'iostream',
    'SafetensorError',
)


@contextmanager
def atomic_write(
    path: str | Path, folder: str | Path | None = None, is_flushed: bool = True
) -> Iterator[Path]:
    """Yield a new, empty file, which replaces ``path`` on leaving, unless it was removed.

    It is flushed to the disk before it is renamed, and has the mode of a new file. After an error
    it is removed. Its name is random, and it is created exclusively: what has this name, such as a
    symbolic link, is not written to. OSError, with ``path`` and the space that is left, if the disk
    is full or cannot be written to.

    Args:
        path: its folder is made, too.
        folder: of the new file, on the same disk, where it keeps the suffix of ``path``; by default
            it is beside ``path``, as NAME.partial.
        is_flushed: False for files that a crash of the machine may damage.
    """
    path = Path(path)
    token = secrets.token_hex(8)
    partial = path.with_name(f'{path.name}.{token}{PARTIAL}')
    if folder is not None:
        partial = Path(folder, f'{token}{path.suffix}')
    with named_disk_errors(path):
        partial.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL, which follows no link; the mode is by the umask.
        partial.touch(exist_ok=False)
        mode = partial.stat().st_mode
        try:
            yield partial
            if partial.exists():
                # safetensors makes a file that nobody else can read.
                os.chmod(partial, mode)
                if is_flushed:
                    with open(partial, 'rb') as file:
                        os.fsync(file.fileno())
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def named_disk_errors(path: Path) -> Iterator[None]:
    """Within this context, an OSError of the disk names ``path`` and the space that is left."""
    try:
        yield
    except Exception as error:
        if not is_disk_error(error) or SAID in str(error):
            raise
        reason = f'{SAID} ({error})'
        with suppress(OSError):
            folder = next(filter(Path.exists, path.absolute().parents))
            left = shutil.disk_usage(folder).free / 1e9
            reason += f'; its disk has {left:.1f} GB left'
        number = getattr(error, 'errno', None) or errno.EIO
        raise OSError(number, reason, str(path)) from error


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``, which replaces ``path`` on leaving without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f'.{path.name}.') as workspace:
        fresh = Path(workspace, 'fresh')
        fresh.mkdir()
        yield fresh
        if path.exists():
            shutil.move(path, Path(workspace, 'replaced'))
        os.replace(fresh, path)


def atomic_write_text(path: str | Path, text: str) -> None:
    """Write a text to a file that is either complete or unchanged."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding='utf-8')


def is_disk_error(error: Exception) -> bool:
    """Return whether a file could not be written; not, say, a failed connection or Ctrl-C."""
    if isinstance(error, OSError):
        return error.errno in DISK_ERRORS
    text = f'{type(error).__name__}: {error}'
    return any(sign in text for sign in WRITER_SIGNS) and not is_interrupt(error)


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: an interrupted torch.save raises RuntimeError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def read_json_lines(path: str | Path, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file, one a line, up to the first line that is not a whole one.

    A process that was killed may leave half a line, or zeros, at the end.

    Args:
        strict: raise an error in place of stopping there.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not whole, and ``strict``.
    """
    with open(path, 'rb') as file:
        for number, line in enumerate(file, start=1):
            value = object_in(line)
            if value is None and strict:
                raise ValueError(f'{path}: line {number} is no object of JSON')
            if value is None:
                return
            yield value


def object_in(line: bytes) -> dict[str, Any] | None:
    """The object of JSON that a line is; None if it is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_json_or_empty(path: Path) -> dict[str, Any]:
    """The content of a JSON file that was written here; {} if it is not there, or is broken."""
    try:
        return object_in(path.read_bytes()) or {}
    except OSError:
        return {}


HUB = 'hf-hub:'  # before the name of a model on the Hugging Face hub
WEB = ('https://', 'http://')


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is no file of this machine: an address, or a name in a zoo or hub."""
    return '://' in str(path) or str(path).startswith(HUB)


TRAINING = 'training'  # of its record, see ``Results``
LAST, BEST = 'last_checkpoint', 'best_checkpoint.json'
