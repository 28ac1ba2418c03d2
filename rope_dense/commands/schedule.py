"""Learning rates of a training, computed from the settings of its schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.optim import scheduler as mm
from mmengine.optim.scheduler.param_scheduler import INF, _ParamScheduler
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

from ..engine.two_stage_warmup import TwoStageWarmupPolyLR
from ..utils.validation import check_integer, check_number
from .building import build_part
from .errors import UsageError, usage_errors

Steps = np.ndarray  # [n] int, steps of a scheduler since its begin
# Kind of a scheduler -> factor of its value after k steps, of the share above its minimum. A
# scheduler of one iteration has a total_iters of 0.
CURVES: dict[type[_ParamScheduler], Callable[[Any, Steps], np.ndarray]] = {
    mm.ConstantParamScheduler: lambda s, k: np.where(k < max(s.total_iters, 1), s.factor, 1.0),
    mm.LinearParamScheduler: lambda s, k: (
        s.start_factor + (s.end_factor - s.start_factor) * k / max(s.total_iters, 1)
    ),
    mm.MultiStepParamScheduler: lambda s, k: (
        s.gamma ** np.searchsorted(sorted(s.milestones.elements()), k, side='right')
    ),
    mm.StepParamScheduler: lambda s, k: s.gamma ** (k // s.step_size),
    mm.ExponentialParamScheduler: lambda s, k: s.gamma**k,
    mm.PolyParamScheduler: lambda s, k: (1 - k / max(s.total_iters, 1)) ** s.power,
    mm.CosineAnnealingParamScheduler: lambda s, k: (1 + np.cos(np.pi * k / s.T_max)) / 2,
}


def scheduler_settings(cfg: Config) -> list[ConfigDict]:
    """The schedulers of a config, one or several or none."""
    given = cfg.get('param_scheduler') or []
    return [given] if isinstance(given, dict) else given


def build_schedulers(cfg: Config, optimizer: torch.optim.Optimizer) -> list[_ParamScheduler]:
    """Build the schedulers of a config; UsageError if one cannot be built."""
    built = []
    for index, part in enumerate(scheduler_settings(cfg)):
        key = 'param_scheduler' + (f'.{index}' if isinstance(cfg.param_scheduler, list) else '')
        settings = ConfigDict(part)
        settings.pop('convert_to_iter_based', None)  # read by the Runner
        built.append(build_part(cfg, key, PARAM_SCHEDULERS, settings, optimizer=optimizer))
    return built


def check_schedule(cfg: Config) -> None:
    """Build the schedulers and compare them with the length of the training.

    UsageError if a scheduler cannot be built, or if a scheduler, the first validation or the first
    checkpoint comes after the last iteration (or epoch).
    """
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    build_schedulers(cfg, optimizer)
    loop = cfg.train_cfg
    unit = 'max_iters' if loop.get('max_iters') else 'max_epochs'
    length = loop.get(unit)
    if length is None:
        return
    late = []
    for index, part in enumerate(scheduler_settings(cfg)):
        if part.get('by_epoch', True) != (unit == 'max_epochs'):
            continue  # in other units
        for name in ('begin', 'end', 'milestones'):
            given = part.get(name)
            numbers = given if isinstance(given, (list, tuple)) else [given or 0]
            with usage_errors():
                for number in numbers:
                    check_number(f'param_scheduler.{index}.{name}', number)
            last = max(numbers, default=0)
            if last != INF and last > (length + 1 if name == 'end' else length - 1):
                late.append(f'param_scheduler.{index}.{name}={given}')
    if cfg.get('val_cfg') is not None and loop.get('val_interval', 1) > length:
        late.append(f'train_cfg.val_interval={loop.val_interval}')
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or ConfigDict()
    in_unit = checkpoint.get('by_epoch', True) == (unit == 'max_epochs')
    with usage_errors():
        interval = check_integer(
            'default_hooks.checkpoint.interval', checkpoint.get('interval', -1), -1
        )
    if in_unit and interval > length and not checkpoint.get('save_last', True):
        late.append(f'default_hooks.checkpoint.interval={interval}')
    if late:
        raise UsageError(
            f'{", ".join(late)}: after the end of the training, train_cfg.{unit}={length}; change '
            'them by --cfg-options, too'
        )


def learning_rates(cfg: Config, group: str = '(rest)/decay') -> list[float]:
    """Factor of the learning rate of a parameter group in every iteration.

    By formulas for mmengine's schedulers where possible, else by stepping the schedulers, which
    takes seconds; test_schedule.py compares both.
    """
    lr = cfg.optim_wrapper.optimizer.lr
    parameter = dict(params=[nn.Parameter(torch.zeros(1))], name=group)
    optimizer = torch.optim.SGD([parameter], lr=lr)
    schedulers = [s for s in build_schedulers(cfg, optimizer) if s.param_name == 'lr']
    rates = by_formula(schedulers, lr, cfg.train_cfg.max_iters)
    if rates is None:
        rates = by_steps(schedulers, optimizer, cfg.train_cfg.max_iters)
    return [float(rate) / lr for rate in rates]


def by_formula(schedulers: Sequence[_ParamScheduler], lr: float, length: int) -> np.ndarray | None:
    """The learning rates of all iterations, [length]; None without a formula for them.

    A scheduler with a minimum has a formula only while no other changes the learning rate.
    """
    rates = np.full(length, lr)
    for index, scheduler in enumerate(schedulers := sorted(schedulers, key=lambda s: s.begin)):
        steps = np.minimum(np.arange(scheduler.begin, length), scheduler.end - 1) - scheduler.begin
        now = rates[scheduler.begin :]  # a view
        if isinstance(scheduler, TwoStageWarmupPolyLR):
            (group,) = scheduler.optimizer.param_groups
            now[:] = [lr * scheduler.factor_at(step, group) for step in steps.tolist()]
            continue
        kind = next((kind for kind in CURVES if isinstance(scheduler, kind)), None)
        if kind is None or type(scheduler)._get_value is not kind._get_value:
            return None
        curve = CURVES[kind](scheduler, steps)
        minimum = getattr(scheduler, 'eta_min', None) or 0.0
        if ratio := getattr(scheduler, 'eta_min_ratio', None):
            minimum = ratio * lr
        alone = all(other.begin >= scheduler.end for other in schedulers[index + 1 :])
        if minimum and not (alone and np.ptp(now[: scheduler.end - scheduler.begin]) == 0):
            return None
        now[:] = minimum + (now - minimum) * curve
    return rates


def by_steps(
    schedulers: Sequence[_ParamScheduler], optimizer: torch.optim.Optimizer, length: int
) -> np.ndarray:
    """The same by stepping the schedulers."""
    optimizer.step()  # or the schedulers warn
    rates = np.empty(length)
    for iteration in range(length):
        rates[iteration] = optimizer.param_groups[0]['lr']
        for scheduler in schedulers:
            scheduler.step()
    return rates
