"""A resumed run has the schedule of its config, whatever the one of its checkpoint was."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from helpers.toy_runs import Rates, log_of, toy_config, toy_run
from rope_dense.engine import resume_hook
from rope_dense.engine.divergence import RunError

pytestmark = pytest.mark.usefixtures('surroundings')

SAVED = 4


def warm_up(end: int = 3) -> dict:
    return dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=end)


def schedulers(kind: str, total: int) -> list[dict]:
    """Schedules that depend on the length, as the recipes have them."""
    kinds: dict[str, list[dict]] = {
        'steps': [
            warm_up(),
            dict(
                type='MultiStepLR', by_epoch=False, milestones=[total // 3, total - 2]
            ),
        ],
        'cosine': [
            warm_up(total // 4),
            dict(
                type='CosineAnnealingLR',
                by_epoch=False,
                begin=2,
                end=total,
                T_max=total - 2,
            ),
        ],
        'poly': [
            warm_up(),
            dict(type='PolyLR', by_epoch=False, power=0.9, begin=2, end=total),
        ],
        'default end': [dict(type='PolyLR', by_epoch=False)],
        'restarts': [
            dict(
                type='CosineRestartLR',
                by_epoch=False,
                periods=[total // 2, total],
                restart_weights=[1, 0.5],
                eta_min=0,
            )
        ],
        'one more': [
            warm_up(),
            *[dict(type='ExponentialLR', by_epoch=False, gamma=0.8)] * total,
        ],
        'of the momentum': [
            warm_up(),
            dict(type='CosineAnnealingMomentum', by_epoch=False, T_max=total),
        ],
    }
    return kinds[kind]


def config(folder: Path, kind: str, total: int, **options: object) -> Config:
    cfg = toy_config(folder, total, **options)
    cfg.param_scheduler = schedulers(kind, total)
    return cfg


KINDS = (
    'steps',
    'cosine',
    'poly',
    'default end',
    'restarts',
    'one more',
    'of the momentum',
)


@pytest.mark.parametrize('kind', KINDS)
def test_rates_are_those_of_a_new_run_of_the_config(kind: str, tmp_path: Path) -> None:
    """A run of 4 iterations becomes one of 12, and a run of 12 becomes, at 4, one of 6."""
    rates = {}
    for total in (SAVED, 12, 6):
        rates[total] = Rates()
        toy_run(config(tmp_path / f'{total}', kind, total), rates[total])
    for old, total in ((SAVED, 12), (12, 6)):
        resumed, start = Rates(), tmp_path / f'{old}' / 'iter_4.pth'
        runner = toy_run(
            config(tmp_path / f'from {old}', kind, total), resumed, resume=start
        )
        assert resumed.seen == {i: rates[total].seen[i] for i in range(SAVED, total)}
        line = f'the schedule is the new one: {total} iterations in place of {old}; at iteration 4'
        assert log_of(runner).count(line) == 1


def test_schedules_by_epochs(tmp_path: Path) -> None:
    """mmengine's own loop, of two epochs and then of three, with a warm-up by iterations."""

    def by_epochs(folder: Path, epochs: int) -> Config:
        cfg = toy_config(folder, results=range(9))
        cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=epochs)
        cfg.default_hooks.checkpoint.update(by_epoch=True, interval=1)
        cosine = dict(type='CosineAnnealingLR', T_max=epochs, by_epoch=True)
        cfg.param_scheduler = [cosine, warm_up(5)]
        return cfg

    whole, resumed = Rates(), Rates()
    toy_run(by_epochs(tmp_path / 'whole', 3), whole)
    toy_run(by_epochs(tmp_path / 'short', 2))
    start = tmp_path / 'short' / 'epoch_2.pth'
    toy_run(by_epochs(tmp_path / 'resumed', 3), resumed, resume=start)
    assert resumed.seen == {i: whole.seen[i] for i in range(8, 12)}


def test_settings_are_those_of_the_config_and_moments_those_of_the_checkpoint(
    tmp_path: Path,
) -> None:
    toy_run(config(tmp_path / 'first', 'steps', 8))
    start = tmp_path / 'first' / 'iter_4.pth'
    saved = torch.load(start, weights_only=False)['optimizer']['state']
    cfg = config(tmp_path / 'second', 'steps', 8)
    cfg.optim_wrapper.optimizer.update(lr=0.3, weight_decay=0.5)
    whole, resumed, moments = Rates(), Rates(), Moments()
    runner = toy_run(cfg, resumed, moments, resume=start)
    assert 'lr 0.3 in place of 0.1, weight_decay 0.5 in place of 0.01; at' in log_of(
        runner
    )
    assert {group['weight_decay'] for group in runner.optim_wrapper.param_groups} == {
        0.5
    }
    for actual, expected in zip(moments.seen, saved.values(), strict=True):
        assert torch.equal(actual, expected['exp_avg'])
    cfg = config(tmp_path / 'whole', 'steps', 8)
    cfg.optim_wrapper.optimizer.update(lr=0.3, weight_decay=0.5)
    toy_run(cfg, whole)
    assert resumed.seen == {i: whole.seen[i] for i in range(SAVED, 8)}


class Moments(Rates):
    """Notes the first moments before the first iteration."""

    def before_train(self, runner: Runner) -> None:
        states = runner.optim_wrapper.optimizer.state.values()
        self.seen = [state['exp_avg'].clone() for state in states]

    def before_train_iter(self, *args: object, **others: object) -> None:
        pass


def test_the_same_config_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, resumed = Rates(), Rates()
    toy_run(config(tmp_path / 'whole', 'cosine', 8), whole)
    monkeypatch.delattr(resume_hook, 'advance')
    start = tmp_path / 'whole' / 'iter_4.pth'
    runner = toy_run(config(tmp_path / 'resumed', 'cosine', 8), resumed, resume=start)
    assert resumed.seen == {i: whole.seen[i] for i in range(SAVED, 8)}
    assert 'the schedule is' not in log_of(runner)


def test_sharded_runs_and_old_checkpoints_follow_the_config(tmp_path: Path) -> None:
    """mmengine's FlexibleRunner loads in another order; an old checkpoint lacks some facts."""
    toy_run(config(tmp_path / 'first', 'cosine', 8))
    start = tmp_path / 'first' / 'iter_4.pth'
    contents = torch.load(start, weights_only=False)
    contents['message_hub']['runtime_info'].pop(resume_hook.FACTS)
    torch.save(contents, start)
    whole, resumed = Rates(), Rates()
    toy_run(config(tmp_path / 'whole', 'cosine', 12), whole)
    cfg = config(tmp_path / 'second', 'cosine', 12)
    cfg.runner_type = 'FlexibleRunner'
    toy_run(cfg, resumed, resume=start)
    assert resumed.seen == {i: whole.seen[i] for i in range(SAVED, 12)}


@pytest.mark.parametrize(
    'options, says',
    [
        (
            {'train_dataloader.batch_size': 4},
            'had batch_size 2, processes 1, this one has batch_size 4, processes 1',
        ),
        (dict(images=10), 'had images 8, this one has images 10'),
        (
            {'optim_wrapper.optimizer.type': 'Adam'},
            'had optimizer AdamW, this one has optimizer A',
        ),
        (
            {'optim_wrapper.paramwise_cfg': None},
            'checkpoint has 3 parameters in 3 groups, this one has 2 in 1',
        ),
        (dict(iterations=3), 'is at iteration 4, and this run ends at 3'),
    ],
)
def test_another_training_is_refused(options: dict, says: str, tmp_path: Path) -> None:
    toy_run(toy_config(tmp_path / 'first', 4))
    start = tmp_path / 'first' / 'iter_4.pth'
    with pytest.raises(RunError, match=says) as raised:
        toy_run(toy_config(tmp_path / 'second', **options), resume=start)
    assert str(raised.value).endswith(f'give load_from (--load-from) {start}')
    assert '\n' not in str(raised.value)


def test_other_parameters_are_refused() -> None:
    """As of blocks that were frozen, and torch's own error names no setting."""
    runner = Mock(cfg=Mock(load_from='iter_4.pth'))
    runner.optim_wrapper.param_groups = [dict(params=[1, 2, 3]), dict(params=[0])]
    saved = [dict(params=[0]), dict(params=[0])]
    with pytest.raises(
        RunError, match='has 2 parameters in 2 groups, this one has 4 in 2'
    ) as raised:
        resume_hook.follow_config(runner, dict(optimizer=dict(param_groups=saved)))
    assert 'frozen_stages' in str(raised.value)
    assert str(raised.value).endswith('(--load-from) iter_4.pth')


def test_the_same_batch_on_other_processes_goes_on(tmp_path: Path) -> None:
    toy_run(toy_config(tmp_path / 'first', 4))
    start = tmp_path / 'first' / 'iter_4.pth'
    contents = torch.load(start, weights_only=False)
    contents['message_hub']['runtime_info'][resume_hook.FACTS].update(
        batch_size=1, processes=2
    )
    torch.save(contents, start)
    assert toy_run(toy_config(tmp_path / 'second', 6), resume=start).iter == 6


def test_a_complete_run_says_so(tmp_path: Path) -> None:
    toy_run(toy_config(tmp_path, 4))
    runner = toy_run(toy_config(tmp_path, 4), resume=tmp_path / 'iter_4.pth')
    assert runner.iter == 4
    assert 'resume: the run is complete, at iteration 4 of 4' in log_of(runner)
