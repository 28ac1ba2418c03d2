"""Train the demo's detector with each kind of position and test it at larger sizes.

    OMP_NUM_THREADS=1 python docs/research/scaling_study/boxes.py --out FOLDER

Finished runs, OUT/NAME/boxes.json, are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from mmengine.config import Config
from plan import KINDS, POSITIONS

from rope_dense.demo import make_data, scaled_size, shapes_settings
from rope_dense.measure.evaluator import Evaluator
from rope_dense.measure.settings import Setting
from rope_dense.project.launch import launch_runner, run_training
from rope_dense.project.load import load_config, with_data_root
from rope_dense.project.run import Run
from rope_dense.utils.disk import atomic_write_text
from run import claim, set_unit

CONFIG = Path(__file__).parents[3] / 'configs' / 'demo' / 'deim_quick_shapes.py'
IMAGES = 50  # of the test at each size
FACTORS = (1, 1.5, 2, 3)
SCALINGS = {  # but for none, at larger sizes
    'axial': ('linear',),
    'mixed': ('linear',),
    'golden': (),
    'golden_index': ('linear',),
    'rope_id': ('linear',),
    'fire': (),
    'alibi': ('distances',),
    'lookhere': ('distances',),
    'pape': ('distances',),
    'axial_alibi': ('linear', 'linear+distances'),
    'ape': (),
    'none': (),
}
# A full turn of the lowest of eight frequencies along the 10 patches of a side.
THETA_ROPE_ID = 1.70


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--out', type=Path, required=True, help='folder of the results')
    parser.add_argument('--seeds', type=int, nargs='+', default=[0])
    parser.add_argument('--only', nargs='+', choices=SCALINGS, default=[*SCALINGS])
    parser.add_argument('--iterations', type=int, default=500, help='(%(default)s)')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    torch.set_num_threads(1)
    for seed in args.seeds:
        for position in args.only:
            name = f'{position}_seed{seed}'
            with claim(args.out / 'locks' / name) as claimed:
                if claimed and not (args.out / name / 'boxes.json').exists():
                    run(position, seed, args)


def run(position: str, seed: int, args: argparse.Namespace) -> None:
    """Train, test and store."""
    folder = args.out / f'{position}_seed{seed}'
    config = config_of(position, seed, folder, args.iterations)
    shapes = replace(shapes_settings(config), val=IMAGES)
    data = {factor: make_data(args.out, shapes, factor) for factor in FACTORS}
    configs = {factor: with_data_root(config, data[factor]) for factor in FACTORS}
    started = time.process_time()
    run_training(launch_runner(configs[1], 'none', trains=True))
    checkpoint = Run(folder).last
    assert checkpoint is not None, folder
    evaluator = Evaluator.from_checkpoint(configs[1], checkpoint)
    rows = []
    for scaling in ('none', *SCALINGS[position]):
        for factor in FACTORS:
            if factor == 1 and scaling != 'none':
                continue
            set_unit(evaluator.model, 'grid' if 'distances' in scaling else 'patch')
            size = '{}x{}'.format(*scaled_size(shapes, factor))
            rotary = 'linear' if 'linear' in scaling else 'none'
            metrics = evaluator.evaluate(Setting(size, rotary), configs[factor])[
                'metrics'
            ]
            row = dict(
                seed=seed, position=position, factor=float(factor), scaling=scaling
            )
            for metric in ('bbox_mAP', 'bbox_mAP_50'):
                row[metric] = round(100 * metrics[f'coco/{metric}'], 2)
            rows.append(row)
    content = dict(rows=rows, cpu_seconds=time.process_time() - started)
    atomic_write_text(folder / 'boxes.json', json.dumps(content) + '\n')
    print(
        position, seed, [(row['factor'], row['bbox_mAP']) for row in rows], flush=True
    )


def config_of(position: str, seed: int, folder: Path, iterations: int) -> Config:
    """The demo's config with a kind of position and two images an iteration."""
    config = load_config(str(CONFIG), work_dir=str(folder))
    backbone = config.model.backbone
    settings = (POSITIONS | KINDS)[position]
    if position == 'rope_id':
        settings = dict(rope=dict(settings['rope'], theta=THETA_ROPE_ID))
    if position == 'none':
        settings = dict(rope=None)
    for name, value in settings.items():
        backbone[name] = value  # ``update`` would merge the config of the embedding
    config.train_dataloader.batch_size = 2
    config.train_cfg.update(max_iters=iterations, val_interval=10 * iterations)
    config.param_scheduler[0].end = max(1, iterations // 10)
    config.param_scheduler[1].T_max = iterations
    config.default_hooks.checkpoint.interval = iterations
    config.default_hooks.logger.interval = 50
    config.randomness = dict(seed=seed)
    config.experiment_name = config.visualizer.name = folder.name
    return config


if __name__ == '__main__':
    main()
