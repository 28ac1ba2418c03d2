"""configs/nat against SHI-Labs' settings.

These are transcribed from SHI-Labs/Neighborhood-Attention-Transformer at d334f5b, detection/ and
segmentation/; keys are (head, family), families as in the names of the configs.
"""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData

from helpers.grid import read, readme_options, readme_variants, value
from helpers.nat_recipes import CASCADE, MASK, NAT, RECIPES, UPERNET, Key, path_of
from rope_dense.backbones import RoPENAT
from rope_dense.rope import LogAxialRoPE

DILATIONS = {  # of the first blocks of each stage; those of NAT are 1
    (MASK, 'dinat'): ((1, 28, 1), (1, 7, 1, 14), (1, 3, 1, 5, 1, 7), (1, 3, 1, 3, 1)),
    (MASK, 'dinat-s'): ((1, 28), (1, 14), (1, 3, 1, 5, 1, 7), (1, 3)),
    (UPERNET, 'dinat'): ((1, 16, 1), (1, 4, 1, 8), (1, 2, 1, 3, 1, 4), (1, 2, 1, 2, 1)),
    (UPERNET, 'dinat-s'): ((1, 16), (1, 8), (1, 2, 1, 3, 1, 4), (1, 2)),
}
WEIGHTS = {
    'nat': 'nat/checkpoints/CLS/nat_{}.pth',
    'dinat': 'dinat/checkpoints/imagenet1k/dinat_{}_in1k_224.pth',
    'dinat-s': 'dinat/checkpoints/imagenet1k/dinat_s_{}_in1k_224.pth',
}
COCO = {
    'model.data_preprocessor.pad_size_divisor': 32,
    'model.neck.num_outs': 5,
    'model.rpn_head.anchor_generator.scales': [8],
    'model.roi_head.mask_head.num_convs': 4,
    'model.test_cfg.rcnn.max_per_img': 100,
    'optim_wrapper.optimizer.weight_decay': 0.05,
    'optim_wrapper.clip_grad': None,
    'train_cfg.max_iters': 36 * 7330,
    'param_scheduler.1.milestones': [27 * 7330, 33 * 7330],
    'param_scheduler.0.end': 500,
    'train_dataloader.batch_size': 2,
    'val_evaluator.metric': ['bbox', 'segm'],
}
SETTINGS = {
    MASK: COCO
    | {
        'model.type': 'MaskRCNN',
        'model.rpn_head.loss_bbox.type': 'L1Loss',
        'model.roi_head.bbox_head.type': 'Shared2FCBBoxHead',
        'model.train_cfg.rpn.allowed_border': -1,
        'model.train_cfg.rpn_proposal.max_per_img': 1000,
        'model.train_cfg.rcnn.assigner.match_low_quality': True,
    },
    CASCADE: COCO
    | {
        'model.type': 'CascadeRCNN',
        'model.rpn_head.loss_bbox': dict(
            type='SmoothL1Loss', beta=1 / 9, loss_weight=1.0
        ),
        'model.roi_head.stage_loss_weights': [1, 0.5, 0.25],
        'model.roi_head.bbox_head.2.num_shared_convs': 4,
        'model.roi_head.bbox_head.2.norm_cfg.type': 'SyncBN',
        'model.roi_head.bbox_head.2.loss_bbox': dict(type='GIoULoss', loss_weight=10.0),
        'model.roi_head.bbox_head.2.bbox_coder.target_stds': [
            0.033,
            0.033,
            0.067,
            0.067,
        ],
        'model.train_cfg.rpn.allowed_border': 0,
        'model.train_cfg.rpn_proposal.max_per_img': 2000,
        'model.train_cfg.rcnn.2.assigner.min_pos_iou': 0.7,
    },
    UPERNET: {
        'model.type': 'EncoderDecoder',
        'model.decode_head.channels': 512,
        'model.decode_head.num_classes': 150,
        'model.auxiliary_head.channels': 256,
        'model.auxiliary_head.loss_decode.loss_weight': 0.4,
        'model.test_cfg': dict(mode='whole'),
        'optim_wrapper.optimizer.weight_decay': 0.01,
        'optim_wrapper.clip_grad': None,
        'param_scheduler.0.end': 1500,
        'param_scheduler.1.power': 1.0,
        'train_cfg.max_iters': 160000,
        'train_dataloader.batch_size': 2,
    },
}


def key_of(name: str, arch: str) -> Key:
    """Head, family and size of a model."""
    family, _, size = arch.rpartition('_')
    return name.split('_')[0], family.replace('_', '-'), size


VARIANTS = {  # of the README, without a file
    key_of(name, options['model.backbone.arch']): (name, options)
    for name, options in readme_variants('nat')
}
every_leaf = pytest.mark.parametrize('key', RECIPES, ids='-'.join)
one_of_each = [  # of each head and family the largest size; a detector's takes longer to build
    pytest.param(key, marks=[pytest.mark.slow] * (key[0] != UPERNET))
    for key in {key[:2]: key for key in RECIPES}.values()
]


def load_model(key: Key) -> Config:
    """A config of the folder or of the README."""
    name, options = VARIANTS.get(key, (path_of(key).stem, {}))
    cfg = load(NAT / f'{name}.py')
    cfg.merge_from_dict(options)
    return cfg


def readme_row(key: Key) -> list[str]:
    """Cells after the name of a model, of the table of its head."""
    titles = {MASK: '## Mask R-CNN', CASCADE: '## Cascade', UPERNET: '## UperNet'}
    head, family, size = key
    table = (
        (NAT / 'README.md').read_text().partition(titles[head])[2].partition('\n## ')[0]
    )
    label = f'{family.upper().replace("DINAT", "DiNAT").replace("-S", "-s")}-{size.capitalize()}'
    (row,) = re.findall(rf'^\| \[?{label}(?:\]\(\S+\))? \|(.*)\|$', table, re.MULTILINE)
    return [cell.strip() for cell in row.split('|')]


def load(path: Path) -> Config:
    cfg = copy.deepcopy(read(path))
    init_default_scope(cfg.default_scope)
    return cfg


def with_log_axial_rope(key: Key) -> Config:
    """The config with the options of README.md."""
    cfg = load_model(key)
    cfg.merge_from_dict(readme_options(NAT / 'README.md', 'upernet_nat-mini'))
    return cfg


def test_all_configs_are_here() -> None:
    files = {path_of(key) for key in RECIPES.keys() - VARIANTS.keys()}
    assert {*NAT.glob('*.py')} == files and len(files) == 3 and len(RECIPES) == 30


@pytest.mark.parametrize('key', one_of_each, ids='-'.join)
def test_dilations_are_published_and_parameters_those_of_the_readme(key: Key) -> None:
    """With the bias, and with log-axial RoPE by the options that it gives."""
    with torch.device('meta'):
        model = MODELS.build(load_model(key).model)
        backbone = MODELS.build(with_log_axial_rope(key).model.backbone)
    total, published, ours = (
        sum(p.numel() for p in module.parameters())
        for module in (model, model.backbone, backbone)
    )
    rope = backbone.layers[0].blocks[0].attn.rope
    assert isinstance(rope, LogAxialRoPE) and rope.k_rope == 2
    assert not any(
        name.endswith('bias_table') for name, _ in backbone.named_parameters()
    )
    assert readme_row(key)[-2:] == [f'{total:,}', f'{total - published + ours:,}']
    head, family, _ = key
    expected = DILATIONS.get((MASK if head == CASCADE else head, family), ((1,),) * 4)
    for dilations, of_stage in zip(
        model.backbone.block_dilations, expected, strict=True
    ):
        assert dilations == [of_stage[i % len(of_stage)] for i in range(len(dilations))]


@every_leaf
def test_settings_are_the_published_ones(key: Key) -> None:
    (head, family, size), (drop_path, rate, *results) = key, RECIPES[key]
    cfg = load_model(key)
    actual = {name: value(cfg, name) for name in SETTINGS[head]}
    assert actual == SETTINGS[head]
    assert cfg.optim_wrapper.optimizer.lr == rate
    backbone = cfg.model.backbone
    arch = f'{family}_{size}'.replace('-', '_')
    assert (backbone.arch, backbone.drop_path_rate) == (arch, drop_path)
    assert (backbone.rope, backbone.attention) == (None, dict(type='TableBias'))
    weights = f'https://shi-labs.com/projects/{WEIGHTS[family].format(size)}'
    assert backbone.init_cfg == dict(type='Pretrained', checkpoint=weights)
    assert readme_row(key)[:2] == [str(result) for result in results]
    sizes = RoPENAT.ARCHS[arch]
    channels = [sizes['embed_dims'] * 2**stage for stage in range(4)]
    if head == UPERNET:
        assert cfg.model.decode_head.in_channels == channels
        assert cfg.model.auxiliary_head.in_channels == channels[2]
    else:
        assert cfg.model.neck.in_channels == channels


@pytest.mark.parametrize('head', [MASK, CASCADE, UPERNET])
def test_models_are_built_with_the_decay_of_the_recipe(head: str) -> None:
    cfg = load(path_of((head, 'nat', 'mini')))
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    decays = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    free = {name for name, p in model.named_parameters() if decays[id(p)] == 0}
    named = {name for name, _ in model.named_parameters()}
    assert free == {name for name in named if re.search('norm|bias_table', name)}
    assert len(decays) == len(named) and 'backbone.norm3.weight' in free


@torch.no_grad()
def test_a_segmentor_predicts() -> None:
    cfg = with_log_axial_rope((UPERNET, 'dinat-s', 'tiny'))
    arch = dict(
        embed_dims=16, depths=(1, 2, 1, 1), num_heads=(1, 1, 2, 2), overlapping=False
    )
    cfg.model.backbone.arch = arch
    cfg.model.decode_head.update(in_channels=[16, 32, 64, 128], channels=16)
    cfg.model.auxiliary_head.update(in_channels=64, channels=8)
    model = revert_sync_batchnorm(MODELS.build(cfg.model)).eval()
    scores = model.encode_decode(torch.randn(1, 3, 70, 53), [dict(img_shape=(70, 53))])
    assert scores.shape == (1, 150, 70, 53)


@pytest.mark.parametrize('head', [MASK, CASCADE])
def test_a_detector_trains_and_predicts(head: str) -> None:
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    cfg = with_log_axial_rope((head, 'dinat', 'mini'))
    cfg.model.backbone.update(
        arch=dict(embed_dims=16, depths=(1, 2, 1, 1), num_heads=(1, 1, 2, 2)),
        drop_path_rate=0.0,
    )
    cfg.model.neck.update(in_channels=[16, 32, 64, 128])
    few = dict(max_per_img=20)
    cfg.model.train_cfg.rpn_proposal.update(few)
    cfg.model.test_cfg.rpn.update(few)
    stages = cfg.model.train_cfg.rcnn
    for stage in stages if isinstance(stages, list) else [stages]:
        stage.sampler.num = 8
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    model.init_weights()
    mask = np.zeros((1, 70, 96), np.uint8)
    mask[:, 10:50, 20:80] = 1
    instances = InstanceData(
        bboxes=torch.tensor([[20.0, 10.0, 80.0, 50.0]]),
        labels=torch.tensor([3]),
        masks=BitmapMasks(mask, 70, 96),
    )
    meta = dict(img_shape=(70, 96), ori_shape=(70, 96), scale_factor=(1.0, 1.0))
    sample = DetDataSample(metainfo=meta, gt_instances=instances)
    batch = dict(inputs=[torch.randint(0, 256, (3, 70, 96), dtype=torch.uint8)] * 2)
    batch['data_samples'] = [sample, copy.deepcopy(sample)]
    data = model.data_preprocessor(batch, training=True)
    loss, parts = model.train().parse_losses(model(**data, mode='loss'))
    assert loss.isfinite() and any('loss_mask' in name for name in parts)
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.backbone.parameters())
    batch = dict(inputs=batch['inputs'][:1], data_samples=[sample])
    with torch.no_grad():
        (result,) = model.eval().test_step(batch)
    assert len(result.pred_instances.masks) == len(result.pred_instances.bboxes)
