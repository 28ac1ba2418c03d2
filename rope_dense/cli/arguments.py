"""Command line arguments that several tools share."""

import argparse
import os
from collections.abc import Sequence

import torch
from mmengine.config import DictAction

from .errors import UsageError


class OptionsAction(DictAction):
    """mmengine's KEY=VALUE parser, with a usage message for what it cannot read."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[str] | None,
        option_string: str | None = None,
    ) -> None:
        for pair in values or ():
            key, equals, value = pair.partition('=')
            if not key or not equals:
                parser.error(f'{option_string}: expected KEY=VALUE, got {pair!r}. {_ADVICE}')
            if any(value.count(left) != value.count(right) for left, right in ('()', '[]')):
                parser.error(f'{option_string}: brackets do not match in {pair!r}. {_ADVICE}')
        super().__call__(parser, namespace, values, option_string)


_ADVICE = (
    'No spaces around =, lists in quotes and without spaces, several pairs after one option: '
    '--cfg-options train_dataloader.batch_size=2 "key=[1,2]"'
)


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that OpenMMLab's own train.py and test.py have in common."""
    parser.add_argument(
        '--work-dir',
        help='folder for logs, checkpoints and results (work_dirs/<name of the config>)',
    )
    parser.add_argument(
        '--data-root',
        metavar='DIR',
        help="folder that holds the data, instead of the config's data_root",
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=OptionsAction,
        default={},
        metavar='KEY=VALUE',
        help='change settings of the config: nested keys with dots, list items by index (a.0.b=1), '
        'list values in quotes without spaces ("key=[1,2]")',
    )
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='what started the processes of a distributed run (%(default)s)',
    )
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse `argv`. mmengine reads the local rank from the environment, so put it there."""
    args = parser.parse_args(argv)
    if args.launcher != 'none':
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    return args


def checked_device(name: str) -> torch.device:
    """The device of --device.

    Raises:
        UsageError: there is no such device.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        raise UsageError(f'--device {name}: {str(error).splitlines()[0]}') from error
    return device


def check_at_least(args: argparse.Namespace, least: int, *names: str) -> None:
    """Check options that are numbers; those that were not given are None.

    Raises:
        UsageError: one is less than ``least``.
    """
    for name in names:
        if (given := getattr(args, name)) is not None and given < least:
            option = name.replace('_', '-')
            raise UsageError(f'--{option} must be {least} or more, got {given}')
