"""Small oriented detectors and batches for the tests; skips where mmrotate is not installed."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData
from torch import nn

from helpers.grid import CONFIGS, read

pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
from mmrotate.structures.bbox import RotatedBoxes

import rope_dense.models.mmrotate  # noqa: F401

FOLDER = CONFIGS / 'oriented'
SWIN = dict(embed_dims=16, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))
VIT = dict(embed_dims=32, depth=4, num_heads=2)
CHANNELS = 16
SMALL: dict[str, dict] = {
    'oriented-rcnn': {
        'neck.out_channels': CHANNELS,
        'rpn_head.in_channels': CHANNELS,
        'rpn_head.feat_channels': CHANNELS,
        'roi_head.bbox_roi_extractor.out_channels': CHANNELS,
        'roi_head.bbox_head.in_channels': CHANNELS,
        'roi_head.bbox_head.fc_out_channels': 32,
        'train_cfg.rpn_proposal.max_per_img': 50,
        'test_cfg.rpn.max_per_img': 50,
    },
    'rotated-retinanet': {
        'neck.out_channels': CHANNELS,
        'bbox_head.in_channels': CHANNELS,
        'bbox_head.feat_channels': CHANNELS,
        'bbox_head.stacked_convs': 1,
        'test_cfg.score_thr': 0.001,
    },
}


def names() -> list[str]:
    """Configs of the folder with mmrotate's detectors."""
    return sorted(
        path.stem for path in FOLDER.glob('*.py') if path.stem.startswith((*SMALL,))
    )


def load(name: str) -> Config:
    """A config, in mmrotate's scope."""
    cfg = copy.deepcopy(read(FOLDER / f'{name}.py'))
    init_default_scope(cfg.default_scope)
    return cfg


def small(cfg: Config, name: str) -> nn.Module:
    """The detector with a backbone of a few blocks."""
    backbone = cfg.model.backbone
    is_vit = backbone.type == 'RoPEViT'
    backbone.arch = VIT if is_vit else SWIN
    backbone.update(drop_path_rate=0.0, init_cfg=None)
    if is_vit:
        backbone.update(
            window_block_indexes=(0, 2), rope=dict(type='MixedRoPE', theta=10.0)
        )
        backbone.update(with_cls_token=False, window_size='auto', window_prefix='copy')
    channels = (
        [32] if is_vit else [16 * 2**i for i in backbone.get('out_indices', range(4))]
    )
    cfg.model.neck.in_channels = channels[0] if is_vit else channels
    options = SMALL[name.partition('_')[0]]
    cfg.merge_from_dict({f'model.{key}': value for key, value in options.items()})
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model


def batch(size: tuple[int, int] = (96, 128), number: int = 2, seed: int = 0) -> dict:
    """Images [3, H, W] with three oriented boxes each."""
    generator = torch.Generator().manual_seed(seed)
    height, width = size
    images, samples = [], []
    for index in range(number):
        images.append(
            torch.randint(0, 256, (3, *size), generator=generator, dtype=torch.uint8)
        )
        centre = torch.rand(3, 2, generator=generator) * torch.tensor([width, height])
        sides = torch.rand(3, 2, generator=generator) * 30 + 15
        angle = (torch.rand(3, 1, generator=generator) - 0.5) * math.pi
        boxes = RotatedBoxes(torch.cat([centre, sides, angle], 1)).regularize_boxes(
            'le90'
        )
        labels = torch.randint(0, 15, (3,), generator=generator)
        instances = InstanceData(bboxes=RotatedBoxes(boxes), labels=labels)
        meta = dict(
            img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0), img_id=index
        )
        meta |= dict(
            batch_input_shape=size, pad_shape=size, img_path=str(Path(f'{index}.png'))
        )
        sample = DetDataSample(metainfo=meta, gt_instances=instances)
        sample.ignored_instances = InstanceData(
            bboxes=RotatedBoxes(torch.zeros(0, 5)),
            labels=torch.zeros(0, dtype=torch.long),
        )
        samples.append(sample)
    return dict(inputs=images, data_samples=samples)
