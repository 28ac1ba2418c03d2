"""Settings of configs/own/oriented.py applied to DEIM with an angle on LingBot-Vision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..datasets.label_folders import LabelFolder, Labels, find_labels
from ..datasets.own_data import CocoSplit, annotation_files, find_coco
from ..integrations import mmrotate  # noqa: F401, one line says what is not installed
from .common import (
    CONVERTED,
    Own,
    as_file,
    finished,
    fit_data,
    fit_schedule,
    read_recipe,
    settings_of,
)
from .realtime import RECIPE_BATCH, RECIPES, fit_model

IOU_THRESHOLDS = [round(0.5 + 0.05 * step, 2) for step in range(10)]
META_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')


def oriented(given: Mapping[str, object]) -> dict:
    """A config of DEIM with an angle on a plain ViT, for rotated boxes; see ``Own``.

    Takes the labels of ``label_folders`` and COCO's polygons, each as its smallest rectangle.
    ``size`` is the side of the square that images are scaled to fit, rounded to a multiple of 32.
    The recipe of configs/own/realtime.py, with the augmentation of mmrotate's DOTA configs.

    Raises:
        ValueError: a wrong setting, or labels that cannot be used.
    """
    own = settings_of(Own, given)
    name, shares, late = RECIPES[own.vit.scale]
    cfg = read_recipe(name)
    size = max(32, round(own.size / 32) * 32)
    set_head(cfg, size)
    set_data(cfg, size)
    images = fit_data(cfg, own, find_oriented_splits)
    fit_model(cfg, own)
    average, _ = cfg['custom_hooks']
    iterations = fit_schedule(cfg, own, images, RECIPE_BATCH, 'dota/mAP')
    hooks = [hook for hook in cfg['custom_hooks'] if hook['type'] == 'EarlyStoppingHook']
    cfg['custom_hooks'] = [*hooks, *([average] if own.ema else [])]
    head = cfg['model']['bbox_head']
    head['matching']['late_epoch'] = min(own.epochs, max(1, round(late * own.epochs)))
    fit_rates(cfg, iterations, shares)
    return finished(cfg, own)


def set_head(cfg: dict, size: int) -> None:
    """Let the head predict an angle, with its own costs and loss weights."""
    model = cfg['model']
    head = model['bbox_head']
    head['type'] = 'OrientedDEIMHead'
    del head['loss_weights'], head['matching']['giou_cost']
    head['num_queries'] = min(head['num_queries'], (size // 8) ** 2)
    model['test_cfg']['max_per_img'] = head['num_queries']
    model['data_preprocessor'].update(boxtype2tensor=False, batch_augments=None)


def set_data(cfg: dict, size: int) -> None:
    """Let data sets read COCO json whose polygons are rectangles, and the metric be DOTA's."""
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    labels: list[dict[str, Any]] = [
        dict(type='LoadAnnotations', with_bbox=True, with_mask=True, poly2mask=False),
        dict(type='mmrotate.ConvertMask2BoxType', box_type='rbox'),
    ]
    # Another scale for each axis would make parallelograms of rectangles.
    resize: dict[str, Any] = dict(type='Resize', scale=(size, size), keep_ratio=True)
    directions = ['horizontal', 'vertical', 'diagonal']
    flip: dict[str, Any] = dict(type='RandomFlip', prob=[0.25] * 3, direction=directions)
    pack: dict[str, Any] = dict(type='PackDetInputs')
    train = [load, *labels, resize, flip, pack]
    test = [load, resize, *labels, dict(pack, meta_keys=META_KEYS)]
    for name in ('train', 'val', 'test'):
        pipeline = [dict(step) for step in (train if name == 'train' else test)]
        cfg[f'{name}_dataloader']['dataset']['pipeline'] = pipeline
    cfg['train_dataloader']['drop_last'] = False  # a small data set may have less than a batch
    for name in ('val_evaluator', 'test_evaluator'):
        cfg[name] = dict(type='mmrotate.DOTAMetric', iou_thrs=IOU_THRESHOLDS)
    cfg['visualizer']['type'] = 'mmrotate.RotLocalVisualizer'
    cfg['custom_imports']['imports'].append('rope_dense.integrations.mmrotate')
    for name in ('tta_model', 'tta_pipeline'):  # mmrotate merges no views
        del cfg[name]


def fit_rates(cfg: dict, iterations: int, shares: tuple[float, float, float]) -> None:
    """Set the schedule: a rise, flat, then a cosine to half of the learning rate."""
    flat, end = (math.ceil(share * iterations) for share in shares[1:])
    warmup, cosine = cfg['param_scheduler']
    warmup['end'] = min(warmup['end'], max(1, iterations // 10), flat)
    cosine.update(begin=flat, end=min(end, iterations))
    cosine['T_max'] = cosine['end'] - cosine['begin']
    cfg['param_scheduler'] = [warmup, *([cosine] if cosine['T_max'] > 1 else [])]


def find_oriented_splits(own: Own) -> tuple[CocoSplit, CocoSplit, str]:
    """The training and the validation split as COCO json of rectangles, and both in words.

    Raises:
        ValueError: labels that are not there or cannot be read.
    """
    given = {split: as_file(split, getattr(own, split)) for split in ('train', 'val')}
    is_coco = any((own.root / name).is_file() for name in annotation_files('train'))
    folder = None if is_coco or any(given.values()) else find_labels(own.root)
    if folder is None:
        found = {split: find_coco(own.root, split, file) for split, file in given.items()}
        labels = {
            split: Labels(own.root / part.ann_file, own.root / part.images)
            for split, part in found.items()
        }
        folder = LabelFolder('coco', labels, 'annotation file', found['train'].classes)
    splits, report = replace(folder, oriented=True).as_coco(CONVERTED)
    return splits['train'], splits['val'], report
