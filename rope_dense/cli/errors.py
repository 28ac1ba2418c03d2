"""Errors that the person at the keyboard can mend, and how a tool ends on them."""

import difflib
import functools
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence

import torch.distributed

from ..checkpoints import CheckpointError

Main = Callable[[Sequence[str] | None], None]


class UsageError(Exception):
    """A wrong setting, path or file: the message says which, what is allowed and what to do."""


def command(main: Main) -> Callable[[Sequence[str] | None], int]:
    """Make `main(argv)` return an exit code: 0, 2 after a known error, 130 after Ctrl-C.

    A UsageError, a CheckpointError and an error of the disk that names a file are printed without
    a traceback, by the first process of each machine; with --debug, which every tool takes, after
    their traceback.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        argv = list(sys.argv[1:] if argv is None else argv)
        debug = '--debug' in argv
        try:
            main([argument for argument in argv if argument != '--debug'])
        except (UsageError, CheckpointError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:
                raise
            if os.environ.get('LOCAL_RANK', '0') == '0':
                report(error, debug)
            return 2
        except KeyboardInterrupt:
            return 130
        if torch.distributed.is_initialized():
            gc.collect()  # cycles hold the group, and gloo's threads would abort at exit
            torch.distributed.destroy_process_group()
        return 0

    return run


def report(error: Exception, debug: bool) -> None:
    """Print an error on standard error, in words."""
    if debug:
        traceback.print_exception(error)
    text = f'{error.filename}: {error.strerror}' if isinstance(error, OSError) else str(error)
    more = ' (--debug shows where)' if error.__cause__ and not debug else ''
    print(f'error: {text}{more}', file=sys.stderr)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """', did you mean X?' for the closest allowed name, else an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f', did you mean {close[0]!r}?' if close else ''
