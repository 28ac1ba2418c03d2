"""Train a detector or a segmentor.

Examples:
    python tools/train.py configs/dino_vitdet_rope_mixed.py
    python tools/train.py configs/upernet_vit_rope_mixed.py --work-dir work_dirs/a --resume
    bash tools/dist_train.sh configs/upernet_vit_rope_mixed.py 8 --amp bf16
"""

import argparse
import sys
from collections.abc import Sequence

from command_line import add_common_arguments, add_training_arguments, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    add_training_arguments(parser)
    add_common_arguments(parser)
    return parse(parser, argv)


if __name__ == '__main__':
    parse_args(sys.argv[1:])  # answers --help and mistakes before the imports, which take seconds

from rope_dense.cli.checkpoints import check_initial_weights, resolve_resume
from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.data_checks import check_data
from rope_dense.cli.errors import command
from rope_dense.cli.flags import (
    check_amp,
    enable_amp,
    enable_auto_scale_lr,
    enable_checkpointing,
    enable_ema,
    enable_fsdp,
    with_data_root,
)
from rope_dense.cli.launch import build_runner, train
from rope_dense.cli.model_checks import (
    build_model,
    check_image_sizes,
    check_maps,
    check_optimizer,
)


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.data_root:
        cfg = with_data_root(cfg, args.data_root)
    loaders = used_loaders(cfg, 'train', 'val')
    if args.amp:
        enable_amp(cfg, args.amp)
    if args.ema is not None:
        enable_ema(cfg, args.ema)
    if args.with_cp:
        enable_checkpointing(cfg)
    if args.fsdp:
        enable_fsdp(cfg, args.launcher)
    if args.auto_scale_lr:
        enable_auto_scale_lr(cfg)
    if args.load_from:
        cfg.load_from = args.load_from
    if args.resume:
        resolve_resume(cfg, args.resume)
    check_amp(cfg)
    check_optimizer(cfg)
    model = build_model(cfg)
    check_image_sizes(cfg, model, loaders)
    check_maps(model)
    check_initial_weights(cfg, model)
    check_data(cfg, loaders)
    del model
    train(build_runner(cfg, args.launcher))


if __name__ == '__main__':
    sys.exit(main())
