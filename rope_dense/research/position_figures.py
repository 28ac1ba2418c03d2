"""The figures of the command analyze-positions."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import mmcv
import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from ..backbones.base import Backbone
from ..checkpoints import load_pretrained
from ..checks.model import random_model
from ..commands.arguments import check_at_least, checked_device
from ..datasets.images.sources import find_sources
from ..measure.results import csv_text
from ..project.errors import UsageError, usage_errors
from ..project.load import load_config
from ..utils.atomic_write import atomic_write, atomic_write_text
from ..utils.validation import check_integer
from . import attention_statistics, patch_frequencies, plots, tables
from .classifier import classifier_config
from .image_folder import ResizeCentreCrop

OF_FREQUENCIES = {
    'fourier': (tables.fourier_rows, plots.draw_fourier),
    'decay': (tables.decay_rows, plots.draw_decay),
    'angles': (tables.angle_rows, plots.draw_angles),
}
OF_ATTENTION = {'distance': plots.DISTANCE, 'entropy': plots.ENTROPY}  # columns and their labels
COMMON = ('label', 'images', 'size', 'block', 'stride')  # columns of both
INITIAL = 'initial'
Figures = dict[str, tuple[tables.Rows, Callable[[Path], None]]]  # the rows, and what draws them


def run(args: argparse.Namespace) -> None:
    """Draw the figures that the arguments ask for."""
    check_at_least(args, 1, 'max_images')
    if (args.distance or args.entropy) and args.images is None:
        raise UsageError('--distance and --entropy need --images FOLDER')
    with usage_errors():
        sources = [] if args.images is None else find_sources(args.images)[: args.max_images]
        paths = [source.path for source in sources]
        sides = [check_integer('--sizes', side, 1) for side in args.sizes]
        resize = [ResizeCentreCrop((side, side), args.crop_ratio) for side in sides]
    device = checked_device(args.device)
    name = Path(args.config).stem if args.config else re.split('[/:]', args.checkpoint)[-1]
    model, folder = load_model(args, name)
    model.to(device).eval()
    args.label = args.label or name
    chosen = choose(args, model.backbone)
    others = read_overlays(args, [name for name in chosen if name in OF_ATTENTION])
    finished: Figures = {}
    with usage_errors():
        least = min(args.sizes)  # refused here if it is less than a patch
        model.backbone.patch_embed(torch.zeros(1, 3, least, least, device=device))
        if any(name in OF_FREQUENCIES for name in chosen):
            finished |= analyze_frequencies(args, model.backbone, chosen)
        if others:
            finished |= analyze_attention(args, model, paths, resize, others)
    for name, (rows, draw) in finished.items():
        write(folder / name, rows, draw)
    print(f'Written to {folder}: {", ".join(f"{name}.png, .csv" for name in finished)}')


def load_model(args: argparse.Namespace, name: str) -> tuple[BaseModel, Path]:
    """The model with its weights, and the folder for the figures.

    Raises:
        UsageError, CheckpointError: the model cannot be built or is none of this package, or the
            weights do not fit it.
    """
    if args.config is None:
        if args.cfg_options:
            raise UsageError('--cfg-options need the --config that they change')
        if args.checkpoint == INITIAL:
            raise UsageError('initial weights need the --config of the model')
        config = classifier_config(args.checkpoint, args.rope, args.model)['model']
        if config['backbone']['type'] == 'RoPESwin':
            config['backbone']['window_size'] = 'auto'  # as eval-classification
        model = MODELS.build(config)
        work_dir = f'work_dirs/{name}'
    else:
        cfg = load_config(args.config, args.cfg_options, args.work_dir)
        torch.manual_seed(0)  # of initial weights
        model, work_dir = random_model(cfg), cfg.work_dir
    if not isinstance(model.backbone, Backbone):
        raise UsageError(
            f'{args.config}: the backbone is a {type(model.backbone).__name__}, of another package'
        )
    if args.checkpoint != INITIAL:
        load_pretrained(model.backbone, args.checkpoint)
    return model, Path(args.work_dir or work_dir) / 'positions'


def choose(args: argparse.Namespace, backbone: Backbone) -> list[str]:
    """The figures to make."""
    names = [name for name in (*OF_FREQUENCIES, *OF_ATTENTION) if getattr(args, name)]
    number = len(backbone.ordered_blocks)
    with usage_errors():
        attn = backbone.ordered_blocks[check_integer('--block', args.block, 0, number - 1)].attn
        check_integer('--head', args.head, 0, attn.num_heads - 1)
    of_frequencies = [name for name in names if name in OF_FREQUENCIES]
    if attn.rope is None and of_frequencies:
        raise UsageError(f'--{of_frequencies[0]}: block {args.block} has no rotary embedding')
    if names:
        return names
    names = [] if attn.rope is None else [*OF_FREQUENCIES]
    names += [] if args.images is None else [*OF_ATTENTION]
    if not names:
        raise UsageError('the model has no rotary embedding: give --images FOLDER')
    return names


def analyze_frequencies(
    args: argparse.Namespace, backbone: Backbone, chosen: Sequence[str]
) -> Figures:
    """The rows and the drawing of each figure that is made of frequencies."""
    freqs = patch_frequencies(backbone, args.block, (args.sizes[0],) * 2)  # [2, h or 1, P]
    name = f'{args.label}, block {args.block}'
    head = f'{name}, head {args.head}', freqs[:, args.head if freqs.shape[1] > 1 else 0]
    finished: Figures = {}
    for figure, (make, draw) in OF_FREQUENCIES.items():
        if figure in chosen:
            rows = make(*(head if figure != 'angles' else (name, freqs)))
            finished[figure] = rows, partial(draw, rows)
    return finished


def analyze_attention(
    args: argparse.Namespace,
    model: BaseModel,
    paths: Sequence[Path],
    resize: Sequence[ResizeCentreCrop],
    others: dict[str, tables.Rows],
) -> Figures:
    """Measure attention, print it, and return the rows and the drawing of each of its figures.

    Args:
        args: see ``parse_args``.
        model: with a ``data_preprocessor``.
        paths: of the images.
        resize: what makes an image of each size.
        others: rows of other models for each figure.
    """
    rows: tables.Rows = []
    for side, crop in zip(args.sizes, resize, strict=True):
        images = (load_image(path, crop, model) for path in paths)
        statistics = attention_statistics(model.backbone, images)
        rows += tables.attention_rows(args.label, len(paths), side, statistics)
        print(f'{side} x {side} pixels', *map(line, rows[-len(statistics) :]), sep='\n', flush=True)
    finished: Figures = {}
    for name, of_others in others.items():
        columns = OF_ATTENTION[name]
        measured = [{key: row[key] for key in (*COMMON, *columns)} for row in rows]
        finished[name] = measured, partial(plots.draw_attention, measured + of_others, columns)
    return finished


def load_image(path: Path, resize: ResizeCentreCrop, model: BaseModel) -> Tensor:
    """[1, 3, side, side] as the model takes it, read as for eval-classification."""
    image = mmcv.imread(str(path), 'color_ignore_orientation', backend='pillow')
    image = torch.from_numpy(resize(dict(img=image))['img'].copy()).permute(2, 0, 1)
    return model.data_preprocessor(dict(inputs=[image]), False)['inputs']


def read_overlays(args: argparse.Namespace, names: Sequence[str]) -> dict[str, tables.Rows]:
    """The rows of other models for the figures ``names``.

    Raises:
        UsageError: a folder has none, or the label of another; or there is nothing to overlay.
    """
    if args.overlay and not names:
        raise UsageError('--overlay is for --distance and --entropy, which need --images FOLDER')
    overlays: dict[str, tables.Rows] = {name: [] for name in names}
    labels = [args.label]
    for folder in args.overlay:
        for name in names:
            numbers = {'size': int, 'block': int} | dict.fromkeys(OF_ATTENTION[name], float)
            try:
                with open(folder / f'{name}.csv', encoding='utf-8', newline='') as stream:
                    rows = list(csv.DictReader(stream))
                rows = [row | {key: to(row[key]) for key, to in numbers.items()} for row in rows]
                label = rows[0]['label']
            except (OSError, LookupError, ValueError, TypeError) as error:
                raise UsageError(
                    f'--overlay {folder}: no {name}.csv that this tool wrote ({error})'
                ) from error
            overlays[name] += rows
        if label in labels:
            raise UsageError(f'--overlay {folder}: the label {label!r} is taken, give --label')
        labels.append(label)
    return overlays


def line(row: dict) -> str:
    return (
        f'  block {row["block"]:<3} distance {row["distance_patches"]:6.2f} patches '
        f'({row["distance_px"]:6.1f} px)  entropy {row["entropy_nats"]:5.2f} nats'
    )


def write(path: Path, rows: tables.Rows, draw: Callable[[Path], None]) -> None:
    """Write ``path``.csv and .png; each is complete or as it was."""
    atomic_write_text(path.with_suffix('.csv'), csv_text(rows))
    with atomic_write(path.with_suffix('.png')) as partial_file:
        draw(partial_file)
