"""The stages of a recipe with dense one-to-one augmentation, set from a few numbers of epochs."""

import copy
from collections.abc import Sequence
from typing import Any

from ...utils.config_parts import LOADERS, nodes

COCO_EPOCH = 3696  # iterations: 118,287 images, 32 in an iteration
WARMUP = 2000  # iterations, or a tenth of a shorter run
MASK_COSTS = dict(
    class_cost=2.0, bbox_cost=1.0, giou_cost=1.0, mask_cost=5.0, dice_cost=5.0
)
MASK_LOSSES = dict(mal=2.0, bbox=1.0, giou=1.0, fgl=0.15, ddf=1.5, mask=5.0, dice=5.0)


def set_stages(
    base: dict,
    model: dict,
    *,
    epochs: int,
    starts: Sequence[int],
    late_epoch: int | None = None,
    mosaic_prob: float = 0.5,
    mixup_prob: float = 0.5,
    copyblend_prob: float = 0.5,
    repeat: int | None = None,
    size: int = 640,
    epoch_length: int = COCO_EPOCH,
) -> dict[str, Any]:
    """Settings that a config adds to its base for other stages.

    The base has configs/_base_/datasets/coco_dense.py. Pipelines and batch augments keep their
    settings but for epochs and probabilities.

    Args:
        base: the config that it is based on, ``_base_``.
        model: overrides for ``model``; updated in place and returned.
        starts: epochs of the first augmentation, of the end of mosaics and MixUp, with which the
            learning rate begins to fall, and of the end of all augmentation.
        late_epoch: of the late matching, or None for never.
        repeat, size: ``repeat`` and ``base`` of ``MultiScaleBatch``; None for batches of one size.
        epoch_length: iterations of an epoch.
    """
    first, flat, last = starts
    loader = copy.deepcopy(base['train_dataloader'])
    pipeline = loader['dataset']['pipeline']
    stages = next(step for step in pipeline if step['type'] == 'StageByEpoch')
    stages['starts'] = list(starts)
    stages['transforms'][1][0]['prob'] = [mosaic_prob, 1 - mosaic_prob]
    mix = copy.deepcopy(base['model']['data_preprocessor']['batch_augments'][0])
    mix.update(mixup_prob=mixup_prob, mixup_epochs=(first, flat))
    mix.update(copyblend_prob=copyblend_prob, copyblend_epochs=(first, last))
    scale = dict(type='MultiScaleBatch', base=size, repeat=repeat, epochs=(0, last))
    augments = [mix] if repeat is None else [mix, scale]
    model.setdefault('data_preprocessor', {})['batch_augments'] = augments
    matching = model.setdefault('bbox_head', {}).setdefault('matching', {})
    matching['late_epoch'] = late_epoch

    length = epochs * epoch_length
    warmup, cosine = copy.deepcopy(base['param_scheduler'])
    warmup['end'] = min(WARMUP, max(1, length // 10), flat * epoch_length)
    cosine.update(begin=flat * epoch_length, end=last * epoch_length)
    cosine['T_max'] = (last - flat) * epoch_length
    hooks = copy.deepcopy(base['custom_hooks'])
    next(hook for hook in hooks if hook['type'] == 'BestRestartHook')['epoch'] = last
    checkpoints = dict(
        interval=epoch_length,
        max_keep_ckpts=2,
        save_best='coco/bbox_mAP',
        rule='greater',
    )
    return dict(
        model=model,
        train_dataloader=loader,
        param_scheduler=[warmup, cosine],
        train_cfg=dict(max_iters=length, val_interval=epoch_length),
        custom_hooks=hooks,
        default_hooks=dict(checkpoint=checkpoints),
    )


def with_masks(
    base: dict,
    model: dict,
    stages: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Settings that instance masks add to a detector's config, with ECSeg's loss weights.

    ``base`` and ``model`` are as for ``set_stages``; ``stages`` is its result, if it was called.
    """
    added = dict(stages or {}, model=model)
    for key in (*LOADERS, 'tta_pipeline'):
        added[key] = copy.deepcopy(added.get(key) or base[key])
    for key in ('val_evaluator', 'test_evaluator'):
        added[key] = dict(metric=['bbox', 'segm'])
    added['tta_model'] = dict(base['tta_model'], type='InstanceTTAModel')
    for _, node in nodes(added):
        if node.get('type') == 'LoadAnnotations':
            node['with_mask'] = True
    model.setdefault('data_preprocessor', {})['pad_mask'] = True
    head = model.setdefault('bbox_head', {})
    head.update(masks=dict(), loss_weights=dict(MASK_LOSSES))
    head.setdefault('matching', {}).update(MASK_COSTS)
    checkpoints = added.setdefault('default_hooks', {}).setdefault('checkpoint', {})
    checkpoints['save_best'] = 'coco/segm_mAP'
    return added
