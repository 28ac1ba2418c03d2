"""The configs of configs/foundation against the sources that they name (foundation.py)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS

from helpers.foundation import (
    COLOURS,
    FINAL_NORM,
    LAYER_DECAY,
    MAPS,
    RECIPES,
    build_offline,
    head_and_family,
    linear_warm_up,
    load,
    polynomial_warm_up,
)
from helpers.grid import value

every_config = pytest.mark.parametrize('name', RECIPES)


@every_config
def test_settings_are_those_of_the_recipe(name: str) -> None:
    cfg, family = load(name), head_and_family(name)[1]
    recipe = RECIPES[name] | {
        f'model.data_preprocessor.{key}': numbers
        for key, numbers in COLOURS[family].items()
    }
    assert {path: value(cfg, path) for path in recipe} == recipe


@every_config
def test_maps_and_their_norm_are_the_authors(name: str) -> None:
    backbone, (head, family) = build_offline(name).backbone, head_and_family(name)
    assert tuple(backbone.out_indices) == MAPS[head, family]
    assert backbone.arch.final_norm == FINAL_NORM[family]


@every_config
def test_every_parameter_has_its_learning_rate_and_decay(name: str) -> None:
    """Frozen ones are in no group; the others decay from block to block as the sources say."""
    cfg, model, (head, family) = load(name), build_offline(name), head_and_family(name)
    frozen = head in ('linear', 'linear-fine', 'dpt')
    base = cfg.optim_wrapper.optimizer
    actual = {
        id(param): (group['lr'] / base.lr, group['weight_decay'] / base.weight_decay)
        for group in build_optim_wrapper(
            model, cfg.optim_wrapper
        ).optimizer.param_groups
        for param in group['params']
    }
    for key, param in model.named_parameters():
        if frozen and key.startswith(('backbone.', 'neck.')):
            assert not param.requires_grad and id(param) not in actual, key
            continue
        rate = LAYER_DECAY.get((head, family), 1.0) ** (13 - layer(key))
        exempt = head == 'upernet' and (param.ndim == 1 or key == 'backbone.pos_embed')
        assert actual[id(param)] == pytest.approx((rate, 0.0 if exempt else 1.0)), key


def layer(name: str) -> int:
    """BEiT's and detectron2's: 0 before the 12 blocks, i + 1 in block i, 13 for all others."""
    _, _, name = name.partition('backbone.')
    part, _, rest = name.partition('.')
    if part == 'blocks':
        return int(rest.split('.')[0]) + 1
    return 13 if part in ('', 'norm') else 0


SCHEDULES = {
    # mmengine's warm-up goes along with the cosine, DINOv3's with a straight line
    'linear_dinov3-b_8xb2-40k_ade20k-512x512': (linear_warm_up, 0.036, 1e-9),
    'upernet_eva02-b_8xb4-60k_ade20k-512x512': (polynomial_warm_up, 1e-3, 1e-4),
}


def learning_rates(cfg: Config) -> list[float]:
    """Of each iteration, as a share of the optimizer's, by mmengine's own schedulers."""
    weights = [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(weights, cfg.optim_wrapper.optimizer.lr)
    base = optimizer.param_groups[0]['lr']
    schedulers = [
        PARAM_SCHEDULERS.build(dict(s, optimizer=optimizer))
        for s in cfg.param_scheduler
    ]
    rates = []
    for _ in range(cfg.train_cfg.max_iters):
        rates.append(optimizer.param_groups[0]['lr'] / base)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return rates


@pytest.mark.parametrize('name', SCHEDULES)
def test_learning_rate_follows_the_recipe(name: str) -> None:
    published, tolerance_in_warm_up, tolerance = SCHEDULES[name]
    actual = np.array(learning_rates(load(name)))
    expected = [published(iteration) for iteration in range(len(actual))]
    assert actual[0] == pytest.approx(1e-6)
    difference = np.abs(actual - expected)
    assert difference[:1501].max() <= tolerance_in_warm_up
    assert difference[1501:].max() <= tolerance
