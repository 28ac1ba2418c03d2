"""Train the demo's detector on bilinear and on fine features of its own ViT.

    OMP_NUM_THREADS=1 python docs/research/fine_features/boxes.py --out FOLDER

The neck trains with the detector. Results go to boxes.csv beside this file.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.config import Config

from rope_dense.demo import METRICS, make_data, shapes_settings
from rope_dense.measure.evaluator import Evaluator
from rope_dense.measure.settings import Setting
from rope_dense.project.launch import launch_runner, run_training
from rope_dense.project.load import load_config, with_data_root
from rope_dense.project.run import Run

CONFIG = Path(__file__).parents[3] / 'configs' / 'demo' / 'deim_quick_shapes.py'
RESULTS = Path(__file__).with_name('boxes.csv')
METHODS = ('bilinear', 'attention')
COLUMNS = ('seed', 'method', *METRICS, 'cpu_seconds')
ITERATIONS, BATCH = 500, 2


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--out', type=Path, required=True, help='folder of data and weights'
    )
    parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    for seed in args.seeds:
        for method in METHODS:
            row = run(method, seed, args.out)
            begun = RESULTS.exists()
            with open(RESULTS, 'a', newline='', encoding='utf-8') as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator='\n')
                if not begun:
                    writer.writeheader()
                writer.writerow(row)


def run(method: str, seed: int, out: Path) -> dict[str, object]:
    """Train and test; a row of the results, metrics in percent."""
    config = config_of(method, seed, out / f'{method}_seed{seed}')
    config = with_data_root(config, make_data(out, shapes_settings(config), 1))
    started = time.process_time()
    run_training(launch_runner(config, 'none', trains=True))
    seconds = time.process_time() - started
    checkpoint = Run(Path(config.work_dir)).last
    assert checkpoint is not None, config.work_dir
    metrics = Evaluator.from_checkpoint(config, checkpoint).evaluate(Setting('160'))[
        'metrics'
    ]
    scores = {
        name: round(100 * (metrics[key] or 0), 1) for name, key in METRICS.items()
    }
    return dict(seed=seed, method=method, **scores, cpu_seconds=round(seconds))


def config_of(method: str, seed: int, work_dir: Path) -> Config:
    """The demo's config on stride 8, which the neck makes of stride 16."""
    config = load_config(str(CONFIG), work_dir=str(work_dir))
    config.model.backbone.type = 'RoPEViTWithImage'
    config.model.backbone.out_indices = (5,)
    pyramid = dict(
        type='PlainViTFPN',
        in_channels=192,
        out_channels=128,
        scale_factors=(1, 0.5),
        num_outs=3,
    )
    config.model.neck = [
        dict(type='FineFeatures', scale_factor=2, method=method),
        pyramid,
    ]
    config.train_dataloader.batch_size = BATCH
    config.train_cfg.update(max_iters=ITERATIONS, val_interval=10 * ITERATIONS)
    config.param_scheduler[0].end, config.param_scheduler[1].T_max = (
        ITERATIONS // 10,
        ITERATIONS,
    )
    config.default_hooks.checkpoint.interval = ITERATIONS
    config.randomness = dict(seed=seed)
    config.experiment_name = config.visualizer.name = work_dir.name
    return config


if __name__ == '__main__':
    main()
