"""Show where a model fails: figures, kinds of error and pictures, as one HTML page.

Examples:
    rope-dense report CONFIG CHECKPOINT            # writes report/ to the work folder
    rope-dense report work_dirs/detection          # a run: config and best checkpoint
    rope-dense report --compare work_dirs/a work_dirs/b --out a_and_b

Writes index.html, the figures as PNG, and report.json to one folder. See docs/report.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..project.errors import UsageError
from .arguments import add_cfg_options, checked_device, tool_parser

if TYPE_CHECKING:
    pass


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', nargs='?', help='config file, or the folder of a run')
    parser.add_argument('checkpoint', nargs='?', help="checkpoint (the run's best, else its last)")
    parser.add_argument(
        '--compare',
        nargs=2,
        type=Path,
        metavar='RUN',
        help='put two runs side by side, each a folder with report/ in it',
    )
    parser.add_argument('--out', type=Path, help='output folder (report, in the work folder)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1 ... (a GPU if there is one)')
    parser.add_argument('--work-dir', help='folder with logs and resolutions.json')
    parser.add_argument('--data-root', metavar='DIR', help='folder that holds the data')
    add_cfg_options(parser)
    args = parser.parse_args(argv)
    if bool(args.compare) == bool(args.config):
        parser.error('give either CONFIG CHECKPOINT, or a run, or --compare RUN RUN')
    return args


def main(args: argparse.Namespace) -> None:
    from mmengine.device import get_device

    from ..project.load import find_model, used_loaders
    from ..report.compare import compare
    from ..report.write import write_report

    if args.compare:
        first, second = args.compare
        print(compare(first, second, args.out or Path('report')))
        return
    device = str(checked_device(args.device or get_device()))
    cfg, checkpoint = find_model(
        args.config, args.checkpoint, args.cfg_options, args.work_dir, args.data_root
    )
    used_loaders(cfg, 'test')
    if checkpoint is None:
        raise UsageError('report: give the config of one task and its checkpoint')
    print(write_report(cfg, checkpoint, args.out or Path(cfg.work_dir, 'report'), device))
