"""Tables of the study of prefix tokens, prefix.md.

    python docs/research/scaling_study/summarize_prefix.py [OUT]

gathers the results of OUT, a folder of ``run.py --study prefix``, into prefix.csv, and measures the
spread of a constant image of its weights, and of untrained models, into prefix_spreads.csv. From
these, and from results.csv of the study of scalings, it writes the part of prefix.md between its
two markers.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

import prefix_predictions
import torch
import verdicts
from mmengine.registry import MODELS
from plan import PREFIXES, SEEDS, SIZE, Run
from scores import HERE, Row, Scores, Values, cpu_hours, gather, read, write
from summarize import MARKERS, cell, header, line
from torch import nn

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.base import Backbone
from rope_dense.measure.position_bias import biases
from rope_dense.utils.disk import atomic_write_text
from run import SCALINGS, config_of, weights_path

PAGE, RESULTS, SPREADS = (
    HERE / name for name in ('prefix.md', 'prefix.csv', 'prefix_spreads.csv')
)
NAMES = {
    'axial': 'axial, none',
    'axial_class': 'axial, class token',
    'axial_registers': 'axial, class token and 4 registers',
    'axial_relative': 'axial, the same, relative',
    'mixed': 'mixed, none',
    'mixed_class': 'mixed, class token',
    'mixed_registers': 'mixed, class token and 4 registers',
    'mixed_relative': 'mixed, the same, relative',
}
POINTS = (  # factor, scaling
    *((0.5, 'none'), (1.0, 'none'), (1.5, 'none'), (2.0, 'none')),
    *((0.5, 'linear:0.5'), (1.5, 'linear'), (2.0, 'linear')),
)
SPREAD_POINTS = ((1, 'none'), (2, 'none'), (2, 'linear'))
UNTRAINED: dict[str, dict] = {  # of DINOv3-small
    'class token and registers': {},
    'relative class token and registers': dict(attention=dict(type='RelativePrefix')),
    'class token': dict(num_registers=0),
    'no prefix tokens': dict(num_registers=0, with_cls_token=False),
    'no prefix tokens, absolute positions': dict(
        num_registers=0, with_cls_token=False, rope=None, use_ape=True
    ),
}


def main(argv: Sequence[str]) -> None:
    if argv:
        folder = Path(argv[0])
        write(gather(folder), RESULTS)
        print(f'{cpu_hours(folder):.1f} CPU hours')
        measured = [*untrained_spreads(), *trained_spreads(folder)]
        with open(SPREADS, 'w', newline='', encoding='utf-8') as file:
            writer = csv.DictWriter(file, measured[0], lineterminator='\n')
            writer.writeheader()
            writer.writerows(measured)
    before, rest = PAGE.read_text(encoding='utf-8').split(MARKERS[0])
    after = rest.split(MARKERS[1])[1]
    lines = [before + MARKERS[0], '', *results(), '', MARKERS[1] + after]
    atomic_write_text(PAGE, '\n'.join(lines))


def untrained_spreads() -> Iterator[Row]:
    """Of DINOv3-small with random weights of deviation 0.08 and LayerScale 1, at 160 x 224."""
    for name, settings in UNTRAINED.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = RoPEViT('dinov3_small', layer_scale_init_value=1.0, **settings)
            for weights in model.parameters():
                if weights.ndim > 1:
                    nn.init.normal_(weights, std=0.08)
            yield spread_row(f'untrained, {name}', seed, 1, 'none', model, (160, 224))


def trained_spreads(folder: Path) -> Iterator[Row]:
    """Of the trained models, at the size of the training and at twice that."""
    for position in PREFIXES:
        for seed in SEEDS:
            run = Run(seed, 'finer', 'vit', position)
            if not weights_path(folder, run).exists():
                continue
            with MODELS.switch_scope_and_registry('mmseg') as models:
                model = models.build(config_of(run, Path()).model)
            model.load_state_dict(torch.load(weights_path(folder, run)))
            for factor, scaling in SPREAD_POINTS:
                model.backbone.set_rope_scaling(SCALINGS[scaling])
                size = (factor * SIZE[0], factor * SIZE[1])
                yield spread_row(position, seed, factor, scaling, model.backbone, size)


def spread_row(
    position: str,
    seed: int,
    factor: int,
    scaling: str,
    model: Backbone,
    size: tuple[int, int],
) -> Row:
    bias = biases(model, size)[0]['bias']
    setting = dict(
        position=position, seed=str(seed), factor=str(factor), scaling=scaling
    )
    return setting | dict(bias=f'{bias:.3g}')


def read_spreads(factor: int = 1, scaling: str = 'none') -> dict[str, Values]:
    """Spreads by position and seed; empty before the first run."""
    found: dict[str, Values] = {}
    if not SPREADS.exists():
        return found
    with open(SPREADS, newline='', encoding='utf-8') as file:
        for row in csv.DictReader(file):
            if (row['factor'], row['scaling']) == (str(factor), scaling):
                found.setdefault(row['position'], {})[int(row['seed'])] = float(
                    row['bias']
                )
    return found


def rows_of_both() -> list[Row]:
    """Models without prefix tokens, of the study of scalings, and this study's."""
    first = [
        row for row in read() if row['position'] in NAMES and row['backbone'] == 'vit'
    ]
    first = [
        row
        for row in first
        if row['way'] == 'finer' and not row['tuned'] + row['tested']
    ]
    return first + (read(RESULTS) if RESULTS.exists() else [])


def results() -> list[str]:
    """The lines of the page between its markers."""
    scores = Scores(rows_of_both())
    lines = [
        'mIoU:',
        '',
        *table(scores),
        '',
        'Spread of a constant image:',
        '',
        *spread_table(),
    ]
    checks = [
        *prefix_predictions.checks(scores),
        *prefix_predictions.spreads(read_spreads()),
    ]
    return [*lines, '', '### Predictions', '', *verdicts.table(checks)]


def table(scores: Scores) -> list[str]:
    """A line for each arm, a column for each test."""
    names = [
        f'{factor:g}{"" if how == "none" else ", linear"}' for factor, how in POINTS
    ]
    lines = header(['prefix tokens', 'seeds'], names)
    for position, name in NAMES.items():
        values = [scores('finer', position, factor, how) for factor, how in POINTS]
        seeds = len(max(values, key=len))
        if seeds:
            lines.append(line([name, str(seeds), *map(cell, values)]))
    return lines


def spread_table() -> list[str]:
    """A line for each model, a column for each size and scaling; means over the seeds."""
    found = [read_spreads(*point) for point in SPREAD_POINTS]
    names = [re.sub(', none$', '', f'{factor}, {how}') for factor, how in SPREAD_POINTS]
    lines = header(['model', 'seeds'], names)
    for position, values in found[0].items():
        cells = [mean_text(of_point.get(position, {})) for of_point in found]
        lines.append(line([NAMES.get(position, position), str(len(values)), *cells]))
    return lines


def mean_text(values: Values) -> str:
    """The mean over the seeds, or a dash."""
    return f'{mean(values.values()):.2g}' if values else '-'


if __name__ == '__main__':
    main(sys.argv[1:])
