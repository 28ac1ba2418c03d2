"""Judge an exported file in a program that does not run here, such as TensorRT on a GPU.

Examples:
    rope-dense check-file model.onnx --write cases.npz       # images and right outputs
    rope-dense check-file model.onnx --results theirs.npz    # what the program gave

cases.npz has 0_image, 0_scores and so on, of three sizes. Run the program on each N_image, and save
its outputs with numpy.savez by the same names. docs/export.md has an example.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.find import check_path
from .arguments import ToolParser, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'file', type=Path, help='NAME.onnx or NAME.pt2 of rope-dense export'
    )
    parser.add_argument('--write', type=Path, metavar='NAME.npz', help='cases to write')
    parser.add_argument(
        '--results', type=Path, metavar='NAME.npz', help='outputs of another program'
    )
    args = parser.parse(argv)
    check_path(args.file)
    if args.results:
        check_path(args.results)
    if not (args.write or args.results):
        parser.error('give --write NAME.npz or --results NAME.npz')
    for path in (args.write, args.results):
        if path and path.suffix != '.npz':
            parser.error(f'{path}: give NAME.npz')
    return args


def main(args: argparse.Namespace) -> None:
    from ..export.cases import check_file

    check_file(**values(args))
