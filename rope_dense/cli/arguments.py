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
            wrong = '' if key and equals else 'expected KEY=VALUE'
            if any(value.count(left) != value.count(right) for left, right in ('()', '[]')):
                wrong = 'brackets do not match'
            if wrong:
                parser.error(
                    f'{option_string}: {wrong}, got {pair!r}. No spaces around =, lists in quotes '
                    'and without spaces, several pairs after one option: '
                    '--cfg-options train_dataloader.batch_size=2 "key=[1,2]"'
                )
        super().__call__(parser, namespace, values, option_string)


def tool_parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help begins with the docstring of the tool, and knows --debug."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--debug', action='store_true', help='print the traceback of an error, too'
    )  # read by errors.command
    return parser


def add_cfg_options(parser: argparse.ArgumentParser) -> None:
    """Add --cfg-options."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=OptionsAction,
        default={},
        metavar='KEY=VALUE',
        help='change settings of the config: nested keys with dots, list items by index (a.0.b=1), '
        'list values in quotes without spaces ("key=[1,2]")',
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
    add_cfg_options(parser)
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
    """The device of --device; UsageError if there is no such device."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        raise UsageError(f'--device {name}: {str(error).splitlines()[0]}') from error
    return device


def check_at_least(args: argparse.Namespace, least: int, *names: str) -> None:
    """UsageError if an option that is a number, or None where it was not given, is less."""
    for name in names:
        if (given := getattr(args, name)) is not None and given < least:
            option = name.replace('_', '-')
            raise UsageError(f'--{option} must be {least} or more, got {given}')
