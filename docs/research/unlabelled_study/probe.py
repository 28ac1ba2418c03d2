"""A linear head on frozen maps of the backbones of the study (``run.py``): mIoU of patches.

    python docs/research/unlabelled_study/probe.py --camvid DIR --out work_dirs/few

Writes probe.csv. Seeds choose the labelled frames, of `random` also the values.
"""

from __future__ import annotations

import argparse
import csv
import runpy
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor

import rope_dense  # noqa: F401

HERE = Path(__file__).parent
RUN = runpy.run_path(str(HERE / 'run.py'))
HEADS = runpy.run_path(str(HERE.parent / 'positional_debias' / 'run.py'))
IMAGE = 192, 256  # pixels: 12 x 16 patches


def maps(weights: str | None, arch: str, images: Tensor) -> Tensor:
    """Features [B, n, C] of images that are normalised as ImageNet's, which LingBot's are, too."""
    source = weights and dict(type='Pretrained', checkpoint=weights)
    settings = dict(type='RoPEViT', arch=arch, img_size=RUN['SIZE'], init_cfg=source)
    if weights is None:
        settings |= dict(layer_scale_init_value=1.0)
    model = MODELS.build(settings)
    model.init_weights()
    if arch == 'pe_spatial_tiny':
        images = (images * HEADS['STD'] + HEADS['MEAN'] - 127.5) / 127.5
    with torch.no_grad():
        outs = [
            model.eval()(F.interpolate(x, IMAGE, mode='bilinear'))[-1]
            for x in images.split(32)
        ]
    return torch.cat(outs).flatten(2).transpose(1, 2)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--camvid', type=Path, required=True, help='images/ and annotations/'
    )
    parser.add_argument('--out', type=Path, required=True, help='of run.py')
    args = parser.parse_args(argv)
    splits = [
        HEADS['camvid'](args.camvid, split) for split in ('training', 'validation')
    ]
    last, adapted = RUN['last'], 'backbone.safetensors'
    arms = dict(
        random=None, base=last(args.out / 'base'), teacher=last(args.out / 'teacher')
    )
    arms |= {name: str(args.out / name / adapted) for name in ('adapted', 'distilled')}
    rows = []
    for arm, weights in arms.items():
        arch = 'lingbot_small' if arm == 'teacher' else 'pe_spatial_tiny'
        for seed in RUN['SEEDS']:
            torch.manual_seed(seed)
            train, val = (maps(weights, arch, split.images) for split in splits)
            for percent, chosen in (
                (10, slice(3 * seed, None, 10)),
                (100, slice(None)),
            ):
                pairs = (
                    (train[chosen], splits[0].labels[chosen]),
                    (val, splits[1].labels),
                )
                rows.append(
                    (arm, percent, seed, f'{HEADS["head_score"](*pairs, 11):.2f}')
                )
                print(*rows[-1], flush=True)
    with (HERE / 'probe.csv').open('w', newline='') as stream:
        csv.writer(stream).writerows([('arm', 'labels', 'seed', 'mIoU'), *rows])


if __name__ == '__main__':
    main()
