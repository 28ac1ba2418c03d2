"""Sizes S and L by the options of configs/foundation/README.md: only what the size decides."""

import copy
from types import ModuleType

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

from helpers.foundation import FOLDER, SIZES, load
from helpers.grid import read

pytestmark = pytest.mark.slow
every_size = pytest.mark.parametrize('name', SIZES)
CHANNELS = {'s': 384, 'l': 1024}
# What a size may change; everything else is that of size B.
OWN = (
    *('arch', 'init_cfg', 'out_indices', 'drop_path_rate', 'window_block_indexes'),
    *('in_channels', 'embed_dim', 'channels', 'lr', 'layer_decay'),
)
IN_TIMM = {
    'hf-hub:robbyant/lingbot-vision-vit-small': 'vit_small_patch16_lingbot',
    'hf-hub:robbyant/lingbot-vision-vit-large': 'vit_large_patch16_lingbot',
}


def without_size(settings: object) -> object:
    """The settings without those that a size decides."""
    if isinstance(settings, dict):
        return {
            key: without_size(value)
            for key, value in settings.items()
            if key not in OWN
        }
    if isinstance(settings, (list, tuple)):
        return [without_size(value) for value in settings]
    return settings


def base_of(name: str) -> Config:
    return copy.deepcopy(read(FOLDER / f'{SIZES[name].base}.py'))


@every_size
def test_it_differs_from_size_b_in_its_size(name: str) -> None:
    ours, base = load(name), base_of(name)
    parts = [
        'model',
        'train_dataloader',
        'val_dataloader',
        'optim_wrapper',
        'tta_pipeline',
    ]
    if 'eva02-l' not in name or 'dino' in name:
        parts += ['param_scheduler', 'train_cfg', 'auto_scale_lr', 'default_hooks']
    else:
        ours.train_dataloader.batch_size *= 2
    for part in parts:
        assert without_size(ours[part]) == without_size(base[part]), part
    settings = {
        'out_indices': ours.model.backbone.get('out_indices'),
        'drop_path_rate': ours.model.backbone.get('drop_path_rate'),
        'lr': ours.optim_wrapper.optimizer.lr,
        'layer_decay': ours.optim_wrapper.get('paramwise_cfg', {}).get('layer_decay'),
    }
    expected = {
        'out_indices': base.model.backbone.get('out_indices'),
        'drop_path_rate': base.model.backbone.get('drop_path_rate'),
        'lr': base.optim_wrapper.optimizer.lr,
        'layer_decay': base.optim_wrapper.get('paramwise_cfg', {}).get('layer_decay'),
    }
    assert settings == expected | SIZES[name].settings


@every_size
def test_it_is_built_for_its_weights(timm: ModuleType, name: str) -> None:
    cfg = load(name)
    checkpoint = cfg.model.backbone.init_cfg.checkpoint
    published = IN_TIMM.get(checkpoint) or checkpoint.split('/')[1].split('.')[0]
    with torch.device('meta'):
        backbone = MODELS.build(cfg.model.backbone)
        theirs = timm.create_model(published, num_classes=0)
    channels, blocks = CHANNELS[name.split('_')[1][-1]], backbone.blocks
    assert theirs.embed_dim == backbone.out_channels[-1] == channels
    assert len(theirs.blocks) == len(blocks)
    if name.startswith('dino'):
        every = len(blocks) // 4
        windows = {i for i in range(len(blocks)) if (i + 1) % every}
        assert set(backbone.window_blocks) == windows
        assert cfg.model.neck[0].in_channels == channels
