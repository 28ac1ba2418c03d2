"""Run a command and print errors in one line."""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import mmengine.logging
from torch import distributed

from ..engine.preemption import Stopped
from ..project.building import NAMED

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
    a distributed run are connected, only the first of each machine prints.
    """
    leave_out_noise()
    code = 0
    try:
        main(args)
    except (*NAMED, ValueError) as error:
        if os.environ.get('LOCAL_RANK', '0') == '0' or distributed.is_initialized():
            report(error, args.debug)
        return 2
    except Stopped as stopped:  # in all processes
        code = stopped.code
    except KeyboardInterrupt:
        return 130
    if distributed.is_initialized():
        gc.collect()  # cycles hold the group, and gloo's threads would abort at exit
        distributed.destroy_process_group()
    return code


def leave_out_noise() -> None:
    """Filter ``NOISE``, and messages for debugging that ``print_log`` gets without a logger.

    mmengine prints them whatever their level is, such as mmdet's that OneDL is not installed.
    """
    for message in NOISE:
        warnings.filterwarnings('ignore', message)
    given = mmengine.logging.print_log

    @functools.wraps(given)
    def print_log(msg: str, logger: Any = None, level: int = logging.INFO) -> None:
        if logger is not None or level > logging.DEBUG:
            given(msg, logger, level)

    mmengine.logging.print_log = print_log


def report(error: Exception, debug: bool) -> None:
    """Print an error on standard error."""
    if debug:
        traceback.print_exception(error)
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f'{error.filename or "a file"}: {error.strerror}'
    is_named = isinstance(error, NAMED) and error.__cause__ is None
    more = '' if is_named or debug else ' (--debug shows where)'
    print(f'error: {text}{more}', file=sys.stderr)
