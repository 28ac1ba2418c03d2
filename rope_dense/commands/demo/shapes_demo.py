"""The steps of the demo."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.runner import Runner, find_latest_checkpoint

from ...datasets import ShapesSettings, write_shapes
from ...utils.atomic_write import atomic_write_text
from ..config import read_options
from ..errors import UsageError
from ..options import with_data_root
from ..sweep.evaluator import Evaluator
from ..sweep.settings import Setting
from .detections import draw_detections
from .training_curve import draw_training_curve

SCALES = (1, 1.5, 2)
PICTURES = 12
MINUTES = 'about 7 minutes'
METRICS = {
    'AP': 'coco/bbox_mAP',
    'AP50': 'coco/bbox_mAP_50',
    'AP75': 'coco/bbox_mAP_75',
    'small': 'coco/bbox_mAP_s',
    'medium': 'coco/bbox_mAP_m',
    'large': 'coco/bbox_mAP_l',
}


def run(args: argparse.Namespace) -> None:
    """Run the demo with the arguments of its command."""
    config, shapes = load_config(args)
    results_file = args.work_dir / 'results.json'
    results_file.unlink(missing_ok=True)
    announce(args, config, shapes)

    data = {scale: make_data(args.work_dir, shapes, scale) for scale in SCALES}
    training_dir = args.work_dir / 'training'
    training_seconds = None
    if not args.evaluate_only:
        training_seconds = train(with_data_root(config, data[1]), training_dir)
    checkpoint = last_checkpoint(training_dir)

    config.work_dir = str(args.work_dir / 'evaluation')
    evaluator = Evaluator.from_checkpoint(with_data_root(config, data[1]), checkpoint)
    rows = [
        evaluate(evaluator, with_data_root(config, data[scale]), shapes, scale) for scale in SCALES
    ]
    pictures = args.work_dir / 'pictures'
    draw_detections(with_data_root(config, data[1]), checkpoint, pictures, count=PICTURES)
    curve = args.work_dir / 'training_curve.png'
    draw_training_curve(training_dir, curve, metric=METRICS['AP50'], goal=args.goal)

    reached = rows[0]['AP50'] >= args.goal
    results = dict(
        training_seconds=training_seconds, resolutions=rows, goal_AP50=args.goal, reached=reached
    )
    results = {**settings_of(args, config), **results}
    atomic_write_text(results_file, json.dumps(results, indent=2) + '\n')
    print(f'\n{table(rows)}\n\nPictures, curve and figures: {args.work_dir}')
    verdict = f'AP50 {rows[0]["AP50"]:.3f} at the training resolution, goal {args.goal:.2f}'
    if not reached:
        raise SystemExit(f'Goal missed: {verdict}')
    print(f'Goal reached: {verdict}')


def load_config(args: argparse.Namespace) -> tuple[Config, ShapesSettings]:
    """Read the config; its `shapes` entry holds the arguments of ShapesSettings."""
    config = Config.fromfile(args.config)
    config.merge_from_dict(read_options(args.cfg_options))
    if 'shapes' not in config:
        raise UsageError(
            f'{args.config}: no `shapes` entry, '
            'add one such as shapes = dict(train=400, val=100, size=(160, 160))'
        )
    entry = {**config.shapes, 'size': tuple(config.shapes.size), 'layouts': ('coco',)}
    try:
        return config, ShapesSettings(**entry)
    except (TypeError, ValueError) as error:
        raise UsageError(f'{args.config}: `shapes`: {error}') from error


def announce(args: argparse.Namespace, config: Config, shapes: ShapesSettings) -> None:
    sizes = ', '.join('{} x {}'.format(*scaled_size(shapes, scale)) for scale in SCALES)
    training = (
        'skips the training and takes the last checkpoint'
        if args.evaluate_only
        else f'trains for {config.train_cfg.max_iters} iterations of '
        f'{config.train_dataloader.batch_size} images: {MINUTES} on two CPU cores; '
        'the log says how long is left (eta)'
    )
    print(
        f"""
{args.config.stem}, on {get_device()}
  1. draws {shapes.train} training and {shapes.val} validation images of shapes (seconds)
  2. {training}
  3. tests the weights at {sizes} (a minute or two)
  4. draws pictures and the training curve, and writes results.json
Everything goes to {args.work_dir}. The goal is a box AP50 of {args.goal:.2f}.
""",
        flush=True,
    )


def scaled_size(shapes: ShapesSettings, scale: float) -> tuple[int, int]:
    height, width = shapes.size
    return round(height * scale), round(width * scale)


def make_data(work_dir: Path, shapes: ShapesSettings, scale: float) -> Path:
    """Generate the images of one resolution if they are not there; return their COCO folder."""
    if scale == 1:
        folder = work_dir / 'data'
    else:
        folder = work_dir / f'data_{scale:g}x'
        shapes = replace(shapes, train=0, size=scaled_size(shapes, scale))
    try:
        write_shapes(folder, shapes)
    except FileExistsError as error:
        raise UsageError(str(error)) from error
    return folder / 'coco'


def train(config: Config, work_dir: Path) -> int:
    """Train from scratch; return the seconds it took, validation included."""
    config.work_dir = str(work_dir)
    started = time.monotonic()
    Runner.from_cfg(config).train()
    return round(time.monotonic() - started)


def last_checkpoint(training_dir: Path) -> str:
    checkpoint = find_latest_checkpoint(str(training_dir)) if training_dir.exists() else None
    if checkpoint is None:
        raise UsageError(f'{training_dir}: no checkpoint, run without --evaluate-only first')
    return checkpoint


def evaluate(
    evaluator: Evaluator, config: Config, shapes: ShapesSettings, scale: float
) -> dict[str, float | None]:
    """One row of the table; None where COCO defines no AP (no object of that size class)."""
    row = evaluator.evaluate(Setting('{}x{}'.format(*scaled_size(shapes, scale))), config)
    return dict(
        scale=scale,
        height=row['height'],
        width=row['width'],
        **{name: row['metrics'][key] for name, key in METRICS.items()},
        seconds_per_image=row['seconds_per_image'],
    )


def settings_of(args: argparse.Namespace, config: Config) -> dict[str, object]:
    """The settings that figures depend on, for results.json."""
    return dict(
        config=str(args.config),
        cfg_options=args.cfg_options,
        torch=torch.__version__,
        device=get_device(),
        threads=torch.get_num_threads(),
        iterations=config.train_cfg.max_iters,
        batch_size=config.train_dataloader.batch_size,
    )


def table(rows: list[dict[str, float | None]]) -> str:
    lines = ['resolution   ' + ''.join(f'{name:>8}' for name in METRICS) + '   s/image']
    for row in rows:
        figures = ''.join(
            '       -' if row[name] is None else f'{row[name]:8.3f}' for name in METRICS
        )
        size = f'{row["height"]} x {row["width"]}'
        lines.append(f'{size:<13}{figures}{row["seconds_per_image"]:10.3f}')
    return '\n'.join(lines)
