"""Upload a trained model to the Hugging Face hub: config, weights, classes and a model card.

Examples:
    rope-dense push-to-hub work_dirs/detection me/street-scenes     # a run: its best checkpoint
    rope-dense push-to-hub CONFIG CHECKPOINT me/cats --license apache-2.0 --private
    rope-dense push-to-hub work_dirs/cats me/cats --folder cats     # write, do not upload

Log in first: hf auth login. Every command accepts hf-hub:me/cats in place of a run, and so does
rope_dense.load in Python (docs/use.md).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.find import find_files
from .arguments import ToolParser, add_cfg_options, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument('config', help='the folder of a run, or a config file')
    parser.add_argument('checkpoint', nargs='?', help="checkpoint (the run's best)")
    parser.add_argument('name', type=repository, help='OWNER/NAME of the repository')
    parser.add_argument(
        '--license',
        help='licence, such as apache-2.0; initial weights may restrict the choice',
    )
    parser.add_list(
        '--metric',
        'NAME=VALUE',
        'results for the card, such as "box AP=0.41"',
        type=metric,
    )
    parser.add_switch('--private', 'make the repository private')
    parser.add_argument(
        '--folder', type=empty_folder, help='write the files here, and do not upload'
    )
    add_cfg_options(parser)
    args = parser.parse_intermixed_args(argv)
    find_files(args.config, args.checkpoint)
    return args


def repository(text: str) -> str:
    if text.count('/') != 1 or not all(text.split('/')):
        raise argparse.ArgumentTypeError(f'{text}: give OWNER/NAME')
    return text


def metric(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition('=')
    return name, float(value)


def empty_folder(text: str) -> Path:
    folder = Path(text)
    if folder.is_file():
        raise argparse.ArgumentTypeError(f'{text} is a file: give a folder')
    if folder.exists() and any(folder.iterdir()):
        raise argparse.ArgumentTypeError(f'{text} is not empty: give another folder')
    return folder


def main(args: argparse.Namespace) -> None:
    from ..export.trained import push_model

    print(push_model(**values(args)))
