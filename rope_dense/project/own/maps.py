"""Settings of configs/own/semantic.py and depth.py applied to the recipes of UperNet and DPT."""

import math

import torch

from ...utils.config_parts import LOADERS, nodes
from . import fit
from .augment import all_pipelines
from .data import OwnData
from .settings import LEAST_DEPTH, OwnDepth, OwnSemantic

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
SHARES = dict.fromkeys(('tiny', 'small', 'base'), (0.15, 0.75)) | {'large': (0.2, 0.9)}


def semantic_config(own: OwnSemantic, data: OwnData) -> dict:
    """The config of UperNet on a plain ViT for masks of class numbers."""
    # UperNet pools to one position; batch norms of several processes are synchronised on GPUs only.
    if own.images_each == 1 and (own.gpus == 1 or not torch.cuda.is_available()):
        raise ValueError(
            'own.batch_size=1: the pooling of UperNet normalises over the images of a batch; give '
            '2 or more, with a smaller own.size where memory is short'
        )
    cfg = fit.read_recipe(
        'upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'
    )
    fit.resize_config(cfg, own.size / 512)
    data.apply(cfg)
    for name in LOADERS:
        cfg[name]['dataset']['type'] = 'ImageMaskDataset'
    for _, step in nodes(all_pipelines(cfg)):
        if step.get('type') == 'LoadAnnotations':
            step.clear()
            step['type'] = 'LoadClassMask'
    fit.set_everywhere(cfg['model'], 'num_classes', len(data.classes))
    model = cfg['model']
    channels = own.vit.channels
    fit.set_backbone(cfg, own, *SHARES[own.vit.scale])
    model['backbone']['out_indices'] = own.vit.quarters
    model['neck']['embed_dim'] = model['auxiliary_head']['in_channels'] = channels
    model['decode_head'].update(in_channels=[channels] * 4, channels=channels)
    iterations = fit.set_schedule(cfg, own, data, 16, 'mIoU')
    decay = dict(
        type='PolyLR',
        by_epoch=False,
        power=1.0,
        eta_min=0.0,
        begin=0,
        end=iterations,
    )
    cfg['param_scheduler'] = [*fit.warm_up(iterations), decay]
    cfg['custom_imports']['imports'].append('rope_dense.data.map_datasets')
    return fit.finish_config(cfg, own, data)


def depth_config(own: OwnDepth, data: OwnData) -> dict:
    """The config of DPT on a ViT: frozen, with adapters (``lora``), or from random values."""
    cfg = fit.read_recipe('depth/dpt_dinov3-b_8xb2-38k_nyu-416x544.py')
    data.apply(cfg)
    resize = dict(type='Resize', scale=(4 * own.size, own.size), keep_ratio=True)
    load = dict(type='LoadDepth', unit=own.unit)
    crop = own.size, math.ceil(own.size * 4 / 3 / 16) * 16
    train = cfg['train_dataloader']['dataset']
    read, _, _, rotate, flip, _, colours, pack = train['pipeline']
    cropped = dict(type='RandomCrop', crop_size=crop)
    train['pipeline'] = [read, load, resize, rotate, flip, cropped, colours, pack]
    views = cfg['tta_pipeline'][1]['transforms']
    views[0] = [resize]
    views[2] = [load]
    cfg['model']['data_preprocessor']['size'] = crop
    metric = dict(
        type='ValidDepthMetric',
        min_depth_eval=LEAST_DEPTH,
        max_depth_eval=own.max_depth,
    )
    for name in ('train', 'val', 'test'):
        dataset = cfg[f'{name}_dataloader']['dataset']
        dataset['type'] = 'ImageDepthDataset'
        if name != 'train':
            dataset['pipeline'] = [read, resize, load, pack]
            cfg[f'{name}_evaluator'] = dict(metric)
    # A small data set may have less than a batch.
    cfg['train_dataloader']['drop_last'] = False
    vit = own.vit
    backbone = cfg['model']['backbone']
    head = cfg['model']['decode_head']
    backbone.update(arch=vit.arch, out_indices=vit.quarters)
    head['in_channels'] = vit.channels
    head['max_depth'] = own.max_depth
    head['post_process_channels'] = [vit.channels // part for part in (8, 4, 2, 1)]
    if not vit.has_cls_token:
        backbone['output_prefix'] = None
        head['readout'] = 'ignore'
    fit.set_weights(cfg, own)
    cfg['model']['data_preprocessor']['test_cfg'] = dict(size_divisor=vit.patch_size)
    if own.weights is None:
        backbone.update(frozen_stages=-1, img_size=own.size)
    elif own.lora:
        backbone['lora'] = dict(rank=own.lora)
    iterations = fit.set_schedule(cfg, own, data, 16, 'rmse', 'less')
    head['loss_decode']['warm_up'] = min(100, iterations // 10)
    decay = dict(
        type='CosineAnnealingLR',
        by_epoch=False,
        T_max=iterations,
        begin=0,
        end=iterations,
    )
    cfg['param_scheduler'] = [*fit.warm_up(iterations), decay]
    fit.finish_config(cfg, own, data)
    for step in train['pipeline']:
        # Of a light augmentation: it would change no depth.
        if step['type'] == 'RandomResize':
            step['type'] = 'Resize'
            del step['ratio_range']
    return cfg
