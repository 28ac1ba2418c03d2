"""Show where a model fails: figures, kinds of error and pictures, as one HTML page.

Examples:
    rope-dense report work_dirs/detection          # a run; its page is report/index.html in it
    rope-dense report CONFIG CHECKPOINT            # writes report/ to the work folder
    rope-dense report work_dirs/detection --split test --miss 0.1   # a threshold with a promise
    rope-dense report --compare work_dirs/a work_dirs/b --out a_and_b

Writes index.html, the figures as PNG, and report.json to one folder. See docs/report.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.find import find_files
from ..utils.errors import UsageError
from .arguments import ToolParser, add_device, add_split, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'config', nargs='?', help='the folder of a run, or a config file'
    )
    parser.add_argument(
        'checkpoint', nargs='?', help="checkpoint (the run's best, else its last)"
    )
    parser.add_argument(
        '--compare',
        nargs=2,
        type=Path,
        metavar='RUN',
        help='put two runs side by side, each a folder with report/ in it',
    )
    parser.add_argument(
        '--out', type=Path, help='output folder (report, in the work folder)'
    )
    parser.add_argument(
        '--data-root', '--data', metavar='DIR', help='folder that holds the data'
    )
    add_split(parser)
    parser.add_argument(
        '--miss',
        type=float,
        metavar='SHARE',
        help='seek the thresholds at which at most this share of the objects (segmentors: pixels) '
        'of new images like these is missed, in expectation; predict --score report uses them',
    )
    parser.add_argument(
        '--margin',
        type=float,
        metavar='SHARE',
        help='seek also by how much boxes have to grow so that at most this share of the objects '
        'is found and not contained in its box; it adds to the share of --miss',
    )
    add_device(parser)
    args = parser.parse(argv)
    if bool(args.compare) == bool(args.config):
        parser.error('give a run, or CONFIG CHECKPOINT, or --compare RUN RUN')
    if args.config:
        find_files(args.config, args.checkpoint)
    for run in args.compare or ():
        places = (run / 'report' / 'report.json', run / 'report.json')
        if not any(map(Path.is_file, places)):
            raise UsageError(
                f'--compare {run}: no report, run `rope-dense report {run}`'
            )
    return args


def main(args: argparse.Namespace) -> None:
    if args.compare:
        from ..report.compare import compare_runs

        first, second = args.compare
        print(compare_runs(first, second, args.out or Path('report')))
        return
    from ..report.write import report

    given = values(args)
    del given['compare']
    print(report(**given))
