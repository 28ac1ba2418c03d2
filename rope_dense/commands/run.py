"""Run a command and print errors in one line."""

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Callable

from torch import distributed

from ..engine.preemption import Stopped
from ..project.building import NAMED
from ..project.launch import leave_group, silent_log_errors
from ..utils.progress import is_first_here

# Warnings about calls and defaults of mmcv, mmdet, mmseg and pycocotools, which no user can mend.
NOISE = (
    'Default ``avg_non_ignore`` is False',
    'The draw is False',
    'torch.meshgrid: in an upcoming release',
    r'__array__ implementation doesn.t accept a copy keyword',
)


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a command; returns its exit code: 0, 2 after a known error, 130 after Ctrl-C, or 143.

    A known error is printed without a traceback, or with one after --debug. Until the processes of
    a distributed run are connected, the others of a machine wait before they print: the first
    has most errors, too, and torchrun ends the others with it.
    """
    for message in NOISE:
        warnings.filterwarnings('ignore', message)
    code = 0
    try:
        with silent_log_errors():
            main(args)
    except BrokenPipeError:
        raise
    except (*NAMED, ValueError) as error:
        is_first = is_first_here()
        if not is_first and not distributed.is_initialized():
            time.sleep(3)
        print_error(error, args.debug)
        return 2
    except Stopped as stopped:  # in all processes
        code = stopped.code
    except KeyboardInterrupt:
        return 130
    leave_group()
    return code


def print_error(error: Exception, debug: bool) -> None:
    """Print an error on standard error."""
    if debug:
        traceback.print_exception(error)
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f'{error.filename or "a file"}: {error.strerror}'
    is_named = isinstance(error, NAMED) and error.__cause__ is None
    more = '' if is_named or debug else ' (--debug shows where)'
    print(f'error: {text}{more}', file=sys.stderr)
