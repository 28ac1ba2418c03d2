"""Small trained models on one frozen backbone, that the tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from helpers import deim
from helpers.eomt import SMALL_PMT, TASKS
from helpers.eomt_recipes import load
from helpers.exported import strong
from rope_dense.backbones import RoPEViT

C, CLASSES = 32, 3
MEAN = dict(
    mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True
)
ARCH = RoPEViT.ARCHS['dinov3_small'] | dict(
    embed_dims=C, depth=4, num_heads=2, mlp_ratio=2.0, layer_scale_init_value=1.0
)


def backbone(**settings: Any) -> dict:
    return dict(type='RoPEViT', arch=dict(ARCH), frozen_stages='all') | settings


def segmentor(kind: str, head: dict, **settings: Any) -> dict:
    """An ``EncoderDecoder``, or another model of mmseg."""
    preprocessor = dict(type='SegDataPreProcessor', size=(64, 64), **MEAN)
    model = dict(type=kind, data_preprocessor=preprocessor, decode_head=head)
    model |= dict(backbone=backbone(**settings), test_cfg=dict(mode='whole'))
    return dict(default_scope='mmseg', model=model)


def boxes() -> dict:
    model = deim.config('l')
    model['data_preprocessor'].update(MEAN)
    model['bbox_head']['num_classes'] = CLASSES
    return dict(
        default_scope='mmdet',
        model=model | dict(backbone=backbone(out_indices=(1, 2, 3))),
    )


def masks(task: str = 'instance') -> dict:
    """PMT, on two of the blocks."""
    model = load(TASKS[task]).model
    head = model.panoptic_head
    head.update(SMALL_PMT, num_things_classes=CLASSES, num_stuff_classes=0)
    head.loss_cls.class_weight = [1.0] * CLASSES + [0.1]
    model.panoptic_fusion_head.update(num_things_classes=CLASSES, num_stuff_classes=0)
    model.test_cfg.max_per_image = 10
    model.backbone = backbone(out_indices=(0, 2))
    model.data_preprocessor = dict(
        type='DetDataPreprocessor', pad_size_divisor=16, **MEAN
    )
    return dict(default_scope='mmdet', model=model)


def classes(**settings: Any) -> dict:
    """A linear head on the normalised last map; the others normalise all of theirs."""
    head = dict(
        type='LinearHead', in_channels=C, num_classes=CLASSES, norm_cfg=dict(type='BN')
    )
    return segmentor('EncoderDecoder', head, **(dict(final_norm=True) | settings))


def depth() -> dict:
    """A DPT head, on four maps with their class tokens."""
    head = dict(
        type='DPTDepthHead', in_channels=C, channels=16, hidden_channels=8, num_bins=12
    )
    head |= dict(
        post_process_channels=[8, 8, 16, 16], loss_decode=dict(type='BatchSiLogLoss')
    )
    outputs = dict(out_indices=(0, 1, 2, 3), output_prefix='cls')
    return segmentor('DepthEstimator', head, **outputs)


ALL = dict(boxes=boxes, masks=masks, classes=classes, depth=depth)


def build(cfg: Config) -> nn.Module:
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return MODELS.build(ConfigDict(cfg.model))


def save(folder: Path, **configs: dict) -> dict[str, dict]:
    """Write configs and checkpoints of trained models on one backbone; returns ``tasks``."""
    torch.manual_seed(0)
    frozen = strong(RoPEViT(ARCH)).state_dict()
    tasks = {}
    for name, settings in configs.items():
        cfg, path = Config(settings), folder / f'{name}.py'
        cfg.dump(path)
        model = strong(build(Config.fromfile(path)))
        missing = model.backbone.load_state_dict(frozen, strict=False).missing_keys
        for key in missing:
            assert '.qkv.' in key, key
            nn.init.zeros_(model.backbone.get_parameter(key))
        meta = dict(dataset_meta=dict(classes=['a', 'b', 'c']))
        torch.save(
            dict(state_dict=model.state_dict(), meta=meta), path.with_suffix('.pth')
        )
        tasks[name] = dict(config=str(path), checkpoint=str(path.with_suffix('.pth')))
    return tasks


def alone(task: dict) -> nn.Module:
    """The model of one task, with its weights."""
    model = build(Config.fromfile(task['config']))
    model.load_state_dict(torch.load(task['checkpoint'])['state_dict'])
    return model.eval()
