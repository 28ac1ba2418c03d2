"""Errors that the person at the keyboard can mend, and how a tool ends on them."""

import difflib
import functools
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence

from torch import distributed

from ..checkpoints import CheckpointError

Main = Callable[[Sequence[str] | None], None]


class UsageError(Exception):
    """A wrong setting, path or file: the message says which, what is allowed and what to do.

    Whatever checks or changes a config, here and in the other modules of this package, raises it.
    """


def command(main: Main) -> Callable[[Sequence[str] | None], int]:
    """Make `main(argv)` return an exit code: 0, 2 after a known error, 130 after Ctrl-C.

    A UsageError, a CheckpointError and an error of the disk or of a connection are printed without
    a traceback; with --debug, which every tool takes, after their traceback. Until the processes
    of a distributed run know each other, the first of each machine speaks for all.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        argv = list(sys.argv[1:] if argv is None else argv)
        debug = '--debug' in argv
        try:
            main([argument for argument in argv if argument != '--debug'])
        except (UsageError, CheckpointError, OSError) as error:
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
        text = f'{error.filename or open_file(error)}: {error.strerror}'
    more = ' (--debug shows where)' if error.__cause__ and not debug else ''
    print(f'error: {text}{more}', file=sys.stderr)


def open_file(error: OSError) -> str:
    """What the innermost function that had a file open was writing or reading."""
    name = 'a file'
    for frame, _ in traceback.walk_tb(error.__traceback__):
        files = [value for value in frame.f_locals.values() if isinstance(value, io.IOBase)]
        names = [getattr(file, 'name', None) for file in files]
        name = next((given for given in names if isinstance(given, str)), name)
    return name


def nearest(name: str, allowed: Iterable[str]) -> str:
    """', did you mean X?' for the closest allowed name, else an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f', did you mean {close[0]!r}?' if close else ''
