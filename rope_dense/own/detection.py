"""Settings of configs/own/detection.py and instance.py applied to DINO and Mask R-CNN."""

import math
from collections.abc import Sequence

from ..utils.validation import check_integer
from . import fit
from .data import OwnData
from .settings import OwnObjects

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
SHARES = dict.fromkeys(('tiny', 'small', 'base'), (0.1, 0.7)) | {'large': (0.4, 0.8)}


def detection(own: OwnObjects, data: OwnData) -> dict:
    """The config of DINO on a plain ViT for boxes, which returns a box of each query."""
    check_integer('own.size', own.size, 64)  # two patches on a side of the smallest training image
    cfg = fit.read_recipe('dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py')
    fit_recipe(cfg, own, data, size=800, batch=16, milestones=[11 / 12])
    model = cfg['model']
    # No more than the smallest training image has tokens of 8 pixels.
    queries = min(model['num_queries'], math.floor(0.6 * own.size / 8) ** 2)
    model['num_queries'] = model['test_cfg']['max_per_img'] = queries
    merging = cfg['tta_model']['tta_cfg']
    merging['max_per_img'] = max(merging['max_per_img'], queries)
    return fit.finished(cfg, own, data)


def instance(own: OwnObjects, data: OwnData) -> dict:
    """The config of Mask R-CNN on a plain ViT for masks.

    It returns 100 objects of an image, or as many as the data have, up to its proposals.
    """
    cfg = fit.read_recipe('stock_heads/mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco.py')
    fit_recipe(cfg, own, data, size=1024, batch=64, milestones=[8 / 9, 26 / 27])
    cfg['default_hooks']['checkpoint']['save_best'] = 'coco/segm_mAP'
    proposals, final = cfg['model']['test_cfg']['rpn'], cfg['model']['test_cfg']['rcnn']
    most = min(data.most_objects, proposals['max_per_img'])
    final['max_per_img'] = max(final['max_per_img'], most)
    scale = cfg['test_dataloader']['dataset']['pipeline'][1]['scale']
    cfg['tta_pipeline'][1]['transforms'][0] = [  # a larger view would be padded to two squares
        dict(type='Resize', scale=fit.multiplied(scale, share), keep_ratio=True)
        for share in (1, 0.75)
    ]
    merging = dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=final['max_per_img'])
    cfg['tta_model'] = dict(type='InstanceTTAModel', tta_cfg=merging)
    return fit.finished(cfg, own, data)


def fit_recipe(
    cfg: dict, own: OwnObjects, data: OwnData, size: int, batch: int, milestones: Sequence[float]
) -> None:
    """Fit a recipe for COCO, whose test images have ``size``, to settings and data, in place.

    Its learning rate falls to a tenth at ``milestones``, shares of the training.
    """
    fit_objects(cfg, own, data)
    fit.resize(cfg, own.size / size)
    model, vit = cfg['model'], own.vit
    fit.set_backbone(cfg, own, *SHARES[vit.scale])
    pyramid = model['neck'][0] if isinstance(model['neck'], list) else model['neck']
    pyramid['in_channels'] = vit.channels
    model['backbone'].update(
        window_size=vit.window_size,
        window_prefix='copy',
        window_block_indexes=[i for i in range(vit.depth) if (i + 1) % (vit.depth // 4)],
    )
    iterations = fit.set_schedule(cfg, own, data, batch, 'coco/bbox_mAP')
    steps = sorted({int(share * iterations) for share in milestones} - {0})
    decay = dict(type='MultiStepLR', by_epoch=False, milestones=steps, gamma=0.1)
    cfg['param_scheduler'] = [*fit.warm_up(iterations), decay]


def fit_objects(cfg: dict, own: OwnObjects, data: OwnData) -> None:
    """Set the data sets, evaluators and classes of a recipe for COCO, in place."""
    data.apply(cfg)
    filter_cfg = dict(filter_empty_gt=not own.negatives, min_size=1)
    cfg['train_dataloader']['dataset']['filter_cfg'] = filter_cfg
    for evaluator in ('val_evaluator', 'test_evaluator'):
        if 'ann_file' in cfg[evaluator]:  # DOTA's metric takes objects from the data set
            cfg[evaluator]['ann_file'] = data.files['val']['ann_file']
    fit.set_everywhere(cfg['model'], 'num_classes', len(data.classes))
