"""DINO-Swin with larger windows, by the options of configs/dino_swin/README.md."""

import copy
import re

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.grid import CONFIGS, Leaf, read, readme_options

README = CONFIGS / 'dino_swin' / 'README.md'
CASES = [('t', 'rpb', 12), ('t', 'rope-mixed', 14), ('s', 'rpb', 14), ('b', 'rpb', 12)]


def load(size: str, variant: str, window: int) -> Config:
    cfg = copy.deepcopy(read(Leaf('dino_swin', size, variant).path))
    options = readme_options(README, f'dino_swin-t_{variant}_')
    assert set(options.values()) == {12} and len(options) == 1 + (variant == 'rpb')
    cfg.merge_from_dict(dict.fromkeys(options, window))
    return cfg


@pytest.mark.parametrize('size, variant, window', CASES)
def test_parameters_are_those_of_the_readme(
    size: str, variant: str, window: int
) -> None:
    cfg = load(size, variant, window)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    tables = [p for name, p in model.named_parameters() if name.endswith('bias_table')]
    lengths = {(2 * window - 1) ** 2} if variant == 'rpb' else set()
    assert {len(table) for table in tables} == lengths
    (row,) = re.findall(
        rf'^\| Swin-{size.upper()} \| {window} \|(.*)\|$', README.read_text(), re.M
    )
    cell = row.split('|')[variant == 'rpb'].strip()
    assert cell == f'{sum(p.numel() for p in model.parameters()):,}'


@pytest.mark.parametrize('variant, window', [('rope-mixed', 12), ('rpb', 14)])
def test_it_runs(variant: str, window: int) -> None:
    cfg = load('t', variant, window)
    init_default_scope(cfg.default_scope)
    arch = dict(embed_dims=16, depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8))
    backbone = MODELS.build(dict(cfg.model.backbone, arch=arch, init_cfg=None)).eval()
    with torch.no_grad():
        maps = backbone(torch.randn(1, 3, 120, 136))
    assert [list(x.shape) for x in maps] == [
        [1, 32, 15, 17],
        [1, 64, 8, 9],
        [1, 128, 4, 5],
    ]
