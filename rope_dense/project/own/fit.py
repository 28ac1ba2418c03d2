"""Parts of all recipes: each function fits a part of a published recipe to settings, in place."""

import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ...utils.config_parts import LOADERS, keeps_ratio, nodes, size_steps
from ...utils.configs import CONFIGS
from .augment import all_pipelines, fit_augmentation, mirrored_text
from .data import OwnData
from .images import fit_images
from .settings import Own

# From random values, as in configs/demo: recipes are for trained backbones.
RANDOM_LR = 5e-4
PIXELS = tuple('scale scales crop_size max_size size stride pad_size_divisor'.split())
BACKBONE = 'backbone.safetensors'  # in the folder of a run of configs/own/adapt.py
FEW = 8  # images: the largest default batch of configs/own, allowed with fewer images, too
WARMUP = 500  # iterations, or a tenth of a shorter run
# Boxes of a class in an image that COCO's AP counts, and per object of the fullest image.
LEAST, KEPT = 100, 5


def read_recipe(name: str) -> dict:
    """A config of this package as plain dicts, which share nothing."""
    return Config.fromfile(CONFIGS / name).to_dict()


def resize_config(cfg: dict, factor: float) -> None:
    """Multiply every size in pixels of the pipelines and of the model's crops."""
    parts = [all_pipelines(cfg), cfg['model']['data_preprocessor']]
    if cfg.get('default_scope') == 'mmseg':
        parts.append(cfg['model'].get('test_cfg'))
    for _, node, name in size_steps(parts, names=PIXELS):
        if node[name] != 1:  # a divisor of 1 does not pad
            node[name] = scale_pixels(node[name], factor)


def scale_pixels(value: object, factor: float) -> Any:
    """A number of pixels, or lists of these, times a factor; 10**6, no limit, stays."""
    if isinstance(value, (list, tuple)):
        return type(value)(scale_pixels(item, factor) for item in value)
    if not isinstance(value, (int, float)) or value >= 10**6:
        return value
    return max(1, round(value * factor))


def set_box_limit(part: dict, most: int) -> None:
    """Let COCO's AP below a part of a config count all boxes that an image can need, in place.

    The mean of AP, AP at each IoU and AP of each size count as many, with tiles and without, as
    does the report (``box_limit``). A larger limit stays.

    Args:
        most: objects of the fullest image.
    """
    for _, node in nodes(part):
        if str(node.get('type')).endswith('CocoMetric'):
            limit = max(LEAST, KEPT * most, *node.get('proposal_nums', ()))
            node['proposal_nums'] = (1, 10, limit)


def set_everywhere(part: object, name: str, value: object) -> None:
    """Set a key wherever it is."""
    for _, node in nodes(part):
        if name in node:
            node[name] = value


def set_backbone(cfg: dict, own: Own, drop_path: float, layer_decay: float) -> None:
    """Set architecture, weights and what goes with them. Random weights have one learning rate."""
    backbone = cfg['model']['backbone']
    paramwise = cfg['optim_wrapper']['paramwise_cfg']
    backbone.update(arch=own.vit.arch, rope='default', with_cls_token='default')
    backbone['drop_path_rate'] = drop_path
    for name in paramwise.keys() - {'no_decay'}:
        del paramwise[name]
    set_weights(cfg, own)
    if own.weights is None:
        backbone.update(drop_path_rate=0.0, img_size=own.size)
    else:
        paramwise['layer_decay'] = layer_decay


def set_weights(cfg: dict, own: Own) -> None:
    """Set the weights of the backbone, and the mean, std and image sizes of their training."""
    backbone = cfg['model']['backbone']
    preprocessor = cfg['model']['data_preprocessor']
    vit = own.vit
    preprocessor.update(mean=[*vit.mean], std=[*vit.std])
    if preprocessor.get('pad_size_divisor') == 16:  # of the recipe's patches
        preprocessor['pad_size_divisor'] = vit.patch_size
    weights = vit.weights if own.weights == 'default' else own.weights
    start = dict(type='Pretrained', checkpoint=pretrained_file(weights))
    backbone['init_cfg'] = start if weights else None
    if own.weights is None and vit.has_layer_scale:
        # LayerScale of 1e-5, with which the weights were trained, would hide the blocks.
        backbone['layer_scale_init_value'] = 1.0


def pretrained_file(weights: str | None) -> str | None:
    """The file of weights; of the folder of a run of configs/own/adapt.py, its backbone."""
    if weights is None:
        return None
    file = Path(os.path.expanduser(weights), BACKBONE)
    return str(file) if file.is_file() else weights


def set_schedule(
    cfg: dict,
    own: Own,
    data: OwnData,
    recipe_batch: int,
    metric: str | None,
    rule: str = 'greater',
) -> int:
    """Set loaders, learning rate, intervals and hooks; returns the number of iterations.

    The learning rate is the recipe's times the square root of the ratio of the batches (Malladi et
    al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022).

    Args:
        recipe_batch: images in an iteration of the recipe.
        metric, rule: chooses the best checkpoint, if any; 'greater' or 'less' is better.
    """
    if data.text and own.images_each > FEW and own.batch > data.images:
        gpus = '' if own.gpus == 1 else f' on {own.gpus} GPUs'
        raise ValueError(
            f'own.batch_size={own.images_each}{gpus}: more than the {data.images} training images; '
            'give a smaller own.batch_size'
        )
    loader = cfg['train_dataloader']
    per_epoch = data.images / own.batch
    rounded = math.floor if loader.get('drop_last') else math.ceil
    iterations = own.epochs * rounded(per_epoch)
    set_hooks(cfg, own, rounded(per_epoch), metric, rule)
    cfg['train_cfg']['max_iters'] = iterations
    loader['batch_size'] = own.images_each
    # The cores of this job, not of the machine.
    workers = min(4, len(os.sched_getaffinity(0)))
    for name in LOADERS:
        # Persistent ones would keep their memory between evaluations.
        cfg[name].update(num_workers=workers, persistent_workers=False)
    optimizer = cfg['optim_wrapper']['optimizer']
    scaled = optimizer['lr'] * math.sqrt(own.batch / recipe_batch)
    usual = RANDOM_LR if own.weights is None else float(f'{scaled:.3g}')
    optimizer['lr'] = own.lr or usual
    cfg['auto_scale_lr'] = dict(enable=False, base_batch_size=own.batch)
    return iterations


def set_hooks(
    cfg: dict, own: Own, per_epoch: int, metric: str | None, rule: str
) -> None:
    """Set when a training of so many iterations per epoch is evaluated, saved and stopped."""
    interval = min(own.val_epochs, own.epochs) * per_epoch
    cfg['train_cfg']['val_interval'] = interval
    hooks = cfg['default_hooks']
    hooks['logger']['interval'] = max(1, min(50, per_epoch // 2))
    hooks['checkpoint'].update(
        interval=interval,
        max_keep_ckpts=1,
        save_best=metric,
        save_minutes=own.save_minutes,
    )
    average = dict(
        type='EMAHook',
        ema_type='MomentumAnnealingEMA',
        momentum=0.0002,
    )
    # A recipe's own average is its first hook.
    average, *chosen = cfg.get('custom_hooks') or [average]
    if own.ema:
        chosen.insert(0, average)
    if own.patience:
        stop = dict(
            type='ResumableEarlyStoppingHook',
            monitor=metric,
            rule=rule,
            min_delta=1e-6,  # without any improvement: mmengine asks for 0.1
            patience=own.patience,
        )
        chosen.insert(0, stop)
    cfg['custom_hooks'] = chosen


def warm_up(iterations: int) -> list[dict]:
    """A linear rise from a thousandth, which mmengine completes at iteration ``end`` - 1."""
    end = min(WARMUP, max(2, iterations // 10))
    rise = dict(
        type='LinearLR',
        by_epoch=False,
        start_factor=0.001,
        begin=0,
        end=end,
    )
    return [rise] if end <= iterations else []


def finish_config(
    cfg: dict, own: Own, data: OwnData, mosaic: bool | None = None
) -> dict:
    """The config with its augmentation, images, TensorBoard if installed, and limits in words."""
    if find_spec('tensorboard'):
        cfg['visualizer']['vis_backends'].append(dict(type='TensorboardVisBackend'))
    fit_augmentation(cfg, own.augment or 'published', own.flip, mosaic)
    fit_images(cfg, own, data.survey)
    for name in LOADERS[1:]:
        if own.tile is None and keeps_ratio(cfg[name]['dataset']['pipeline']):
            cfg[name]['batch_size'] = 1
    mirrored = mirrored_text(cfg, data.classes)
    if mirrored and 'own_data' in cfg:
        cfg['own_data'] = f'{cfg["own_data"]}\n{mirrored}'
    test_cfg = cfg['model'].get('test_cfg', {})
    most = data.most_objects
    limit = test_cfg.get('rcnn', test_cfg).get('max_per_img', most)
    if most > limit:
        text = f'up to {most} objects in an image; the model returns at most {limit}'
        cfg['own_data'] = f'{cfg["own_data"]}\n{text}'
    return cfg
