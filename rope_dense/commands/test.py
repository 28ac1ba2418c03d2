"""Evaluate a checkpoint of a detector or a segmentor.

Examples:
    python tools/test.py configs/dino_vitdet_rope_mixed.py work_dirs/a/iter_90000.pth
    python tools/test.py configs/upernet_vit_rope_mixed.py iter_160000.pth --tta --out labels
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from .arguments import add_common_arguments, add_compile, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file, https:// address or hf-hub:owner/name')
    parser.add_argument(
        '--out',
        help='save the predictions: of a detector to a pickle (NAME.pkl), of a segmentor to a '
        'folder of label images (PNG, numbered as in the data set)',
    )
    parser.add_argument('--show', action='store_true', help='show the predictions in a window')
    parser.add_argument(
        '--show-dir',
        metavar='DIR',
        help='draw the predictions on the images: of a detector to DIR, of a segmentor to '
        'DIR/vis_data/vis_image',
    )
    parser.add_argument(
        '--wait-time',
        type=float,
        default=2,
        help='seconds that --show waits per image (%(default)s)',
    )
    parser.add_argument(
        '--tta', action='store_true', help="test-time augmentation by the config's tta_pipeline"
    )
    add_compile(parser)
    add_common_arguments(parser)
    return parse(parser, argv)


def main(args: argparse.Namespace) -> None:
    from mmengine.config import Config
    from mmengine.dist import is_main_process

    from ..checks.data import check_data
    from ..checks.model import build_model, check_image_sizes
    from ..project.angles import check_convention
    from ..project.building import building
    from ..project.launch import build_runner, test
    from ..project.load import load_config, used_loaders
    from ..project.weights import check_tested_weights
    from .options import enable_compile, enable_tta, saved_predictions, show_predictions

    cfg = load_config(args.config, args.cfg_options, args.work_dir, args.data_root)
    with building('the config'):
        loaders = used_loaders(cfg, 'test')
        cfg.load_from, cfg.resume = args.checkpoint, False
        model = build_model(cfg)
        check_image_sizes(cfg, model, loaders)
        check_convention(cfg, check_tested_weights(args.checkpoint, model))
        check_data(cfg, loaders)
        if cfg.get('own_data') and is_main_process():
            print(cfg.own_data)
        del model
        if args.tta:
            enable_tta(cfg)
        if args.compile:
            enable_compile(cfg)
        if args.show or args.show_dir:
            show_predictions(cfg, args.show, args.show_dir, args.wait_time)
    # mmengine copies the config to the work folder: not over the training's, which has other
    # data, and no model for --tta around its own.
    name = f'{Path(cfg.filename).stem}_test.py'
    cfg = Config(cfg._cfg_dict, cfg_text=cfg.text, filename=name)
    with saved_predictions(cfg, args.out) if args.out else nullcontext():
        test(build_runner(cfg, args.launcher))
