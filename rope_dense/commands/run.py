"""Run a command and print errors in one line."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import mmengine.logging
from torch import distributed

from ..project.building import NAMED
from ..project.launch import leave_group

# Warnings about calls and defaults of mmcv, mmdet, mmseg and pycocotools, which no user can mend.
NOISE = (
    'Default ``avg_non_ignore`` is False',
    'The draw is False',
    'torch.meshgrid: in an upcoming release',
    r'__array__ implementation doesn.t accept a copy keyword',
)


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a command; returns its exit code: 0, 2 after a known error, 130 after Ctrl-C.

    A known error is printed without a traceback, or with one after --debug. Until the processes of
    a distributed run are connected, the others of a machine wait before they print: most errors are
    those of the first, too, and torchrun ends them with it.
    """
    leave_out_noise()
    try:
        main(args)
    except (*NAMED, ValueError) as error:
        if os.environ.get('LOCAL_RANK', '0') != '0' and not distributed.is_initialized():
            time.sleep(3)
        report(error, args.debug)
        return 2
    except KeyboardInterrupt:
        return 130
    leave_group()
    return 0


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
