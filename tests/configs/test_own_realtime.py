"""configs/own/realtime*.py: the consequences of settings, and a step of training in each stage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmdet.registry import MODELS
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

from helpers.grid import CONFIGS
from rope_dense.backbones.layers import ConvPatchEmbed, PatchEmbed
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.engine.train_loop import set_epoch
from rope_dense.export.trained import resize_of
from rope_dense.models.deim.recipe import MASK_LOSSES
from rope_dense.project.checks.schedule import check_schedule
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.utils.config_parts import nodes

pytestmark = pytest.mark.usefixtures('surroundings')


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('own')
    write_shapes(folder, ShapesSettings(train=6, val=2, size=(64, 96)))
    return folder / 'coco'


def load(data: Path, name: str = 'realtime', **settings: object) -> Config:
    settings = dict(data_root=data, epochs=10, batch_size=2) | settings
    return load_config(name, own=settings)


def stages(cfg: Config) -> list[int]:
    return cfg.train_dataloader.dataset.pipeline[2].starts


def test_stages_follow_from_epochs(data: Path) -> None:
    """At the length of the recipe they are its own."""
    cfg = load(data, epochs=68)
    recipe = Config.fromfile(CONFIGS / 'deim' / 'deimv2-l_lingbot-s_4xb8-251k_coco.py')
    assert stages(cfg) == stages(recipe) == [4, 34, 60]
    assert cfg.model.bbox_head.matching == recipe.model.bbox_head.matching
    augments = cfg.model.data_preprocessor.batch_augments
    assert augments == recipe.model.data_preprocessor.batch_augments
    assert cfg.custom_hooks == recipe.custom_hooks
    assert cfg.train_cfg.max_iters == 68 * 3
    assert (
        cfg.param_scheduler[1].begin == 34 * 3 and cfg.param_scheduler[1].end == 60 * 3
    )


@pytest.mark.parametrize('epochs', [1, 2, 3, 7])
def test_short_runs(data: Path, epochs: int) -> None:
    cfg = load(data, epochs=epochs)
    check_schedule(cfg)
    assert (
        stages(cfg) == sorted(set(stages(cfg)))
        and cfg.train_cfg.max_iters == 3 * epochs
    )
    assert all(part.end <= cfg.train_cfg.max_iters for part in cfg.param_scheduler)


@pytest.mark.parametrize(
    'epochs, weights, gamma',
    [(3333, 'default', 1.0), (3334, 'default', 1.5), (3334, None, 1.0)],
)
def test_short_runs_and_random_weights_suppress_duplicates_sooner(
    data: Path, epochs: int, weights: str | None, gamma: float
) -> None:
    """Six images: 19,998 and 20,004 are trained on."""
    model = load(data, epochs=epochs, weights=weights).model
    assert model.bbox_head.mal_gamma == gamma
    assert model.test_cfg.get('nms_iou') == (0.7 if gamma == 1 else None)
    repeats = model.bbox_head.matching.get('repeats', 1)
    assert repeats == (6 if weights is None else 1)


@pytest.mark.parametrize('task', ['realtime', 'oriented'])
@pytest.mark.parametrize(
    'weights, queries, denoising, batch', [('default', 300, 100, 8), (None, 100, 20, 4)]
)
def test_random_weights_have_queries_for_the_objects_and_small_batches(
    data: Path, task: str, weights: str | None, queries: int, denoising: int, batch: int
) -> None:
    cfg = load_config(task, own=dict(data_root=data, weights=weights))
    assert cfg.train_dataloader.batch_size == batch
    head = cfg.model.bbox_head
    assert (head.num_queries, head.denoising.num_queries) == (queries, denoising)
    assert cfg.model.test_cfg.max_per_img == queries


@pytest.mark.parametrize(
    'weights, masks', [('default', {}), (None, dict(in_boxes=True))]
)
def test_masks_are_in_their_boxes_from_random_weights(
    data: Path, weights: str | None, masks: dict
) -> None:
    head = load(data, 'realtime_masks', weights=weights).model.bbox_head
    boxes = load(data, weights=weights).model.bbox_head
    assert head.masks == masks
    # Boxes are learned as without masks then: the same pairs, and weights as published.
    is_random = weights is None
    assert (head.matching == boxes.matching) == is_random
    learned = (
        boxes.loss_weights | dict(mask=1.0, dice=1.0) if is_random else MASK_LOSSES
    )
    assert head.loss_weights == learned


def test_sizes_follow_from_one(data: Path) -> None:
    cfg = load(data, size=160)
    resizes = [
        cfg.test_dataloader.dataset.pipeline[1],
        cfg.train_dataloader.dataset.pipeline[5],
    ]
    assert [step.scale for step in resizes] == [(160, 160)] * 2
    assert [
        step[0].scale for step in zip(cfg.tta_pipeline[1].transforms[0], strict=True)
    ] == [
        (160, 160),
        (128, 128),
        (192, 192),
    ]
    mosaic = cfg.train_dataloader.dataset.pipeline[2].transforms[1][0].transforms[0][0]
    assert mosaic.part_size == 80 and mosaic.max_cached_images == 0
    assert cfg.model.data_preprocessor.batch_augments[1].base == 160
    assert (
        cfg.model.bbox_head.num_queries
        == cfg.model.test_cfg.max_per_img
        == (96 // 8) ** 2
    )
    assert load(data).model.bbox_head.num_queries == 300


@pytest.mark.parametrize('name', ['realtime', 'realtime_masks'])
@pytest.mark.parametrize('keeps', [True, False])
def test_every_resize_keeps_the_ratio_or_none_does(
    data: Path, name: str, keeps: bool
) -> None:
    cfg = load(data, name, size=160, keep_ratio=keeps)
    loaders = [cfg[f'{part}_dataloader'] for part in ('train', 'val', 'test')]
    resizes = [
        step for _, step in nodes([*loaders, cfg.tta_pipeline]) if 'keep_ratio' in step
    ]
    assert [step.keep_ratio for step in resizes] == [
        keeps
    ] * 6  # three of them in tta_pipeline
    of_file = dict(scale=[160, 160], keep_ratio=keeps, antialias=True)
    of_file['ratio'] = 5.0 if keeps else None  # two patches
    assert resize_of(cfg, 16) == of_file  # of an exported file


@pytest.mark.parametrize('augment', ['published', 'light', 'none'])
@pytest.mark.parametrize('keeps, size', [(True, (107, 160)), (False, (160, 160))])
def test_images_have_the_ratio_of_their_files(
    data: Path, augment: str, keeps: bool, size: tuple[int, int]
) -> None:
    """Files of 64 x 96 pixels, mosaics of them as well; a batch is padded to multiples of 32."""
    cfg = load(data, size=160, keep_ratio=keeps, augment=augment, weights=None)
    loader, preprocessor = cfg.train_dataloader, cfg.model.data_preprocessor
    loader.update(num_workers=0, persistent_workers=False)
    if augment == 'published':
        choice = loader.dataset.pipeline[2].transforms[1][0]
        choice.prob = [1.0, 0.0]  # mosaics alone
    preprocessor.batch_augments = (
        None  # CopyBlend and MultiScaleBatch have tests of their own
    )
    set_epoch(1)
    with DefaultScope.overwrite_default_scope('mmdet'):
        batch = next(iter(Runner.build_dataloader(loader, seed=0)))
        prepared = MODELS.build(preprocessor)(batch, training=True)
    set_epoch(0)
    assert {sample.img_shape for sample in prepared['data_samples']} == {size}
    assert prepared['inputs'].shape == (2, 3, 128 if keeps else 160, 160)
    boxes = torch.cat(
        [sample.gt_instances.bboxes for sample in prepared['data_samples']]
    )
    assert len(boxes) and boxes[:, 3].max() <= size[0] and boxes[:, 2].max() <= size[1]


def test_hooks_of_choice(data: Path) -> None:
    kinds = [hook.type for hook in load(data, patience=3, ema=False).custom_hooks]
    assert kinds == ['ResumableEarlyStoppingHook', 'BestRestartHook']
    assert load(data).default_hooks.checkpoint.save_best == 'coco/bbox_mAP'


def test_without_weights_all_learn_alike(data: Path) -> None:
    cfg = load(data, weights=None)
    assert cfg.model.backbone.init_cfg is None
    assert cfg.optim_wrapper.paramwise_cfg.get('lr_mult') == {}


def test_short_runs_without_weights_average_their_last_iterations(data: Path) -> None:
    def momentum(**own: object) -> float:
        return load(data, **own).custom_hooks[0].momentum

    assert momentum(weights=None) == 0.05
    assert momentum() == momentum(weights=None, epochs=20_000) == 1e-4


def test_without_weights_convolutions_make_the_tokens(data: Path) -> None:
    assert 'conv_stem' not in load(data).model.backbone
    embed = random_model(load(data, weights=None)).backbone.patch_embed
    assert isinstance(embed, ConvPatchEmbed)
    cfg = load(data, weights=None, backbone='eva02_tiny')  # patches of 14 pixels
    assert type(random_model(cfg).backbone.patch_embed) is PatchEmbed


def test_the_lines_of_the_page_put_swin_below(data: Path, tmp_path: Path) -> None:
    page = (CONFIGS.parent / 'docs' / 'realtime.md').read_text()
    lines = page.split('```python\n')[1].split('```')[0]
    copied = tmp_path / 'swin.py'
    copied.write_text((CONFIGS / 'own' / 'realtime.py').read_text() + lines)
    cfg = load_config(
        str(copied), [f'own.data_root={data}', 'own.weights=None', 'own.size=96']
    )
    model = random_model(cfg)
    assert tuple(model.backbone.out_channels) == tuple(cfg.model.encoder.in_channels)


@pytest.mark.parametrize(
    'backbone, published, qkv_bias',
    [
        ('deimv2_tiny', 'deimv2-s_vit-t_4xb8-488k_coco', 'default'),
        ('dinov3_small', 'deimv2-l_dinov3-s_4xb8-251k_coco', 'qv'),
    ],
)
def test_published_detectors_fit_but_for_their_classes(
    data: Path, backbone: str, published: str, qkv_bias: str
) -> None:
    """docs/own_data.md: ``--load-from`` finds every weight of the model, 11 in another shape."""
    cfg = load(data, backbone=backbone, weights='published.pth')
    cfg.model.backbone.qkv_bias = qkv_bias
    recipe = Config.fromfile(CONFIGS / 'deim' / f'{published}.py')
    with torch.device('meta'), DefaultScope.overwrite_default_scope('mmdet'):
        ours, theirs = (
            MODELS.build(config.model).state_dict() for config in (cfg, recipe)
        )
    assert ours.keys() == theirs.keys()
    others = [key for key, weight in ours.items() if weight.shape != theirs[key].shape]
    assert len(others) == 11
    assert all(
        '.cls' in key or key == 'bbox_head.denoising.labels.weight' for key in others
    )


def test_masks_are_those_of_ecseg(data: Path) -> None:
    cfg = load(data, 'realtime_masks', epochs=68, patience=3)
    recipe = Config.fromfile(CONFIGS / 'deim' / 'ecseg-s_ecvit-t_4xb8-274k_coco.py')
    head, expected = cfg.model.bbox_head, recipe.model.bbox_head
    assert head.masks == expected.masks and head.loss_weights == expected.loss_weights
    assert head.matching.mask_cost == expected.matching.mask_cost
    assert cfg.model.data_preprocessor.batch_augments[0].copyblend_prob == 0
    assert cfg.val_evaluator.metric == cfg.test_evaluator.metric == ['bbox', 'segm']
    assert cfg.val_evaluator.ann_file == cfg.val_dataloader.dataset.ann_file
    best = [
        hook.monitor
        for hook in cfg.custom_hooks
        if hook.type == 'ResumableEarlyStoppingHook'
    ]
    assert [cfg.default_hooks.checkpoint.save_best, *best] == ['coco/segm_mAP'] * 2


@pytest.mark.parametrize(
    'name, stage, keeps',
    [
        *(('realtime', stage, False) for stage in range(4)),
        ('realtime_masks', 1, False),
        ('realtime_masks', 1, True),
    ],
)
def test_a_batch_of_each_stage_trains(
    data: Path, name: str, stage: int, keeps: bool
) -> None:
    """Small: finite losses, on images of its own pipeline, with mosaics of the data set."""
    settings = dict(
        size=96, weights=None, epochs=68, augment='published', keep_ratio=keeps
    )
    cfg = load(data, name, **settings)
    model = cfg.model
    model.backbone.arch = dict(
        embed_dims=32, depth=3, num_heads=2, rope=dict(type='AxialRoPE', theta=100.0)
    )
    model.backbone.out_indices, model.backbone.qkv_bias = (0, 1, 2), True
    model.neck.update(in_channels=32, out_channels=32, stem_channels=4)
    model.encoder.update(in_channels=(32,) * 3, embed_dims=32, feedforward_channels=32)
    model.bbox_head.embed_dims = 32
    model.bbox_head.decoder.update(num_layers=2, feedforward_channels=32)
    cfg.train_dataloader.num_workers, cfg.train_dataloader.persistent_workers = 0, False
    set_epoch([0, *stages(cfg)][stage])
    detector = random_model(cfg).train()
    with DefaultScope.overwrite_default_scope('mmdet'):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
    losses = detector(**detector.data_preprocessor(batch, training=True), mode='loss')
    assert all(torch.isfinite(torch.as_tensor(loss)).all() for loss in losses.values())
    assert ('loss_mask' in losses) == (name == 'realtime_masks')
    set_epoch(0)
