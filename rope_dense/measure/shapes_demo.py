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
from mmengine.runner import find_latest_checkpoint

from ..datasets.generated import ShapesSettings, write_shapes
from ..project.building import building
from ..project.errors import UsageError
from ..project.launch import build_runner, run_training
from ..project.load import read_options, with_data_root
from ..utils.atomic_write import atomic_write_text
from .demo_curve import draw_training_curve
from .demo_detections import draw_detections
from .evaluator import Evaluator
from .results import table_header, table_line
from .settings import Setting

SCALES = (1, 1.5, 2)
PICTURES = 12
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

    folders = {scale: make_data(args.work_dir, shapes, scale) for scale in SCALES}
    configs = {scale: with_data_root(config, folder) for scale, folder in folders.items()}
    training_dir, seconds = args.work_dir / 'training', None
    if not args.evaluate_only:
        seconds = train(configs[1], training_dir)
    checkpoint = last_checkpoint(training_dir)

    for test in configs.values():
        test.work_dir = str(args.work_dir / 'evaluation')
    rows = evaluate(configs, checkpoint, shapes)
    draw_detections(configs[1], checkpoint, args.work_dir / 'pictures', count=PICTURES)
    curve = args.work_dir / 'training_curve.png'
    draw_training_curve(training_dir, curve, metric=METRICS['AP50'], goal=args.goal)

    results = dict(
        **settings_of(args, config),
        training_seconds=seconds,
        resolutions=rows,
        goal_AP50=args.goal,
        reached=rows[0]['AP50'] >= args.goal,
    )
    atomic_write_text(results_file, json.dumps(results, indent=2) + '\n')
    print(f'\nPictures, curve and figures: {args.work_dir}')
    verdict = f'AP50 {rows[0]["AP50"]:.3f} at the training resolution, goal {args.goal:.2f}'
    if not results['reached']:
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
    with building(f'{args.config}: shapes'):
        return config, ShapesSettings(**entry)


def announce(args: argparse.Namespace, config: Config, shapes: ShapesSettings) -> None:
    sizes = ', '.join('{} x {}'.format(*scaled_size(shapes, scale)) for scale in SCALES)
    training = (
        'skips the training and takes the last checkpoint'
        if args.evaluate_only
        else f'trains for {config.train_cfg.max_iters} iterations of '
        f'{config.train_dataloader.batch_size} images (three minutes on two CPU cores by default); '
        'the log says how long is left (eta)'
    )
    print(
        f"""
{args.config.stem}, on {get_device()}
  1. draws {shapes.train} training and {shapes.val} validation images of shapes (seconds)
  2. {training}
  3. tests the weights at {sizes} (half a minute)
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
    write_shapes(folder, shapes)
    return folder / 'coco'


def train(config: Config, work_dir: Path) -> int:
    """Train from scratch; return the seconds it took, validation included."""
    config.work_dir = str(work_dir)
    started = time.monotonic()
    run_training(build_runner(config, 'none'))
    return round(time.monotonic() - started)


def last_checkpoint(training_dir: Path) -> str:
    checkpoint = find_latest_checkpoint(str(training_dir)) if training_dir.exists() else None
    if checkpoint is None:
        raise UsageError(f'{training_dir}: no checkpoint, run without --evaluate-only first')
    return checkpoint


def evaluate(configs: dict[float, Config], checkpoint: str, shapes: ShapesSettings) -> list[dict]:
    """Test at each scale; a metric is None where COCO defines no AP (no object of that size)."""
    evaluator = Evaluator.from_checkpoint(configs[1], checkpoint)
    rows: list[dict] = []
    for scale, config in configs.items():
        row = evaluator.evaluate(Setting('{}x{}'.format(*scaled_size(shapes, scale))), config)
        print(table_line(row) if rows else f'{table_header(row)}\n{table_line(row)}', flush=True)
        sizes = dict(scale=scale, height=row['height'], width=row['width'])
        metrics = {name: row['metrics'][key] for name, key in METRICS.items()}
        rows.append(dict(**sizes, **metrics, seconds_per_image=row['seconds_per_image']))
    return rows


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
