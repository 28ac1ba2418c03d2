"""The configs of configs/foundation: what their sources say, and how the tests load and build them.

Transcribed from code at these commits:

- facebookresearch/dinov3 6876159: dinov3/eval/segmentation (the linear recipe),
  dinov3/hub/depthers.py (which maps DPT takes)
- baaivision/EVA 5623d08: EVA-02/seg
- IDEA-Research/detrex e244e6c: projects/dino_eva
- facebookresearch/perception_models 3e352cc: core/vision_encoder, apps/detection
- robbyant/lingbot-vision 151e463: preprocess.py, loader.py

What no author settles is that of the paper's recipes (recipes.py). Keys are names of configs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from helpers.grid import CONFIGS, read, readme_variants
from helpers.recipes import ADE20K, DINO, UPERNET

FOLDER = CONFIGS / 'foundation'

IMAGENET = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
HALF = dict(mean=[127.5] * 3, std=[127.5] * 3)  # 255 x 0.5

LINEAR = ADE20K | {
    'model.backbone.type': 'RoPEViT',
    'model.backbone.frozen_stages': 'all',
    'model.decode_head.type': 'LinearHead',
    'model.decode_head.dropout_ratio': 0.1,
    'model.decode_head.norm_cfg.type': 'SyncBN',
    'model.decode_head.loss_decode': dict(
        type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0
    ),
    'model.auxiliary_head': None,
    'model.test_cfg': dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
    'optim_wrapper.optimizer.lr': 1e-3,
    'optim_wrapper.optimizer.weight_decay': 1e-3,
    'optim_wrapper.clip_grad': None,  # 'inf'
    'train_cfg.max_iters': 40000,
    'train_cfg.val_interval': 5000,
    'train_dataloader.dataset.pipeline.2': dict(
        type='RandomResize', scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True
    ),
    'train_dataloader.dataset.pipeline.3': dict(
        type='RandomCrop', crop_size=(512, 512), cat_max_ratio=0.75
    ),
    'train_dataloader.dataset.pipeline.4': dict(type='RandomFlip', prob=0.5),
    # A hue of (-0.5, 0.5) turns of the circle, which OpenCV divides in 180.
    'train_dataloader.dataset.pipeline.5': dict(
        type='PhotoMetricDistortion', hue_delta=90
    ),
}
FINE = LINEAR | {
    'model.backbone.type': 'RoPEViTWithImage',
    'model.neck.type': 'FineFeatures',
    'model.neck.scale_factor': 4,
    'model.neck.frozen': True,
}
DPT = LINEAR | {
    'model.backbone.output_prefix': 'cls',
    'model.decode_head.type': 'DPTHead',
    'model.decode_head.dropout_ratio': None,  # mmseg's default, 0.1
    'model.decode_head.readout_type': 'project',
    'model.decode_head.post_process_channels': [96, 192, 384, 768],
    'model.decode_head.channels': 256,
    'model.decode_head.embed_dims': 768,
}
EVA02_UPERNET = UPERNET | {
    'model.backbone.drop_path_rate': 0.15,
    'model.decode_head.channels': 768,
    # 512 padded to whole patches of 14 pixels, where the authors' have 16
    'model.data_preprocessor.size': (518, 518),
    'model.test_cfg': dict(mode='slide', crop_size=(518, 518), stride=(346, 346)),
    'optim_wrapper.optimizer.lr': 6e-5,
    'optim_wrapper.optimizer.weight_decay': 0.05,
    'train_dataloader.batch_size': 4,  # 8 x 4 = 32
    'auto_scale_lr': dict(enable=False, base_batch_size=32),
    'train_cfg.max_iters': 60000,
    'train_cfg.val_interval': 6000,
    'default_hooks.checkpoint.interval': 6000,
}
WINDOWS = {
    'model.backbone.drop_path_rate': 0.1,
    'model.backbone.window_block_indexes': (0, 1, 3, 4, 6, 7, 9, 10),
}
RECIPES: dict[str, dict[str, object]] = {
    'linear_dinov3-b_8xb2-40k_ade20k-512x512': LINEAR,
    'linear-fine_dinov3-b_8xb2-40k_ade20k-512x512': FINE,
    'dpt_dinov3-b_8xb2-40k_ade20k-512x512': DPT,
    'upernet_dinov3-b_8xb2-160k_ade20k-512x512': UPERNET
    | {'optim_wrapper.optimizer.lr': 5e-5},
    'upernet_lingbot-b_8xb2-160k_ade20k-512x512': UPERNET
    | {'optim_wrapper.optimizer.lr': 5e-5},
    'upernet_pe-spatial-b_8xb2-160k_ade20k-512x512': UPERNET
    | {'optim_wrapper.optimizer.lr': 5e-5},
    'upernet_eva02-b_8xb4-60k_ade20k-512x512': EVA02_UPERNET,
    'dino-vitdet_dinov3-b_8xb2-90k_coco': DINO
    | WINDOWS
    | {'model.backbone.window_size': 16},
    'dino-vitdet_lingbot-b_8xb2-90k_coco': DINO
    | WINDOWS
    | {'model.backbone.window_size': 16},
    'dino-vitdet_eva02-b_8xb2-90k_coco': DINO
    | WINDOWS
    | {
        'model.backbone.window_size': 16,
        'model.data_preprocessor.pad_size_divisor': 14,
    },
    'dino-vitdet_pe-spatial-b_8xb2-90k_coco': DINO
    | WINDOWS
    | {'model.backbone.window_size': 32},
}

# Recipes of the folder, or of DEIMv2-X, on other weights: their bases.
DEIM_X = 'deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco'
LINEAR_B = 'foundation/linear_dinov3-b_8xb2-40k_ade20k-512x512'
OTHER_WEIGHTS = {
    name.format(family): base
    for family in ('qwen3-88m', 'rice-l', 'pe-lang-l', 'vjepa21-b', 'sapiens2-01b')
    for name, base in (
        ('deimv2-x_{}_4xb8-214k_coco', DEIM_X),
        ('linear_{}_8xb2-40k_ade20k-512x512', LINEAR_B),
    )
}
ALL = [*RECIPES, *OTHER_WEIGHTS]


@dataclass(frozen=True)
class Size:
    """A model of size S or L: the config of size B, and the settings of its size."""

    base: str
    settings: Mapping[str, object] = field(default_factory=dict)


# BEiT v2's recipe for size L; detrex's DINO on EVA-02-L, at 64135ca.
UPERNET_L = dict(
    out_indices=[5, 11, 17, 23], drop_path_rate=0.2, lr=4e-5, layer_decay=0.9
)
DINO_L = dict(drop_path_rate=0.4, layer_decay=0.8)
SIZES = {
    f'{head}_{family}-{size}_{tail}': Size(f'{head}_{base}-b_{tail}', settings)
    for head, tail, of_large in (
        ('linear', '8xb2-40k_ade20k-512x512', {}),
        ('upernet', '8xb2-160k_ade20k-512x512', UPERNET_L),
        ('dino-vitdet', '8xb2-90k_coco', DINO_L),
    )
    for family, base in (('dinov3', 'dinov3'), ('lingbot', 'dinov3'))
    for size, settings in (('s', {}), ('l', of_large))
    if family == 'dinov3' or head != 'linear'
} | {
    'dino-vitdet_eva02-l_8xb2-90k_coco': Size(
        'dino-vitdet_eva02-b_8xb2-90k_coco', DINO_L
    ),
    'upernet_eva02-l_8xb4-60k_ade20k-512x512': Size(
        'upernet_eva02-b_8xb4-60k_ade20k-512x512',
        UPERNET_L | dict(out_indices=[7, 11, 15, 23]),
    ),
}

# By family: the mean and std that its authors train heads and detectors with, and its norm.
COLOURS = {
    'dinov3': IMAGENET,  # README.md, "Image transforms"
    'lingbot': IMAGENET,  # preprocess.py
    'eva02': IMAGENET,  # seg/configs/_base_/datasets/ade20k.py; detrex's configs/models/dino_r50.py
    'pe-spatial': HALF,  # core/vision_encoder/transforms.py
}
FINAL_NORM = {
    'dinov3': 'all',  # get_intermediate_layers(norm=True)
    'lingbot': 'all',  # extract_patch_tokens in loader.py
    'eva02': False,  # seg/backbone/eva2.py; detrex's eva_02.py
    'pe-spatial': False,  # use_ln_post=False
}
# By head and family: the blocks whose maps it takes, of 12.
MAPS = {
    ('linear', 'dinov3'): (11,),
    ('linear-fine', 'dinov3'): (11,),
    ('dpt', 'dinov3'): (2, 5, 8, 11),
    ('upernet', 'dinov3'): (2, 5, 8, 11),
    ('upernet', 'lingbot'): (2, 5, 8, 11),
    ('upernet', 'eva02'): (3, 5, 7, 11),
    ('upernet', 'pe-spatial'): (3, 5, 7, 11),
    **{('dino-vitdet', family): (11,) for family in COLOURS},
}
# By head and family: the factor of the learning rate from a block to the one before it.
LAYER_DECAY = {
    ('upernet', 'dinov3'): 0.75,
    ('upernet', 'lingbot'): 0.75,
    ('upernet', 'eva02'): 0.85,
    ('upernet', 'pe-spatial'): 0.75,
    **{('dino-vitdet', family): 0.7 for family in COLOURS},
}


def linear_warm_up(iteration: int) -> float:
    """DINOv3's WarmupOneCycleLR; its scheduler does not step after the first iteration."""
    step, warm_up, total = max(iteration - 1, 0), 1500, 40000
    if step < warm_up:
        return (1 - (1 - step / warm_up) * (1 - 1e-6)) * (1 - step / total)
    return (1 + math.cos(math.pi * (step + 1) / total)) / 2


def polynomial_warm_up(iteration: int) -> float:
    """EVA-02's, of mmcv 1.x: the warm-up times a descent that begins at the start."""
    return min((iteration or 1.5e-3) / 1500, 1) * (1 - iteration / 60000)


VARIANTS = {
    base.replace(
        '-b_', '-s_' if options['model.backbone.arch'].endswith('small') else '-l_'
    ): (
        base,
        options,
    )
    for base, options in readme_variants('foundation')
}


def load(name: str) -> Config:
    """A config of the folder or of the README, in the scope that it asks for."""
    base, options = VARIANTS.get(name, (name, {}))
    cfg = copy.deepcopy(read(FOLDER / f'{base}.py'))
    cfg.merge_from_dict(options)
    init_default_scope(cfg.default_scope)
    return cfg


@cache
def build_offline(name: str) -> nn.Module:
    """The whole model without storage: parameters have shapes but no values. Not to be changed."""
    cfg = load(name)
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def head_and_family(name: str) -> tuple[str, str]:
    """The head that a config trains and the weights it starts from: keys of the tables."""
    head, weights, *_ = name.split('_')
    return head, weights.removesuffix('-b')
