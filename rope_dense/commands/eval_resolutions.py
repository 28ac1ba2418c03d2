r"""Evaluate one model at many image sizes, frequency scalings and windows.

Prints a table during the run, and writes resolutions.json, .csv and .png to the work folder.
Finished results are reused: the same command resumes an interrupted run, also with more sizes.
CONFIG is the config of a detector, a segmentor, or a classifier (written by
tools/eval_classification.py).

Examples:
    python tools/eval_resolutions.py CONFIG last.pth --sizes 480 800 1200 --scaling none by_parts
    python tools/eval_resolutions.py CONFIG last.pth --sizes 800 1200 --window 7 14 auto
    python tools/eval_resolutions.py CONFIG last.pth --sizes 96 128 192 256 --label mixed \
        --overlay work_dirs/ape/resolutions.json work_dirs/axial/resolutions.json
"""

import argparse
from collections.abc import Sequence

from .arguments import add_common_arguments, add_sweep_arguments, parse, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file or URL')
    add_sweep_arguments(parser, sizes_required=True)
    parser.add_argument(
        '--slide',
        choices=['keep', 'scale', 'whole'],
        default='keep',
        help='crops of a segmentor that slides: keep them at every size (the backbone then never '
        'sees a larger map), scale them with the images, or test whole images (%(default)s)',
    )
    parser.add_argument(
        '--train-size',
        metavar='SIZE',
        help="the size to mark as the training size (the size of the config's test images)",
    )
    add_common_arguments(parser)
    return parse(parser, argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.sweep import prepare_sweep
    from ..project.load import load_config, used_loaders

    cfg = load_config(args.config, args.cfg_options, args.work_dir, args.data_root)
    used_loaders(cfg, 'test')
    cfg.load_from, cfg.resume = args.checkpoint, False
    run = prepare_sweep(args, cfg, name=args.config, sizes=args.sizes, slide=args.slide)
    if args.slide == 'keep' and (cfg.model.get('test_cfg') or {}).get('mode') == 'slide':
        crop = ' x '.join(map(str, cfg.model.test_cfg.crop_size))
        print(f'Every size is tested in crops of {crop}: the backbone sees no more. See --slide')
    run(args.launcher)
