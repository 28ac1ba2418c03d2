"""Settings of configs/own/oriented.py applied to Oriented R-CNN on LingBot-Vision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..datasets.label_folders import LabelFolder, Labels, find_labels
from ..datasets.own_data import CocoSplit, annotation_files, find_coco
from ..integrations import mmrotate  # noqa: F401, one line says what is not installed
from .own_config import (
    CONVERTED,
    DETECTION,
    Own,
    as_file,
    finished,
    fit_backbone,
    fit_data,
    fit_schedule,
    read_recipe,
    settings_of,
    warm_up,
)

RUN = 'dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'  # its loop, hooks and logs
RECIPE = 'oriented/oriented-rcnn_lingbot-b_2xb1-12e_dota.py'
RECIPE_BATCH = 2
IOU_THRESHOLDS = [round(0.5 + 0.05 * step, 2) for step in range(10)]
META_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')


def oriented(given: Mapping[str, object]) -> dict:
    """A config of Oriented R-CNN on a plain ViT for rectangles of any orientation; see ``Own``.

    Labels are those of ``label_folders`` and COCO's polygons, each as its smallest rectangle.
    ``size`` is the side of the square that images are scaled to fit.

    Raises:
        ValueError: a wrong setting, or labels that cannot be used.
    """
    own = settings_of(Own, given)
    cfg, recipe = read_recipe(RUN), read_recipe(RECIPE)
    for name in ('model', 'optim_wrapper', 'custom_imports', 'default_scope', 'visualizer'):
        cfg[name] = recipe[name]
    for name in ('tta_model', 'tta_pipeline'):  # mmrotate has none
        del cfg[name]
    cfg['default_hooks']['visualization']['type'] = 'mmdet.DetVisualizationHook'
    set_pipelines(cfg, own.size)
    cfg['val_evaluator'] = dict(type='DOTAMetric', iou_thrs=IOU_THRESHOLDS)
    cfg['test_evaluator'] = dict(cfg['val_evaluator'])
    images = fit_data(cfg, own, find_oriented_splits)
    fit_model(cfg, own)
    iterations = fit_schedule(cfg, own, images, RECIPE_BATCH, 'dota/mAP')
    milestones = sorted({int(share * iterations) for share in (8 / 12, 11 / 12)} - {0})
    steps = dict(type='MultiStepLR', by_epoch=False, milestones=milestones, gamma=0.1)
    cfg['param_scheduler'] = [*warm_up(iterations), steps]
    return finished(cfg, own)


def set_pipelines(cfg: dict, size: int) -> None:
    """Let data sets read COCO json whose polygons are rectangles."""
    load: dict[str, Any] = dict(type='mmdet.LoadImageFromFile')
    labels: list[dict[str, Any]] = [
        dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True, poly2mask=False),
        dict(type='ConvertMask2BoxType', box_type='rbox'),
    ]
    resize: dict[str, Any] = dict(type='mmdet.Resize', scale=(size, size), keep_ratio=True)
    directions = ['horizontal', 'vertical', 'diagonal']
    flip: dict[str, Any] = dict(type='mmdet.RandomFlip', prob=0.75, direction=directions)
    pack: dict[str, Any] = dict(type='mmdet.PackDetInputs')
    train = [load, *labels, resize, flip, pack]
    test = [load, resize, *labels, dict(pack, meta_keys=META_KEYS)]
    for name in ('train', 'val', 'test'):
        pipeline = [dict(step) for step in (train if name == 'train' else test)]
        cfg[f'{name}_dataloader']['dataset'].update(type='mmdet.CocoDataset', pipeline=pipeline)
    cfg['train_dataloader']['batch_sampler'] = None


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


def fit_model(cfg: dict, own: Own) -> None:
    """Set the backbone, its windows and its pyramid."""
    vit, model = own.vit, cfg['model']
    fit_backbone(cfg, own, *DETECTION[vit.scale])
    model['neck']['in_channels'] = vit.channels
    model['data_preprocessor']['pad_size_divisor'] = 2 * vit.patch_size  # of the last map
    model['backbone'].update(
        window_size=vit.window_size,
        window_prefix='copy',
        window_block_indexes=[i for i in range(vit.depth) if (i + 1) % (vit.depth // 4)],
    )
