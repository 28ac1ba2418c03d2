"""Parts of all recipes: sizes, backbone, learning rate and length of the training.

Each function fits a part of a published recipe to the settings of a user, in place.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..datasets.images.headers import read_header
from ..datasets.labels.files import IMAGE_SUFFIXES, list_files
from ..datasets.pairs import DEPTH, MASKS, match
from ..utils.config_parts import nodes, size_steps
from ..utils.configs import CONFIGS
from .augment import fit_augmentation
from .channel_data import survey_channels
from .channels import fit_channels
from .settings import Own
from .value_range import fit_range, survey_pictures

RANDOM_LR = 5e-4  # from random values, as in configs/demo: recipes are for trained backbones
PIXELS = ('scale', 'scales', 'crop_size', 'max_size', 'size', 'stride', 'pad_size_divisor')
WARMUP = 500  # iterations, or a tenth of a shorter run


def read_recipe(name: str) -> dict:
    """A config of this package as plain dicts, which share nothing."""
    return Config.fromfile(CONFIGS / name).to_dict()


def resize(cfg: dict, factor: float) -> None:
    """Multiply every size in pixels of the pipelines and of the model's crops."""
    parts = [cfg[f'{name}_dataloader']['dataset']['pipeline'] for name in ('train', 'val', 'test')]
    parts += [cfg.get('tta_pipeline'), cfg['model']['data_preprocessor']]
    parts += [cfg['model'].get('test_cfg')] if cfg.get('default_scope') == 'mmseg' else []
    for _, node, name in size_steps(parts, names=PIXELS):
        if node[name] != 1:  # a divisor of 1 does not pad
            node[name] = multiplied(node[name], factor)


def multiplied(value: object, factor: float) -> Any:
    """A number of pixels, or lists of these, times a factor; 10**6, no limit, stays."""
    if isinstance(value, (list, tuple)):
        return type(value)(multiplied(item, factor) for item in value)
    if not isinstance(value, (int, float)) or value >= 10**6:
        return value
    return max(1, round(value * factor))


def set_everywhere(part: object, name: str, value: object) -> None:
    """Set a key wherever it is."""
    for _, node in nodes(part):
        if name in node:
            node[name] = value


def fit_backbone(cfg: dict, own: Own, drop_path: float, layer_decay: float) -> None:
    """Set architecture, weights and what goes with them. Random weights have one learning rate."""
    backbone, paramwise = cfg['model']['backbone'], cfg['optim_wrapper']['paramwise_cfg']
    backbone.update(arch=own.vit.arch, rope='default', with_cls_token='default')
    backbone['drop_path_rate'] = drop_path
    decay = dict(layer_decay=layer_decay)
    fit_weights(cfg, own)
    if own.weights is None:
        backbone.update(drop_path_rate=0.0, img_size=own.size)
        decay = {}
    kept = {name: value for name, value in paramwise.items() if name == 'no_decay'}
    cfg['optim_wrapper']['paramwise_cfg'] = dict(**decay, **kept)


def fit_weights(cfg: dict, own: Own) -> None:
    """Set the weights of the backbone, and the colours and sizes that they were trained with."""
    vit, model = own.vit, cfg['model']
    model['data_preprocessor'].update(mean=[*vit.mean], std=[*vit.std])
    if model['data_preprocessor'].get('pad_size_divisor') == 16:  # of the recipe's patches
        model['data_preprocessor']['pad_size_divisor'] = vit.patch_size
    checkpoint = vit.weights if own.weights == 'default' else own.weights
    pretrained = dict(type='Pretrained', checkpoint=checkpoint)
    model['backbone']['init_cfg'] = pretrained if checkpoint else None
    if own.weights is None and vit.has_layer_scale:
        # LayerScale of 1e-5, with which the weights were trained, would hide the blocks.
        model['backbone']['layer_scale_init_value'] = 1.0


def fit_schedule(cfg: dict, own: Own, images: int, recipe_batch: int, metric: str) -> int:
    """Set what depends on the number of images and on epochs; returns the number of iterations.

    Args:
        metric: what chooses the best checkpoint.
    """
    per_epoch = math.ceil(images / own.batch)
    iterations, interval = own.epochs * per_epoch, own.val_epochs * per_epoch
    interval = min(interval, iterations)
    cfg['train_cfg'].update(max_iters=iterations, val_interval=interval)
    hooks = cfg['default_hooks']
    hooks['logger']['interval'] = max(1, min(50, per_epoch // 2))
    hooks['checkpoint'].update(interval=interval, max_keep_ckpts=1, save_best=metric)
    cfg['train_dataloader']['batch_size'] = own.batch_size
    workers = min(4, os.cpu_count() or 1)
    for name in ('train', 'val', 'test'):
        cfg[f'{name}_dataloader'].update(num_workers=workers, persistent_workers=True)
    optimizer = cfg['optim_wrapper']['optimizer']
    scale = math.sqrt(own.batch / recipe_batch)
    optimizer['lr'] = own.lr or float(f'{optimizer["lr"] * scale:.3g}')
    if own.lr is None and own.weights is None:
        optimizer['lr'] = RANDOM_LR
    cfg['auto_scale_lr'] = dict(enable=False, base_batch_size=own.batch)
    return iterations


def early_stop(own: Own, metric: str, rule: str = 'greater') -> list[dict]:
    """The hook that ends a training without progress, if settings ask for it."""
    if own.patience is None:
        return []
    return [dict(type='EarlyStoppingHook', monitor=metric, rule=rule, patience=own.patience)]


def moving_average(own: Own) -> list[dict]:
    """The hook that evaluates and saves an average of the weights, if settings ask for it."""
    kind = dict(type='EMAHook', ema_type='MomentumAnnealingEMA', momentum=0.0002)
    return [kind] if own.ema else []


def warm_up(iterations: int) -> list[dict]:
    """A linear rise from a thousandth, which mmengine completes at iteration ``end`` - 1."""
    end = min(WARMUP, max(2, iterations // 10))
    rise = dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=end)
    return [rise] if end <= iterations else []


def finished(cfg: dict, own: Own, mosaic: bool | None = None) -> dict:
    """The config with its augmentation, and TensorBoard where that is installed.

    Args:
        mosaic: see ``OwnRealtime``.
    """
    if find_spec('tensorboard'):
        cfg['visualizer']['vis_backends'].append(dict(type='TensorboardVisBackend'))
    fit_augmentation(cfg, own.augment, own.flip, mosaic)
    train, val = (images_of(cfg[f'{name}_dataloader']['dataset']) for name in ('train', 'val'))
    if own.channels is None:
        headers = {path: read_header(path) for path in [*train, *val]}
        fit_range(cfg, survey_pictures(headers, own.max_value))
    else:
        fit_channels(cfg, own, survey_channels(own, train, val))
    return cfg


def images_of(dataset: Mapping[str, Any]) -> list[Path]:
    """The images of a data set: those its COCO file lists, or those with a mask or depth map."""
    root, prefix = Path(dataset.get('data_root') or ''), dataset['data_prefix']
    labels = root / (dataset.get('ann_file') or '')
    if labels.suffix == '.json' and labels.is_file():
        folder = root / (prefix.get('img') or '')
        return sorted(folder / x['file_name'] for x in json.loads(labels.read_text())['images'])
    for name, kind in (('seg_map_path', MASKS), ('depth_map_path', DEPTH)):
        if name in prefix:
            kind = replace(kind, channels=tuple(dataset.get('channels') or ()))
            found = match(root / prefix['img_path'], root / prefix[name], kind)
            return sorted(found.map_of)
    return list_files(root / (prefix.get('img') or ''), IMAGE_SUFFIXES)
