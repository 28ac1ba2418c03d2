"""Predict on pictures, folders, videos and streams; draw the results and write data files.

Examples:
    python tools/predict.py CONFIG last.pth street.jpg
    python tools/predict.py CONFIG last.pth pictures/ --out results --score 0.5 --batch 4
    python tools/predict.py CONFIG last.pth drive.mp4 --size 480
    python tools/predict.py CONFIG last.pth 0 --out camera   # a camera, until Ctrl-C; or rtsp://...
    find . -name '*.png' | python tools/predict.py CONFIG last.pth -
    python tools/predict.py hf-hub:OWNER/NAME pictures/   # what tools/push_to_hub.py wrote
    python tools/predict.py SHARED_CONFIG pictures/   # several tasks, see docs/one_encoder.md

Contents of the output folder: pictures/, the input with drawn predictions (for a video also a
video); detectors: predictions.json, in COCO's format with scores; segmentors: labels/, PNGs of
class numbers with the class colours as palette; depth models: depth/NAME.npy, float32 in metres. A
model of several tasks writes one folder per task. Results equal those of mmdet's DetInferencer and
mmseg's MMSegInferencer, but images more than 8 times as long as wide are padded. Images above
--tile-above are predicted in tiles by tools/predict_large.py. What cannot be predicted is named at
the end.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

from ..project.errors import UsageError
from .arguments import (
    add_model_arguments,
    add_prediction_arguments,
    check_at_least,
    checked_device,
    tool_parser,
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    add_model_arguments(parser)
    parser.add_argument(
        'input',
        help='image, folder, video, camera (0, 1, ...), address of a stream, or - for paths on '
        'standard input',
    )
    parser.add_argument('--out', type=Path, help='output folder (predictions, in the work folder)')
    parser.add_argument(
        '--score', type=float, default=0.3, help='detectors: minimum score of a box (%(default)s)'
    )
    parser.add_argument('--batch', type=int, default=1, help='images per batch (%(default)s)')
    parser.add_argument(
        '--size',
        metavar='SIZE',
        help='resize images to this shorter side, or HEIGHTxWIDTH, in pixels (as the test pipeline '
        'of the config)',
    )
    parser.add_argument(
        '--scores',
        action='store_true',
        help='segmentors: also write the probability of each class (scores/NAME.npy, float16)',
    )
    parser.add_argument(
        '--tile-above',
        type=float,
        default=32,
        metavar='MEGAPIXELS',
        help='larger images are predicted in tiles (%(default)s)',
    )
    add_prediction_arguments(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmengine.device import get_device
    from mmengine.registry import DefaultScope

    from ..datasets.images.sources import VIDEO_SUFFIXES, is_stream, stream_rate, video_properties
    from ..predict.inferencer import build, predict_images, predict_video, sources_of
    from ..project.load import find_model, used_loaders
    from ..project.sizes import at_size, parse_size

    check_at_least(args, 1, 'batch')
    check_at_least(args, 0, 'score', 'tile_above')
    device = checked_device(args.device or get_device())
    warnings.filterwarnings('ignore', 'torch.meshgrid')  # of mmdet's DINO
    stream = is_stream(args.input)
    video = stream or args.input.lower().endswith(VIDEO_SUFFIXES)
    if video and not stream and not Path(args.input).is_file():
        raise UsageError(f'{args.input}: no such file')
    count, rate = None, 25.0
    if video:
        count, rate = (
            (None, stream_rate(args.input)) if stream else video_properties(Path(args.input))
        )
    cfg, args.checkpoint = find_model(args.config, args.checkpoint, args.cfg_options, args.work_dir)
    used_loaders(cfg, 'test')
    if args.size:
        cfg = at_size(cfg, parse_size(args.size))
    args.out = args.out or Path(cfg.work_dir) / 'predictions'
    sources = [] if video else sources_of(args.input, args.out)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        inferencer, writer = build(cfg, args, str(device))
        if video:
            predict_video(args, inferencer, writer, count, rate)
        else:
            predict_images(args, inferencer, writer, sources)
    print(f'\n{writer.close()}')
