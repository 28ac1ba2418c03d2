"""A resumed run that follows its config, also where the config has changed."""

import json
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.optim import _ParamScheduler
from mmengine.registry import HOOKS

from ..utils.configs import values_in
from .checkpoint_hook import STATE as EARLY_STOPPING
from .divergence import RunError
from .train_loop import EVALUATED, AnyRunner

SHOWN = 4  # changed settings in a line
FACTS = 'training'  # a key of mmengine's message hub, which checkpoints contain
# What changes while a scheduler runs.
PROGRESS = (
    'last_step',
    '_global_step',
    '_last_value',
    'best',
    'num_bad_epochs',
    'cooldown_counter',
)


@HOOKS.register_module()
class ResumeHook(Hook):
    """Lets a resumed run have the schedule and the optimizer settings of its config.

    mmengine takes both from the checkpoint, whatever the config says. Where they differ, this hook
    replaces them in the checkpoint before it is loaded: the learning rates equal a new run's of
    the config at the same iteration. Lines name what has changed, other settings, too. Moments of
    the optimizer stay. Checked against such a run, step for step, in
    tests/engine/test_resume_hook.py.

    Raises:
        RunError: an epoch has another number of iterations, the optimizer is another one, or the
            checkpoint is behind the end.
    """

    def before_train(self, runner: AnyRunner) -> None:
        runner.message_hub.update_info(FACTS, facts_of(runner))

    def after_load_checkpoint(self, runner: AnyRunner, checkpoint: dict) -> None:
        if runner._resume:
            check_same_training(runner, checkpoint)
            earlier = checkpoint['meta'].get('cfg') or ''
            changes = changed_config(runner.cfg, earlier)
            if changes:
                text = ', '.join(changes[:SHOWN])
                if len(changes) > SHOWN:
                    text += ' ...'
                runner.logger.warning(f'resume: settings are the new ones: {text}')
            follow_config(runner, checkpoint)


def facts_of(runner: AnyRunner) -> dict[str, Any]:
    """Facts that a resumed run shares with the run of its checkpoint; labels may differ."""
    # One of mmengine's, which have a length.
    dataset: Any = runner.train_dataloader.dataset
    own = (runner.cfg.get('own_files') or {}).get('val') or {}
    return dict(
        images=len(dataset),
        batch_size=runner.cfg.train_dataloader.get('batch_size', 1),
        processes=runner.world_size,
        optimizer=type(runner.optim_wrapper.optimizer).__name__,
        # The name of the canonical files of own data, which changes with the labels; '' for others.
        labels=Path(own.get('ann_file') or '').parent.name,
    )


def start_anew_text(runner: AnyRunner) -> str:
    """The other thing to do where a run cannot be resumed."""
    return f'for a new run from its weights, give load_from (--load-from) {runner.cfg.load_from}'


def check_same_training(runner: AnyRunner, checkpoint: dict) -> None:
    """Compare a run with ``facts_of`` its checkpoint, if there; RunError if they differ."""
    info = checkpoint['message_hub']['runtime_info']
    new = facts_of(runner)
    old = new | info.get(FACTS, {})
    keys = [key for key in ('images', 'optimizer') if old[key] != new[key]]
    if old['batch_size'] * old['processes'] != new['batch_size'] * new['processes']:
        keys += ['batch_size', 'processes']
    if keys:
        had = ', '.join(f'{key} {old[key]}' for key in keys)
        has = ', '.join(f'{key} {new[key]}' for key in keys)
        raise RunError(
            f'resume: the run of the checkpoint had {had}, this one has {has}, so its iterations '
            'are not comparable: keep the settings and data of that run, or, '
            f'{start_anew_text(runner)}'
        )
    if old['labels'] != new['labels']:
        for key in ('best_score', EVALUATED, EARLY_STOPPING):
            info.pop(key, None)
        runner.logger.warning(
            'resume: the labels have changed since the checkpoint, so the best score starts anew'
        )
    done = checkpoint['meta']['iter']
    end = runner.max_iters
    if done > end:
        raise RunError(
            f'resume: the checkpoint is at iteration {done}, and this run ends at {end}: set '
            f'more epochs, or, {start_anew_text(runner)}'
        )
    if done == end:
        runner.logger.warning(
            f'resume: the run is complete, at iteration {done} of {end}'
        )


def follow_config(runner: AnyRunner, checkpoint: dict) -> None:
    """Give a checkpoint the schedulers and optimizer settings of a run where they differ."""
    groups = runner.optim_wrapper.param_groups
    saved = list(checkpoint['optimizer']['param_groups'])
    basic = checkpoint['optimizer'].get('base_param_settings')
    if basic:  # mmengine's basic settings come last
        saved.append(basic)
    sizes = [len(group['params']) for group in groups]
    earlier = [len(group['params']) for group in saved]
    if sizes != earlier:
        raise RunError(
            f'resume: the optimizer of the checkpoint has {sum(earlier)} parameters in '
            f'{len(earlier)} groups, this one has {sum(sizes)} in {len(sizes)}: keep the settings '
            'of that run (such as frozen_stages, lora and optim_wrapper.paramwise_cfg), or, '
            f'{start_anew_text(runner)}'
        )
    changes = changed_schedule(runner, checkpoint) + changed_settings(groups, saved)
    if not changes:
        return
    done = checkpoint['meta']['iter']
    rate = saved[-1]['lr']
    schedulers = runner.param_schedulers or []
    advance(schedulers, done, runner.max_iters // runner.max_epochs)
    checkpoint['param_schedulers'] = [each.state_dict() for each in schedulers]
    for group, old in zip(groups, saved, strict=True):
        params = old['params']
        old.clear()
        old.update(group, params=params)
    runner.logger.warning(
        f'resume: the schedule is the new one: {", ".join(changes)}; at iteration {done}, lr '
        f'{groups[-1]["lr"]:.4g} in place of {rate:.4g}'
    )


def without_progress(state: dict) -> dict:
    """The settings in the state of a scheduler."""
    return {key: value for key, value in state.items() if key not in PROGRESS}


def changed_schedule(runner: AnyRunner, checkpoint: dict) -> list[str]:
    """Differences of the schedule from the checkpoint's: nothing, or one text."""
    new = [each.state_dict() for each in runner.param_schedulers or []]
    old = checkpoint.get('param_schedulers') or []
    if list(map(without_progress, new)) == list(map(without_progress, old)):
        return []
    length = runner.max_iters
    before = checkpoint['message_hub']['runtime_info'].get('max_iters')
    if length == before:
        return ['other schedulers']
    return [f'{length} iterations in place of {before}']


def changed_settings(groups: Sequence[dict], saved: Sequence[dict]) -> list[str]:
    """Settings of parameter groups that differ from the checkpoint's.

    Of a scheduled setting, such as `lr`, the value that its schedule starts from is compared.
    """
    changes: dict[str, str] = {}
    for group, old in zip(groups, saved, strict=True):
        left_out = {'params'}
        for name in group:
            if 'initial_' in name:
                left_out.add(name.removeprefix('initial_'))
        if 'momentum' in left_out:
            left_out.add('betas')  # of Adam, set from it
        for name in group.keys() - left_out:
            if group[name] != old.get(name):
                text = f'{group[name]} in place of {old.get(name)}'
                changes.setdefault(name, f'{name.removeprefix("initial_")} {text}')
    return [changes[name] for name in sorted(changes)]


def advance(
    schedulers: Sequence[_ParamScheduler], iterations: int, epoch_length: int
) -> None:
    """Step new schedulers, and so their parameter groups, as a training would have done."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # the optimizer has not stepped
        ordered = sorted(schedulers, key=lambda scheduler: scheduler.by_epoch)
        for done in range(1, iterations + 1):
            for scheduler in ordered:
                if not scheduler.by_epoch or done % epoch_length == 0:
                    scheduler.step()


# What a resumed run compares otherwise: schedule, labels, number of images, weights at the start.
OTHERS = (
    'data_root', 'data_prefix', 'ann_file', 'metainfo', 'epochs', 'lr', 'batch_size', 'gpus',
    'init_cfg',
)  # fmt: skip


def changed_config(cfg: Config, earlier: str) -> list[str]:
    """Settings of own data that differ, in words; if none does, of the model and training data.

    ``earlier`` is a config's text as mmengine writes it. It is read, and not run.
    """
    old = values_in(earlier)
    new = json.loads(json.dumps(cfg.to_dict(), default=str))
    found: list[str] = []
    for names in (('own',), ('model', 'train_dataloader')):
        for name in names if not found else ():
            found += differences(old.get(name, ...), new.get(name, ...), name)
    return found


def differences(old: Any, new: Any, key: str) -> Iterator[str]:
    """Yield each setting that differs, in words; ``...`` is what is not known."""
    if old is ... or new is ... or old == new or key.rpartition('.')[2] in OTHERS:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*new, *old]):
            yield from differences(old.get(name), new.get(name), f'{key}.{name}')
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, now, f'{key}.{index}')
    else:
        texts = [json.dumps(value, default=str) for value in (new, old)]
        now, before = [textwrap.shorten(text, 60) for text in texts]
        yield f'{key} {now} in place of {before}'
