"""Settings of configs/own applied to the recipes of detectors: DINO, Mask R-CNN and DEIM."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mmengine.config import Config

from ...models.deim.recipe import set_stages, with_masks
from ...utils.config_parts import nodes
from ...utils.validation import checked_integer
from . import fit
from .augment import FLIPS, all_pipelines
from .data import OwnData
from .settings import Own, OwnObjects, OwnOriented, OwnRealtime

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
SHARES = dict.fromkeys(('tiny', 'small', 'base'), (0.1, 0.7)) | {'large': (0.4, 0.8)}


class Stages(NamedTuple):
    """A recipe of DEIM, and when its stages begin, as shares of its epochs."""

    recipe: str
    first: float  # augmentation
    flat: float  # no more mosaics and MixUp
    last: float  # no more augmentation
    late: float  # late matching


TINY = 'deim/deimv2-s_vit-t_4xb8-488k_coco.py'
SMALL = 'deim/deimv2-l_lingbot-s_4xb8-251k_coco.py'
BASE = 'deim/deimv2-x_lingbot-b_4xb8-214k_coco.py'
LARGEST = Stages(BASE, 4 / 58, 29 / 58, 50 / 58, 45 / 58)
DEIM = {
    'tiny': Stages(TINY, 4 / 132, 64 / 132, 120 / 132, 100 / 132),
    'small': Stages(SMALL, 4 / 68, 34 / 68, 60 / 68, 50 / 68),
    'base': LARGEST,
    'large': LARGEST,
}
DEIM_BATCH = 32
SHORT_RUN = 20_000  # images, each as often as it is trained on
# Both against duplicates: 1.5 as published suppresses them later; docs/realtime.md
SHORT_MAL_GAMMA, SHORT_NMS = 1.0, 0.7
# Queries: with the published 100 of denoising a step on a CPU takes 1.4 times as long.
RANDOM_QUERIES, RANDOM_DENOISING = 100, 20
RANDOM_MASK_LOSSES = dict(mask=1.0, dice=1.0)
RANDOM_REPEATS = 6  # queries that learn an object; its duplicates are left out
# The average of the weights: of the last 20 iterations, as the published one is of thousands.
SHORT_AVERAGE = dict(momentum=0.05, gamma=20)
MOST_QUERIES = 900  # as DINO's; three for each object of the fullest image up to there
# Of an anchor or proposal in an ignored object, which is no background then.
IGNORED_SHARE = 0.5
IOU_THRESHOLDS = [round(0.5 + 0.05 * step, 2) for step in range(10)]
META_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')


def detection_config(own: OwnObjects, data: OwnData) -> dict:
    """The config of DINO on a plain ViT for boxes, which returns a box of each query."""
    # Two patches are a side of the smallest training image.
    checked_integer('own.size', own.size, 64)
    cfg = fit.read_recipe('dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py')
    fit_recipe(cfg, own, data, size=800, batch=16, milestones=[11 / 12])
    model = cfg['model']
    # No more than the smallest training image has tokens of 8 pixels.
    queries = min(model['num_queries'], math.floor(0.6 * own.size / 8) ** 2)
    model['num_queries'] = model['test_cfg']['max_per_img'] = queries
    merging = cfg['tta_model']['tta_cfg']
    merging['max_per_img'] = max(merging['max_per_img'], queries)
    return fit.finish_config(cfg, own, data)


def instance_config(own: OwnObjects, data: OwnData) -> dict:
    """The config of Mask R-CNN on a plain ViT for masks.

    It returns 100 objects of an image, or as many as the data have, up to its proposals.
    """
    cfg = fit.read_recipe('stock_heads/mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco.py')
    fit_recipe(cfg, own, data, size=1024, batch=64, milestones=[8 / 9, 26 / 27])
    cfg['default_hooks']['checkpoint']['save_best'] = 'coco/segm_mAP'
    # Of a batch of which all is ignored, no class is learned.
    cfg['find_unused_parameters'] = True
    test_cfg = cfg['model']['test_cfg']
    proposals = test_cfg['rpn']
    final = test_cfg['rcnn']
    most = min(data.most_objects, proposals['max_per_img'])
    final['max_per_img'] = max(final['max_per_img'], most)
    resize = dict(cfg['test_dataloader']['dataset']['pipeline'][1], keep_ratio=True)
    smaller = dict(resize, scale=fit.scale_pixels(resize['scale'], 0.75))
    # A larger view would be padded to two squares.
    cfg['tta_pipeline'][1]['transforms'][0] = [resize, smaller]
    nms = dict(type='nms', iou_threshold=0.5)
    merging = dict(nms=nms, max_per_img=final['max_per_img'])
    cfg['tta_model'] = dict(type='InstanceTTAModel', tta_cfg=merging)
    return fit.finish_config(cfg, own, data)


def fit_recipe(
    cfg: dict,
    own: OwnObjects,
    data: OwnData,
    size: int,
    batch: int,
    milestones: Sequence[float],
) -> None:
    """Fit a recipe for COCO, whose test images have ``size``, to settings and data, in place.

    Its learning rate falls to a tenth at ``milestones``, shares of the training.
    """
    fit_objects(cfg, own, data)
    fit.resize_config(cfg, own.size / size)
    model = cfg['model']
    vit = own.vit
    fit.set_backbone(cfg, own, *SHARES[vit.scale])
    pyramid = model['neck'][0] if isinstance(model['neck'], list) else model['neck']
    pyramid['in_channels'] = vit.channels
    blocks = [i for i in range(vit.depth) if (i + 1) % (vit.depth // 4)]
    model['backbone'].update(
        window_size=vit.window_size,
        window_prefix='copy',
        window_block_indexes=blocks,
    )
    iterations = fit.set_schedule(cfg, own, data, batch, 'coco/bbox_mAP')
    steps = sorted({int(share * iterations) for share in milestones} - {0})
    decay = dict(
        type='MultiStepLR',
        by_epoch=False,
        milestones=steps,
        gamma=0.1,
    )
    cfg['param_scheduler'] = [*fit.warm_up(iterations), decay]


def fit_objects(cfg: dict, own: OwnObjects, data: OwnData) -> None:
    """Set the data sets, evaluators and classes of a recipe for COCO, in place."""
    data.apply(cfg)
    filter_cfg = dict(filter_empty_gt=not own.negatives, min_size=1)
    cfg['train_dataloader']['dataset']['filter_cfg'] = filter_cfg
    for evaluator in ('val_evaluator', 'test_evaluator'):
        # DOTA's metric takes objects from the data set.
        if 'ann_file' in cfg[evaluator]:
            cfg[evaluator]['ann_file'] = data.files['val']['ann_file']
    model = cfg['model']
    fit.set_everywhere(model, 'num_classes', len(data.classes))
    for _, part in nodes(model):
        if 'ignore_iof_thr' in part:  # of Mask R-CNN
            part.update(type='IgnoringAssigner', ignore_iof_thr=IGNORED_SHARE)
    if 'bbox_head' in model:  # of DINO and DEIM
        model['bbox_head']['skip_ignored'] = True
    elif data.is_partial:  # Mask R-CNN
        model['type'] = 'PartialMaskRCNN'
        model['roi_head']['bbox_head']['type'] = 'PartialBBoxHead'


def realtime_config(
    own: OwnRealtime, data: OwnData, metric: str = 'coco/bbox_mAP'
) -> dict:
    """The config of DEIMv2 on a plain ViT for boxes; ``metric`` chooses the best checkpoint.

    Short runs from random values have a light augmentation. What differs from the recipe of long
    ones: docs/realtime.md.
    """
    stages = DEIM[own.vit.scale]
    cfg = fit.read_recipe(stages.recipe)
    fit_objects(cfg, own, data)
    fit_model(cfg, own, data)
    model = cfg['model']
    head = model['bbox_head']
    least = int(0.75 * own.size / 32) * 32 or 32
    is_short = own.epochs * data.images < SHORT_RUN
    if own.weights is None or is_short:
        head['mal_gamma'] = SHORT_MAL_GAMMA
        model['test_cfg']['nms_iou'] = SHORT_NMS
    if own.weights is None:
        head['matching']['repeats'] = RANDOM_REPEATS
        if is_short:
            cfg['custom_hooks'][0].update(SHORT_AVERAGE)
    if own.weights is None and is_short and own.augment is None and own.mosaic is None:
        own = replace(own, augment='light')
    # No more queries than the smallest square batch, of multi-scale training, has tokens of 8.
    queries = min(head['num_queries'], (least // 8) ** 2)
    head['num_queries'] = model['test_cfg']['max_per_img'] = queries
    merging = cfg['tta_model']['tta_cfg']
    merging['max_per_img'] = max(merging['max_per_img'], queries)
    for _, step in nodes(all_pipelines(cfg)):
        if step.get('type') == 'Resize':
            sides = [round(side * own.size / 640 / 32) * 32 for side in step['scale']]
            scale = tuple(max(32, side) for side in sides)
            step.update(scale=scale, keep_ratio=own.keep_ratio)
        elif step.get('type') == 'AffineMosaic':
            # It loads its images: a run resumes exactly.
            step.update(part_size=own.size // 2, max_cached_images=0)
    loader = cfg['train_dataloader']
    loader['dataset']['type'] = 'MosaicCocoDataset'
    set_last_batch(loader, own, data, 64 if own.augment == 'none' else 96)
    iterations = fit.set_schedule(cfg, own, data, DEIM_BATCH, metric)
    first = math.floor(stages.first * own.epochs)
    flat = max(first + 1, round(stages.flat * own.epochs))
    last = max(flat + 1, round(stages.last * own.epochs))
    late = max(flat, round(stages.late * own.epochs))
    changed = set_stages(
        cfg,
        model,
        epochs=own.epochs,
        starts=(first, flat, last),
        late_epoch=min(own.epochs, late),
        repeat=model['data_preprocessor']['batch_augments'][1]['repeat'],
        size=own.size,
        epoch_length=iterations // own.epochs,
    )
    warmup, cosine = changed['param_scheduler']
    cfg['train_dataloader'] = changed['train_dataloader']
    cfg['custom_hooks'] = changed['custom_hooks']
    cfg['param_scheduler'] = end_schedulers(warmup, cosine, iterations)
    return fit.finish_config(cfg, own, data, own.mosaic)


def realtime_masks_config(own: OwnRealtime, data: OwnData) -> dict:
    """The same with ECSeg's head, costs and loss weights, for masks.

    From random values masks are learned in their boxes: few points of a whole image are in a small
    object.
    """
    cfg = realtime_config(own, data, 'coco/segm_mAP')
    for augment in cfg['model']['data_preprocessor']['batch_augments']:
        if augment['type'] == 'MixUpCopyBlend':
            # As ECSeg: it would copy objects without their masks.
            augment['copyblend_prob'] = 0.0
    changed = with_masks(cfg, {})
    if own.weights is None:
        head = changed['model']['bbox_head']
        # The costs and weights of boxes stay: they are learned first, and masks in them.
        head.update(masks=dict(in_boxes=True), loss_weights=RANDOM_MASK_LOSSES)
        del head['matching']
    config = Config(cfg)
    config.merge_from_dict(changed)
    return config.to_dict()


def set_last_batch(loader: dict, own: Own, data: OwnData, least_size: int) -> None:
    """Drop the last batch of an epoch, in place, where batch norm would see one value a channel.

    ValueError if each batch is so. ``least_size`` is the smallest ``size`` whose coarsest map, of
    stride 32, has several positions.
    """
    images = math.ceil(data.images / (own.gpus or 1)) if data.text else own.images_each
    if own.size < least_size and 1 in (own.images_each, images):
        raise ValueError(
            f'own.size={own.size} with one image in a batch: batch norm needs several positions; '
            f'give own.size={least_size} or more, or own.batch_size=2 or more with as many images'
        )
    loader['drop_last'] = own.size < least_size and images % own.images_each == 1


def fit_model(cfg: dict, own: Own, data: OwnData) -> None:
    """Set the backbone, and queries for the fullest image.

    Random weights have the learning rate of the rest, and few queries.
    """
    vit = own.vit
    model = cfg['model']
    blocks = [vit.depth // 2 - 1, vit.depth * 3 // 4 - 1, vit.depth - 1]
    model['backbone'].update(arch=vit.arch, out_indices=blocks)
    model['neck']['in_channels'] = vit.channels
    fit.set_weights(cfg, own)
    head = model['bbox_head']
    if own.weights is None:
        if vit.patch_size == 16:
            # Convolutions in place of patches find small objects in fewer steps.
            model['backbone'].update(conv_stem=True, pre_norm=False)
        cfg['optim_wrapper']['paramwise_cfg']['lr_mult'] = {}
        head['num_queries'] = RANDOM_QUERIES
        head['denoising']['num_queries'] = RANDOM_DENOISING
    wanted = min(3 * data.most_objects, MOST_QUERIES)
    head['num_queries'] = max(head['num_queries'], wanted)


def end_schedulers(warmup: dict, cosine: dict, iterations: int) -> list[dict]:
    """The schedulers of a rise, then flat, then a cosine, which ends with the training."""
    cosine['end'] = min(cosine['end'], iterations)
    cosine['T_max'] = cosine['end'] - cosine['begin']
    return [warmup, cosine] if cosine['T_max'] > 1 else [warmup]


def oriented_config(own: OwnOriented, data: OwnData) -> dict:
    """The config of DEIM with an angle on a plain ViT, for rotated boxes.

    ``size`` is the side of the square that images are scaled to fit. The recipe of
    configs/own/realtime.py, with the augmentation of mmrotate's DOTA configs.
    """
    from ...models import mmrotate  # noqa: F401, one line says what is not installed

    stages = DEIM[own.vit.scale]
    cfg = fit.read_recipe(stages.recipe)
    model = cfg['model']
    head = cfg['model']['bbox_head']
    head['type'] = 'OrientedDEIMHead'  # with costs and loss weights of its own
    del head['loss_weights'], head['matching']['giou_cost']
    model['data_preprocessor'].update(boxtype2tensor=False, batch_augments=None)
    set_data(cfg, own.size)
    if data.is_partial:
        cfg['custom_imports']['imports'].append('rope_dense.models.partial_dota')
        for name in ('val_evaluator', 'test_evaluator'):
            cfg[name]['type'] = 'PartialDOTAMetric'
    fit_objects(cfg, own, data)
    fit_model(cfg, own, data)
    head['num_queries'] = min(head['num_queries'], (own.size // 8) ** 2)
    model['test_cfg']['max_per_img'] = head['num_queries']
    set_last_batch(cfg['train_dataloader'], own, data, 64)
    iterations = fit.set_schedule(cfg, own, data, DEIM_BATCH, 'dota/mAP')
    del cfg['custom_hooks'][-1]  # of the end of mosaics, which are not used here
    late = max(1, round(stages.late * own.epochs))
    head['matching']['late_epoch'] = min(own.epochs, late)
    # The learning rate rises, is flat, then falls as a cosine to its half.
    flat = math.ceil(stages.flat * iterations)
    end = math.ceil(stages.last * iterations)
    warmup, cosine = cfg['param_scheduler']
    warmup['end'] = min(warmup['end'], max(1, iterations // 10), flat)
    cosine.update(begin=flat, end=end)
    cfg['param_scheduler'] = end_schedulers(warmup, cosine, iterations)
    return fit.finish_config(cfg, own, data)


def set_data(cfg: dict, size: int) -> None:
    """Let data sets read COCO json whose polygons are rectangles, and the metric be DOTA's."""
    load = dict(type='LoadImageFromFile')
    polygons = dict(
        type='LoadAnnotations',
        with_bbox=True,
        with_mask=True,
        poly2mask=False,
    )
    boxes = dict(type='mmrotate.ConvertMask2BoxType', box_type='rbox')
    # Another scale for each axis would make parallelograms of rectangles.
    resize = dict(type='Resize', scale=(size, size), keep_ratio=True)
    flip = dict(type='RandomFlip', **FLIPS['both'])
    pack = dict(type='PackDetInputs')
    steps: list[dict] = [load, polygons, boxes, resize, flip, pack]
    cfg['train_dataloader']['dataset']['pipeline'] = steps
    for name in ('val', 'test'):
        steps = [load, resize, polygons, boxes, dict(pack, meta_keys=META_KEYS)]
        cfg[f'{name}_dataloader']['dataset']['pipeline'] = [*map(dict, steps)]
        cfg[f'{name}_evaluator'] = dict(
            type='mmrotate.DOTAMetric',
            iou_thrs=IOU_THRESHOLDS,
        )
    cfg['visualizer']['type'] = 'mmrotate.RotLocalVisualizer'
    cfg['custom_imports']['imports'].append('rope_dense.models.mmrotate')
    for name in ('tta_model', 'tta_pipeline'):  # mmrotate merges no views
        del cfg[name]
