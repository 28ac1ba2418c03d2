"""Schedules that are longer than the training."""

import pytest
from mmengine.config import Config

from rope_dense.project.checks.schedule import check_schedule
from rope_dense.utils.errors import UsageError

LENGTH = 120
ITERS = dict(by_epoch=False)
WARM_UP = dict(type='LinearLR', start_factor=1e-3, begin=0, end=20, **ITERS)


def config(schedulers: object, **loop: int) -> Config:
    return Config(
        dict(param_scheduler=schedulers, train_cfg=dict(max_iters=LENGTH) | loop)
    )


@pytest.mark.parametrize(
    'schedulers, loop, says',
    [
        (
            [dict(type='MultiStepLR', milestones=[50, 120], **ITERS)],
            {},
            '0.milestones=[50, 120]',
        ),
        (
            [dict(type='LinearLR', begin=120, **ITERS)],
            {},
            'param_scheduler.0.begin=120',
        ),
        (
            [WARM_UP, dict(type='PolyLR', end=160, **ITERS)],
            {},
            'param_scheduler.1.end=160: after',
        ),
        (
            [WARM_UP],
            dict(val_interval=500),
            'train_cfg.val_interval=500: after the end of the',
        ),
    ],
)
def test_schedules_longer_than_the_training(
    schedulers: object, loop: dict, says: str
) -> None:
    cfg = config(schedulers, **loop)
    cfg.val_cfg = dict()
    with pytest.raises(UsageError) as caught:
        check_schedule(cfg)
    assert says in str(caught.value)


def test_schedules_that_fit() -> None:
    poly = dict(type='PolyLR', begin=20, end=LENGTH, **ITERS)
    for schedulers in (
        [],
        [WARM_UP, poly],
        [dict(type='ExponentialLR', gamma=0.97, **ITERS)],
    ):
        check_schedule(config(schedulers))
    check_schedule(
        config([dict(type='MultiStepLR', milestones=[500])])
    )  # epochs, not iterations
