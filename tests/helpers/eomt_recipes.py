"""Tables from the source of configs/eomt; functions that load and build these configs.

Transcribed from tue-mps/eomt at 7bd19dd: configs/dinov3, configs/dinov2/coco/panoptic (for the
annealing of 3 blocks), main.py, datasets/, training/. What no config of the authors settles (sizes
S and B on ADE20K and for instances, and other weights) is as the comments of the configs say.
"""

from __future__ import annotations

import copy
from functools import cache

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from helpers.grid import CONFIGS, read, readme_variants

FOLDER = CONFIGS / 'eomt'
CHANNELS = dict(s=384, b=768, l=1024)
DEPTHS = dict(s=12, b=12, l=24)
NAMES = dict(s='small', b='base', l='large')
FAMILIES = ('dinov3', 'lingbot', 'rope-mixed', 'rope-axial')
# Task, crop and size: iterations, and the annealing of each block.
EPOCH = dict(panoptic=7391, instance=7329)
SEMANTIC = {
    'l': ([0, 6520, 9780, 13040], [3000, 9780, 13040, 16300]),
    'b': ([0, 8150, 13040], [3000, 11410, 16300]),
}
PANOPTIC = {
    'l': ([0, 29564, 44346, 59128], [3000, 44346, 59128, 73910]),
    'b': ([0, 73910, 118256], [3000, 103474, 147820]),
}
INSTANCE = {
    'l': ([14782, 29564, 44346, 59128], [29564, 44346, 59128, 73910]),
    'b': ([14782, 36955, 59128], [29564, 51737, 73910]),
}
ANNEALING = dict(semantic=SEMANTIC, panoptic=PANOPTIC, instance=INSTANCE)
COMMON = {
    'optim_wrapper.optimizer': dict(
        type='AdamW', lr=2e-4, betas=(0.9, 0.999), weight_decay=0.05
    ),
    'optim_wrapper.clip_grad': dict(max_norm=0.01, norm_type=2),
    'auto_scale_lr.base_batch_size': 16,
    'model.data_preprocessor.mean': [123.675, 116.28, 103.53],
    'model.data_preprocessor.std': [58.395, 57.12, 57.375],
    'model.data_preprocessor.bgr_to_rgb': True,
    'train_dataloader.batch_size': 2,
}
POINTS = dict(num_points=12544, oversample_ratio=3.0, importance_sample_ratio=0.75)


def weights(family: str, size: str) -> str:
    """The weights that a config starts from."""
    name = NAMES[size]
    if family == 'dinov3':
        return f'hf-hub:timm/vit_{name}_patch16_dinov3_qkvb.lvd1689m'
    if family == 'lingbot':
        return f'hf-hub:robbyant/lingbot-vision-vit-{name}'
    return f'hf-hub:naver-ai/{family.replace("-", "_")}_deit_{name}_patch16_LS'


def parts(name: str) -> tuple[str, str, str, int]:
    """Family, size, task and side of the crops of a config, by its name."""
    _, weights, *rest = name.split('_')
    family = rest[0] if weights.startswith('vit') else weights[:-2]
    task = next((task for task in ('panoptic', 'instance') if task in name), 'semantic')
    return family, weights[-1], task, int(name.rsplit('x', 1)[1])


def iterations(size: str, task: str) -> int:
    if task == 'semantic':
        return 16 * 1263
    return (24 if task == 'panoptic' and size != 'l' else 12) * EPOCH[task]


def recipe(name: str) -> dict:
    """Paths of settings, and their values in the source."""
    family, size, task, side = parts(name)
    row = 'l' if size == 'l' else 'b'
    blocks, (start, end) = 4 if row == 'l' else 3, ANNEALING[task][row]
    head = 'decode_head' if task == 'semantic' else 'panoptic_head'
    classes = dict(semantic=150, panoptic=133, instance=80)[task]
    length = iterations(size, task)
    settings = COMMON | {
        'custom_hooks.0': dict(
            type='MaskAnnealingHook', start=start, end=end, power=0.9
        ),
        'param_scheduler': [
            dict(
                type='TwoStageWarmupPolyLR',
                by_epoch=False,
                warmup=2000,
                backbone_warmup=3000,
                end=length,
                power=0.9,
            )
        ],
        'train_cfg.max_iters': length,
        f'model.{head}.in_channels': CHANNELS[size],
        f'model.{head}.num_queries': 100 if task == 'semantic' else 200,
        f'model.{head}.num_blocks': blocks,
        f'model.{head}.loss_cls.loss_weight': 2.0,
        f'model.{head}.loss_cls.class_weight': [1.0] * classes + [0.1],
        f'model.{head}.loss_mask.loss_weight': 5.0,
        f'model.{head}.loss_dice.loss_weight': 5.0,
        'model.backbone.init_cfg': dict(
            type='Pretrained', checkpoint=weights(family, size)
        ),
    }
    return settings | (semantic() if task == 'semantic' else coco(task, side))


def semantic() -> dict:
    pipeline, train = 'train_dataloader.dataset.pipeline', 'model.decode_head.train_cfg'
    return {f'{train}.{key}': number for key, number in POINTS.items()} | {
        'model.decode_head.num_classes': 150,
        'model.test_cfg': dict(mode='slide', crop_size=(512, 512)),
        f'{pipeline}.2': dict(type='PhotoMetricDistortion', hue_delta=9),  # 18 degrees
        f'{pipeline}.3': dict(type='RandomFlip', prob=0.5),
        f'{pipeline}.4': dict(
            type='RandomResize',
            scale=(512, 512),
            ratio_range=(0.5, 2.0),
            keep_ratio=True,
        ),
        f'{pipeline}.5': dict(type='RandomCrop', crop_size=(512, 512)),
        f'{pipeline}.6': dict(
            type='Pad', size=(512, 512), pad_val=dict(img=0, seg=255)
        ),
        'test_dataloader.dataset.pipeline.1.scale': 512,
    }


def coco(task: str, side: int) -> dict:
    pipeline = 'train_dataloader.dataset.pipeline'
    panoptic = dict(
        panoptic_on=True,
        instance_on=False,
        object_mask_thr=0.8,
        iou_thr=0.8,
        filter_low_score=True,
    )
    instance = dict(panoptic_on=False, instance_on=True, max_per_image=100)
    return {f'model.train_cfg.{key}': number for key, number in POINTS.items()} | {
        'model.panoptic_head.num_things_classes': 80,
        'model.panoptic_head.num_stuff_classes': 53 if task == 'panoptic' else 0,
        'model.test_cfg': panoptic if task == 'panoptic' else instance,
        f'{pipeline}.2': dict(type='RandomFlip', prob=0.5),
        f'{pipeline}.3': dict(
            type='RandomResize',
            scale=(side, side),
            ratio_range=(0.1, 2.0),
            keep_ratio=True,
        ),
        f'{pipeline}.4.crop_size': (side, side),
        f'{pipeline}.6.size': (side, side),
        f'{pipeline}.6.pad_val.img': 0,
        'test_dataloader.dataset.pipeline.1.scale': (side, side),
        'test_dataloader.dataset.pipeline.2.pad_to_square': True,
    }


def rate(name: str, key: str) -> float:
    """The factor of the learning rate of a parameter: 0.8 from block to block on COCO, 1 in the
    blocks with queries, after them and in the head; before the first block as in it."""
    _, size, task, _ = parts(name)
    if (
        task == 'semantic'
        or not key.startswith('backbone.')
        or key.startswith('backbone.norm.')
    ):
        return 1.0
    depth, blocks = DEPTHS[size], 4 if size == 'l' else 3
    block = int(key.split('.')[2]) if key.startswith('backbone.blocks.') else 0
    return 1.0 if block >= depth - blocks else 0.8 ** (depth - 1 - block)


def variants() -> dict[str, tuple[str, dict]]:
    """Config and --cfg-options of each row of the README, by a name like those of the files."""
    named = {}
    for base, options in readme_variants('eomt'):
        rope = options.get('model.backbone.rope.type')
        family, _, word = options['model.backbone.arch'].rpartition('_')
        size = word[0]
        kinds = dict(
            MixedRoPE=f'vit-{size}_rope-mixed', AxialRoPE=f'vit-{size}_rope-axial'
        )
        backbone = kinds[rope] if rope else f'{family}-{size}'
        named[base.replace(f'dinov3-{parts(base)[1]}', backbone)] = base, options
    return named


VARIANTS = variants()


def load(name: str) -> Config:
    """A config of the folder or of the README."""
    base, options = VARIANTS.get(name, (name, {}))
    cfg = copy.deepcopy(read(FOLDER / f'{base}.py'))
    cfg.merge_from_dict(options)
    return cfg


@cache
def build_offline(name: str) -> nn.Module:
    """The model of a config without weights and without memory for them; shared: do not change."""
    cfg = load(name)
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.init_cfg = None
    with torch.device('meta'):
        return MODELS.build(cfg.model)
