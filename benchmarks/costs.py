"""Count what forms of a model cost: tables of the pages, as csv files in results/.

    PYTHONPATH=tests python benchmarks/costs.py windows    # docs/architecture.md: window_prefix
    PYTHONPATH=tests python benchmarks/costs.py positions  # docs/positions.md
    PYTHONPATH=tests python benchmarks/costs.py training   # docs/training.md: frozen, LoRA, with_cp
    PYTHONPATH=tests python benchmarks/costs.py heads      # docs/eomt.md: EoMT and other heads

Launches are counted as by launches.py, tensors saved for backward as in the tests of memory,
without parameters. Weights and images are random. ``windows`` is without DINOv3's augmentation of
coordinates. ``heads`` takes the random annotations of ``rope-dense benchmark``: two classes an
image. Seconds are of one prediction after another, on the threads of OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import BaseModel

from helpers.saved_tensors import saved, size_of
from launches import LaunchCounter, count_passes, models
from measure import Row, environment, write_csv
from rope_dense.backbones.archs.foundation import DINOV3_ROPE
from rope_dense.backbones.vit import RoPEViT
from rope_dense.measure.speed import count_operations, noise
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model

CONFIGS = Path(__file__).parents[1] / 'configs'
RESULTS = Path(__file__).with_name('results')
WINDOWS = dict(window_size=16, window_block_indexes=(0, 1, 3, 4, 6, 7, 9, 10))
PREFIXES = {
    'all blocks global': {},
    'windows without prefix tokens': dict(
        WINDOWS, with_cls_token=False, num_registers=0
    ),
    "windows, 'copy'": WINDOWS,
    "windows, 'global'": dict(WINDOWS, window_prefix='global'),
}
POSITIONS = (
    'rope-vit/none',
    'rope-vit/axial',
    'rope-vit/mixed',
    'positions/axial-relative',
    'positions/mixed-relative',
    'positions/TableBias',
)
TRAINED = {
    "frozen_stages='all'": dict(frozen_stages='all'),
    'frozen_stages=6': dict(frozen_stages=6),
    'lora=dict(rank=8)': dict(lora=dict(rank=8)),
    'trained': {},
    'trained, with_cp=True': dict(with_cp=True),
}
UPERNET = 'foundation/upernet_dinov3-b_8xb2-160k_ade20k-512x512'
EOMT = 'eomt/eomt_dinov3-b_8xb2-20k_ade20k-512x512'
ROUNDS = 3


def windows(side: int = 800) -> Iterable[Row]:
    """DINOv3-S, one square image."""
    image = torch.randn(1, 3, side, side)
    for name, options in PREFIXES.items():
        model = RoPEViT('dinov3_small', rope=DINOV3_ROPE, **options)
        forward, backward, _ = count_passes(model, image)
        megabytes = size_of(saved(model, image)) / 2**20
        with torch.no_grad():
            operations = count_operations(lambda model=model: model(image))
        row = dict(form=name, gflop=operations / 1e9, saved_mib=megabytes)
        yield row | dict(forward=forward.total, backward=backward.total)


def positions() -> Iterable[Row]:
    """ViT-B with a class token: one image of 352 tokens, and one of 1024."""
    sizes = (256, 352), (512, 512)
    for name in POSITIONS:
        model = models(sizes[0])[name]().train()
        row: Row = dict(
            form=name, parameters=sum(p.numel() for p in model.parameters())
        )
        for height, width in sizes:
            tensors = saved(model, torch.randn(1, 3, height, width))
            row[f'saved_mib_{height}x{width}'] = size_of(tensors) / 2**20
        yield row


def training() -> Iterable[Row]:
    """DINOv3-B, one image of 512 x 512 pixels; AdamW has two numbers for each gradient."""
    image = torch.randn(1, 3, 512, 512)
    for name, options in TRAINED.items():
        model = RoPEViT('dinov3_base', **options).train()
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        tensors = saved(model, image) if trained else {}  # no graph: a test of memory
        row = dict(
            backbone=name, tensors=len(tensors), saved_mib=size_of(tensors) / 2**20
        )
        yield row | dict(
            trained=trained, gradients_and_state_mib=3 * 4 * trained / 2**20
        )


def heads() -> Iterable[Row]:
    """Segmentors of ADE20K on DINOv3-B, images of 512 x 512 pixels, two in training."""
    for name, config in dict(
        EoMT=eomt(), UperNet=upernet(), Mask2Former=mask2former()
    ).items():
        yield dict(head=name) | of_segmentor(random_model(config))


def of_segmentor(model: BaseModel) -> Row:
    """Millions of parameters, billions of multiply-adds, CPU seconds, launches."""
    images, samples = noise(model, 'mmseg', 2, 512, 512)

    def predict() -> None:
        model(images[:1], copy.deepcopy(samples[:1]), mode='predict')

    model.eval()
    row: Row = dict(parameters=sum(p.numel() for p in model.parameters()) / 1e6)
    with torch.no_grad():
        row |= dict(
            multiply_adds=count_operations(predict) / 2e9, seconds=seconds_of(predict)
        )
        with LaunchCounter() as prediction:
            predict()
    model.train()
    with LaunchCounter() as forward:
        loss = model.parse_losses(model(images, copy.deepcopy(samples), mode='loss'))[0]
    with LaunchCounter() as backward:
        loss.backward()
    return row | dict(
        prediction=prediction.total, forward=forward.total, backward=backward.total
    )


def eomt() -> Config:
    return load_config(str(CONFIGS / f'{EOMT}.py'))


def upernet() -> Config:
    return load_config(str(CONFIGS / f'{UPERNET}.py'))


def mask2former() -> Config:
    """Mask2Former on the pyramid of the UperNet."""
    config = upernet()
    head = Config.fromfile(CONFIGS / '_base_/models/mask2former.py').model
    channels = config.model.decode_head.in_channels
    config.model.decode_head = dict(head.decode_head, in_channels=channels)
    config.model.auxiliary_head = None
    config.model.train_cfg = head.get('train_cfg')
    return config


def seconds_of(run: Callable[[], object]) -> float:
    """Median CPU seconds of a call."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return sorted(times)[ROUNDS // 2]


def main() -> None:
    tables = dict(windows=windows, positions=positions, training=training, heads=heads)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('table', choices=tables)
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for row in tables[args.table]():
        print(row, flush=True)
        rows.append(row | environment(torch.device('cpu')))
    write_csv(RESULTS / f'costs-{args.table}.csv', rows)


if __name__ == '__main__':
    main()
