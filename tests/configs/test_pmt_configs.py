"""The configs of configs/pmt against their source, tue-mps/pmt at 54d73c9.

Transcribed from image/configs, main.py, training/ and datasets/. What no config of the authors
settles (sizes S and B on ADE20K and for instances) is as the comments of the configs say. Data,
losses and decay are EoMT's in both repositories: ``eomt_recipes.recipe``.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS, init_default_scope
from torch import nn

from helpers import eomt_recipes
from helpers.eomt_recipes import CHANNELS, DEPTHS, EPOCH, parts
from helpers.grid import CONFIGS, read, readme_variants, value

FOLDER, ARCH = CONFIGS / 'pmt', 'model.backbone.arch'
RECIPES = sorted(path.stem for path in FOLDER.glob('*.py'))
VARIANTS = {  # of the README, without a file
    base.replace('dinov3-l', f'dinov3-{options[ARCH].removeprefix("dinov3_")[0]}'): (
        base,
        options,
    )
    for base, options in readme_variants('pmt')
}
HEADS = dict(s=6, b=12, l=16)
COCO = (
    [0, 23651, 32520, 41389, 50258, 59128],
    [3000, 38433, 47302, 56171, 65040, 73910],
)
ADE20K = ([0, 5384, 7403, 9422, 11442, 13461], [3000, 8749, 10769, 12788, 14807, 16826])
MAPS = dict(s=(2, 5, 8, 11), b=(2, 5, 8, 11), l=(5, 11, 17, 23))
every_config = pytest.mark.parametrize('name', [*RECIPES, *VARIANTS])


def load(name: str) -> Config:
    base, options = VARIANTS.get(name, (name, {}))
    cfg = copy.deepcopy(read(FOLDER / f'{base}.py'))
    cfg.merge_from_dict(options)
    cfg.model.backbone.out_indices = tuple(cfg.model.backbone.out_indices)
    init_default_scope(cfg.default_scope)
    return cfg


def length(task: str) -> int:
    return 16 * 1263 if task == 'semantic' else 12 * EPOCH[task]


def recipe(name: str) -> dict:
    """Paths of settings, and their values in the source."""
    _, size, task, _ = parts(name)
    start, end = ADE20K if task == 'semantic' else COCO
    head = 'decode_head' if task == 'semantic' else 'panoptic_head'
    return eomt_recipes.recipe(name) | {
        'custom_hooks.0': dict(
            type='MaskAnnealingHook', start=start, end=end, power=0.9
        ),
        'param_scheduler': [
            dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=6001),
            dict(
                type='CosineAnnealingLR',
                by_epoch=False,
                begin=6000,
                end=length(task),
                eta_min=1e-9,
            ),
        ],
        'train_cfg.max_iters': length(task),
        f'model.{head}.num_blocks': 6,
        f'model.{head}.pmt': {},
        'model.backbone.frozen_stages': 'all',
        'model.backbone.out_indices': MAPS[size],
        'sync_bn': 'torch',
    }


def test_sizes_and_tasks_are_complete() -> None:
    expected = {
        *(('dinov3', size, 'semantic', 512) for size in 'sbl'),
        *(
            ('dinov3', size, task, 640)
            for size in 'sbl'
            for task in ('instance', 'panoptic')
        ),
        *(('dinov3', 'l', task, 1280) for task in ('instance', 'panoptic')),
    }
    names = [*RECIPES, *VARIANTS]
    assert {parts(name) for name in names} == expected and len(names) == len(
        expected
    ) == 11


@every_config
def test_settings_are_those_of_the_source(name: str) -> None:
    expected = recipe(name)
    assert {path: value(load(name), path) for path in expected} == expected


@pytest.mark.parametrize(
    'name', [name for name in (*RECIPES, *VARIANTS) if '1280' not in name]
)
def test_the_decoder_trains_alone(name: str) -> None:
    """Its blocks have the source's sizes, and one learning rate and decay for all parameters."""
    cfg, (_, size, *_) = load(name), parts(name)
    cfg.model.backbone.init_cfg = None
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    head = model.decode_head if 'ade20k' in name else model.panoptic_head
    block = head.eomt.blocks[0]
    assert block.mlp.fc1.weight.shape == (CHANNELS[size], CHANNELS[size])
    assert (
        block.attn.num_heads == HEADS[size]
        and len(model.backbone.blocks) == DEPTHS[size]
    )
    assert block.attn.rope.coordinates.random is False and block.norm1.eps == 1e-5
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    trained = {
        id(param)
        for group in groups
        for param in group['params']
        if param.requires_grad
    }
    assert trained == {id(param) for param in head.parameters()}
    decays = {
        group['weight_decay'] for group in groups if id(group['params'][0]) in trained
    }
    rates = {group['lr'] for group in groups if id(group['params'][0]) in trained}
    assert (decays, rates) == ({0.05}, {2e-4})


def published_rate(step: int, total: int) -> float:
    """The source's WarmupCosineSchedule."""
    if step < 6000:
        return 2e-4 * step / 6000
    return 1e-9 + 0.5 * (2e-4 - 1e-9) * (
        1 + math.cos(math.pi * (step - 6000) / (total - 6000))
    )


def test_learning_rates_are_those_of_the_source() -> None:
    cfg = load('pmt_dinov3-l_8xb2-20k_ade20k-512x512')
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2e-4)
    schedulers = [
        PARAM_SCHEDULERS.build(schedule, default_args=dict(optimizer=optimizer))
        for schedule in cfg.param_scheduler
    ]
    optimizer.step()
    total = cfg.train_cfg.max_iters
    for step in range(total):
        if step % 250 == 0 or step in (1, 5999, 6001, total - 1):
            expected = pytest.approx(published_rate(step, total), rel=1e-3, abs=1e-9)
            assert optimizer.param_groups[0]['lr'] == expected, step
        for scheduler in schedulers:
            scheduler.step()
