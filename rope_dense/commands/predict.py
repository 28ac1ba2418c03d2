"""Predict on pictures, folders, videos and streams; draw the results and write data files.

Examples:
    rope-dense predict work_dirs/cats pictures/   # the folder of a run, with its best checkpoint
    rope-dense predict CONFIG last.pth street.jpg
    rope-dense predict CONFIG last.pth pictures/ --out results --score 0.5 --batch 4
    rope-dense predict work_dirs/cats pictures/ --score car=0.4 dog=0.25 --write coco yolo
    rope-dense predict CONFIG last.pth drive.mp4 --size 480
    rope-dense predict CONFIG last.pth 0 --out camera   # a camera, until Ctrl-C; or rtsp://...
    find . -name '*.png' | rope-dense predict CONFIG last.pth -
    rope-dense predict hf-hub:OWNER/NAME pictures/   # what rope-dense push-to-hub wrote
    rope-dense predict SHARED_CONFIG pictures/   # several tasks, see docs/one_encoder.md
    torchrun --nproc_per_node=4 -m rope_dense predict RUN pictures/   # four share the images

Contents of the output folder: pictures/, the input with drawn predictions (for a video also a
video); detectors: predictions.json, in COCO's format with scores, and other formats by --write (see
docs/use.md); segmentors: labels/, PNGs of class numbers with the class colours as palette; depth
models: depth/NAME.npy, float32 in metres. A model of several tasks writes one folder per task.
Results equal mmdet's DetInferencer's and mmseg's MMSegInferencer's, but images more than 8 times as
long as wide are padded. Images above --tile-above are predicted in tiles, as by rope-dense
predict-large. What cannot be predicted is named at the end.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.find import check_path
from .arguments import (
    ToolParser,
    add_exported,
    add_model,
    add_prediction,
    add_queries,
    values,
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    parser.add_argument(
        'images',
        metavar='input',
        help='image, folder, video, camera (0, 1, ...), address of a stream, or - for paths on '
        'standard input',
    )
    parser.add_argument(
        '--out', type=Path, help='output folder (predictions, in the work folder)'
    )
    parser.add_list(
        '--write',
        'FORMAT',
        'detectors: coco (predictions.json, a data set), results (results.json, which '
        'pycocotools loads), yolo, voc, crops; one or several (coco)',
        default=['coco'],
    )
    parser.add_argument(
        '--ids',
        type=Path,
        help='COCO file with the ids of images and classes for --write results',
    )
    parser.add_switch(
        '--scores',
        'segmentors: also write the probability of each class (scores/NAME.npy, float16), but '
        'for images in tiles; with --write yolo: the score of each box as its last number',
    )
    parser.add_number(
        '--tile-above',
        'larger images are predicted in tiles (%(default)s)',
        least=0,
        kind=float,
        default=32,
        metavar='MEGAPIXELS',
    )
    add_prediction(parser)
    add_exported(parser)
    add_queries(parser)
    args = parser.parse(argv)
    if args.images != '-' and not args.images.isdecimal() and '://' not in args.images:
        check_path(args.images)
    return args


def main(args: argparse.Namespace) -> None:
    from ..predict.images import predict
    from ..predict.request import Request

    predict(Request(**values(args)))
