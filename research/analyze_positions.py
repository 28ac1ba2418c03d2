r"""Draw the frequencies of a model's position embedding, and the distance and entropy of attention.

CHECKPOINT is a published classifier, as eval-classification takes it. With --config it has
the weights of that detector, segmentor or classifier, or of its backbone alone; the word initial
stands for random initial weights. Without a choice of figures all possible ones are drawn: the
first three need a rotary embedding, the others --images.

    --fourier   points from the frequencies of a head (fourier.png, .csv)
    --decay     sums of rotations by the offset (decay.png, .csv)
    --angles    the frequencies in order (angles.png, .csv)
    --distance  attention distance of each block, by image size (distance.png, .csv)
    --entropy   attention entropy of each block, by image size (entropy.png, .csv)

Examples:
    rope-dense research analyze-positions hf-hub:naver-ai/rope_mixed_deit_small_patch16_LS \
        --images imagenet/val --max-images 1000 --sizes 128 224 384
    rope-dense research analyze-positions CONFIG iter_90000.pth --fourier --block 11 --head 2
    rope-dense research analyze-positions axial.pth --images val --sizes 128 224 384 --label axial \
        --overlay work_dirs/ape.pth/positions work_dirs/mixed.pth/positions
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rope_dense.commands.arguments import ToolParser, add_cfg_options, at_least, values

FIGURES = ('fourier', 'decay', 'angles', 'distance', 'entropy')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'given', nargs='?', metavar='config', help='config of the model, if any'
    )
    parser.add_argument(
        'checkpoint', help='path, https:// address, hf-hub:owner/name or initial'
    )
    parser.add_argument('--config', help='the same as the first argument')
    parser.add_argument(
        '--model', metavar='NAME', help='of the classifier, see eval-classification'
    )
    parser.add_argument(
        '--rope',
        choices=['axial', 'none'],
        help='kind of a ViT whose weights do not tell, see eval-classification',
    )
    for name in FIGURES:
        parser.add_argument(
            f'--{name}',
            action='append_const',
            const=name,
            dest='figures',
            default=[],
            help='see above',
        )
    parser.add_argument(
        '--images', metavar='FOLDER', type=Path, help='with images, at any depth'
    )
    parser.add_argument(
        '--max-images', type=at_least(1), help='the first so many, by name (all)'
    )
    parser.add_list(
        '--sizes',
        'PIXELS',
        'sides of the square images; frequencies are those for the first (224)',
        type=at_least(1),
        default=[224],
    )
    parser.add_argument(
        '--crop-ratio',
        type=float,
        default=1.0,
        help='fraction of the resized shorter side that is kept, of which the middle (%(default)s)',
    )
    parser.add_argument(
        '--block', type=int, default=0, help='of the frequencies (%(default)s)'
    )
    parser.add_argument(
        '--head', type=int, default=0, help='of the frequencies (%(default)s)'
    )
    parser.add_argument(
        '--label', help='name of the model in the figures (the name of its file)'
    )
    parser.add_list(
        '--overlay',
        'FOLDER',
        'results of this tool for other models, to draw their attention in the same figure',
        type=Path,
    )
    parser.add_argument(
        '--device', default='cpu', help='cpu, cuda, cuda:1 ... (%(default)s)'
    )
    parser.add_argument(
        '--work-dir', help='(work_dirs/<name of the config or the checkpoint>)'
    )
    add_cfg_options(parser)
    args = parser.parse_args(argv)
    if args.given and args.config:
        parser.error('give the config once: before the checkpoint, or by --config')
    args.config = args.given or args.config
    del args.given
    return args


def main(args: argparse.Namespace) -> None:
    from .position_figures import draw_positions

    draw_positions(**values(args))
