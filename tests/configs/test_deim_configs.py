"""The configs of configs/deim against the sources that they name, number by number.

``SOURCES`` is written from Intellindust-AI-Lab/DEIMv2 at 0fff8d4 (configs/base and configs/deimv2)
and EdgeCrafter at 706d037 (ecdetseg/configs), not from the configs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import (
    DATASETS,
    MODELS,
    TRANSFORMS,
    DefaultScope,
    init_default_scope,
)
from mmengine.runner import Runner

from helpers.grid import CONFIGS, value
from rope_dense.data.generated import METAINFO, ShapesSettings, write_shapes
from rope_dense.engine.train_loop import set_epoch
from rope_dense.models.deim.recipe import set_stages

FOLDER = CONFIGS / 'deim'
README = FOLDER / 'README.md'
EPOCH = 118287 // 32  # iterations, without the last batch
RELEASE = 'https://github.com/capsule2077/edgecrafter/releases/download/edgecrafterv1/'

# epochs; first augmentation, end of Mosaic and MixUp (and of the flat learning rate), end of all;
# late matching; learning rate of the backbone; weight decay; probability of Mosaic and of MixUp;
# base_size_repeat; backbone and its blocks; hidden_dim; dim_feedforward of encoder, of decoder;
# num_layers; round(3 * depth_mult); expansion; conv_inplane or proj_dim; heads
SOURCES = {
    'deimv2-s_vit-t': (
        *(132, (4, 64, 120), 100, 2.5e-5, 1e-4, 0.5, 0.5, 20),
        *('deimv2_tiny', (3, 7, 11), 192, 512, 512, 4, 2, 0.34, 16),
    ),
    'deimv2-m_vit-t-plus': (
        *(102, (4, 49, 90), 80, 2.5e-5, 1e-4, 0.5, 0.5, 6),
        *('deimv2_tiny_plus', (3, 7, 11), 256, 512, 512, 4, 3, 0.67, 16),
    ),
    'deimv2-l_dinov3-s': (
        *(68, (4, 34, 60), 50, 1.25e-5, 1.25e-4, 0.5, 0.5, 3),
        *('dinov3_small', (5, 8, 11), 224, 896, 1792, 4, 3, 1.0, 32),
    ),
    'deimv2-x_dinov3-s-plus': (
        *(58, (4, 29, 50), 45, 1e-5, 1.25e-4, 0.5, 0.5, 3),
        *('dinov3_small_plus', (5, 8, 11), 256, 1024, 2048, 6, 4, 1.25, 64),
    ),
    'ecdet-s_ecvit-t': (
        *(74, (0, 36, 72), None, 2.5e-5, 1e-4, 0.75, 0.75, None),
        *('ecvit_tiny', (10, 11), 192, 512, 512, 4, 2, 0.34, None),
    ),
    'ecdet-m_ecvit-t-plus': (
        *(62, (0, 30, 60), None, 2.5e-5, 1e-4, 0.75, 0.75, None),
        *('ecvit_tiny_plus', (10, 11), 256, 512, 1024, 4, 2, 0.75, None),
    ),
    'ecdet-l_ecvit-s': (
        *(50, (0, 24, 48), None, 5e-6, 1.25e-4, 1.0, 1.0, None),
        *('ecvit_small', (10, 11), 256, 1024, 1024, 4, 3, 0.75, 256),
    ),
    'ecdet-x_ecvit-s-plus': (
        *(50, (0, 24, 48), None, 2.5e-6, 1.25e-4, 1.0, 1.0, None),
        *('ecvit_small_plus', (10, 11), 256, 2048, 2048, 4, 3, 1.5, 256),
    ),
}
# ECSeg: as ECDet but for these; ecdetseg/configs/ecseg.
SOURCES['ecseg-s_ecvit-t'] = SOURCES['ecdet-s_ecvit-t']
SOURCES['ecseg-m_ecvit-t-plus'] = (
    74,
    (0, 36, 72),
    *SOURCES['ecdet-m_ecvit-t-plus'][2:],
)
SOURCES['ecseg-l_ecvit-s'] = tuple(
    2.5e-6 if item == 5e-6 else item for item in SOURCES['ecdet-l_ecvit-s']
)
SOURCES['ecseg-x_ecvit-s-plus'] = SOURCES['ecdet-x_ecvit-s-plus']
# Ours: those of a size, on another backbone.
SOURCES['deimv2-l_lingbot-s'] = tuple(
    'lingbot_small' if item == 'dinov3_small' else item
    for item in SOURCES['deimv2-l_dinov3-s']
)
SOURCES['deimv2-x_lingbot-b'] = tuple(
    'lingbot_base' if item == 'dinov3_small_plus' else item
    for item in SOURCES['deimv2-x_dinov3-s-plus']
)
WEIGHTS = {
    'deimv2_tiny': 'checkpoints/vitt_distill.pt',
    'deimv2_tiny_plus': 'checkpoints/vittplus_distill.pt',
    'dinov3_small': 'hf-hub:timm/vit_small_patch16_dinov3_qkvb.lvd1689m',
    'dinov3_small_plus': 'hf-hub:timm/vit_small_plus_patch16_dinov3_qkvb.lvd1689m',
    'lingbot_small': 'hf-hub:robbyant/lingbot-vision-vit-small',
    'lingbot_base': 'hf-hub:robbyant/lingbot-vision-vit-base',
    'ecvit_tiny': f'{RELEASE}ecvitt.pth',
    'ecvit_tiny_plus': f'{RELEASE}ecvittplus.pth',
    'ecvit_small': f'{RELEASE}ecvits.pth',
    'ecvit_small_plus': f'{RELEASE}ecvitsplus.pth',
}
# Of all: configs/base/*.yml and ecdet.yml.
MOSAIC = dict(
    type='AffineMosaic',
    part_size=320,
    rotation=10,
    translation=(0.1, 0.1),
    scaling=(0.5, 1.5),
    max_cached_images=50,
)
COLOURS = dict(type='PhotometricJitter', prob=0.5)
CROPS = [
    dict(type='Expand', mean=(0, 0, 0), to_rgb=False, ratio_range=(1, 4), prob=0.5),
    dict(type='RandomIoUCrop', prob=0.8),
]
DECODER = dict(
    num_heads=8, num_points=(3, 6, 3), eval_idx=-1, reg_max=32, reg_scale=4.0, up=0.5
)
MASK_WEIGHTS = dict(mal=2.0, bbox=1.0, giou=1.0, fgl=0.15, ddf=1.5, mask=5.0, dice=5.0)
MASK_COSTS = dict(
    class_cost=2.0, bbox_cost=1.0, giou_cost=1.0, mask_cost=5.0, dice_cost=5.0
)
every_config = pytest.mark.parametrize('name', SOURCES)


def path_of(name: str) -> str:
    (path,) = FOLDER.glob(f'{name}_4xb8-*.py')
    return str(path)


def load(name: str) -> Config:
    return Config.fromfile(path_of(name))


def test_a_config_for_each_source() -> None:
    names = {path.stem.partition('_4xb8')[0] for path in FOLDER.glob('*.py')}
    assert names == SOURCES.keys()


@every_config
def test_model_is_that_of_the_source(name: str) -> None:
    (
        *_,
        arch,
        blocks,
        dims,
        encoder_ffn,
        decoder_ffn,
        layers,
        num_blocks,
        expansion,
        last,
    ) = SOURCES[name]
    model, is_deim = load(name).model.to_dict(), name.startswith('deimv2')
    channels = MODELS.get('RoPEViT').ARCHS[arch]['embed_dims']
    backbone = dict(type='RoPEViT', arch=arch, out_indices=blocks)
    if arch.startswith('dinov3'):
        backbone['qkv_bias'] = 'qv'
    elif arch.startswith('lingbot'):
        backbone['qkv_bias'] = 'default'
    weights = WEIGHTS[arch]
    if name.startswith('ecseg'):
        weights = weights.replace('/ecvit', '/ecseg_vit')
    backbone['init_cfg'] = dict(type='Pretrained', checkpoint=weights)
    assert model['backbone'] == backbone
    if is_deim:
        neck = dict(type='SpatialTuningAdapter', stem_channels=last, out_channels=dims)
    else:
        neck = dict(type='MeanMapPyramid', out_channels=last)
    assert model['neck'] == dict(neck, in_channels=channels)
    assert model['encoder'] == dict(
        type='DEIMEncoder',
        in_channels=(dims,) * 3,
        embed_dims=dims,
        feedforward_channels=encoder_ffn,
        num_blocks=num_blocks,
        expansion=expansion,
        num_heads=8,
        act='GELU' if is_deim else 'SiLU',
    )
    kinds = dict(norm='rms', ffn='swiglu') if is_deim else dict(norm='layer', ffn='mlp')
    costs = dict(class_cost=2.0, bbox_cost=5.0, giou_cost=2.0)
    losses = dict(mal=1.0, bbox=5.0, giou=2.0, fgl=0.15, ddf=1.5)
    masks = {}
    if name.startswith('ecseg'):
        costs, losses, masks = MASK_COSTS, MASK_WEIGHTS, dict(masks=dict())
        assert model['data_preprocessor']['pad_mask']
    assert model['bbox_head'] == dict(
        type='DEIMHead',
        num_classes=80,
        embed_dims=dims,
        num_queries=300,
        decoder=dict(
            DECODER, num_layers=layers, feedforward_channels=decoder_ffn, **kinds
        ),
        denoising=dict(num_queries=100, label_noise=0.5, box_noise=1.0),
        matching=dict(costs, iou_power=4.0, late_epoch=SOURCES[name][2]),
        loss_weights=losses,
        mal_gamma=1.5,
        **masks,
    )
    assert model['test_cfg'] == dict(max_per_img=300)


@every_config
def test_training_is_that_of_the_source(name: str) -> None:
    epochs, (_, flat, last), _, backbone_lr, decay, *_ = SOURCES[name]
    cfg = load(name)
    assert cfg.optim_wrapper.to_dict() == dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=5e-4, betas=(0.9, 0.999), weight_decay=decay),
        clip_grad=dict(max_norm=0.1, norm_type=2),
        constructor='NamedGroupsConstructor',
        paramwise_cfg=dict(
            lr_mult=dict.fromkeys(
                ['backbone'] if name.startswith('deimv2') else ['backbone', 'neck'],
                pytest.approx(backbone_lr / 5e-4),
            ),
            no_decay=['norm', 'bias', 'frequency'],
        ),
    )
    warmup, cosine = cfg.param_scheduler
    assert warmup == dict(type='QuadraticWarmupLR', by_epoch=False, begin=0, end=2000)
    assert cosine == dict(
        type='CosineAnnealingLR',
        by_epoch=False,
        eta_min_ratio=0.5,
        begin=flat * EPOCH,
        end=last * EPOCH,
        T_max=(last - flat) * EPOCH,
    )
    loop = dict(type='ResumableTrainLoop', max_iters=epochs * EPOCH, val_interval=EPOCH)
    assert cfg.train_cfg == loop and f'-{round(epochs * EPOCH / 1000)}k_' in path_of(
        name
    )
    assert cfg.train_dataloader.batch_size == 8 and cfg.train_dataloader.drop_last
    assert cfg.auto_scale_lr.base_batch_size == 32 and cfg.sync_bn == 'torch'
    average, restart = cfg.custom_hooks
    assert average == dict(
        type='EMAHook',
        ema_type='ExpMomentumEMA',
        momentum=1e-4,
        gamma=1000,
        update_buffers=True,
    )
    assert restart == dict(type='BestRestartHook', epoch=last)
    assert cfg.default_hooks.checkpoint.interval == EPOCH
    kind = 'segm' if name.startswith('ecseg') else 'bbox'
    assert cfg.default_hooks.checkpoint.save_best == f'coco/{kind}_mAP'
    metrics = ['bbox', 'segm'] if kind == 'segm' else 'bbox'
    assert cfg.val_evaluator.metric == cfg.test_evaluator.metric == metrics
    pipelines = [
        cfg[f'{loader}_dataloader'].dataset.pipeline for loader in ('train', 'test')
    ]
    steps = [
        s for pipeline in pipelines for s in pipeline if s.type == 'LoadAnnotations'
    ]
    assert [s.get('with_mask', False) for s in steps] == [kind == 'segm'] * 2


@every_config
def test_augmentation_is_that_of_the_source(name: str) -> None:
    _, starts, _, _, _, mosaic, mixup, repeat, *_ = SOURCES[name]
    cfg, copyblend = load(name), 0.5 if name.startswith('deimv2') else 0.0
    first, flat, last = starts
    pipeline = cfg.to_dict()['train_dataloader']['dataset']['pipeline']
    kinds = [step['type'] for step in pipeline]
    assert kinds == [
        *('LoadImageFromFile', 'LoadAnnotations', 'StageByEpoch', 'FilterAnnotations'),
        *('RandomFlip', 'Resize', 'FilterAnnotations', 'PackDetInputs'),
    ]
    either = [[MOSAIC, COLOURS], [COLOURS, *CROPS]]
    choice = dict(type='RandomChoice', prob=[mosaic, 1 - mosaic], transforms=either)
    stages = [[], [choice], [COLOURS, *CROPS], []]
    assert pipeline[2] == dict(
        type='StageByEpoch', starts=list(starts), transforms=stages
    )
    assert pipeline[4]['prob'] == 0.5 and pipeline[5]['scale'] == (640, 640)
    assert not pipeline[5]['keep_ratio'] and pipeline[5]['backend'] == 'pillow'
    mix, *scale = cfg.model.data_preprocessor.batch_augments
    assert mix == dict(
        type='MixUpCopyBlend',
        mixup_prob=mixup,
        mixup_epochs=(first, flat),
        copyblend_prob=copyblend,
        copyblend_epochs=(first, last),
        ratio=(0.45, 0.55),
        min_area=100,
        num_objects=3,
        margin=(0.1, 0.25),
    )
    expected = dict(type='MultiScaleBatch', base=640, repeat=repeat, epochs=(0, last))
    assert scale == ([] if repeat is None else [expected])
    assert pipeline[5] == cfg.to_dict()['test_dataloader']['dataset']['pipeline'][1]


@every_config
def test_all_builds_and_every_parameter_has_its_rate(name: str) -> None:
    """Without memory. Decay for all but norms and biases, the backbone's rate for its parameters
    (and, in ECDet, for the pyramid, which is a part of the backbone there)."""
    cfg = load(name)
    init_default_scope('mmdet')
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    for step in cfg.train_dataloader.dataset.pipeline:
        TRANSFORMS.build(step)
    assert DATASETS.get('MosaicCocoDataset') is not None
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    settings = {
        id(param): (group['lr'], group['weight_decay'])
        for group in groups
        for param in group['params']
    }
    slow = ('backbone.',) if name.startswith('deimv2') else ('backbone.', 'neck.')
    for key, param in model.named_parameters():
        rate, decay = settings[id(param)]
        expected = SOURCES[name][3] if key.startswith(slow) else 5e-4
        assert rate == pytest.approx(expected), key
        if re.search(r'bias|norm|\.bn\.', key):
            assert decay == 0, key
        elif key.endswith(('.weight', '.gamma_1', '_token')):
            assert decay == SOURCES[name][4], key


@pytest.mark.parametrize('stage', range(1, 4))
def test_masks_pass_the_whole_pipeline(stage: int, tmp_path: Path) -> None:
    """A batch of ECSeg in each of its stages, on generated shapes; a small model's losses."""
    write_shapes(tmp_path, ShapesSettings(train=4, val=1, size=(64, 96)))
    cfg = load('ecseg-s_ecvit-t')
    loader, model = cfg.train_dataloader, cfg.model
    loader.update(batch_size=4, num_workers=0, persistent_workers=False)
    loader.dataset.update(
        data_root=f'{tmp_path}/coco/', metainfo=dict(classes=METAINFO['classes'])
    )
    loader.dataset.pipeline[5].scale = (96, 96)
    model.data_preprocessor.batch_augments[0].mixup_prob = 1.0
    arch = MODELS.get('RoPEViT').ARCHS['ecvit_tiny']
    model.backbone.arch = dict(arch, embed_dims=32, num_heads=2, depth=2)
    model.backbone.update(out_indices=(0, 1), init_cfg=None)
    model.neck.in_channels = 32
    model.encoder.update(in_channels=(32,) * 3, embed_dims=32, feedforward_channels=32)
    model.bbox_head.update(embed_dims=32, num_queries=50)
    model.bbox_head.decoder.update(num_layers=2, feedforward_channels=32)
    with DefaultScope.overwrite_default_scope('mmdet'):
        detector = MODELS.build(model).train()
        set_epoch([0, 0, 36, 72][stage])
        batch = next(iter(Runner.build_dataloader(loader, seed=0)))
    data = detector.data_preprocessor(batch, training=True)
    for sample in data['data_samples']:
        found = sample.gt_instances
        assert len(found.masks) == len(found.bboxes) > 0
        assert found.masks.masks.shape[1:] == data['inputs'].shape[2:]
    losses = detector(**data, mode='loss')
    set_epoch(0)
    assert losses['loss_mask'] > 0 and losses['loss_dice'] > 0
    assert all(torch.isfinite(torch.as_tensor(loss)).all() for loss in losses.values())


def test_options_of_the_readme(tmp_path: Path) -> None:
    """Batches of rectangles, and mosaics that load their images, with objects inside."""
    write_shapes(tmp_path, ShapesSettings(train=4, val=1, size=(64, 96)))
    for variant in ('aspect ratio kept', 'exact resume'):
        (row,) = re.findall(
            rf'^\| {variant}.* \| `(.+)` \|$', README.read_text(), re.MULTILINE
        )
        cfg = load('deimv2-s_vit-t')
        cfg.merge_from_dict(dict(option.split('=') for option in row.split()))
        loader = cfg.train_dataloader
        loader.update(num_workers=0, persistent_workers=False, batch_size=2)
        if variant == 'aspect ratio kept':
            assert (
                loader.dataset.pipeline[5].keep_ratio == 'True'
            )  # the tools make it a bool
        else:
            mosaic = loader.dataset.pipeline[2].transforms[1][0].transforms[0][0]
            mosaic.max_cached_images = int(mosaic.max_cached_images)
        classes = METAINFO['classes']
        loader.dataset.update(
            data_root=f'{tmp_path}/coco/', metainfo=dict(classes=classes)
        )
        cfg.model.data_preprocessor.batch_augments = None
        with DefaultScope.overwrite_default_scope('mmdet'):
            set_epoch(10)
            batch = next(iter(Runner.build_dataloader(loader, seed=0)))
            data = MODELS.build(cfg.model.data_preprocessor)(batch, training=True)
        set_epoch(0)
        height, width = data['inputs'].shape[2:]
        assert max(height, width) == 640 and height % 32 == width % 32 == 0
        for sample in data['data_samples']:
            boxes = sample.gt_instances.bboxes
            assert (boxes >= 0).all() and (
                boxes[:, 2:] <= boxes.new_tensor([width, height])
            ).all()


def test_configs_survive_a_dump(tmp_path: Path) -> None:
    cfg = load('ecdet-x_ecvit-s-plus')
    cfg.dump(tmp_path / 'dumped.py')
    assert Config.fromfile(tmp_path / 'dumped.py').to_dict() == cfg.to_dict()


def test_stages_do_not_change_their_base() -> None:
    base = load('deimv2-s_vit-t').to_dict()
    before = Config(base).pretty_text
    out = set_stages(
        base, {}, epochs=10, starts=(1, 4, 9), late_epoch=7, epoch_length=5
    )
    assert Config(base).pretty_text == before
    assert out['train_cfg']['max_iters'] == 50
    assert (
        out['param_scheduler'][0]['end'] == 5
        and out['param_scheduler'][1]['begin'] == 20
    )
    assert value(Config(out), 'model.bbox_head.matching.late_epoch') == 7
