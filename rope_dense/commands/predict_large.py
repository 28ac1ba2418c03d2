r"""Predict on images larger than memory, in tiles read from disk.

Examples:
    rope-dense predict-large configs/upernet_vit_rope_mixed.py last.pth city.tif
    rope-dense predict-large configs/dino_vitdet_rope_mixed.py last.pth city.png \
        --tile 1024 --size 1024 --picture city_boxes.jpg
    rope-dense predict-large CONFIG last.pth city.tif --tile 2048 --size 2048 \
        --cfg-options model.backbone.rope_scaling.type=by_parts
    rope-dense predict-large hf-hub:OWNER/NAME city.tif   # what rope-dense push-to-hub wrote
    torchrun --nproc_per_node=4 -m rope_dense predict-large RUN scenes/   # or one image

A segmentor writes a label raster. A detector writes a data set in COCO's format with scores, plus
GeoJSON if the image is georeferenced; rotated boxes are also written in DOTA's format (NAME_dota/).
--picture draws the result on a reduced image. The same command resumes an interrupted run, and
predicts the images of a folder that have no result.
docs/large_images.md explains tiles, levels, the merging of boxes, and memory use.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.find import PICTURES, check_ending, check_path
from .arguments import ToolParser, add_model, add_prediction, at_least, values


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    parser.add_argument(
        'image', type=Path, help='image that GDAL reads, or a folder of images'
    )
    parser.add_argument(
        '--out',
        type=Path,
        help='label raster (NAME.tif, NAME.png) or detections (NAME.json); the folder of the '
        'results of a folder (in the work folder)',
    )
    parser.add_argument(
        '--picture',
        type=Path,
        help='also draw the result on a reduced image, in this file',
    )
    parser.add_number(
        '--tile',
        'side of a tile in pixels of the image (the shorter side of the test images)',
        least=32,
    )
    parser.add_number(
        '--overlap',
        'minimum overlap of neighbours in pixels (a quarter of a tile)',
        least=0,
    )
    parser.add_number(
        '--halvings',
        'detectors: number of halvings of the image, for objects larger than the overlap '
        '(until one tile holds the image)',
        least=0,
    )
    parser.add_argument(
        '--merge-iou',
        type=at_least(0, float, most=1),
        help='detectors: boxes of two tiles that overlap more are one object (0.5; 0.1 if rotated)',
    )
    parser.add_switch('--overwrite', 'start again, and replace an earlier result')
    add_prediction(parser)
    args = parser.parse(argv)
    check_path(args.image)
    if args.picture:
        check_ending('--picture', args.picture, PICTURES)
    return args


def main(args: argparse.Namespace) -> None:
    from ..predict.large import LargeRequest, predict_large

    predict_large(LargeRequest(**values(args)))
