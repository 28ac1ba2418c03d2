r"""Predict on an image larger than memory, in tiles read from disk.

Examples:
    python tools/predict_large.py configs/upernet_vit_rope_mixed.py last.pth city.tif
    python tools/predict_large.py configs/dino_vitdet_rope_mixed.py last.pth city.png \
        --tile 1024 --size 1024 --picture city_boxes.jpg
    python tools/predict_large.py CONFIG last.pth city.tif --tile 2048 --size 2048 \
        --cfg-options model.backbone.rope_scaling.type=by_parts
    python tools/predict_large.py hf-hub:OWNER/NAME city.tif   # what tools/push_to_hub.py wrote

A segmentor writes a label raster. A detector writes a data set in COCO's format with scores, plus
GeoJSON if the image is georeferenced; rotated boxes are also written in DOTA's format (NAME_dota/).
--picture draws the result on a reduced image. The same command resumes an interrupted run.
docs/large_images.md explains tiles, levels, the merging of boxes, and memory use.
"""

from __future__ import annotations

import argparse
import shutil
import sys
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

NO_DEPTH = (
    'depth is not predicted in tiles, each of which would have a scale of its own: resize the '
    'image, or raise --tile-above of tools/predict.py'
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    add_model_arguments(parser)
    parser.add_argument('image', type=Path, help='tiff, png or another format that GDAL reads')
    parser.add_argument(
        '--out',
        type=Path,
        help='label raster (NAME.tif, NAME.png) or detections (NAME.json); (in the work folder)',
    )
    parser.add_argument(
        '--picture', type=Path, help='also draw the result on a reduced image, in this file'
    )
    parser.add_argument(
        '--tile',
        type=int,
        help='side of a tile in pixels of the image (the shorter side of the test images)',
    )
    parser.add_argument(
        '--size',
        metavar='SIZE',
        help='size of a tile as model input, in pixels: the shorter side, or HEIGHTxWIDTH (as the '
        'test pipeline of the config resizes a tile)',
    )
    parser.add_argument(
        '--overlap', type=int, help='minimum overlap of neighbours in pixels (a quarter of a tile)'
    )
    parser.add_argument('--batch', type=int, default=1, help='tiles per batch (%(default)s)')
    parser.add_argument(
        '--halvings',
        type=int,
        help='detectors: number of halvings of the image, for objects larger than the overlap '
        '(until one tile holds the image)',
    )
    parser.add_argument(
        '--min-score', type=float, default=0.3, help='detectors: minimum score (%(default)s)'
    )
    parser.add_argument(
        '--merge-iou',
        type=float,
        help='detectors: boxes of two tiles that overlap more are one object (0.5; 0.1 if rotated)',
    )
    parser.add_argument(
        '--overwrite', action='store_true', help='start again, and replace an earlier result'
    )
    add_prediction_arguments(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmengine.device import get_device
    from mmengine.model import revert_sync_batchnorm
    from mmengine.registry import DefaultScope

    from ..checks.trained_model import load_trained
    from ..large_images.image_file import LargeImage
    from ..large_images.journal import JournalError
    from ..large_images.tiles import TileGrid
    from ..predict.tiles import (
        folder_of,
        memory_used,
        settle_output,
        with_tiles,
        write_detections,
        write_segmentation,
    )
    from ..project.load import find_model, used_loaders
    from ..project.task import task_of
    from ..utils.lock import exclusive

    check_at_least(args, 1, 'tile', 'batch')
    check_at_least(args, 0, 'overlap', 'halvings', 'min_score', 'merge_iou')
    device = checked_device(args.device or get_device())
    cfg, args.checkpoint = find_model(args.config, args.checkpoint, args.cfg_options, args.work_dir)
    used_loaders(cfg, 'test')
    if task_of(cfg) == 'depth':
        raise UsageError(NO_DEPTH)
    cfg = with_tiles(cfg, args)
    image = LargeImage(args.image)
    TileGrid(image.height, image.width, args.tile, args.overlap).tops  # noqa: B018, a check
    settle_output(cfg, args)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model, classes, palette = load_trained(cfg, args.checkpoint)
        colours = dict(enumerate(palette))
        model = revert_sync_batchnorm(model).to(device).eval()
        with exclusive(args.out):
            try:
                if cfg.default_scope == 'mmseg':
                    write_segmentation(cfg, args, model, image, colours)
                else:
                    write_detections(cfg, args, model, image, classes, colours)
            except JournalError as error:
                advice = 'Give another --out, or --overwrite to begin anew'
                raise UsageError(f'{error}. {advice}') from error
            except KeyboardInterrupt:
                print(f'\nstopped; the same command continues ({folder_of(args)})', file=sys.stderr)
                raise
            shutil.rmtree(folder_of(args))
        print(f'\n{args.out}{f", {args.picture}" if args.picture else ""}; {memory_used()}')
