"""The configs of configs/depth against DINOv3's recipe for linear depth, item by item.

Transcribed from facebookresearch/dinov3 at 6876159, dinov3/eval/depth: configs/config-nyu.yaml, the
defaults of config.py, and train.py, transforms.py, schedulers.py; CHMv2 from transformers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS, init_default_scope
from torch import nn

from helpers.dinov3_source import dinov3
from helpers.grid import CONFIGS, read, readme_variants, value
from rope_dense.checkpoints.detectors import PUBLISHED_MODELS

FOLDER = CONFIGS / 'depth'
LINEAR = 'linear_dinov3-b_8xb2-38k_nyu-416x544'
CHMV2 = 'dpt_dinov3-l-chmv2_8xb2-38k_nyu-416x544'
DPT = 'dpt_dinov3-b_8xb2-38k_nyu-416x544'
STEPS, WARM_UP, RATE = 38400, 12800, 3e-4
TRAIN = 'train_dataloader.dataset.pipeline'
RECIPE = {
    'model.type': 'DepthEstimator',
    'model.backbone.arch': 'dinov3_base',
    'model.backbone.frozen_stages': 'all',
    'model.decode_head.type': 'LinearDepthHead',  # type: linear, use_batchnorm
    'model.decode_head.norm_cfg.type': 'SyncBN',
    'model.decode_head.dropout_ratio': 0.0,
    'model.decode_head.num_bins': 256,  # n_output_channels
    'model.decode_head.min_depth': 0.001,
    'model.decode_head.max_depth': 10.0,
    'model.decode_head.align_corners': False,
    'model.decode_head.loss_decode': dict(
        type='BatchSiLogLoss', warm_up=100
    ),  # SIGLOSS: 1.0
    'model.data_preprocessor.mean': [123.675, 116.28, 103.53],
    'model.data_preprocessor.std': [58.395, 57.12, 57.375],
    'model.test_cfg': dict(mode='whole'),
    'tta_model.type': 'MeanDepthTTAModel',  # use_tta: left and right
    'optim_wrapper.optimizer.type': 'AdamW',
    'optim_wrapper.optimizer.lr': RATE,
    'optim_wrapper.optimizer.weight_decay': 1e-4,
    'optim_wrapper.clip_grad': dict(max_norm=35),  # gradient_clip
    'train_cfg.max_iters': STEPS,
    'train_cfg.val_interval': 1600,  # eval_interval
    'train_dataloader.batch_size': 2,  # bs, n_gpus: 8
    'train_dataloader.drop_last': True,
    'auto_scale_lr.base_batch_size': 16,
    f'{TRAIN}.1': dict(type='LoadDepth', unit=1 / 1000),  # normalization_constant
    f'{TRAIN}.2': dict(type='CropBox', box=(43, 45, 608, 472)),  # fixed_crop: NYU
    f'{TRAIN}.3': dict(
        type='RandomRotate', prob=0.5, degree=2.5, pad_val=0, seg_pad_val=0
    ),
    f'{TRAIN}.4': dict(type='RandomFlip', prob=0.5),
    f'{TRAIN}.5': dict(type='RandomCrop', crop_size=(416, 544)),
    f'{TRAIN}.6': dict(type='RandomColourGain', prob=0.5, brightness=(0.75, 1.25)),
    'val_dataloader.batch_size': 1,
    'val_evaluator': dict(
        type='ValidDepthMetric',
        min_depth_eval=0.001,
        max_depth_eval=10.0,
        crop_type='nyu_crop',
    ),
}
# transformers' CHMv2Config and CHMv2ImageProcessor
CHMV2_SETTINGS = {
    'model.backbone.arch': 'dinov3_large',
    'model.backbone.norm_cfg.eps': 1e-6,
    'model.backbone.out_indices': (5, 11, 17, 23),
    'model.backbone.output_prefix': 'cls',
    'model.decode_head.type': 'DPTDepthHead',
    'model.decode_head.post_process_channels': [128, 256, 512, 1024],
    'model.decode_head.num_bins': 256,
    'model.decode_head.min_depth': 0.001,
    'model.decode_head.max_depth': 96.0,
    'model.decode_head.bins': 'mixed',
}
# By the README's options: what timm calls the weights, and their channels.
SIZES = {
    'small': 384,
    'small_plus': 384,
    'large': 1024,
    'huge_plus': 1280,
    '7b': 4096,
}


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    init_default_scope('mmseg')
    yield
    init_default_scope('mmengine')


def load(name: str, options: dict | None = None) -> Config:
    cfg = copy.deepcopy(read(FOLDER / f'{name}.py'))
    cfg.merge_from_dict(options or {})
    return cfg


def build(cfg: Config) -> nn.Module:
    """Without storage."""
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def test_there_are_three() -> None:
    assert {path.stem for path in FOLDER.glob('*.py')} == {LINEAR, DPT, CHMV2}


def test_settings_are_those_of_the_recipe() -> None:
    cfg = load(LINEAR)
    assert {path: value(cfg, path) for path in RECIPE} == RECIPE
    head = build(cfg).decode_head
    assert (head.in_index, head.conv_seg.out_channels) == (-1, 256)


def test_dpt_differs_in_its_head_and_maps() -> None:
    linear, dpt = load(LINEAR), load(DPT)
    assert dpt.model.backbone == dict(
        linear.model.backbone, out_indices=(2, 5, 8, 11), output_prefix='cls'
    )
    for cfg in (linear, dpt):
        cfg.model.pop('backbone')
        cfg.model.pop('decode_head')
        cfg.pop('filename', None)
    assert dpt.to_dict() == linear.to_dict()


def test_every_parameter_of_the_head_has_one_group() -> None:
    """depther.decoder.parameters(), with one learning rate and weight decay."""
    cfg = load(LINEAR)
    model = build(cfg)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    trained = {id(x) for group in groups for x in group['params']}
    assert trained == {id(x) for x in model.decode_head.parameters()}
    assert {(group['lr'], group['weight_decay']) for group in groups} == {(RATE, 1e-4)}
    assert groups[0]['betas'][1] == 0.99


def published(step: int) -> tuple[float, float]:
    """Learning rate and first beta of WarmupOneCycleLR."""
    cosine = (1 + math.cos(math.pi * step / STEPS)) / 2
    if step < WARM_UP:
        return RATE / 1000 + RATE * cosine * step / WARM_UP, 0.0
    share = (step - WARM_UP) / (STEPS - WARM_UP)
    least = RATE / 25 / 1000
    rate = least + (RATE - least) * (1 + math.cos(math.pi * (step + 1) / STEPS)) / 2
    return rate, 0.95 + (0.85 - 0.95) * (1 + math.cos(math.pi * share)) / 2


@pytest.fixture(scope='module')
def steps() -> list[tuple[float, float]]:
    """Learning rate and first beta of each iteration, by mmengine's schedulers."""
    cfg = read(FOLDER / f'{LINEAR}.py')
    settings = dict(cfg.optim_wrapper.optimizer)
    settings.pop('type')
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], **settings)
    schedulers = [
        PARAM_SCHEDULERS.build(dict(s, optimizer=optimizer))
        for s in cfg.param_scheduler
    ]
    return list(stepped(optimizer, schedulers))


def stepped(
    optimizer: torch.optim.Optimizer, schedulers: list
) -> Iterator[tuple[float, float]]:
    (group,) = optimizer.param_groups
    for _ in range(STEPS):
        yield group['lr'], group['betas'][0]
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()


def test_learning_rate_and_momentum_follow_the_formula(steps: list) -> None:
    expected = [published(step) for step in range(STEPS)]
    assert (
        max(abs(a[0] - b[0]) for a, b in zip(steps, expected, strict=True))
        < 1e-3 * RATE
    )
    assert max(abs(a[1] - b[1]) for a, b in zip(steps, expected, strict=True)) < 1e-6


def test_the_formula_is_that_of_the_code() -> None:
    optimizer = torch.optim.AdamW(
        [nn.Parameter(torch.zeros(1))], RATE, betas=(0.9, 0.99)
    )
    scheduler = dinov3('schedulers').WarmupOneCycleLR(
        optimizer,
        total_steps=STEPS,
        max_lr=RATE,
        final_div_factor=1000.0,
        warmup_iters=WARM_UP,
        base_momentum=0.85,
        max_momentum=0.95,
    )
    actual = list(stepped(optimizer, [scheduler]))
    for step in (0, 1, 100, WARM_UP - 1, WARM_UP, WARM_UP + 1, 20000, STEPS - 1):
        assert actual[step] == pytest.approx(published(step), rel=1e-6, abs=1e-12)


@pytest.mark.slow
def test_the_readme_has_every_size(timm: ModuleType) -> None:
    """Options build a model whose backbone is timm's of that name; LoRA adds its adapters."""
    found = {}
    for name, options in readme_variants('depth'):
        assert name == LINEAR
        cfg = load(name, options)
        model = build(cfg)
        if 'model.backbone.lora.rank' in options:
            trained = {
                k for k, x in model.backbone.named_parameters() if x.requires_grad
            }
            assert trained and all('.lora.' in key for key in trained)
            continue
        size = cfg.model.backbone.arch.removeprefix('dinov3_')
        checkpoint = cfg.model.backbone.init_cfg.checkpoint
        assert checkpoint == f'hf-hub:timm/vit_{size}_patch16_dinov3.lvd1689m'
        with torch.device('meta'):
            theirs = timm.create_model(
                checkpoint.split('/')[1].split('.')[0], num_classes=0
            )
        assert theirs.embed_dim == model.backbone.out_channels[-1]
        assert len(theirs.blocks) == len(model.backbone.blocks)
        found[size] = model.decode_head.in_channels
    assert found == SIZES


def test_parameters_of_the_readme_are_counted() -> None:
    text = (FOLDER / 'README.md').read_text()
    for name, options in readme_variants('depth'):
        count = sum(x.numel() for x in build(load(name, options)).parameters())
        assert f'({count:,} parameters' in text, options


def test_chmv2_is_transformers_(transformers: ModuleType) -> None:
    """Settings, colours, and every key of the full size."""
    cfg, theirs = load(CHMV2), transformers.CHMv2Config()
    assert {path: value(cfg, path) for path in CHMV2_SETTINGS} == CHMV2_SETTINGS
    assert theirs.backbone_config.layer_norm_eps == 1e-6 and theirs.max_depth == 96.0
    colours = cfg.model.data_preprocessor
    assert colours.mean == pytest.approx([255 * x for x in (0.420, 0.411, 0.296)])
    assert colours.std == pytest.approx([255 * x for x in (0.213, 0.156, 0.143)])
    with torch.device('meta'):
        weights = transformers.CHMv2ForDepthEstimation(theirs).state_dict()
    ours = PUBLISHED_MODELS['chmv2'].to_ours(weights)
    expected = {key: x.shape for key, x in build(cfg).state_dict().items()}
    actual = {key: x.shape for key, x in ours.items() if not key.endswith('.k_bias')}
    actual.pop('backbone.rope.periods', None)
    assert actual == expected
