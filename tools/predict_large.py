r"""Detect in, or segment, an image that is larger than memory: in tiles read from disk.

Examples:
    python tools/predict_large.py configs/upernet_vit_rope_mixed.py last.pth city.tif
    python tools/predict_large.py configs/dino_vitdet_rope_mixed.py last.pth city.png \
        --tile 1024 --size 1024 --picture city_boxes.jpg
    python tools/predict_large.py CONFIG last.pth city.tif --tile 2048 --size 2048 \
        --cfg-options model.backbone.rope_scaling.type=by_parts
    python tools/predict_large.py hf-hub:OWNER/NAME city.tif   # what tools/push_to_hub.py wrote

A segmentor writes a label raster, a detector a data set in COCO's format with scores; --picture
draws the result on a shrunken image. The same command continues where it was stopped.
docs/large_images.md explains tiles, levels, the merging of boxes, and the memory that they take.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import add_cfg_options, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument(
        'config',
        help='config file of a detector or segmentor; or, without a checkpoint, hf-hub:owner/name '
        'or the folder of such a model',
    )
    parser.add_argument(
        'checkpoint', nargs='?', help='checkpoint file, https:// address or hf-hub:owner/name'
    )
    parser.add_argument('image', type=Path, help='tiff, png or another format that GDAL reads')
    parser.add_argument(
        '--out',
        type=Path,
        help='label raster (NAME.tif, NAME.png) or detections (NAME.json); (in the work folder)',
    )
    parser.add_argument(
        '--picture', type=Path, help='also draw the result on a shrunken image, in this file'
    )
    parser.add_argument(
        '--tile',
        type=int,
        help='side of a tile in pixels of the image (the shorter side of the test images)',
    )
    parser.add_argument(
        '--size',
        metavar='SIZE',
        help='what the model sees a tile as, in pixels: the shorter side, or HEIGHTxWIDTH (as the '
        'test pipeline of the config resizes it)',
    )
    parser.add_argument(
        '--overlap', type=int, help='pixels that neighbours share at least (a quarter of a tile)'
    )
    parser.add_argument('--batch', type=int, default=1, help='tiles at a time (%(default)s)')
    parser.add_argument(
        '--halvings',
        type=int,
        help='detectors: how often the image is halved, for objects larger than the overlap (until '
        'it fits a tile)',
    )
    parser.add_argument(
        '--min-score', type=float, default=0.3, help='detectors: of a box (%(default)s)'
    )
    parser.add_argument(
        '--merge-iou',
        type=float,
        default=0.5,
        help='detectors: boxes of two tiles that overlap more are one object (%(default)s)',
    )
    parser.add_argument('--device', help='cpu, cuda, cuda:1 ... (a GPU if there is one)')
    parser.add_argument(
        '--overwrite', action='store_true', help='begin anew, and replace an earlier result'
    )
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    add_cfg_options(parser)
    return parser.parse_args(argv)


if __name__ == '__main__':
    parse_args(sys.argv[1:])  # answers --help and mistakes before the imports, which take seconds

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from mmengine.utils import ProgressBar
from torch import nn

from rope_dense.cli.arguments import check_at_least, checked_device
from rope_dense.cli.checkpoints import check_tested_weights
from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.dataset_meta import classes_and_colours
from rope_dense.cli.errors import UsageError, command, usage_errors
from rope_dense.cli.model_checks import build_model
from rope_dense.cli.training_checks import training_crops, warn
from rope_dense.evaluation.resolution import at_size, configured_size
from rope_dense.evaluation.results import Identity
from rope_dense.evaluation.settings import parse_size
from rope_dense.integrations.hub import weights_file
from rope_dense.large_images.detection import (
    as_coco,
    detect,
    make_levels,
    read_lines,
    suppress_duplicates,
)
from rope_dense.large_images.image_file import LABEL_FORMATS, LargeImage, write_labels
from rope_dense.large_images.journal import Journal, JournalError
from rope_dense.large_images.pictures import draw_boxes, draw_labels
from rope_dense.large_images.predictor import TilePredictor
from rope_dense.large_images.segmentation import label_type, segment
from rope_dense.large_images.tiles import TileGrid
from rope_dense.utils.atomic_write import atomic_write_text
from rope_dense.utils.lock import exclusive
from rope_dense.utils.peak_memory import peak_rss


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    check_at_least(args, 1, 'tile', 'batch')
    check_at_least(args, 0, 'overlap', 'halvings', 'min_score', 'merge_iou')
    device = checked_device(args.device or get_device())
    if args.checkpoint is None:
        args.work_dir = args.work_dir or str(Path('work_dirs', Path(args.config).name))
        args.checkpoint = weights_file(args.config)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    used_loaders(cfg, 'test')
    with usage_errors():
        cfg = with_tiles(cfg, args)
        image = LargeImage(args.image)
        TileGrid(image.height, image.width, args.tile, args.overlap).tops  # noqa: B018, a check
    settle_output(cfg, args)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model, classes, colours = load_model(cfg, args.checkpoint)
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


def with_tiles(cfg: Config, args: argparse.Namespace) -> Config:
    """The config that tests at --size; --tile and --overlap get values if they have none.

    Raises:
        ValueError: no such size, or the test pipeline has none.
    """
    if args.size is not None:
        try:
            cfg = at_size(cfg, parse_size(args.size))
        except ValueError as error:
            raise ValueError(str(error).replace('--sizes', '--size')) from error
    if args.tile is None:
        try:
            args.tile = min(configured_size(cfg))
        except ValueError as error:
            raise ValueError(f'{error}; or give --tile') from error
        crops = training_crops(cfg)
        if crops and (args.tile, args.tile) not in crops:
            sizes = ', '.join(f'{height} x {width}' for height, width in sorted(crops))
            warn(f'tiles of {args.tile} pixels, as test images; the training had crops of {sizes}')
    if args.overlap is None:
        args.overlap = args.tile // 4
    return cfg


def settle_output(cfg: Config, args: argparse.Namespace) -> None:
    """--out gets a value if it has none.

    Raises:
        UsageError: it is no such file, or is there already.
    """
    formats = LABEL_FORMATS if cfg.default_scope == 'mmseg' else ('.json',)
    if args.out is None:
        ending = 'labels.tif' if cfg.default_scope == 'mmseg' else 'boxes.json'
        args.out = Path(cfg.work_dir) / f'{args.image.stem}_{ending}'
    if args.out.suffix.lower() not in formats:
        raise UsageError(f'--out {args.out}: give a name that ends with {" or ".join(formats)}')
    if args.out.exists() and not args.overwrite:
        raise UsageError(f'{args.out} exists: give another --out, or --overwrite to replace it')
    if args.picture and args.picture.suffix.lower() not in ('.png', '.jpg', '.jpeg'):
        raise UsageError(f'--picture {args.picture}: give a name that ends with .png or .jpg')


def load_model(
    cfg: Config, checkpoint: str
) -> tuple[nn.Module, Sequence[str], dict[int, tuple[int, int, int]]]:
    """The model with its weights, names and colours of its classes.

    Raises:
        UsageError: they cannot be read, or do not fit.
    """
    model = build_model(cfg)
    classes, colours = classes_and_colours(cfg, check_tested_weights(checkpoint, model))
    return model, classes, colours


def folder_of(args: argparse.Namespace) -> Path:
    """The folder of the unfinished result."""
    return args.out.with_name(f'{args.out.name}.unfinished')


def open_journal(cfg: Config, args: argparse.Namespace, **settings: object) -> Journal:
    """The unfinished result of the same command, or an empty one.

    Raises:
        JournalError: there is one of another command, or it is damaged.
    """
    folder = folder_of(args)
    if args.overwrite and folder.exists():
        shutil.rmtree(folder)
    identity, file = Identity.of(cfg, args.config, args.checkpoint), args.image.stat()
    settings = {
        'config (with its options), SHA-256': identity.config_sha256[:16],
        'checkpoint, SHA-256': identity.checkpoint_sha256[:16],
        'rope_dense': identity.package_version,
        'image': f'{args.image.name} of {file.st_size} bytes, changed {file.st_mtime_ns / 1e9:.3f}',
        'tile': args.tile,
        'overlap': args.overlap,
        **settings,
    }
    return Journal(folder, settings)


def predictor_of(
    cfg: Config, args: argparse.Namespace, model: nn.Module, rows: Sequence[int], finished: int
) -> TilePredictor:
    """Return the predictor of the tiles in rows that are not finished, which shows its progress.

    Args:
        rows: numbers of tiles.
    """
    left = sum(rows[finished:])
    print(f'{sum(rows)} tiles of {args.tile} pixels, {left} of them not finished', flush=True)
    bar = ProgressBar(left, file=sys.stderr)
    return TilePredictor(model, cfg, batch=args.batch, report=bar.update)


def write_segmentation(
    cfg: Config,
    args: argparse.Namespace,
    model: nn.Module,
    image: LargeImage,
    colours: dict[int, tuple[int, int, int]],
) -> None:
    grid = TileGrid(image.height, image.width, args.tile, args.overlap)
    journal = open_journal(cfg, args)
    rows = [len(grid.lefts)] * len(grid.tops)
    predict = predictor_of(cfg, args, model, rows, journal.finished)
    num_scores = model.out_channels
    threshold = model.decode_head.threshold if num_scores == 1 else None
    segment(image, grid, predict, journal, num_scores=num_scores, threshold=threshold)
    dtype = label_type(num_scores)
    write_labels(journal.content, args.out, image, dtype, colours)
    if args.picture:
        draw_labels(args.image, journal.content, dtype, colours, args.picture)


def write_detections(
    cfg: Config,
    args: argparse.Namespace,
    model: nn.Module,
    image: LargeImage,
    classes: Sequence[str],
    colours: dict[int, tuple[int, int, int]],
) -> None:
    halvings = -1 if args.halvings is None else args.halvings
    levels = make_levels(image.height, image.width, args.tile, args.overlap, halvings)
    journal = open_journal(cfg, args, halvings=halvings, **{'min-score': args.min_score})
    rows = [len(level.grid.lefts) for level in levels for _ in level.grid.tops]
    predict = predictor_of(cfg, args, model, rows, journal.finished)
    detect(args.image, levels, predict, journal, min_score=args.min_score)
    lines = suppress_duplicates(read_lines(journal.content), args.merge_iou)
    result = as_coco(lines, args.image.name, (image.height, image.width), classes)
    atomic_write_text(args.out, json.dumps(result) + '\n')
    print(f'\n{len(lines)} objects', end='')
    if args.picture:
        draw_boxes(args.image, lines, classes, colours, args.picture)


def memory_used() -> str:
    """The largest memory so far, of the process and of the GPU."""
    text = f'peak memory {peak_rss() / 2**20:.0f} MB'
    if torch.cuda.is_available():
        text += f', {torch.cuda.max_memory_allocated() / 2**20:.0f} MB of tensors on the GPU'
    return text


if __name__ == '__main__':
    sys.exit(main())
