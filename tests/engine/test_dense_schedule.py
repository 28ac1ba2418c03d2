"""The schedule, the moving average and the restart of DEIMv2 and EdgeCrafter, by their formulas."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import EMAHook, Hook
from mmengine.model import BaseModel
from mmengine.optim import CosineAnnealingLR
from mmengine.runner import Runner
from torch import Tensor, nn

from rope_dense.engine import BestRestartHook, ResumableTrainLoop
from rope_dense.engine.optimizer import NamedGroupsConstructor

mmdet_schedulers = pytest.importorskip('mmdet.engine.schedulers')
ExpMomentumEMA = pytest.importorskip('mmdet.models.layers').ExpMomentumEMA


def published_rate(
    iteration: int, total: int, warmup: int, flat: int, no_aug: int
) -> float:
    """The factor of the learning rate; down to one half."""
    if iteration <= warmup:
        return (iteration / warmup) ** 2
    if iteration <= flat:
        return 1.0
    if iteration >= total - no_aug:
        return 0.5
    share = (iteration - flat) / (total - flat - no_aug)
    return 0.5 + 0.5 * 0.5 * (1 + math.cos(math.pi * share))


def test_learning_rates_are_those_published() -> None:
    """mmengine's schedulers, one after the other: the warm-up is an iteration ahead."""
    total, warmup, flat, no_aug = 500, 40, 200, 60
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedulers = [
        mmdet_schedulers.QuadraticWarmupLR(
            optimizer, begin=0, end=warmup, by_epoch=False
        ),
        CosineAnnealingLR(
            optimizer, eta_min_ratio=0.5, begin=flat, end=total - no_aug, by_epoch=False
        ),
    ]
    optimizer.step()
    for iteration in range(total):
        rate = optimizer.param_groups[0]['lr'] / 2.0
        ahead = iteration + 1 if iteration < warmup else iteration
        assert rate == pytest.approx(
            published_rate(ahead, total, warmup, flat, no_aug), abs=2e-3
        )
        for scheduler in schedulers:
            scheduler.step()
    assert rate == pytest.approx(0.5, abs=1e-4)


def test_moving_average_is_that_published() -> None:
    """The first update copies the weights, of which the source leaves 0.1 %."""
    model = nn.BatchNorm1d(3)
    ours = ExpMomentumEMA(model, momentum=1e-4, gamma=1000, update_buffers=True)
    theirs = {key: x.clone() for key, x in model.state_dict().items()}
    for update in range(1, 30):
        model.load_state_dict(
            {
                key: torch.randn(3) if x.is_floating_point() else x
                for key, x in model.state_dict().items()
            }
        )
        ours.update_parameters(model)
        decay = 0.9999 * (1 - math.exp(-update / 1000))
        if update == 1:
            decay = 0.0
        for key, x in theirs.items():
            if x.is_floating_point():
                theirs[key] = x * decay + (1 - decay) * model.state_dict()[key]
    for key, x in theirs.items():
        if x.is_floating_point():
            torch.testing.assert_close(ours.module.state_dict()[key], x)


class Toy(BaseModel):
    """Learns to give 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, x: Tensor, mode: str) -> dict[str, Tensor] | Tensor:
        out = self.linear(x)
        return {'loss': out.square().mean()} if mode == 'loss' else out


class Score(BaseMetric):
    """Best after the second validation."""

    scores = iter(())

    def process(self, data_batch: object, data_samples: object) -> None:
        self.results.append(0)

    def compute_metrics(self, results: list) -> dict[str, float]:
        return {'score': next(Score.scores)}


class Watch(Hook):
    """Notes weights, average, momentum and learning rate before some iterations."""

    priority = 'LOWEST'

    def __init__(self) -> None:
        self.seen: dict[int, list[Tensor]] = {}

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: object = None
    ) -> None:
        (average,) = (
            hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)
        )
        optimizer = runner.optim_wrapper
        states = list(optimizer.optimizer.state.values())
        self.seen[runner.iter] = [
            runner.model.linear.weight.detach().clone(),
            average.module.linear.weight.clone(),
            *(state['exp_avg'].clone() for state in states[:1]),
            torch.tensor(optimizer.param_groups[0]['lr']),
        ]


def trained(
    folder: Path,
    *hooks: Hook,
    scores: tuple[float, ...] = (0.1, 0.9, 0.2),
    save_best: str | None = 'score',
) -> Watch:
    """Three epochs of four iterations; the learning rate falls in each iteration."""
    loader = dict(
        dataset=list(torch.randn(8, 2)),
        batch_size=2,
        sampler=dict(type='DefaultSampler', shuffle=False),
        collate_fn=lambda items: dict(x=torch.stack(items)),
    )
    Score.scores = iter(scores)
    watch = Watch()
    runner = Runner(
        Toy(),
        str(folder),
        train_dataloader=loader,
        val_dataloader=loader,
        train_cfg=dict(type=ResumableTrainLoop, max_iters=12, val_interval=4),
        val_cfg={},
        val_evaluator=[Score()],
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=dict(type='ExponentialLR', gamma=0.9, by_epoch=False),
        default_hooks=dict(
            checkpoint=dict(
                type='CheckpointHook',
                interval=4,
                by_epoch=False,
                save_best=save_best,
                rule='greater' if save_best else None,
            )
        ),
        custom_hooks=[dict(type='EMAHook'), watch, *hooks],
        experiment_name=folder.name,
        default_scope='mmengine',
        randomness=dict(seed=0),
    )
    runner.train()
    return watch


def seen_equal(first: Watch, second: Watch, iteration: int) -> bool:
    pairs = zip(first.seen[iteration], second.seen[iteration], strict=True)
    return all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize(
    'name, said, settings',
    [
        ('last', 'epoch 3 begins with the weights of', {}),
        ('none', 'there is no best checkpoint', dict(save_best=None)),
        ('low', 'best value, 0.0010, may be chance', dict(scores=(0.001, 0.0, 0.0))),
    ],
)
def test_a_restart_where_it_is_changes_nothing(
    name: str, said: str, settings: dict, tmp_path: Path
) -> None:
    """The best is that of the last iteration, or there is none, or none but by chance."""
    plain = trained(tmp_path / f'{name}_plain', **settings)
    torch.manual_seed(0)
    restarted = trained(tmp_path / name, BestRestartHook(2), **settings)
    (log,) = (tmp_path / name).glob('*/*.log')
    assert said in log.read_text()
    assert seen_equal(plain, restarted, 8) and seen_equal(plain, restarted, 11)


def test_a_restart_from_an_earlier_best(tmp_path: Path) -> None:
    """Iteration 8 begins with the weights and the average of iteration 4, at its own rate."""
    watch = trained(tmp_path / 'run', BestRestartHook(2), scores=(0.9, 0.1, 0.2))
    for early, late in zip(watch.seen[4][:2], watch.seen[8][:2], strict=True):
        assert torch.equal(early, late)
    assert not torch.equal(watch.seen[4][0], watch.seen[7][0])
    assert float(watch.seen[8][3]) == pytest.approx(0.1 * 0.9**8)


def test_biases_and_norms_have_no_decay_and_layer_scale_has() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.RMSNorm(2))
    model.register_parameter('gamma_1', nn.Parameter(torch.ones(2)))
    model.register_parameter('q_bias', nn.Parameter(torch.ones(2)))
    constructor = NamedGroupsConstructor(
        dict(
            type='OptimWrapper', optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.1)
        ),
        dict(no_decay=('norm', 'bias')),
    )
    decay = {
        id(param): group['weight_decay']
        for group in constructor(model).param_groups
        for param in group['params']
    }
    names = {name for name, param in model.named_parameters() if decay[id(param)]}
    assert names == {'0.weight', 'gamma_1'}
