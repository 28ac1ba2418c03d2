"""Command line arguments shared by several commands.

A command handles --help and invalid options before PyTorch and OpenMMLab are imported.
"""

import argparse
import difflib
import os
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from ..predict.thresholds import DEFAULT, REPORT, read_score
from ..project.find import check_checkpoint, check_path, find_config, find_files
from ..utils.configs import DOCS
from ..utils.errors import UsageError
from ..utils.validation import parse_size

Number = Callable[[str], float]  # a type of an option
# Names of options in other packages, such as ultralytics, mmdet and RF-DETR.
ELSEWHERE = dict(
    imgsz='size',
    resolution='size',
    lr0='lr',
    conf='score',
    dataset_dir='data',
)


class ToolParser(argparse.ArgumentParser):
    """A parser of a command, with --debug, whose help begins with a docstring.

    It says which options unknown words may mean; ``checks`` are called with the arguments.
    """

    def __init__(self, description: str | None) -> None:
        text = description and description.replace('docs/', f'{DOCS}/')
        super().__init__(
            description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.checks: list[Callable[[argparse.Namespace], object]] = []
        self.add_switch('--debug', "print an error's traceback, too")

    def add_switch(self, name: str, help: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action='store_true', help=help)

    def add_list(self, name: str, metavar: str, help: str, **settings: Any) -> None:
        """Add an option of one or more values, by default none."""
        settings.setdefault('default', [])
        self.add_argument(name, nargs='+', metavar=metavar, help=help, **settings)

    def add_number(
        self, name: str, help: str, least: float, kind: Number = int, **settings: Any
    ) -> None:
        """Add an option of a number, `least` or more."""
        self.add_argument(name, type=at_least(least, kind), help=help, **settings)

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The arguments, checked."""
        args = self.parse_args(argv)
        for check in self.checks:
            check(args)
        return args

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for words that look like options; else end with the usage."""
        _, _, words = message.partition('unrecognized arguments: ')
        meant = ' '.join(filter(None, map(self.similar_option, words.split())))
        if meant:
            raise UsageError(f'{message}; did you mean {meant}?')
        if message.endswith(': config'):
            message += ' (give it first: --resume takes the next word)'
        super().error(message)

    def similar_option(self, word: str) -> str:
        """The option, and its value, that a word such as epochs=3 or --epoch=3 may mean."""
        name, equals, value = word.lstrip('-').partition('=')
        known = self._option_string_actions
        if not equals and not word.startswith('--'):
            is_data = '--data' in known and os.path.isdir(word)
            return f'--data {word}' if is_data else ''
        name = ELSEWHERE.get(name, name).replace('_', '-')
        options = [option for option in known if option.startswith('--')]
        near = difflib.get_close_matches(f'--{name}', options, n=1, cutoff=0.7)
        return f'{near[0]} {value}'.strip() if near else ''


def add_cfg_options(parser: ToolParser) -> None:
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


def add_queries(parser: ToolParser) -> None:
    """Add --queries, which ``load_config`` takes as an option."""
    parser.add_argument(
        '--queries',
        type=queries_text,
        action='append',
        dest='cfg_options',
        default=[],
        metavar='N',
        help='real-time detectors: objects of an image at most (as trained); more need tokens: one '
        'for each 8 x 8 pixels, and a third as many from coarser maps',
    )


def queries_text(text: str) -> str:
    """A type of numbers of queries: the option of ``load_config``."""
    return f'queries={at_least(1)(text)}'


def add_config(parser: ToolParser) -> None:
    """Add the options that change a config, which ``load_config`` takes."""
    parser.add_argument(
        '--work-dir', help='output folder (work_dirs/<name of the config>)'
    )
    parser.add_argument(
        '--data-root',
        '--data',
        metavar='DIR',
        help="folder that holds the data, instead of the config's data_root",
    )
    add_cfg_options(parser)


def add_split(parser: ToolParser) -> None:
    """Add --split of the commands that evaluate."""
    parser.add_argument(
        '--split',
        choices=['train', 'val', 'test'],
        help='runs on own data: the images to evaluate (val; of another --data all that have '
        'labels)',
    )


def add_exported(parser: ToolParser) -> None:
    """Add --file and --runtime of the commands that run a model."""
    parser.add_argument(
        '--file',
        type=Path,
        help='what rope-dense export wrote (.onnx, .pt2), in place of the model',
    )
    parser.add_argument(
        '--runtime',
        choices=['onnxruntime', 'openvino'],
        help='the program that runs --file (onnxruntime if it is there)',
    )
    parser.checks.append(lambda args: check_path(args.file or '.'))


def add_model(parser: ToolParser) -> None:
    """Add a config and its checkpoint, or in place of both a run or a model of the hub."""
    parser.add_argument(
        'config',
        help='config file of a detector or segmentor; or, without a checkpoint, the folder of a '
        'run, hf-hub:owner/name or the folder of such a model',
    )
    parser.add_argument(
        'checkpoint',
        nargs='?',
        help='checkpoint file, https:// address or hf-hub:owner/name',
    )
    parser.checks.append(lambda args: find_files(args.config, args.checkpoint))


def add_prediction(parser: ToolParser) -> None:
    """Add the options of predict.py and predict_large.py."""
    add_device(parser)
    parser.add_argument(
        '--score',
        type=score_text,
        nargs='+',
        default=[DEFAULT],
        help='detectors: minimum score of a box, 0 to 1; for some classes CLASS=SCORE, or report: '
        "the thresholds of the run's report, of the best F1 or of its --miss "
        f'({DEFAULT})',
    )
    parser.add_number(
        '--batch', 'images, or tiles, per batch (%(default)s)', least=1, default=1
    )
    parser.add_argument(
        '--size',
        type=image_size_text,
        help='size of an image, or a tile, as model input, in pixels: the shorter side, or '
        'HEIGHTxWIDTH (as the test pipeline of the config resizes it)',
    )


def score_text(text: str) -> str:
    """A type of least scores: the text itself, which ``least_scores`` reads."""
    if text == REPORT:
        return text
    try:
        read_score(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def add_device(parser: ToolParser) -> None:
    """Add the options of predictions that report.py has, too."""
    parser.add_argument(
        '--device', help='cpu, cuda, cuda:1 ... (a GPU if there is one)'
    )
    parser.add_argument(
        '--work-dir', help='(of the run, else work_dirs/<name of the config>)'
    )
    add_cfg_options(parser)


def add_common(parser: ToolParser) -> None:
    """Add the options that OpenMMLab's own train.py and test.py have in common."""
    add_config(parser)
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='what started the processes of a distributed run (none, or pytorch by torchrun)',
    )
    parser.add_argument(
        '--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS
    )
    parser.checks.append(set_rank)


def set_rank(args: argparse.Namespace) -> None:
    """Put the local rank of a distributed run into the environment, from which mmengine reads."""
    if args.launcher == 'none' and 'TORCHELASTIC_RUN_ID' in os.environ:  # of torchrun
        args.launcher = 'pytorch'
    if args.launcher != 'none':
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))


def add_compile(parser: ToolParser) -> None:
    """Add --compile, for tools that run a model for long."""
    parser.add_switch(
        '--compile',
        "compile the backbone's blocks: minutes at the start, then faster on a GPU",
    )


def add_training_options(parser: ToolParser) -> None:
    """Add the options that change the recipe of a training: of train.py and print_recipe.py."""
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        type=start_checkpoint,
        metavar='CHECKPOINT',
        help='continue from this checkpoint; without a path, from the last one in the work dir',
    )
    parser.add_argument(
        '--load-from',
        type=start_checkpoint,
        metavar='CHECKPOINT',
        help='start from the weights of this checkpoint of a whole model, or of the best one of a '
        'run, with a new optimizer and schedule; rows of classes with '
        'equal names stay, other weights of other sizes start anew',
    )
    parser.add_switch(
        '--overwrite',
        'remove what an earlier run and its report wrote from the work dir',
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
        type=lambda text: text if text in ('True', 'False') else float(text),
        const=0.0002,
        metavar='MOMENTUM',
        help='evaluate and save a moving average of the weights, to which each iteration adds this '
        'fraction (%(const)s) of the new ones; for own data True or False',
    )
    parser.add_switch(
        '--with-cp',
        "gradient checkpointing: recompute the backbone's blocks in backward to save memory",
    )
    add_compile(parser)
    parser.add_switch(
        '--fsdp',
        'shard weights and optimizer state over the processes of a distributed run',
    )
    parser.add_switch(
        '--auto-scale-lr', "scale the learning rate from the config's base_batch_size"
    )


def add_sweep_arguments(parser: ToolParser) -> None:
    """Add the options that eval-resolutions and eval-classification have in common."""
    parser.add_list(
        '--scaling',
        'SCALING',
        'frequency scalings, TYPE[:FACTOR][+TEMPERATURE]: none, linear, ntk or by_parts; a '
        'number or HEIGHTxWIDTH, without it the growth since training (--train-size), or pretrain, '
        'the growth since pre-training; log or yarn. Such as none by_parts ntk:2 by_parts+yarn; '
        'config is as the config says (config)',
        default=['config'],
    )
    parser.add_list(
        '--window',
        'WINDOW',
        'window sizes in tokens: 7, 7x14 (height x width), auto, none (the whole map), or '
        'config, as the config says (config; auto for classifiers with windows)',
        default=['config'],
    )
    parser.add_argument('--metric', help='metric to plot (the main one of the task)')
    parser.add_argument(
        '--label', help='name of this run in the plot (name of the config or file)'
    )
    parser.add_switch(
        '--overwrite',
        'measure anew; otherwise finished figures of the same model and data are reused',
    )


def add_sizes(parser: ToolParser, default: str) -> None:
    """Add --sizes, --tiles and --train-size of eval-resolutions and choose-scaling."""
    parser.add_list(
        '--sizes',
        'SIZE',
        'in pixels: the shorter side (128), or HEIGHTxWIDTH (96x128); squares of classifiers '
        f'({default})',
        type=image_size_text,
    )
    parser.add_list(
        '--tiles',
        'PIXELS',
        "runs on tiles: sides of tiles in pixels of an image, each at all sizes (the run's)",
        type=at_least(32),
    )
    parser.add_argument(
        '--train-size',
        type=image_size_text,
        metavar='SIZE',
        help='size of the training images, which a scaling without a factor refers to (as the '
        'training ends with; of a config without a training loop, the size of its test images)',
    )


def image_size_text(text: str) -> str:
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


def at_least(least: float, kind: Number = int, most: float = inf) -> Number:
    """A type of numbers of an option: from `least` to `most`."""

    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            limit = f'{least} or more' if most == inf else f'from {least} to {most}'
            raise argparse.ArgumentTypeError(f'must be {limit}, got {text}')
        return value

    number.__name__ = kind.__name__  # in the message of a text that is no number
    return number


def config_path(text: str) -> str:
    """A type of configs; UsageError for none."""
    find_config(text)
    return text


def start_checkpoint(text: str) -> str:
    """A type of checkpoints that a training starts from, or auto; UsageError for none."""
    if text != 'auto':
        check_checkpoint(text)
    return text
