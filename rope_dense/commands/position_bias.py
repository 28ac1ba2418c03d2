r"""Measure how far a backbone's maps depend on position where the image does not.

For each map the table has the deviation of a constant image over positions, divided by the
deviation of an image of noise, and of windows with prefix tokens both forms of `window_prefix`.
Writes position_bias.csv and .png to position_bias/ in the work folder.

Examples:
    rope-dense position-bias work_dirs/cats
    rope-dense position-bias CONFIG last.pth --sizes 640 800x1333 --scaling none linear by_parts
    rope-dense position-bias dinov3_small hf-hub:timm/vit_small_patch16_dinov3.lvd1689m
"""

import argparse
from collections.abc import Sequence

from ..backbones.archs import VIT_ARCHS
from ..project.find import check_checkpoint, find_files
from .arguments import ToolParser, add_cfg_options, image_size_text, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'config',
        help='a run, or a model of the hub; with a checkpoint a config, or an arch of RoPEViT',
    )
    parser.add_argument(
        'checkpoint', nargs='?', help='a file, https:// or hf-hub:owner/name'
    )
    parser.add_list(
        '--sizes',
        'SIZE',
        'in pixels: 512 is 512x512 (1, 1.5 and 2 times the size of the training)',
        type=image_size_text,
    )
    parser.add_list(
        '--scaling',
        'SCALING',
        "as of eval-resolutions (the config's, and linear where positions can be scaled)",
    )
    parser.add_argument(
        '--work-dir', help='(of the run, else work_dirs/<name of the config>)'
    )
    add_cfg_options(parser)
    args = parser.parse(argv)
    if args.config not in VIT_ARCHS:
        find_files(args.config, args.checkpoint)
    elif args.checkpoint is not None:
        check_checkpoint(args.checkpoint)
    return args


def main(args: argparse.Namespace) -> None:
    from ..measure.position_bias import position_bias

    position_bias(**values(args))
