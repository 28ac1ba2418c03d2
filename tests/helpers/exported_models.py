"""Small models with random weights, one of each kind that can be exported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS
from torch import nn

from helpers import eomt
from helpers import shared_backbone as small
from helpers.deim import VIT, config, ours, randomise
from helpers.exported import strong
from helpers.small_configs import CONFIGS, small_config
from research.classifier import IMAGENET, RoPEClassifier
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.base import Backbone
from rope_dense.export.compare import Runner, largest_difference, runners
from rope_dense.export.exporter import graph_for
from rope_dense.models.deim.detector import DEIM
from rope_dense.models.shared_backbone import SharedBackbone
from rope_dense.project.model import build_model

PIXELS = dict(
    type='mmdet.DetDataPreprocessor',
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
    bgr_to_rgb=True,
)
STAGES = dict(embed_dims=8, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2))
SHALLOW = {'backbone.arch.depth': 1, 'backbone.window_block_indexes': ()}
WHOLE = dict(_delete_=True, mode='whole')
CLASSES = 3  # of R-CNNs


def small_model(name: str, folder: Path, **changes: Any) -> Any:
    """The model of a flagship config, shrunk."""
    cfg = Config.fromfile(small_config(name, folder, folder))
    cfg.merge_from_dict({f'model.{key}': value for key, value in changes.items()})
    model = build_model(cfg)
    model.init_weights()
    return strong(model)


# Backbones and classifiers


def vit(**settings: Any) -> Backbone:
    arch = dict(embed_dims=16, depth=2, num_heads=2, patch_size=8)
    return RoPEViT(arch, final_norm=True, out_indices=(0, 1), **settings)


def windowed(**settings: Any) -> Backbone:
    windows = dict(window_size=3, window_block_indexes=(0,))
    return vit(with_cls_token=False, **windows | settings)


def swin(**settings: Any) -> Backbone:
    arch = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
    return RoPESwin(arch, out_indices=(0, 1), **dict(window_size=4) | settings)


NAT = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2), dilations=((1, 2), (3,)))


def nat(**settings: Any) -> Backbone:
    given: dict[str, Any] = dict(arch=NAT, out_indices=(0, 1), kernel_size=5)
    return RoPENAT(**given | settings)


def classifier(kind: str = 'vit') -> nn.Module:
    backbone = dict(
        vit=dict(
            type='RoPEViT',
            arch=dict(embed_dims=16, depth=2, num_heads=2),
            patch_size=8,
            final_norm=True,
        ),
        swin=dict(
            type='RoPESwin',
            arch=dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2)),
            window_size=4,
            shift_single_window=False,
            out_indices=(1,),
        ),
    )[kind]
    return strong(RoPEClassifier(backbone, 5, data_preprocessor=IMAGENET))


# Segmentors and depth


def upernet(folder: Path) -> nn.Module:
    windows = {'backbone.window_size': 2, 'backbone.window_block_indexes': (0, 2)}
    windows |= {'backbone.with_cls_token': False}
    return small_model('upernet_vit_rope_mixed', folder, test_cfg=WHOLE, **windows)


def linear(folder: Path, **changes: Any) -> Any:
    """A linear head on the last map, without neck."""
    head = dict(_delete_=True, type='FCNHead', in_channels=32, in_index=3, channels=32)
    head |= dict(num_convs=0, concat_input=False, num_classes=7, dropout_ratio=0.1)
    head |= dict(norm_cfg=dict(type='SyncBN'))
    return small_model(
        'upernet_vit_rope_mixed',
        folder,
        test_cfg=WHOLE,
        neck=None,
        decode_head=head,
        auxiliary_head=None,
        **changes,
    )


def five_channels(folder: Path) -> nn.Module:
    """The linear head on images of five bands in 16 bits."""
    values = dict(mean=[900.0, 800, 700, 3000, 20], std=[300.0, 300, 300, 900, 5])
    preprocessor = dict(
        type='ChannelSegDataPreProcessor', _delete_=True, size_divisor=None
    )
    preprocessor |= dict(test_cfg=dict(size_divisor=16), **values)
    return linear(
        folder, **{'backbone.in_channels': 5, 'data_preprocessor': preprocessor}
    )


def mask2former(folder: Path) -> nn.Module:
    return small_model('mask2former_swin_rope_mixed', folder)


def fine_features(scale_factor: float = 4) -> nn.Module:
    """A linear head on features that are finer than the map of the backbone."""
    model = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(
            type='SegDataPreProcessor', mean=[127.5] * 3, std=[60.0] * 3
        ),
        backbone=dict(
            type='RoPEViTWithImage',
            arch=dict(embed_dims=16, depth=1, num_heads=1),
            patch_size=8,
        ),
        neck=dict(type='FineFeatures', scale_factor=scale_factor),
        decode_head=dict(
            type='FCNHead',
            in_channels=16,
            channels=16,
            num_convs=0,
            concat_input=False,
            dropout_ratio=0.0,
            num_classes=3,
            align_corners=False,
        ),
        test_cfg=dict(mode='whole'),
    )
    with MODELS.switch_scope_and_registry('mmseg') as models:
        return strong(models.build(ConfigDict(model)))


def eomt_segmentor() -> nn.Module:
    model = strong(eomt.build_model('semantic', 'eomt'))
    model.test_cfg = ConfigDict(mode='whole')
    return model


def dpt(**changes: Any) -> Any:
    """The model of the demo config, smaller."""
    cfg = Config.fromfile(CONFIGS / 'demo' / 'depth_vit_rope_mixed_rooms.py')
    cfg.model.backbone.arch = dict(embed_dims=32, depth=4, num_heads=2)
    cfg.model.decode_head.update(
        in_channels=32, post_process_channels=[8, 8, 16, 16], **changes
    )
    return strong(build_model(cfg))


def linear_depth() -> nn.Module:
    cfg = Config.fromfile(CONFIGS / 'depth' / 'linear_dinov3-b_8xb2-38k_nyu-416x544.py')
    cfg.model.backbone.update(
        arch='dinov3_base', embed_dims=32, depth=2, num_heads=2, init_cfg=None
    )
    cfg.model.decode_head.update(in_channels=32, norm_cfg=dict(type='BN'))
    return strong(build_model(cfg))


# Detectors


def dino(folder: Path, divisor: int = 20) -> nn.Module:
    """On a ViT, padded to multiples of ``divisor``."""
    changes = SHALLOW | {'data_preprocessor.pad_size_divisor': divisor}
    return small_model('dino_vitdet_rope_mixed', folder, **changes)


def retinanet(scores: float = 0.2) -> Any:
    """RetinaNet of mmdet on a small ViT, with about `scores` as scores."""
    cfg = Config.fromfile(
        CONFIGS / 'stock_heads' / 'retinanet_swin-t_rope-mixed_8xb2-12e_coco.py'
    )
    cfg.model.backbone = dict(
        type='RoPEViT', arch=dict(embed_dims=32, depth=1, num_heads=2)
    )
    cfg.model.neck = dict(
        type='PlainViTFPN', in_channels=32, out_channels=32, num_outs=5
    )
    cfg.model.bbox_head.update(
        num_classes=5, in_channels=32, feat_channels=32, stacked_convs=1, init_cfg=None
    )
    cfg.model.test_cfg.nms_pre = 200  # more than the candidates of the coarse maps
    model: Any = strong(build_model(cfg))
    nn.init.constant_(model.bbox_head.retina_cls.bias, math.log(scores / (1 - scores)))
    nn.init.normal_(model.bbox_head.retina_reg.weight, std=0.02)
    return model


def rcnn(kind: str, **changes: Any) -> Any:
    """'faster', 'mask' or 'cascade' R-CNN on a small ViT, with detections of several classes."""
    name = 'cascade-mask-rcnn' if kind == 'cascade' else 'mask-rcnn'
    file = CONFIGS / 'stock_heads' / f'{name}_vit-b_rope-mixed_8xb8-184k_coco.py'
    cfg = Config.fromfile(file)
    model = cfg.model
    model.backbone.update(
        arch=dict(embed_dims=32, depth=2, num_heads=2),
        window_size=4,
        window_block_indexes=(0,),
    )
    model.backbone.init_cfg = None
    model.neck.update(in_channels=32, out_channels=16)
    model.rpn_head.update(in_channels=16, feat_channels=16)
    heads = model.roi_head
    for extractor in (heads.bbox_roi_extractor, heads.mask_roi_extractor):
        extractor.out_channels = 16
    boxes = heads.bbox_head if kind == 'cascade' else [heads.bbox_head]
    for head in boxes:
        head.update(
            in_channels=16,
            conv_out_channels=16,
            fc_out_channels=32,
            num_classes=CLASSES,
        )
    heads.mask_head.update(in_channels=16, conv_out_channels=16, num_classes=CLASSES)
    if kind == 'faster':
        model.type = 'FasterRCNN'
        del heads.mask_head, heads.mask_roi_extractor
    model.data_preprocessor.pad_size_divisor = 32
    model.test_cfg.rpn.update(nms_pre=60, max_per_img=80)
    model.test_cfg.rcnn.max_per_img = 12
    cfg.merge_from_dict({f'model.{key}': value for key, value in changes.items()})
    built: Any = strong(build_model(cfg))
    nn.init.normal_(built.rpn_head.rpn_cls.weight, std=0.05)
    nn.init.normal_(built.rpn_head.rpn_reg.weight, std=0.03)
    made = built.roi_head.bbox_head
    for head in made if kind == 'cascade' else [made]:
        nn.init.normal_(head.fc_cls.weight, std=0.3)
        nn.init.normal_(head.fc_reg.weight, std=0.2)
    return built


# DEIM


def deim(size: str = 's', divisor: int = 1, **settings: Any) -> DEIM:
    preprocessor = dict(PIXELS, pad_size_divisor=divisor)
    model = ours(size, data_preprocessor=preprocessor, **settings)
    randomise(model)
    return model.eval()


def shallow(last: int = 0, divisor: int = 1) -> DEIM:
    """A ViT of one block, and one more decoder layer than the ``last`` one that counts."""
    settings = config()
    backbone, head = settings['backbone'], settings['bbox_head']
    backbone['arch'] |= dict(depth=1)
    return deim(
        divisor=divisor,
        backbone=backbone | dict(out_indices=(0,)),
        neck=dict(type='MeanMapPyramid', in_channels=32, out_channels=32),
        encoder=settings['encoder'] | dict(num_blocks=1),
        head=dict(decoder=head['decoder'] | dict(num_layers=last + 2, eval_idx=last)),
    )


def masked() -> DEIM:
    """The first of three layers counts, and masks pass one block."""
    decoder = config()['bbox_head']['decoder'] | dict(num_layers=3, eval_idx=0)
    return deim(head=dict(decoder=decoder, masks={}))


def ecdet() -> DEIM:
    """Backbone, pyramid and layers as in ECDet."""
    settings = config()
    head, encoder = settings['bbox_head'], settings['encoder']
    arch = RoPEViT.ARCHS['ecvit_tiny'] | VIT
    return deim(
        backbone=dict(type='RoPEViT', arch=arch, out_indices=(2, 3)),
        neck=dict(type='MeanMapPyramid', in_channels=32, out_channels=32),
        encoder=encoder | dict(act='SiLU'),
        head=dict(decoder=head['decoder'] | dict(norm='layer', ffn='mlp')),
    )


def on_swin() -> DEIM:
    backbone = dict(type='RoPESwin', arch=STAGES, window_size=2, out_indices=(1, 2, 3))
    encoder = config()['encoder'] | dict(in_channels=(16, 32, 64))
    return deim(backbone=backbone, neck=None, encoder=encoder)


def oriented() -> DEIM:
    decoder = config()['bbox_head']['decoder'] | dict(num_layers=3, eval_idx=1)
    return deim(head=dict(type='OrientedDEIMHead', decoder=decoder))


# Several tasks


def shared(folder: Path) -> nn.Module:
    """Boxes, classes and depth of one backbone, and its features."""
    configs = {name: make() for name, make in small.ALL.items() if name != 'masks'}
    return SharedBackbone(small.save(folder, **configs), features=True)


MIXED = dict(type='MixedRoPE')
# One of each kind: from a folder for files to a model.
KINDS: dict[str, Callable[[Path], nn.Module]] = {
    'RoPEViT': lambda folder: strong(windowed(rope=MIXED, use_ape=True)),
    'RoPESwin': lambda folder: strong(
        swin(rope=MIXED, attention=dict(type='TableBias'))
    ),
    'RoPENAT': lambda folder: strong(nat(rope=dict(type='LogAxialRoPE'))),
    'RoPEClassifier': lambda folder: classifier(),
    'UperNet': upernet,
    'Mask2Former on Swin': mask2former,
    'FineFeatures': lambda folder: fine_features(),
    'EoMT, semantic': lambda folder: eomt_segmentor(),
    'EoMT (PMT), panoptic': lambda folder: strong(eomt.build_model('panoptic', 'pmt')),
    'DPT, depth': lambda folder: dpt(),
    'linear, depth': lambda folder: linear_depth(),
    'DINO on ViT': dino,
    'DINO on Swin': lambda folder: small_model('dino_swin_rope_mixed', folder),
    'RetinaNet': lambda folder: retinanet(),
    'Faster R-CNN': lambda folder: rcnn('faster'),
    'Mask R-CNN': lambda folder: rcnn('mask'),
    'Cascade Mask R-CNN': lambda folder: rcnn('cascade'),
    'DEIM': lambda folder: deim('m', divisor=32),
    'DEIM with masks': lambda folder: masked(),
    'DEIM (ECDet)': lambda folder: ecdet(),
    'DEIM on Swin': lambda folder: on_swin(),
    'DEIM with an angle': lambda folder: oriented(),
    'SharedBackbone': shared,
}


def differences(
    model: nn.Module, path: Path, metadata: dict, more: Mapping[str, Runner] = {}
) -> dict[str, float]:
    """The largest difference of a file from its model in each program here, and ``more``.

    At six sizes: the smallest of the file, wide, odd and prime ones. The first has several tokens:
    after an image of one token OpenVINO 2026.4 computes attention of the next wrongly.
    """
    graph, (least, _) = graph_for(model, metadata), metadata['smallest_size']
    height, width = graph.generic
    sizes = [
        (1, height, width),
        (1, least, least),
        (3, max(17, least), 300),
        (2, 113, least),
    ]
    sizes += [(1, 97, 131), (2, height + 9, width + 33)]
    worst: dict[str, float] = {}
    with torch.no_grad():
        programs = runners(path) | more
        for size in sizes:
            image = graph.example(*size)
            expected = graph(image)
            for name, run in programs.items():
                actual = run(image)
                assert [x.dtype for x in actual] == [x.dtype for x in expected], name
                difference = largest_difference(graph, actual, expected)
                worst[name] = max(worst.get(name, 0.0), difference)
    return worst


def program_of(path: Path) -> Runner:
    """A file in ONNX Runtime, with all its optimisations, or in PyTorch, loaded once."""
    return next(iter(runners(path).values()))
