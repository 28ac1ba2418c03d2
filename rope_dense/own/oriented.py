"""Settings of configs/own/oriented.py applied to DEIM with an angle on LingBot-Vision."""

import math
from typing import Any

from . import fit
from .augment import FLIPS
from .data import OwnData, find_objects
from .detection import fit_objects
from .realtime import RECIPE_BATCH, RECIPES, ended, fit_model, set_last_batch
from .settings import OwnOriented

IOU_THRESHOLDS = [round(0.5 + 0.05 * step, 2) for step in range(10)]
META_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')


def oriented(own: OwnOriented, data: OwnData) -> dict:
    """The config of DEIM with an angle on a plain ViT, for rotated boxes.

    ``size`` is the side of the square that images are scaled to fit. The recipe of
    configs/own/realtime.py, with the augmentation of mmrotate's DOTA configs.
    """
    name, shares, late = RECIPES[own.vit.scale]
    cfg = fit.read_recipe(name)
    model, head = cfg['model'], cfg['model']['bbox_head']
    head['type'] = 'OrientedDEIMHead'  # with costs and loss weights of its own
    del head['loss_weights'], head['matching']['giou_cost']
    head['num_queries'] = min(head['num_queries'], (own.size // 8) ** 2)
    model['test_cfg']['max_per_img'] = head['num_queries']
    model['data_preprocessor'].update(boxtype2tensor=False, batch_augments=None)
    set_data(cfg, own.size)
    fit_objects(cfg, own, data)
    fit_model(cfg, own)
    set_last_batch(cfg['train_dataloader'], own, data, 64)
    iterations = fit.set_schedule(cfg, own, data, RECIPE_BATCH, 'dota/mAP')
    del cfg['custom_hooks'][-1]  # of the end of mosaics, which are not used here
    head['matching']['late_epoch'] = min(own.epochs, max(1, round(late * own.epochs)))
    # The learning rate rises, is flat, then falls as a cosine to its half.
    flat, end = (math.ceil(share * iterations) for share in shares[1:])
    warmup, cosine = cfg['param_scheduler']
    warmup['end'] = min(warmup['end'], max(1, iterations // 10), flat)
    cosine.update(begin=flat, end=end)
    cfg['param_scheduler'] = ended(warmup, cosine, iterations)
    return fit.finished(cfg, own, data)


def find_oriented(own: OwnOriented) -> OwnData:
    """The objects of a data set as rectangles of any orientation, see ``find_objects``."""
    from ..integrations import mmrotate  # noqa: F401, one line says what is not installed

    return find_objects(own, oriented=True)


def set_data(cfg: dict, size: int) -> None:
    """Let data sets read COCO json whose polygons are rectangles, and the metric be DOTA's."""
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    labels: list[dict[str, Any]] = [
        dict(type='LoadAnnotations', with_bbox=True, with_mask=True, poly2mask=False),
        dict(type='mmrotate.ConvertMask2BoxType', box_type='rbox'),
    ]
    # Another scale for each axis would make parallelograms of rectangles.
    resize: dict[str, Any] = dict(type='Resize', scale=(size, size), keep_ratio=True)
    flip, pack = dict(type='RandomFlip', **FLIPS['both']), dict[str, Any](type='PackDetInputs')
    train = [load, *labels, resize, flip, pack]
    test = [load, resize, *labels, dict(pack, meta_keys=META_KEYS)]
    for name in ('train', 'val', 'test'):
        pipeline = [dict(step) for step in (train if name == 'train' else test)]
        cfg[f'{name}_dataloader']['dataset']['pipeline'] = pipeline
    for name in ('val_evaluator', 'test_evaluator'):
        cfg[name] = dict(type='mmrotate.DOTAMetric', iou_thrs=IOU_THRESHOLDS)
    cfg['visualizer']['type'] = 'mmrotate.RotLocalVisualizer'
    cfg['custom_imports']['imports'].append('rope_dense.integrations.mmrotate')
    for name in ('tta_model', 'tta_pipeline'):  # mmrotate merges no views
        del cfg[name]
