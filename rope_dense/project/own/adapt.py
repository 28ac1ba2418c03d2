"""Settings of configs/own/adapt.py: a backbone trained on pictures without labels."""

from typing import Any

from ...utils.config_parts import LOADERS
from . import fit
from .backbones import OwnBackbone, find_backbone
from .data import OwnData
from .settings import SLIDING, OwnAdapt

ADAPTER_LR = 1e-3  # of 32 images
GROWTH = 3.0  # of the sides of images, for sliding windows
SAMPLE = 512  # pictures that are evaluated, evenly chosen


def adapt_config(own: OwnAdapt, data: OwnData) -> dict:
    """The config of a classifier of pictures, or of a distillation from ``own.teacher``."""
    cfg = fit.read_recipe('_base_/unlabelled.py')
    is_sliding = own.teacher == SLIDING
    growth = (own.max_growth or GROWTH) if is_sliding else 1.0
    fit.resize_config(cfg, growth * own.size / 224)
    data.apply(cfg)
    vit = own.vit
    model = cfg['model']
    optimizer = cfg['optim_wrapper']['optimizer']
    for name in LOADERS[1:]:
        cfg[name]['batch_size'] = own.images_each
        cfg[name]['dataset']['every'] = -(-data.images // SAMPLE)
    known = own.weights if own.teacher is None else own.teacher_weights
    model.update(num_pictures=data.images, backbone=backbone_config(vit, known))
    fit.set_weights(cfg, own)
    if own.weights is None:
        model['backbone']['img_size'] = own.size
    if own.lora:
        model['backbone']['lora'] = dict(rank=own.lora)
        optimizer['lr'] = ADAPTER_LR
    elif own.blocks is not None:
        model['backbone']['frozen_stages'] = vit.depth - own.blocks
    iterations = fit.set_schedule(cfg, own, data, 32, None)
    cfg['param_scheduler'][0].update(T_max=iterations, end=iterations)
    cfg['param_scheduler'][:0] = fit.warm_up(iterations)
    fit.finish_config(cfg, own, data)
    if is_sliding:
        slide(cfg, own, round(growth * own.size))
    elif own.teacher is not None:
        distil(cfg, own)
    return cfg


def slide(cfg: dict, own: OwnAdapt, largest: int) -> None:
    """Make the model a distillation from its own sliding windows, of whole pictures, in place.

    ValueError where a window is no smaller than the largest picture, of so many pixels a side.
    """
    vit = own.vit
    model = cfg['model']
    fit.set_everywhere(cfg['train_dataloader'], 'ratio_range', (1.0, 1.0))
    del model['num_pictures']
    step = vit.patch_size
    window = own.teacher_size or vit.window_size * step
    if window // step >= largest // step:
        raise ValueError(
            f'own.teacher=sliding: a window of {window} pixels covers the largest picture, of '
            f'{largest}, so there is nothing to learn: give a larger own.size or own.max_growth, '
            'or a smaller own.teacher_size'
        )
    model.update(type='SlidingDistiller', window=window, smallest=own.size)
    model['backbone']['output_prefix'] = None


def backbone_config(vit: OwnBackbone, weights: str | None) -> dict[str, Any]:
    """The config of a backbone that gives its last map and, of published weights, its class token.

    Detectors and segmentors leave the class token untrained.
    """
    has_token = vit.has_cls_token and weights == 'default'
    prefix = 'cls' if has_token else None
    return dict(type='RoPEViT', arch=vit.arch, output_prefix=prefix)


def distil(cfg: dict, own: OwnAdapt) -> None:
    """Make the model a distillation from the teacher, in place."""
    vit = find_backbone(str(own.teacher))
    model = cfg['model']
    weights = vit.weights if own.teacher_weights == 'default' else own.teacher_weights
    source = dict(type='Pretrained', checkpoint=fit.pretrained_file(weights))
    teacher = backbone_config(vit, own.teacher_weights)
    teacher |= dict(frozen_stages='all', init_cfg=source)
    mean = list(vit.mean)
    std = list(vit.std)
    if own.channels is not None:
        preprocessor = model['data_preprocessor']
        mean = preprocessor['mean']
        std = preprocessor['std']
        teacher['in_channels'] = len(mean)
        source['channels'] = cfg['load_channels']
    del model['num_pictures']
    model.update(type='FeatureDistiller', teacher=teacher, teacher_pixels=(mean, std))
    model['teacher_scale'] = (own.teacher_size or own.size) / own.size
