r"""Evaluate a published classifier at many image sizes, beside what papers report for them.

CHECKPOINT is a file of RoPE-ViT, RoPE-Swin, their baselines or timm's ports, of ResFormer or of
SHI-Labs' ViT, with its head; FOLDER has a folder of images for each class. Prints a table while it
runs, and writes resolutions.json, .csv and .png to the work folder. Finished results are reused.
If the weights fit several named classifiers, --model has to name one.

The shorter side is resized to SIZE / CROP RATIO (bicubic, antialiased), and the middle SIZE x SIZE
pixels are classified. By default sizes and crop ratio are as published: 1 for the ViTs of RoPE-ViT,
0.875 for Swin (with windows of SIZE / 32 tokens), ResFormer, NAT and SHI-Labs' ViT. The work folder
also gets classifier.py, the config of the evaluation.

Examples:
    rope-dense research eval-classification hf-hub:naver-ai/rope_mixed_deit_small_patch16_LS val
    rope-dense research eval-classification swin.pth imagenet/val --sizes table-a.10 \
        --overlay table-a.8 --relative-to table-a.8:swin-b_rpb
    rope-dense research eval-classification vit.pth val --model ropevit_small_axial_ape
    rope-dense research eval-classification vit.pth imagenet-a --class-index imagenet/val --subset
    rope-dense research eval-classification vit.pth imagenet/val --real-labels real.json
"""

import argparse
from collections.abc import Sequence

from rope_dense.commands.arguments import (
    ToolParser,
    add_sweep_arguments,
    at_least,
    image_size_text,
    values,
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'checkpoint', help='path, https:// address or hf-hub:owner/name'
    )
    parser.add_argument('folder', help='folder of class folders')
    parser.add_argument(
        '--sizes',
        nargs='+',
        metavar='SIZE',
        help='sides of the images in pixels (128), or the name of a table of a paper for its sizes,'
        ' such as table-a.4 (docs/research/classification.md)',
    )
    add_sweep_arguments(parser)
    parser.set_defaults(window=None)
    parser.add_list(
        '--overlay',
        'RESULTS',
        'results to draw in the same plot: files (.json) of other runs, or TABLE or TABLE:ROW '
        'of a paper, such as table-a.4:vit-b_rope-mixed',
    )
    parser.add_argument(
        '--relative-to',
        metavar='RESULTS',
        help='also draw the difference to a baseline: a results file with one setting, or '
        'TABLE:ROW, such as table-a.4:vit-b_ape',
    )
    parser.add_argument(
        '--model',
        metavar='NAME',
        help='of the classifier, as in timm (docs/research/pretraining.md lists the names): '
        'ropevit_small_mixed, ropeswin_tiny_axial ... (what the file says, or the only one whose '
        'weights these can be)',
    )
    parser.add_argument(
        '--rope',
        choices=['axial', 'none'],
        help='kind of a ViT whose weights do not tell: weights of axial models with position '
        'embedding look like the baseline',
    )
    parser.add_argument(
        '--rpb-resize',
        choices=['bicubic', 'zeros'],
        help='how a relative position bias fits other windows and grids (zeros for Swin, as '
        'published, else bicubic); zeros: none between tokens further apart than it covers',
    )
    parser.add_argument(
        '--crop-ratio',
        type=float,
        help='fraction of the resized shorter side that is kept (see above)',
    )
    parser.add_argument(
        '--class-index',
        metavar='PATH',
        help='which class of the model a folder is: a JSON file {"0": ["n01440764", "tench"]}, '
        "a text file with a name in each line, or ImageNet's validation folder (by default the "
        'sorted folders are the classes; folders named by numbers, the classes of these numbers)',
    )
    parser.add_switch(
        '--subset',
        'only the classes that have a folder compete: ImageNet-A and ImageNet-R',
    )
    parser.add_argument(
        '--real-labels',
        metavar='JSON',
        help='ReaL: lists of right classes, by number of the image',
    )
    parser.add_argument(
        '--train-size',
        type=image_size_text,
        metavar='SIZE',
        default='224',
        help='(%(default)s)',
    )
    parser.add_argument(
        '--config',
        help='of a classifier without a name, such as in configs/research/ablation; '
        'its `evaluation` has the sizes and the crop ratio, if they are not given here',
    )
    parser.add_argument(
        '--batch-size', type=at_least(1), default=64, help='(%(default)s)'
    )
    parser.add_argument(
        '--workers', type=at_least(0), default=2, help='loading processes (%(default)s)'
    )
    parser.add_argument(
        '--work-dir', help='folder for results (work_dirs/<name of the checkpoint>)'
    )
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from .classification import evaluate_classifier

    evaluate_classifier(**values(args))
