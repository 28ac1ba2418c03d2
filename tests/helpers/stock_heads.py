"""The configs of configs/stock_heads with a small backbone and head, and a batch for them."""

from __future__ import annotations

import copy

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from torch import nn

from helpers.grid import CONFIGS, read

FOLDER = CONFIGS / 'stock_heads'
SIZE, CLASSES = (100, 75), 6
VIT = dict(embed_dims=32, depth=4, num_heads=2)
SWIN = dict(embed_dims=16, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))

MASK_RCNN = {
    'backbone.window_block_indexes': (0, 2),
    'backbone.window_size': 2,
    'data_preprocessor.pad_size_divisor': 128,
    'neck.in_channels': 32,
    'neck.out_channels': 16,
    'rpn_head.in_channels': 16,
    'rpn_head.feat_channels': 16,
    'roi_head.bbox_roi_extractor.out_channels': 16,
    'roi_head.mask_roi_extractor.out_channels': 16,
    'roi_head.mask_head.in_channels': 16,
    'roi_head.mask_head.conv_out_channels': 16,
    'roi_head.mask_head.num_classes': CLASSES,
    'train_cfg.rpn_proposal.max_per_img': 20,
    'test_cfg.rpn.max_per_img': 20,
}
BOX_HEAD = dict(
    in_channels=16, conv_out_channels=16, fc_out_channels=32, num_classes=CLASSES
)
MASK2FORMER = {
    'panoptic_head.in_channels': [16, 32, 64, 128],
    'panoptic_head.num_queries': 10,
    'panoptic_head.pixel_decoder.encoder.num_layers': 1,
    'panoptic_head.transformer_decoder.num_layers': 1,
    'train_cfg.num_points': 64,
    'data_preprocessor.batch_augments.0.size': (128, 128),
}
DDQ = {
    'num_queries': 10,
    'encoder.num_layers': 1,
    'encoder.layer_cfg.ffn_cfg.feedforward_channels': 32,
    'decoder.num_layers': 2,
    'decoder.layer_cfg.ffn_cfg.feedforward_channels': 32,
    'dn_cfg.group_cfg.num_dn_queries': 4,
    'neck.in_channels': [32, 64, 128],
    'bbox_head.num_classes': CLASSES,
    'test_cfg.max_per_img': 10,
}
RETINANET = {
    'neck.in_channels': [32, 64, 128],
    'neck.out_channels': 16,
    'bbox_head.in_channels': 16,
    'bbox_head.feat_channels': 16,
    'bbox_head.num_classes': CLASSES,
}
SEGFORMER = {
    'data_preprocessor.size': (112, 112),
    'decode_head.in_channels': [16, 32, 64, 128],
    'decode_head.channels': 16,
    'decode_head.num_classes': CLASSES,
}
DPT = {
    'backbone.out_indices': (0, 1, 2, 3),
    'data_preprocessor.size': (112, 112),
    'decode_head.in_channels': [32] * 4,
    'decode_head.embed_dims': 32,
    'decode_head.channels': 16,
    'decode_head.post_process_channels': [8, 8, 16, 16],
    'decode_head.num_classes': CLASSES,
}
# Config -> what makes its head as small as its backbone is made.
SMALL = {
    'mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco': MASK_RCNN
    | {f'roi_head.bbox_head.{key}': value for key, value in BOX_HEAD.items()},
    'cascade-mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco': MASK_RCNN
    | {
        f'roi_head.bbox_head.{i}.{key}': BOX_HEAD[key]
        for i in range(3)
        for key in BOX_HEAD
    },
    'retinanet_swin-t_rope-mixed_8xb2-12e_coco': RETINANET,
    'mask2former_swin-t_rope-mixed_8xb2-lsj-50e_coco-instance': MASK2FORMER,
    'mask2former_swin-t_rope-mixed_8xb2-lsj-50e_coco-panoptic': MASK2FORMER,
    'ddq-detr-4scale_swin-t_rope-mixed_8xb2-12e_coco': DDQ,
    'segformer_swin-t_rope-mixed_8xb2-160k_ade20k-512x512': SEGFORMER,
    'dpt_vit-b_rope-mixed_8xb2-160k_ade20k-512x512': DPT,
}


def load(name: str) -> Config:
    """A config, in the scope that it asks for."""
    cfg = copy.deepcopy(read(FOLDER / f'{name}.py'))
    init_default_scope(cfg.default_scope)
    return cfg


def small(cfg: Config, overrides: dict, init_cfg: dict | None = None) -> nn.Module:
    """The model with a backbone of four or five blocks, initialised."""
    backbone = cfg.model.backbone
    backbone.arch = VIT if backbone.type == 'RoPEViT' else SWIN
    backbone.update(drop_path_rate=0.0, init_cfg=init_cfg)
    if backbone.type == 'RoPESwin':
        backbone.window_size = 4
    cfg.merge_from_dict({f'model.{key}': value for key, value in overrides.items()})
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    model.init_weights()  # mmdet leaves some parameters as memory was until then
    return model


def batch(scope: str) -> dict:
    """Two images that no patch divides, with what is to be found in them."""
    images = [torch.randint(0, 256, (3, *SIZE), dtype=torch.uint8) for _ in range(2)]
    sample = detected if scope == 'mmdet' else segmented
    return dict(inputs=images, data_samples=[sample() for _ in images])


def detected() -> DetDataSample:
    """A box with its mask, and labels of all pixels."""
    mask = np.zeros((1, *SIZE), np.uint8)
    mask[:, 8:50, 5:60] = 1
    boxes, labels = torch.tensor([[5.0, 8.0, 60.0, 50.0]]), torch.tensor([2])
    instances = InstanceData(
        bboxes=boxes, labels=labels, masks=BitmapMasks(mask, *SIZE)
    )
    pixels = PixelData(sem_seg=torch.from_numpy(np.where(mask, 2, 90)).long())
    return DetDataSample(metainfo=meta(), gt_instances=instances, gt_sem_seg=pixels)


def segmented() -> SegDataSample:
    labels = PixelData(data=torch.randint(0, CLASSES, (1, *SIZE)))
    return SegDataSample(metainfo=meta() | dict(pad_shape=SIZE), gt_sem_seg=labels)


def meta() -> dict:
    return dict(
        img_shape=SIZE, ori_shape=SIZE, scale_factor=(1.0, 1.0), batch_input_shape=SIZE
    )
