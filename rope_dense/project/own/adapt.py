"""Settings of configs/own/adapt.py: a backbone trained on pictures without labels."""

from typing import Any

from . import fit
from .backbones import OwnBackbone, find_backbone
from .data import OwnData
from .settings import OwnAdapt

BATCH = 32  # of which the learning rates are
LR, ADAPTER_LR = 1e-4, 1e-3
KEYS = ('img_path', 'ori_shape', 'img_shape', 'number')  # of an image, for the model


def adapt(own: OwnAdapt, data: OwnData) -> dict:
    """The config of a classifier of pictures, or of a distillation from ``own.teacher``."""
    cfg = fit.read_recipe('foundation/linear_dinov3-b_8xb2-40k_ade20k-512x512.py')
    vit, size = own.vit, (own.size, own.size)
    resize = dict(type='Resize', scale=(4 * own.size, own.size), keep_ratio=True)
    crop = dict(type='CenterCrop', crop_size=size, auto_pad=True)
    for name in ('train', 'val', 'test'):
        dataset = cfg[f'{name}_dataloader']['dataset']
        read, pack = dataset['pipeline'][0], dict(type='PackSegInputs', meta_keys=KEYS)
        dataset.update(type='UnlabelledDataset', pipeline=[read, resize, crop, pack])
        del dataset['data_prefix']
        cfg[f'{name}_evaluator'] = dict(type='FeatureMetric')
    larger = dict(resize, type='RandomResize', ratio_range=(1.0, 2.0))
    train = [larger, dict(type='RandomCrop', crop_size=size), dict(type='RandomFlip', prob=0.5)]
    train.append(dict(type='PhotoMetricDistortion'))
    cfg['train_dataloader']['dataset']['pipeline'][1:-1] = train
    data.apply(cfg)
    preprocessor = dict(cfg['model']['data_preprocessor'], size=size)
    cfg['model'] = dict(
        type='PictureClassifier',
        num_pictures=data.images,
        data_preprocessor=preprocessor,
        backbone=backbone_of(vit),
        test_cfg=dict(),
    )
    if own.teacher is not None:
        distil(cfg['model'], own)
    fit.set_weights(cfg, own)
    backbone = cfg['model']['backbone']
    if own.weights is None:
        backbone['img_size'] = own.size
    if own.lora:
        backbone['lora'] = dict(rank=own.lora)
    elif own.blocks is not None:
        backbone['frozen_stages'] = vit.depth - own.blocks
    optimizer = dict(type='AdamW', lr=ADAPTER_LR if own.lora else LR, weight_decay=0.05)
    cfg['optim_wrapper'] = dict(type='OptimWrapper', optimizer=optimizer)
    cfg['custom_imports']['imports'].append('rope_dense.datasets.unlabelled')
    iterations = fit.set_schedule(cfg, own, data, BATCH, 'features/rank')
    for name in ('val', 'test'):
        cfg[f'{name}_dataloader']['batch_size'] = own.batch_size
    hooks = cfg['default_hooks']
    del cfg['tta_model'], cfg['tta_pipeline'], hooks['visualization']
    del hooks['checkpoint']['save_best']  # the last one is the result
    cfg['custom_hooks'].append(dict(type='CollapseHook'))
    decay = dict(type='CosineAnnealingLR', by_epoch=False, T_max=iterations, begin=0)
    cfg['param_scheduler'] = [*fit.warm_up(iterations), dict(decay, end=iterations)]
    fit.finished(cfg, own, data)
    if own.teacher is not None and own.channels is not None:
        fit_teacher_channels(cfg['model'])
    return cfg


def backbone_of(vit: OwnBackbone) -> dict[str, Any]:
    """The config of a backbone that gives its last map and, if it has one, its class token."""
    return dict(type='RoPEViT', arch=vit.arch, output_prefix='cls' if vit.has_cls_token else None)


def distil(model: dict, own: OwnAdapt) -> None:
    """Make the classifier of pictures a distillation from the teacher, in place."""
    vit = find_backbone(str(own.teacher))
    weights = vit.weights if own.teacher_weights == 'default' else own.teacher_weights
    teacher = dict(backbone_of(vit), frozen_stages='all')
    if weights:
        teacher['init_cfg'] = dict(type='Pretrained', checkpoint=fit.weights_file(weights))
    del model['num_pictures']
    model.update(type='FeatureDistiller', teacher=teacher, teacher_scale=1.0)
    model.update(teacher_mean=[*vit.mean], teacher_std=[*vit.std])
    if own.teacher_size is not None:
        model['teacher_scale'] = own.teacher_size / own.size


def fit_teacher_channels(model: dict) -> None:
    """Let the teacher take the same channels, with the same mean and deviation."""
    backbone, preprocessor = model['backbone'], model['data_preprocessor']
    model.update(teacher_mean=preprocessor['mean'], teacher_std=preprocessor['std'])
    model['teacher']['in_channels'] = backbone['in_channels']
    if 'init_cfg' in model['teacher']:
        sources = (backbone.get('init_cfg') or {}).get('channels', 'mean')
        model['teacher']['init_cfg']['channels'] = sources
