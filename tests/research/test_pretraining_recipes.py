"""configs/research/pretraining: recipes for timm's script, with the numbers of the papers."""

import math
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from research.named_classifiers import CLASSIFIERS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'configs' / 'research' / 'pretraining'
ARGUMENTS = (
    (Path(__file__).parent / 'timm_train_arguments.txt').read_text().splitlines()
)
RAND = dict(
    aa='rand-m9-mstd0.5-inc1',
    mixup=0.8,
    cutmix=1.0,
    smoothing=0.1,
    opt='adamw',
    opt_eps=1e-8,
)
FUSED = dict(
    RAND,
    weight_decay=0.05,
    clip_grad=5.0,
    color_jitter=0.4,
    reprob=0.25,
    remode='pixel',
    train_interpolation='random',
    seed=42,
    warmup_lr=1e-6,
    sched_on_updates=True,
)
DEIT3 = dict(
    opt='lamb',
    weight_decay=0.03,
    bce_loss=True,
    bce_target_thresh=0.0,
    aa='3a',
    color_jitter=0.3,
    aug_repeats=3,
    smoothing=0.0,
    reprob=0.0,
    mixup=0.8,
    cutmix=1.0,
    train_interpolation='bicubic',
    warmup_lr=1e-6,
)
FINE_TUNING = dict(RAND, weight_decay=0.1, reprob=0.0, img_size=224)
SMALL_192 = dict(img_size=192, model_kwargs=dict(img_size=192))
# The images of a batch, on how many GPUs, and arguments.
EXPECTED = {
    'fused_attention_310e': (1024, 8, FUSED),
    'fused_attention_base_310e': (
        1024,
        8,
        dict(FUSED, model_ema=True, model_ema_decay=0.9998),
    ),
    'swin_300e': (1024, 8, dict(FUSED, train_interpolation='bicubic', seed=0)),
    'deit3_small_400e': (2048, 8, dict(DEIT3, drop_path=0.0)),
    'deit3_base_400e_192': (2048, 8, dict(DEIT3, drop_path=0.1, **SMALL_192)),
    'deit3_large_400e_192': (2048, 64, dict(DEIT3, drop_path=0.4, **SMALL_192)),
    'deit3_base_20e_224': (512, 8, dict(FINE_TUNING, drop_path=0.2)),
    'deit3_large_20e_224': (512, 64, dict(FINE_TUNING, drop_path=0.45)),
}
# Epochs in all; learning rate at the start and after the warm-up, its epochs, the last rate.
SCHEDULES = {
    'fused_attention_310e': (310, 1e-6, 1e-3, 20, 5e-6),
    'fused_attention_base_310e': (310, 1e-6, 1e-3, 50, 5e-6),
    'swin_300e': (300, 1e-6, 1e-3, 20, 1e-5),
    'deit3_small_400e': (400, 1e-6, 4e-3, 5, 1e-5),
    'deit3_base_400e_192': (400, 1e-6, 3e-3, 5, 1e-5),
    'deit3_large_400e_192': (400, 1e-6, 3e-3, 5, 1e-5),
    'deit3_base_20e_224': (20, 1e-6, 1e-5, 5, 1e-5),
    'deit3_large_20e_224': (20, 1e-6, 1e-5, 5, 1e-5),
}
every_recipe = pytest.mark.parametrize('name', EXPECTED)


def recipe(name: str) -> dict:
    return yaml.safe_load((FOLDER / f'{name}.yml').read_text())


def test_these_are_all() -> None:
    assert (
        {path.stem for path in FOLDER.glob('*.yml')} == set(EXPECTED) == set(SCHEDULES)
    )
    readme = (FOLDER / 'README.md').read_text()
    assert set(re.findall(r'\((\w+)\.yml\)', readme)) == set(EXPECTED)


@every_recipe
def test_a_recipe_has_the_published_numbers(name: str) -> None:
    found = recipe(name)
    batch, gpus, expected = EXPECTED[name]
    assert found['batch_size'] * gpus == batch
    assert {key: found.get(key) for key in expected} == expected
    assert found['amp'] is True and found['device_modules'] == ['research.timm_models']
    assert found['model'] in CLASSIFIERS
    assert set(found) <= set(ARGUMENTS), 'arguments that the script does not know'


@every_recipe
def test_a_schedule_is_the_published_one(timm: ModuleType, name: str) -> None:
    from timm.scheduler import create_scheduler_v2

    found = recipe(name)
    total, start, top, warmup, end = SCHEDULES[name]
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=found['lr'])
    updates = 10
    by_update = found.get('sched_on_updates', False)
    scheduler, epochs = create_scheduler_v2(
        optimizer,
        sched=found['sched'],
        num_epochs=found['epochs'],
        step_on_epochs=not by_update,
        updates_per_epoch=updates,
        **{
            key: found[key]
            for key in (
                'warmup_epochs',
                'warmup_lr',
                'min_lr',
                'cooldown_epochs',
                'warmup_prefix',
            )
            if key in found
        },
    )
    rates = [optimizer.param_groups[0]['lr']]
    for epoch in range(1, epochs + 1):
        scheduler.step_update(epoch * updates) if by_update else scheduler.step(epoch)
        rates.append(optimizer.param_groups[0]['lr'])
    assert epochs == total
    before = warmup if found.get('warmup_prefix') else 0  # the cosine starts
    for epoch, rate in enumerate(rates):
        share = min((epoch - before) / found['epochs'], 1.0)
        expected = end + 0.5 * (top - end) * (1 + math.cos(math.pi * share))
        if epoch < warmup:
            expected = start + (top - start) * epoch / warmup
        assert rate == pytest.approx(expected), epoch
