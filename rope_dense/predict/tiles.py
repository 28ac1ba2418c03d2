"""Results of a large image: its tiles, their journal and the files that are written."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.utils import ProgressBar

from ..checks.random_weights import training_crops, warn
from ..datasets.rotated_results import write_dota
from ..large_images.detection import (
    as_coco,
    detect,
    make_levels,
    read_lines,
    suppress_duplicates,
)
from ..large_images.geojson import write_geojson
from ..large_images.image_file import LABEL_FORMATS, LargeImage, write_labels
from ..large_images.journal import Journal
from ..large_images.pictures import draw_boxes, draw_labels
from ..large_images.predictor import TilePredictor
from ..large_images.segmentation import label_type, segment
from ..large_images.tiles import TileGrid
from ..project.angles import angle_version
from ..project.errors import UsageError
from ..project.identity import Identity
from ..project.sizes import at_size, configured_size, parse_size
from ..project.task import visualizer_of
from ..utils.atomic_write import atomic_write_text
from ..utils.peak_memory import peak_rss

UPRIGHT_IOU, ROTATED_IOU = 0.5, 0.1  # the second as mmrotate merges the tiles of DOTA


def with_tiles(cfg: Config, args: argparse.Namespace) -> Config:
    """The config that tests at --size; --tile and --overlap get values if they have none.

    Raises:
        ValueError: no such size, or the test pipeline has none.
    """
    if args.size is not None:
        cfg = at_size(cfg, parse_size(args.size))
    if args.tile is None:
        args.tile = min(configured_size(cfg))
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
    cfg: Config, args: argparse.Namespace, model: BaseModel, rows: Sequence[int], finished: int
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
    model: BaseModel,
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
    model: BaseModel,
    image: LargeImage,
    classes: Sequence[str],
    colours: dict[int, tuple[int, int, int]],
) -> None:
    if not image.file.crs and not image.file.transform.is_identity:
        warn(f'{args.image} has a transform but no coordinate system: no GeoJSON is written')
    halvings = -1 if args.halvings is None else args.halvings
    levels = make_levels(image.height, image.width, args.tile, args.overlap, halvings)
    journal = open_journal(cfg, args, halvings=halvings, **{'min-score': args.min_score})
    rows = [len(level.grid.lefts) for level in levels for _ in level.grid.tops]
    predict = predictor_of(cfg, args, model, rows, journal.finished)
    detect(args.image, levels, predict, journal, min_score=args.min_score)
    version = angle_version(cfg)
    merge_iou = args.merge_iou
    if merge_iou is None:
        merge_iou = ROTATED_IOU if version else UPRIGHT_IOU
    lines = suppress_duplicates(read_lines(journal.content), merge_iou)
    result = as_coco(lines, args.image.name, (image.height, image.width), classes, version)
    if version:
        objects = ((args.image.stem, item) for item in result['annotations'])
        write_dota(args.out.with_name(f'{args.out.stem}_dota'), classes, objects)
    write_geojson(args.out.with_suffix('.geojson'), result, image)
    atomic_write_text(args.out, json.dumps(result) + '\n')
    print(f'\n{len(lines)} objects', end='')
    if args.picture:
        kind = visualizer_of(cfg, '', 0)['type']
        draw_boxes(args.image, lines, classes, colours, args.picture, kind)


def memory_used() -> str:
    """The largest memory so far, of the process and of the GPU."""
    text = f'peak memory {peak_rss() / 2**20:.0f} MB'
    if torch.cuda.is_available():
        text += f', {torch.cuda.max_memory_allocated() / 2**20:.0f} MB of tensors on the GPU'
    return text
