"""How far maps of DINOv3-S with random weights show positions, as ``rope-dense position-bias``.

    python benchmarks/position_bias.py    # 256 x 256 pixels, three seeds: docs/positions.md

Matrices are N(0, 0.08^2) and LayerScale is 1, so that blocks, and with them positions, matter.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from measure import Row, environment, write_csv
from rope_dense.backbones.archs.foundation import DINOV3_ROPE
from rope_dense.backbones.vit import RoPEViT
from rope_dense.measure.position_bias import biases

RESULTS = Path(__file__).with_name('results') / 'position_bias.csv'
NO_PREFIX = dict(with_cls_token=False, num_registers=0)
FORMS: dict[str, dict] = {
    'DINOv3-S': dict(rope=DINOV3_ROPE),
    'without prefix tokens': dict(rope=DINOV3_ROPE, **NO_PREFIX),
    'absolute positions, neither RoPE nor prefix': dict(
        rope=None, use_ape=True, **NO_PREFIX
    ),
    'RelativePrefix': dict(rope=DINOV3_ROPE, attention=dict(type='RelativePrefix')),
}
SEEDS = (0, 1, 2)


def random_vit(seed: int, options: dict) -> RoPEViT:
    torch.manual_seed(seed)
    model = RoPEViT('dinov3_small', layer_scale_init_value=1.0, **options)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.08)
    return model


def main() -> None:
    rows: list[Row] = []
    for form, options in FORMS.items():
        found = [
            biases(random_vit(seed, options), (256, 256))[0]['bias'] for seed in SEEDS
        ]
        print(f'{form}: {min(found):.2g} to {max(found):.2g}', flush=True)
        rows += [
            dict(form=form, seed=seed, bias=bias) | environment(torch.device('cpu'))
            for seed, bias in zip(SEEDS, found, strict=True)
        ]
    write_csv(RESULTS, rows)


if __name__ == '__main__':
    main()
