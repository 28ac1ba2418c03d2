"""User errors, and the exit of a tool on them."""

import difflib
import errno
import functools
import gc
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import distributed

from ..checkpoints import CheckpointError
from ..engine.runner import LoadError

Main = Callable[[Sequence[str] | None], None]


class UsageError(Exception):
    """A wrong setting, path or file: the message says which, what is allowed and what to do.

    All functions of this package that check or change a config raise it.
    """


@contextmanager
def usage_errors() -> Iterator[None]:
    """Within this context, a ValueError becomes a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def command(main: Main) -> Callable[[Sequence[str] | None], int]:
    """Make `main(argv)` return an exit code: 0, 2 after a known error, 130 after Ctrl-C.

    Known errors are UsageError, CheckpointError, LoadError and errors of the disk or a connection.
    They are printed without a traceback, or with one if --debug is given. Until the processes of a
    distributed run are connected, only the first of each machine prints.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        argv = list(sys.argv[1:] if argv is None else argv)
        debug = '--debug' in argv
        try:
            main([argument for argument in argv if argument != '--debug'])
        except (UsageError, CheckpointError, LoadError, OSError) as error:
            if os.environ.get('LOCAL_RANK', '0') == '0' or distributed.is_initialized():
                report(error, debug)
            return 2
        except KeyboardInterrupt:
            return 130
        if distributed.is_initialized():
            gc.collect()  # cycles hold the group, and gloo's threads would abort at exit
            distributed.destroy_process_group()
        return 0

    return run


def report(error: Exception, debug: bool) -> None:
    """Print an error on standard error, in words."""
    if debug:
        traceback.print_exception(error)
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f'{error.filename or "a file"}: {error.strerror}{free_space(error)}'
    more = ' (--debug shows where)' if error.__cause__ and not debug else ''
    print(f'error: {text}{more}', file=sys.stderr)


def free_space(error: OSError) -> str:
    """'; DIR has ... GB left' for a full disk; DIR is the file's folder or the current one."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or 'GB left' in (error.strerror or ''):
        return ''
    folder = os.path.dirname(os.path.abspath(error.filename or 'here'))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return f'; {folder} has {shutil.disk_usage(folder).free / 1e9:.1f} GB left'


def nearest(name: str, allowed: Iterable[str]) -> str:
    """', did you mean X?' for the closest allowed name, else an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f', did you mean {close[0]!r}?' if close else ''
