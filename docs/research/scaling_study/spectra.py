"""Frequencies of mixed before and after training, from the weights in OUT: spectra.csv.

python docs/research/scaling_study/spectra.py OUT
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import torch
from mmengine.registry import MODELS
from plan import FACTORS, Run
from scores import HERE

from run import config_of

SPECTRUM = (
    'way',
    'block',
    'median before',
    'slow before',
    'median after',
    'slow after',
)
HALF_TURN = math.pi / 16  # radians a patch, along the 16 columns of the training grid


def main(out: Path) -> None:
    """Frequencies of mixed before and after training, by block, of each way that was trained."""
    rows = []
    for run in (Run(0, way, 'vit', 'mixed') for way in FACTORS):
        path = out / 'weights' / f'{run.name}.pth'
        if not path.exists():
            continue
        with MODELS.switch_scope_and_registry('mmseg') as models:
            model = models.build(config_of(run, Path()).model)
        model.init_weights()  # the lengths of frequencies do not depend on the seed
        states = dict(before=model.state_dict(), after=torch.load(path))
        for block in range(len(model.backbone.ordered_blocks)):
            row = dict(way=run.way, block=str(block))
            for name, state in states.items():
                lengths = state[f'backbone.blocks.{block}.attn.rope.freqs'].norm(dim=0)
                slow = (lengths < HALF_TURN).float().mean()
                row[f'median {name}'] = f'{lengths.median():.4f}'
                row[f'slow {name}'] = f'{100 * slow:.1f}'
            rows.append(row)
    with open(HERE / 'spectra.csv', 'w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, SPECTRUM, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)


if __name__ == '__main__':
    main(Path(sys.argv[1]))
