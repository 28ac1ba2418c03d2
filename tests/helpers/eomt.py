"""Small EoMTs with random weights, transformers' and ours, that the tests share."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from helpers.eomt_recipes import load
from rope_dense.backbones import RoPEViT
from rope_dense.models.eomt.queries import EoMT

CLASSES, QUERIES, BLOCKS = 6, 5, 2
SIZES = dict(embed_dims=32, depth=4, num_heads=2)
# DINOv3's architecture in small, without augmented coordinates, with biases as in the source.
ARCH = RoPEViT.ARCHS['dinov3_base'] | SIZES | dict(qkv_bias='qv')
ARCH['rope'] = ARCH['rope'] | dict(coordinates=dict(type='centres'))

TASKS = {
    'semantic': 'eomt_dinov3-b_8xb2-20k_ade20k-512x512',
    'panoptic': 'eomt_dinov3-b_8xb2-177k_coco-panoptic-640x640',
    'instance': 'eomt_dinov3-b_8xb2-88k_coco-instance-640x640',
}
SMALL_BACKBONE = dict(
    type='RoPEViT', arch=dict(embed_dims=32, depth=4, num_heads=2), final_norm=True
)
SMALL_HEAD = dict(in_channels=32, num_queries=8, num_blocks=2)
SMALL_ENCODER = dict(
    SMALL_BACKBONE, final_norm='all', out_indices=(1, 3), frozen_stages='all'
)
SMALL_PMT = dict(SMALL_HEAD, pmt=dict(num_laterals=2, blocks=dict(num_heads=2)))


def build(**settings: Any) -> tuple[RoPEViT, EoMT]:
    """A backbone, of DINOv3's kind by default, and the queries in its last two blocks."""
    backbone = RoPEViT(**(dict(arch=ARCH) | settings))
    norm_cfg = None if backbone.arch.final_norm else dict(type='LN', eps=1e-6)
    eomt = EoMT(32, CLASSES, QUERIES, BLOCKS, backbone.arch.patch_size, norm_cfg)
    eomt.join(backbone)
    return backbone, eomt


def randomise(*parts: nn.Module) -> None:
    """Weights that make masks with both signs and all parts count."""
    for part in parts:
        for param in part.parameters():
            nn.init.normal_(param, std=0.3 if param.ndim > 1 else 1.0)


def theirs(**settings: object) -> nn.Module:
    """transformers' model of the same sizes, for images of 64 x 64 pixels."""
    module: ModuleType = pytest.importorskip('transformers.models.eomt_dinov3')
    config = module.EomtDinov3Config(
        **dict(
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=128,
            image_size=64,
            layer_norm_eps=1e-5,
            num_blocks=BLOCKS,
            num_queries=QUERIES,
            pos_embed_rescale=None,
            num_labels=CLASSES,
        )
        | settings
    )
    model = module.EomtDinov3ForUniversalSegmentation(config)
    randomise(model)
    return model


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    """True if no value is off by more than a share of the largest one."""
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max())


def image(*size: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 3, *(size or (64, 64)))


def build_model(task: str, kind: str = 'eomt') -> nn.Module:
    """The model of a config with four blocks of 32 channels: 3 classes, and 2 of stuff.

    Of ``kind`` 'pmt' it has PMT's head on a frozen encoder.
    """
    cfg = load(TASKS[task])
    init_default_scope(cfg.default_scope)
    model, stuff = cfg.model, 2 if task == 'panoptic' else 0
    model.backbone = SMALL_BACKBONE if kind == 'eomt' else SMALL_ENCODER
    if task == 'semantic':
        head, points = model.decode_head, model.decode_head.train_cfg
        head.num_classes, model.data_preprocessor.size = 3, (64, 64)
        model.test_cfg.crop_size = (64, 64)
    else:
        head, points = model.panoptic_head, model.train_cfg
        model.test_cfg.max_per_image = 10
        for part in (head, model.panoptic_fusion_head):
            part.update(num_things_classes=3, num_stuff_classes=stuff)
    head.update(SMALL_HEAD if kind == 'eomt' else SMALL_PMT)
    head.loss_cls.class_weight = [1.0] * (3 + stuff) + [0.1]
    points.num_points = 64
    return MODELS.build(model)
