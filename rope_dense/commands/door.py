"""Run a command and print errors in one line, with the config key that caused the error."""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import mmengine.logging
from mmengine.config import Config, ConfigDict
from mmengine.registry import Registry
from torch import distributed

from ..checkpoints import CheckpointError
from ..engine.runner import LoadError
from ..integrations.hub_config import is_stored, registered_only
from .errors import UsageError

# Warnings about calls and defaults of mmdet, mmseg and pycocotools, which no user can mend.
NOISE = (
    'Default ``avg_non_ignore`` is False',
    'The draw is False',
    r'__array__ implementation doesn.t accept a copy keyword',
)
NAMED = (UsageError, CheckpointError, LoadError, OSError)  # their messages name what is wrong


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a command; returns its exit code: 0, 2 after a known error, 130 after Ctrl-C.

    A known error is printed without a traceback, or with one after --debug. Until the processes of
    a distributed run are connected, only the first of each machine prints.
    """
    leave_out_noise()
    try:
        main(args)
    except (*NAMED, ValueError) as error:
        if os.environ.get('LOCAL_RANK', '0') == '0' or distributed.is_initialized():
            report(error, args.debug)
        return 2
    except KeyboardInterrupt:
        return 130
    if distributed.is_initialized():
        gc.collect()  # cycles hold the group, and gloo's threads would abort at exit
        distributed.destroy_process_group()
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


@contextmanager
def building(key: str) -> Iterator[None]:
    """Within this context, any error becomes a UsageError of one line.

    Args:
        key: of the part of the config that is built or read, for the message.
    """
    try:
        yield
    except NAMED:
        raise
    except Exception as error:  # a part can fail in any way
        text = ' '.join(str(error).split())
        raise UsageError(f'{key}: {type(error).__name__}: {text}') from error


def build_part(
    cfg: Config, key: str, registry: Registry, settings: dict, **arguments: object
) -> Any:
    """Build the part of a config at a key, in the scope of the config.

    Args:
        settings: of the part. They are copied, because some parts change theirs (DINO's head).
        arguments: added to the settings.

    Raises:
        UsageError: see ``building``.
    """
    guard = registered_only() if is_stored(cfg) else nullcontext()
    with building(key), guard, registry.switch_scope_and_registry(cfg.default_scope) as scoped:
        return scoped.build(ConfigDict(copy.deepcopy(settings), **arguments))
