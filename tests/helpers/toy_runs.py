"""Trainings of a model with three numbers, by the Runner of the tools: a second each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import Dataset

from rope_dense.engine.runner import build_runner

LOADER: dict[str, Any] = dict(
    batch_size=2, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False)
)


@DATASETS.register_module(force=True)
class ToyData(Dataset):
    """Pairs of numbers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return dict(x=torch.tensor([index / 10, 1.0]))


@MODELS.register_module(force=True)
class Toy(BaseModel):
    """Learns to give 0.

    Args:
        bad_losses: calls, from 1, whose loss is NaN, and its gradient is not.
        bad_steps: calls whose gradient is NaN, and the loss is not.
        bad_weights: calls after which the weights are NaN.
        bad_inputs: calls whose inputs of a BatchNorm, which there is only then, are infinite.
        refuses: the call that raises a ValueError, as a matcher does for predictions of NaN.
    """

    def __init__(
        self,
        bad_losses: Sequence[int] = (),
        bad_steps: Sequence[int] = (),
        bad_weights: Sequence[int] = (),
        refuses: int = 0,
        bad_inputs: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.calls, self.bad_losses, self.bad_steps = 0, bad_losses, bad_steps
        self.refuses, self.bad_weights = refuses, bad_weights
        self.bad_inputs = bad_inputs
        if bad_inputs:
            self.norm = nn.BatchNorm1d(2)

    def forward(self, x: Tensor, mode: str) -> dict[str, Tensor] | Tensor:
        x = torch.stack(list(x)) if isinstance(x, list) else x
        if self.bad_inputs:
            bad = mode == 'loss' and self.calls + 1 in self.bad_inputs
            x = self.norm(x * math.inf if bad else x)
        out = self.linear(x)
        if mode != 'loss':
            return out
        self.calls += 1
        if self.calls == self.refuses:
            raise ValueError('matrix contains invalid numeric entries')
        loss = out.square().mean()
        if self.calls in self.bad_losses:
            loss = loss + math.nan
        if self.calls in self.bad_steps:
            loss = loss + (out * 0).sum().abs().sqrt()
        if self.calls in self.bad_weights:
            self.linear.weight.register_hook(self.spoil)
        return {'loss': loss}

    def spoil(self, grad: Tensor) -> None:
        """Make a weight NaN, and leave the gradient."""
        self.linear.bias.data.fill_(math.nan)


@METRICS.register_module(force=True)
class Given(BaseMetric):
    """Results that are set in advance, one for each evaluation."""

    def __init__(self, results: Sequence[float]) -> None:
        super().__init__()
        self.given: Iterator[float] = iter(results)

    def process(self, data_batch: object, data_samples: object) -> None:
        self.results.append(0)

    def compute_metrics(self, results: list) -> dict[str, float]:
        return {'score': next(self.given)}


class Rates(Hook):
    """Notes the learning rate of each parameter group in each iteration."""

    def __init__(self) -> None:
        self.seen: dict[int, list[float]] = {}

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: object = None
    ) -> None:
        self.seen[runner.iter] = [
            group['lr'] for group in runner.optim_wrapper.param_groups
        ]


def toy_config(
    folder: Path,
    iterations: int = 12,
    results: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5),
    images: int = 8,
    **options: Any,
) -> Config:
    """A run that validates and saves each fourth iteration; `options` are merged into it."""
    loader = dict(LOADER, dataset=dict(type='ToyData', length=images))
    cfg = Config(
        dict(
            model=dict(type='Toy'),
            work_dir=str(folder),
            train_dataloader=loader,
            val_dataloader=loader,
            train_cfg=dict(
                type='ResumableTrainLoop', max_iters=iterations, val_interval=4
            ),
            val_cfg={},
            val_evaluator=[dict(type='Given', results=list(results))],
            optim_wrapper=dict(
                optimizer=dict(type='AdamW', lr=0.1),
                paramwise_cfg=dict(bias_lr_mult=2.0),
            ),
            param_scheduler=[],
            default_hooks=dict(
                logger=dict(type='LoggerHook', interval=1),
                checkpoint=dict(
                    type='AtomicCheckpointHook',
                    interval=4,
                    by_epoch=False,
                    save_best='score',
                    rule='greater',
                ),
            ),
            visualizer=dict(
                type='Visualizer',
                name='visualizer',
                vis_backends=[dict(type='LocalVisBackend')],
            ),
            env_cfg=dict(dist_cfg=dict(backend='gloo')),
            randomness=dict(seed=0),
            default_scope='mmengine',
        )
    )
    cfg.merge_from_dict(options)
    return cfg


def toy_run(cfg: Config, *hooks: Hook, resume: Path | str | None = None) -> Runner:
    """Train; returns the Runner."""
    if resume is not None:
        cfg.resume, cfg.load_from = True, str(resume)
    runner = build_runner(cfg)
    for hook in hooks:
        runner.register_hook(hook)
    runner.train()
    return runner


def curves(folder: Path) -> dict[int, dict[str, float]]:
    """What the runs of a work folder have written of each training step."""
    files = sorted(folder.glob('*/vis_data/scalars.json'))
    lines = [
        json.loads(line) for file in files for line in file.read_text().splitlines()
    ]
    return {line['step']: line for line in lines if 'loss' in line}


def log_of(runner: Runner) -> str:
    """The log file of a run."""
    (file,) = Path(runner.log_dir).glob('*.log')
    return file.read_text()
