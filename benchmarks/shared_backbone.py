"""Measure the heads of several tasks on one backbone, beside as many models on their own.

    python benchmarks/shared_backbone.py                  # DINOv3 ViT-S, 640 x 640, four heads
    python benchmarks/shared_backbone.py --size 320x320 --rounds 1

The heads are those of four recipes, with random weights. A head counts without the backbone.
Launches are counted as by launches.py, seconds are CPU time (the median of the rounds), and
megabytes are the peak of the tensors that a call makes, without weights. Results are taken before
pictures are resized to the original image.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from mmengine.registry import DefaultScope

from launches import LaunchCounter
from measure import environment, write_csv
from rope_dense.measure.speed import count_operations, profiled
from rope_dense.models.shared_backbone import SharedBackbone

CONFIGS = Path(__file__).parents[1] / 'configs'
LINEAR = "arch='dinov3_small'), decode_head=dict(in_channels=384"
TASKS = {  # a recipe, and what it changes of the model
    'boxes': ('deim/deimv2-l_dinov3-s_4xb8-251k_coco', "frozen_stages='all'"),
    'masks': ('pmt/pmt_dinov3-s_8xb2-89k_coco-panoptic-640x640', "frozen_stages='all'"),
    'classes': ('foundation/linear_dinov3-b_8xb2-40k_ade20k-512x512', LINEAR),
    'depth': ('depth/linear_dinov3-b_8xb2-38k_nyu-416x544', LINEAR),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--size', default='640x640', help='HEIGHTxWIDTH (%(default)s)')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--csv', type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    image = torch.randn(1, 3, *map(int, args.size.split('x')))
    with DefaultScope.overwrite_default_scope('mmdet'), torch.no_grad():
        rows = measure(build(), image, args.rounds)
    for row in rows:
        print('  '.join(f'{row[name]:>12}' for name in row))
    if args.csv:
        write_csv(args.csv, [environment() | row for row in rows])


def build() -> SharedBackbone:
    """The four heads with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = {}
        for name, (recipe, changes) in TASKS.items():
            path = Path(folder) / f'{name}.py'
            parent = CONFIGS / f'{recipe}.py'
            path.write_text(
                f"_base_ = '{parent}'\nmodel = dict(backbone=dict({changes}))\n"
            )
            tasks[name] = dict(config=str(path))
        return SharedBackbone(tasks)


def measure(model: SharedBackbone, image: torch.Tensor, rounds: int) -> list[dict]:
    """A row for the backbone, each head, all in one pass, and the models on their own."""

    def encode() -> None:
        model.backbone.block_tokens(image, model.indices)

    rows = [row('backbone', model.backbone, encode, rounds)]
    with model.encoded(image):
        for name, task in model.tasks.items():
            rows.append(row(name, task, lambda task=task: task(image), rounds))
            own = sum(p.numel() for p in task.backbone.parameters()) / 1e6
            rows[-1]['parameters_m'] = round(rows[-1]['parameters_m'] - own, 2)
    rows.append(row('one pass', model, lambda: model(image), rounds))
    for name, task in model.tasks.items():
        rows.append(row(f'{name}, alone', task, lambda task=task: task(image), rounds))
    return rows


def row(
    name: str, model: torch.nn.Module, run: Callable[[], object], rounds: int
) -> dict:
    """What a call of a model takes."""
    run()
    with LaunchCounter() as launches:
        run()
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    return dict(
        name=name,
        parameters_m=round(sum(p.numel() for p in model.parameters()) / 1e6, 2),
        multiply_adds_g=round(count_operations(run) / 2e9, 2),
        launches=launches.total,
        cpu_s=round(sorted(seconds)[rounds // 2], 2),
        tensors_mb=round(profiled(run, on_gpu=False)[1] / 2**20),
    )


if __name__ == '__main__':
    main()
