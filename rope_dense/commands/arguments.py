"""Command line arguments shared by several commands.

A command handles --help and invalid options before PyTorch and OpenMMLab are imported.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from ..utils.size_text import parse_size


def tool_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the docstring of the command, with the option --debug."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--debug', action='store_true', help='print the traceback of an error, too'
    )  # read by door.run
    return parser


def add_cfg_options(parser: argparse.ArgumentParser) -> None:
    """Add --cfg-options: a list of KEY=VALUE texts, which ``load_config`` reads."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action='extend',
        default=[],
        metavar='KEY=VALUE',
        help='change settings of the config: nested keys with dots, list items by index (a.0.b=1), '
        'list values in quotes without spaces ("key=[1,2]"). Settings of own data may have spaces: '
        '"own.data_root=My Data" "own.classes=[traffic light, car]"',
    )


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a config, which ``load_config`` takes."""
    parser.add_argument('--work-dir', help='output folder (work_dirs/<name of the config>)')
    parser.add_argument(
        '--data-root',
        metavar='DIR',
        help="folder that holds the data, instead of the config's data_root",
    )
    add_cfg_options(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a config and its checkpoint, or in place of both a run or a model of the hub."""
    parser.add_argument(
        'config',
        help='config file of a detector or segmentor; or, without a checkpoint, the folder of a '
        'run, hf-hub:owner/name or the folder of such a model',
    )
    parser.add_argument(
        'checkpoint', nargs='?', help='checkpoint file, https:// address or hf-hub:owner/name'
    )


def add_prediction_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of predict.py and predict_large.py."""
    parser.add_argument('--device', help='cpu, cuda, cuda:1 ... (a GPU if there is one)')
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    add_cfg_options(parser)


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that OpenMMLab's own train.py and test.py have in common."""
    add_config_arguments(parser)
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='what started the processes of a distributed run (%(default)s)',
    )
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)


def add_compile(parser: argparse.ArgumentParser) -> None:
    """Add --compile, for tools that run a model for long."""
    parser.add_argument(
        '--compile',
        action='store_true',
        help="compile the backbone's blocks: minutes at the start, then faster on a GPU",
    )


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the recipe of a training: of train.py and print_recipe.py."""
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CHECKPOINT',
        help='continue from this checkpoint; without a path, from the last one in the work dir',
    )
    parser.add_argument(
        '--load-from',
        metavar='CHECKPOINT',
        help='start from the weights of this checkpoint of a whole model, with a new optimizer and '
        'schedule; heads of other sizes (another number of classes) start anew',
    )
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='remove checkpoints and logs of an earlier training from the work dir',
    )
    parser.add_argument(
        '--amp',
        nargs='?',
        const='fp16',
        choices=['fp16', 'bf16'],
        help='mixed precision: fp16 needs an accelerator, bf16 works on a CPU too (%(const)s)',
    )
    parser.add_argument(
        '--ema',
        nargs='?',
        type=float,
        const=0.0002,
        metavar='MOMENTUM',
        help='evaluate and save a moving average of the weights, to which each iteration adds this '
        'share (%(const)s)',
    )
    parser.add_argument(
        '--with-cp',
        action='store_true',
        help="gradient checkpointing: recompute the backbone's blocks in backward to save memory",
    )
    add_compile(parser)
    parser.add_argument(
        '--fsdp',
        action='store_true',
        help='shard weights and optimizer state over the processes of a distributed run',
    )
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help="scale the learning rate from the config's base_batch_size",
    )


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that eval-resolutions and eval-classification have in common."""
    parser.add_argument(
        '--scaling',
        nargs='+',
        default=['config'],
        metavar='SCALING',
        help='frequency scalings, TYPE[:FACTOR][+TEMPERATURE]: none, linear, ntk or by_parts; a '
        'number or HEIGHTxWIDTH, without it the growth since training (--train-size), or pretrain, '
        'the growth since pre-training; log or yarn. Such as none by_parts ntk:2 by_parts+yarn; '
        'config is as the config says (config)',
    )
    parser.add_argument(
        '--window',
        nargs='+',
        default=['config'],
        metavar='WINDOW',
        help='window sizes in tokens: 7, 7x14 (height x width), auto, none (the whole map), or '
        'config, as the config says (config; auto for classifiers with windows)',
    )
    parser.add_argument('--metric', help='metric to plot (the main one of the task)')
    parser.add_argument('--label', help='name of this run in the plot (name of the config or file)')
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='measure anew; otherwise finished figures of the same model and data are reused',
    )


def size(text: str) -> str:
    """A type of image sizes: the text itself, which ``parse_size`` reads."""
    try:
        parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def values(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a command by name, as its function takes them."""
    unused = ('debug', 'local_rank')  # read elsewhere
    return {name: value for name, value in vars(args).items() if name not in unused}


def at_least(least: float, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """A type of numbers of an option: `least` or more."""

    def number(text: str) -> float:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f'must be {least} or more, got {text}')
        return value

    number.__name__ = kind.__name__  # in the message of a text that is no number
    return number


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse `argv`. mmengine reads the local rank from the environment, so put it there."""
    args = parser.parse_args(argv)
    if args.launcher != 'none':
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    return args
