"""Errors that the person at the keyboard can mend, and how a tool ends on them."""

import difflib
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence

import torch.distributed

from ..checkpoints import CheckpointError

Main = Callable[[Sequence[str] | None], None]


class UsageError(Exception):
    """A wrong setting, path or file: the message says which, what is allowed and what to do."""


def command(main: Main) -> Callable[[Sequence[str] | None], int]:
    """Make `main(argv)` return an exit code: 0, 2 after a known error, 130 after Ctrl-C.

    A UsageError or CheckpointError is printed without a traceback, by the first process of each
    machine.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        try:
            main(argv)
        except (UsageError, CheckpointError) as error:
            if os.environ.get('LOCAL_RANK', '0') == '0':
                print(f'error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        if torch.distributed.is_initialized():
            gc.collect()  # cycles hold the group, and gloo's threads would abort at exit
            torch.distributed.destroy_process_group()
        return 0

    return run


def nearest(name: str, allowed: Iterable[str]) -> str:
    """', did you mean X?' for the closest allowed name, else an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f', did you mean {close[0]!r}?' if close else ''
