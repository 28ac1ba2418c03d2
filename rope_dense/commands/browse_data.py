"""Draw what the pipeline of a config feeds the model: images after augmentation, with their labels.

Examples:
    python tools/browse_data.py configs/own/detection.py --cfg-options own.data_root=data/own
    python tools/browse_data.py CONFIG --split val --count 4 --out pictures
    python tools/browse_data.py configs/own/realtime.py --epoch 10  # with mosaics

Each picture is one sample: boxes, masks or class colours drawn on the pixels that the model gets.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import add_cfg_options, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file of a detector or segmentor')
    parser.add_argument(
        '--split', choices=['train', 'val', 'test'], default='train', help='(%(default)s)'
    )
    parser.add_argument('--count', type=int, default=20, help='samples to draw (%(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='of the augmentation (%(default)s)')
    parser.add_argument(
        '--epoch', type=int, default=0, help='of a pipeline with stages by epochs (%(default)s)'
    )
    parser.add_argument('--out', type=Path, help='output folder (browse/SPLIT, in the work folder)')
    parser.add_argument(
        '--data-root', metavar='DIR', help="folder of the data, instead of the config's data_root"
    )
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    add_cfg_options(parser)
    return parser.parse_args(argv)


if __name__ == '__main__':
    parse_args(sys.argv[1:])  # answers --help and mistakes before the imports, which take seconds

from mmengine.registry import DefaultScope

from rope_dense.cli.arguments import check_at_least
from rope_dense.cli.building import building
from rope_dense.cli.config import load_config
from rope_dense.cli.data_checks import check_data
from rope_dense.cli.errors import UsageError, command
from rope_dense.cli.flags import with_data_root
from rope_dense.engine.train_loop import set_epoch
from rope_dense.visualization.samples import draw_samples


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    check_at_least(args, 1, 'count')
    check_at_least(args, 0, 'epoch')
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.data_root:
        cfg = with_data_root(cfg, args.data_root)
    epochs = cfg.get('own', {}).get('epochs') or (cfg.get('train_cfg') or {}).get('max_epochs')
    if epochs and args.epoch >= epochs:
        raise UsageError(f'--epoch {args.epoch}: the training has epochs 0 to {epochs - 1}')
    loader = f'{args.split}_dataloader'
    if cfg.get(loader) is None:
        raise UsageError(f'--split {args.split}: the config has no {loader}')
    check_data(cfg, (loader,))
    out = args.out or Path(cfg.work_dir) / 'browse' / args.split
    set_epoch(args.epoch)
    with DefaultScope.overwrite_default_scope(cfg.default_scope), building(cfg):
        files = draw_samples(cfg, args.split, out, count=args.count, seed=args.seed)
    print(f'{len(files)} samples of {args.split}: {out}')


if __name__ == '__main__':
    sys.exit(main())
