"""Train a detector or a segmentor.

Examples:
    python tools/train.py configs/dino_vitdet_rope_mixed.py
    python tools/train.py configs/upernet_vit_rope_mixed.py --work-dir work_dirs/a --resume
    bash tools/dist_train.sh configs/dino_vitdet_rope_mixed.py 8 --amp
"""

import argparse
import sys
from collections.abc import Sequence

from rope_dense.cli.arguments import add_common_arguments, parse
from rope_dense.cli.checkpoints import check_initial_weights, resolve_resume
from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.data_checks import check_data
from rope_dense.cli.errors import command
from rope_dense.cli.flags import check_amp, enable_amp, enable_auto_scale_lr, with_data_root
from rope_dense.cli.launch import build_runner, train
from rope_dense.cli.model_checks import build_model, check_image_sizes


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CHECKPOINT',
        help='go on from this checkpoint; without a path, from the last one in the work dir',
    )
    parser.add_argument('--amp', action='store_true', help='mixed precision; needs an accelerator')
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help="scale the learning rate from the config's base_batch_size",
    )
    add_common_arguments(parser)
    return parse(parser, argv)


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.data_root:
        cfg = with_data_root(cfg, args.data_root)
    loaders = used_loaders(cfg, 'train', 'val')
    if args.amp:
        enable_amp(cfg)
    if args.auto_scale_lr:
        enable_auto_scale_lr(cfg)
    if args.resume:
        resolve_resume(cfg, args.resume)
    check_amp(cfg)
    model = build_model(cfg)
    check_image_sizes(cfg, loaders)
    check_initial_weights(cfg, model)
    check_data(cfg, loaders)
    del model
    train(build_runner(cfg, args.launcher))


if __name__ == '__main__':
    sys.exit(main())
