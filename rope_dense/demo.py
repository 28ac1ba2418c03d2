"""The demo: train on generated shapes, test at three sizes, report."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device

from .data.generated import ShapesSettings, write_shapes
from .measure.evaluator import Evaluator
from .measure.results import Results, json_text, print_row
from .measure.settings import Setting
from .project.building import building
from .project.identity import Identity
from .project.launch import launch_runner, run_training
from .project.load import Options, load_config, with_data_root
from .project.run import Run
from .report.write import write_report
from .utils.errors import UsageError
from .utils.results import Results as WrittenResults

SCALES = (1, 1.5, 2)
METRICS = {
    'AP': 'coco/bbox_mAP',
    'AP50': 'coco/bbox_mAP_50',
    'AP75': 'coco/bbox_mAP_75',
    'small': 'coco/bbox_mAP_s',
    'medium': 'coco/bbox_mAP_m',
    'large': 'coco/bbox_mAP_l',
}


def demo(
    config: str | Path,
    work_dir: str | Path,
    *,
    goal: float = 0.5,
    evaluate_only: bool = False,
    cfg_options: Options = (),
) -> dict[str, Any]:
    """Run the demo; its files are in the docstring of the command.

    Args:
        config: of a detector, with a `shapes` entry: the arguments of ``ShapesSettings``.
        goal: AP50 to reach at the training resolution, 0 to 1.
        evaluate_only: take the last checkpoint of the work folder in place of a training.
        cfg_options: see ``load_config``.

    Returns:
        The content of results.json.

    Raises:
        UsageError: there are no such shapes, or no checkpoint to evaluate.
    """
    folder = Path(work_dir)
    training = Path(work_dir, 'training')
    options = cfg_options if isinstance(cfg_options, Mapping) else list(cfg_options)
    cfg = load_config(str(config), options, str(training))
    shapes = shapes_settings(cfg)
    run = Run(training)
    written = WrittenResults(folder, 'demo')
    written.check([folder / 'results.json'])
    if not evaluate_only:
        run.check_new(cfg, overwrite=True)
    written.remove(folder / 'results.json')
    announce(cfg, shapes, folder, goal)
    configs = {}
    for scale in SCALES:
        configs[scale] = with_data_root(cfg, make_data(folder, shapes, scale))
    seconds = None
    started = time.monotonic()
    if not evaluate_only:
        with run.written():
            run_training(launch_runner(configs[1], 'none', trains=True))
        seconds = round(time.monotonic() - started)
    checkpoint = run.last
    if checkpoint is None:
        raise UsageError(
            f'{training}: no checkpoint, run without --evaluate-only first'
        )
    rows = evaluate_scales(configs, checkpoint, shapes, folder / 'evaluation')
    page = write_report(configs[1], checkpoint, folder / 'report', get_device())
    results = dict(
        config=str(cfg.filename),
        cfg_options=options,
        torch=torch.__version__,
        device=get_device(),
        threads=torch.get_num_threads(),
        iterations=cfg.train_cfg.max_iters,
        batch_size=cfg.train_dataloader.batch_size,
        training_seconds=seconds,
        resolutions=rows,
        goal_AP50=goal,
        reached=rows[0]['AP50'] >= goal,
    )
    written.write_text(folder / 'results.json', json_text(results))
    print(f'\nReport: {page}')
    return results


def shapes_settings(cfg: Config) -> ShapesSettings:
    """The settings of `shapes` of a config; UsageError if there is none, or a wrong setting."""
    if 'shapes' not in cfg:
        raise UsageError(
            f'{cfg.filename}: no `shapes` entry, '
            'add one such as shapes = dict(train=400, val=100, size=(160, 160))'
        )
    entry = {**cfg.shapes, 'size': tuple(cfg.shapes.size), 'layouts': ('coco',)}
    with building(f'{cfg.filename}: shapes'):
        return ShapesSettings(**entry)


def announce(cfg: Config, shapes: ShapesSettings, work_dir: Path, goal: float) -> None:
    """Print the steps and how long they take."""
    sizes = ', '.join('{} x {}'.format(*scaled_size(shapes, scale)) for scale in SCALES)
    iterations = cfg.train_cfg.max_iters
    images = cfg.train_dataloader.batch_size
    text = f"""
{Path(cfg.filename).stem}, on {get_device()}
  1. draws {shapes.train} training and {shapes.val} validation images of shapes (seconds)
  2. trains for {iterations} iterations of {images} images, unless --evaluate-only is given (three
     minutes on two CPU cores by default)
  3. tests the weights at {sizes} (half a minute)
  4. writes the report with its pictures, and results.json
Everything goes to {work_dir}. The goal is a box AP50 of {goal:.2f}.
"""
    print(text, flush=True)


def scaled_size(shapes: ShapesSettings, scale: float) -> tuple[int, int]:
    """Height and width of the images at a scale."""
    height, width = shapes.size
    return round(height * scale), round(width * scale)


def make_data(work_dir: Path, shapes: ShapesSettings, scale: float) -> Path:
    """Generate the images of one resolution if they are not there; returns their COCO folder."""
    if scale == 1:
        folder = work_dir / 'data'
    else:
        folder = work_dir / f'data_{scale:g}x'
        shapes = replace(shapes, train=0, size=scaled_size(shapes, scale))
    write_shapes(folder, shapes)
    return folder / 'coco'


def evaluate_scales(
    configs: dict[float, Config],
    checkpoint: str,
    shapes: ShapesSettings,
    work_dir: Path,
) -> list[dict]:
    """Test at each scale; a metric is None where COCO defines no AP (no object of that size).

    The results are also in resolutions.json of the training, which the report draws.
    """
    identity = Identity.of(configs[1], str(configs[1].filename), checkpoint)
    path = Path(configs[1].work_dir, 'resolutions.json')
    stored = Results(path, identity, Path(configs[1].filename).stem, shapes.size)
    evaluator = Evaluator.from_checkpoint(configs[1], checkpoint, work_dir=work_dir)
    rows: list[dict] = []
    for scale, config in configs.items():
        height, width = scaled_size(shapes, scale)
        row = evaluator.evaluate(Setting(f'{height}x{width}'), config)
        print_row(row, stored.rows[-1] if stored.rows else None)
        stored.add(row)
        sizes = dict(scale=scale, height=row['height'], width=row['width'])
        metrics = {name: row['metrics'][key] for name, key in METRICS.items()}
        seconds = row['seconds_per_image']
        about = dict(seconds_per_image=seconds, source=row['source'])
        rows.append(dict(**sizes, **metrics, **about))
    return rows
