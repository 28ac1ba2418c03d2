"""Learning rates by formula against mmengine's schedulers, stepped; lengths that do not fit."""

import numpy as np
import pytest
import torch
from mmengine.config import Config
from torch import nn

from rope_dense.cli.errors import UsageError
from rope_dense.cli.schedule import (
    build_schedulers,
    by_formula,
    by_steps,
    check_schedule,
    learning_rates,
)

LENGTH, LR = 120, 3e-4
ITERS = dict(by_epoch=False)
WARM_UP = dict(type='LinearLR', start_factor=1e-3, begin=0, end=20, **ITERS)
SCHEDULES = {
    'none': [],
    'constant': [dict(type='ConstantLR', factor=0.3, begin=0, end=30, **ITERS)],
    'linear-steps': [WARM_UP, dict(type='MultiStepLR', milestones=[50, 50, 90], **ITERS)],
    'one-iteration': [
        dict(WARM_UP, end=1),
        dict(type='ConstantLR', factor=0.3, begin=1, end=2, **ITERS),
        dict(type='PolyLR', begin=2, end=3, **ITERS),
    ],
    'steps': [dict(type='StepLR', step_size=25, gamma=0.5, begin=10, end=100, **ITERS)],
    'exponential': [dict(type='ExponentialLR', gamma=0.97, **ITERS)],
    'linear-poly': [WARM_UP, dict(type='PolyLR', power=0.9, begin=20, end=LENGTH, **ITERS)],
    'overlapping': [WARM_UP, dict(type='PolyLR', power=1.0, begin=0, end=LENGTH, **ITERS)],
    'minimum': [WARM_UP, dict(type='PolyLR', eta_min=1e-5, begin=20, end=LENGTH, **ITERS)],
    'cosine': [WARM_UP, dict(type='CosineAnnealingLR', T_max=100, begin=20, eta_min=1e-6, **ITERS)],
    'ratio': [dict(type='CosineAnnealingLR', T_max=LENGTH, eta_min_ratio=0.1, **ITERS)],
    'eomt': [dict(type='TwoStageWarmupPolyLR', warmup=10, backbone_warmup=15, end=LENGTH + 1)],
}
WITHOUT_FORMULA = {
    'restart': [
        dict(type='CosineRestartLR', periods=[60, 60], restart_weights=[1, 0.5], eta_min=0, **ITERS)
    ],
    'overlapping-minimum': [WARM_UP, dict(type='PolyLR', eta_min=1e-5, end=LENGTH, **ITERS)],
}


def config(schedulers: object, **loop: int) -> Config:
    return Config(
        dict(
            default_scope='mmengine',
            param_scheduler=schedulers,
            optim_wrapper=dict(optimizer=dict(lr=LR)),
            train_cfg=dict(max_iters=LENGTH) | loop,
        )
    )


@pytest.mark.parametrize('group', ['(rest)/decay', 'backbone/decay'])
@pytest.mark.parametrize('name', SCHEDULES | WITHOUT_FORMULA)
def test_formulas_are_those_of_stepping(name: str, group: str) -> None:
    cfg = config((SCHEDULES | WITHOUT_FORMULA)[name])
    parameter = dict(params=[nn.Parameter(torch.zeros(1))], name=group)
    optimizer = torch.optim.SGD([parameter], lr=LR)
    schedulers = build_schedulers(cfg, optimizer)
    actual = by_formula(schedulers, LR, LENGTH)
    assert (actual is None) == (name in WITHOUT_FORMULA)
    expected = by_steps(schedulers, optimizer, LENGTH)
    if actual is not None:
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(learning_rates(cfg, group), expected / LR, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    'schedulers, loop, says',
    [
        ([dict(type='MultiStepLR', milestones=[50, 120], **ITERS)], {}, '0.milestones=[50, 120]'),
        ([dict(type='LinearLR', begin=120, **ITERS)], {}, 'param_scheduler.0.begin=120'),
        ([WARM_UP, dict(type='PolyLR', end=160, **ITERS)], {}, 'param_scheduler.1.end=160: after'),
        ([WARM_UP], dict(val_interval=500), 'train_cfg.val_interval=500: after the end of the'),
        ([WARM_UP | dict(end=-1)], {}, 'param_scheduler.0: LinearLR cannot be built: end should'),
        ([dict(type='MultiStepLR', milestones=['a'], **ITERS)], {}, "finite number, got 'a'"),
        (dict(type='LineraLR'), {}, "param_scheduler.type: no 'LineraLR' in the registry"),
    ],
)
def test_schedules_longer_than_the_training(schedulers: object, loop: dict, says: str) -> None:
    cfg = config(schedulers, **loop)
    cfg.val_cfg = dict()
    with pytest.raises(UsageError) as caught:
        check_schedule(cfg)
    assert says in str(caught.value)


def test_an_interval_of_checkpoints_that_is_no_number() -> None:
    cfg = config([WARM_UP])
    cfg.default_hooks = dict(checkpoint=dict(interval='often'))
    with pytest.raises(UsageError, match=r"interval must be an integer .*, got 'often'"):
        check_schedule(cfg)


@pytest.mark.parametrize('name', SCHEDULES)
def test_schedules_that_fit(name: str) -> None:
    check_schedule(config(SCHEDULES[name]))
    check_schedule(config([dict(type='MultiStepLR', milestones=[500])]))  # epochs, not iterations
