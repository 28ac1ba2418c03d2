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

from ...project.errors import UsageError
from ..arguments import add_cfg_options, checked_device, tool_parser

if TYPE_CHECKING:
    from mmengine.config import Config


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

    from ...project.config import load_config, used_loaders
    from .compare import compare

    if args.compare:
        first, second = args.compare
        print(compare(first, second, args.out or Path('report')))
        return
    device = str(checked_device(args.device or get_device()))
    if Path(args.config).is_dir() and not args.checkpoint:
        args.work_dir = args.work_dir or args.config
        args.config, args.checkpoint = files_of_run(Path(args.config))
    if not args.checkpoint:
        raise UsageError(f'{args.config}: give a checkpoint, too, or the folder of a run')
    cfg = load_config(args.config, args.cfg_options, args.work_dir, args.data_root)
    used_loaders(cfg, 'test')
    print(write_report(cfg, args.checkpoint, args.out or Path(cfg.work_dir, 'report'), device))


def files_of_run(folder: Path) -> tuple[str, str]:
    """The config and the best, else the last, checkpoint of a work folder.

    Raises:
        UsageError: there is none.
    """
    from mmengine.runner import find_latest_checkpoint

    configs = [path for path in folder.glob('*.py') if not path.stem.endswith('_test')]
    if len(configs) != 1:
        names = ', '.join(path.name for path in configs) or 'none'
        raise UsageError(f'{folder}: a run has one config (*.py), found {names}')
    newest = sorted(folder.glob('best_*.pth'), key=lambda path: path.stat().st_mtime)
    checkpoint = str(newest[-1]) if newest else find_latest_checkpoint(str(folder))
    if not checkpoint:
        raise UsageError(f'{folder}: no checkpoint (best_*.pth or last_checkpoint)')
    return str(configs[0]), str(checkpoint)


def write_report(cfg: Config, checkpoint: str, out: Path, device: str) -> Path:
    """Test a model on the test data of its config, and write the report; returns its page.

    Raises:
        UsageError, CheckpointError: the data or the weights cannot be used.
    """
    from ...checks.data import check_data
    from ...checks.model import check_image_sizes
    from ...project.config import detects, estimates_depth
    from ...project.oriented import angle_version
    from ...project.weights import read_safely
    from ..trained_model import load_trained
    from . import curves, depth, detection, segmentation
    from .page import Page

    if angle_version(cfg):
        raise UsageError('report: it compares upright boxes; test rotated ones by tools/test.py')
    read_safely()
    model, classes, colours = load_trained(cfg, checkpoint)
    check_image_sizes(cfg, model, ('test_dataloader',))
    check_data(cfg, ('test_dataloader',))
    model = model.to(device).eval()
    names = dict(config=cfg.filename, checkpoint=checkpoint, classes=len(classes))
    if cfg.get('own_data'):  # with what was left out of the labels
        names['own data'] = cfg.own_data
    page = Page(out, f'{Path(cfg.filename).stem}: report', names)
    if estimates_depth(cfg):
        depth.report(page, cfg, model)
    else:
        task = detection if detects(cfg) else segmentation
        task.report(page, cfg, model, classes, colours)
    curves.report(page, Path(cfg.work_dir))
    return page.close()


def report_training(cfg: Config) -> None:
    """Write the report of a training of configs/own, unless `own.report` is False or it has none.

    The training is complete: an error of the report is printed, and nothing else.
    """
    from mmengine.device import get_device

    from ...project.oriented import angle_version

    if not (cfg.get('own') or {}).get('report') or angle_version(cfg):
        return
    try:
        _, checkpoint = files_of_run(Path(cfg.work_dir))
        print(write_report(cfg, checkpoint, Path(cfg.work_dir, 'report'), get_device()))
    except Exception as error:  # whatever it is, the weights are there
        print(f'no report: {error} (rope-dense report {cfg.work_dir} --debug shows where)')
