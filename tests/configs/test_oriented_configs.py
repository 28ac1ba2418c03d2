"""configs/oriented: they build, follow their sources, take a training step and predict."""

import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from torch import nn

from helpers.oriented import FOLDER, batch, load, names, small
from rope_dense.backbones.windows import fitting_side

mmrotate = pytest.importorskip(
    'mmrotate', reason='no mmrotate; see the extra [oriented]'
)
every_config = pytest.mark.parametrize('name', names())
SWIN = [name for name in names() if '_swin-t_' in name]
VIT = [name for name in names() if '_2xb1' in name]


def test_the_readme_lists_them_with_their_parameters() -> None:
    rows = dict(
        re.findall(r'\]\((\S+)\.py\) \|.* ([\d,]+) \|$', readme(), re.MULTILINE)
    )
    for name in names():
        assert rows[name] == f'{sum(p.numel() for p in offline(name).parameters()):,}'


def readme() -> str:
    return (FOLDER / 'README.md').read_text()


@cache
def offline(name: str) -> nn.Module:
    """The whole model without storage. Not to be changed."""
    cfg = load(name)
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def groups(name: str) -> dict[nn.Parameter, tuple[float, float]]:
    """Learning rate and weight decay of each parameter."""
    wrapper = build_optim_wrapper(offline(name), load(name).optim_wrapper)
    return {
        p: (g['lr'], g['weight_decay'])
        for g in wrapper.optimizer.param_groups
        for p in g['params']
    }


@pytest.mark.parametrize('name', SWIN)
def test_swin_follows_mmrotate_s_recipe(name: str) -> None:
    """mmrotate 1.2.1, oriented_rcnn/oriented-rcnn-le90_swin-tiny_fpn_1x_dota.py."""
    folder = Path(mmrotate.__file__).parent / '.mim' / 'configs'
    expected = Config.fromfile(
        folder / 'oriented_rcnn' / 'oriented-rcnn-le90_swin-tiny_fpn_1x_dota.py'
    )
    cfg, model = load(name), offline(name)
    for key in ('type', 'lr', 'betas', 'weight_decay'):
        assert cfg.optim_wrapper.optimizer[key] == expected.optim_wrapper.optimizer[key]
    for key in ('drop_path_rate', 'window_size'):
        assert cfg.model.backbone[key] == expected.model.backbone[key]
    for key in ('train_cfg', 'param_scheduler', 'train_dataloader', 'val_evaluator'):
        assert bare(cfg[key]) == bare(expected[key])
    assert cfg.optim_wrapper.clip_grad == expected.optim_wrapper.clip_grad
    rates = groups(name)
    for path, param in model.named_parameters():
        is_backbone = path.startswith('backbone.')
        is_exempt = 'norm' in path or path.endswith('.freqs')
        assert math.isclose(rates[param][0], 1e-5 if is_backbone else 1e-4), path
        assert rates[param][1] == (0 if is_exempt else 0.05), path


@pytest.mark.parametrize('name', VIT)
def test_vit_follows_rvsa_s_recipe(name: str) -> None:
    """ViTAE-Transformer/Remote-Sensing-RVSA at ef153d7: config, optimizer, log; see the header."""
    cfg, model = load(name), offline(name)
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == (
        'AdamW',
        1e-4,
        0.05,
    )
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=35, norm_type=2)
    assert cfg.train_cfg.max_epochs == 12
    warm_up, steps = cfg.param_scheduler
    assert (warm_up.start_factor, warm_up.begin, warm_up.end) == (0.001, 0, 500)
    assert steps.milestones == [8, 11]
    assert (cfg.train_dataloader.batch_size, cfg.auto_scale_lr.base_batch_size) == (
        1,
        2,
    )
    assert cfg.model.backbone.drop_path_rate == 0.15
    windows = set(cfg.model.backbone.window_block_indexes)
    assert windows == {block for block in range(12) if (block + 1) % 3}
    rates = groups(name)
    for path, param in model.named_parameters():
        factor = 1.0
        if path.startswith('backbone.blocks.'):
            factor = 0.75 ** (12 - int(path.split('.')[2]))
        elif path.startswith('backbone.') and not path.startswith('backbone.norm'):
            factor = 0.75**13
        exempt = (
            param.ndim == 1 or path.endswith(('bias', '.freqs')) or '_token' in path
        )
        assert math.isclose(rates[param][0], 1e-4 * factor), path
        assert rates[param][1] == (0 if exempt else 0.05) or '_token' in path, path


def bare(part: object) -> object:
    """Settings without the marks that mmengine gives parts of another package's config."""
    if isinstance(part, dict):
        return {key: bare(value) for key, value in part.items() if key != '_scope_'}
    return [bare(value) for value in part] if isinstance(part, (list, tuple)) else part


def test_windows_and_frequencies_fit_tiles_of_1024_pixels_and_more() -> None:
    """'auto' leaves no padding on grids of 64 and 96; low frequencies shrink with the grid."""
    name = 'oriented-rcnn_vit-b_rope-mixed_2xb1-12e_dota'
    backbone = offline(name).backbone
    assert backbone.rope_scaling == dict(
        type='by_parts'
    ) and backbone.pretrain_grid == (14, 14)
    for side in (64, 96):
        plan = backbone.plan_windows(1, (side, side), torch.device('cpu'))
        assert plan.window_size == (fitting_side(side, 14),) * 2
        assert side % plan.window_size[0] == 0
    freqs = backbone_freqs = torch.randn(2, 12, 32) * 0.2
    scaled = backbone.blocks[2].attn.rope.scaling.scale(freqs, 64, 64)
    assert (scaled.abs() <= backbone_freqs.abs()).all() and (scaled != freqs).any()


@every_config
def test_takes_a_training_step_and_predicts(name: str) -> None:
    """At a height and width that nothing divides; every parameter of the backbone learns."""
    model = small(load(name), name)
    data = model.train().data_preprocessor(batch((100, 75)), training=True)
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    assert torch.isfinite(loss) and len(logged) > 2
    loss.backward()
    without = [
        path
        for path, p in model.backbone.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert without == []
    with torch.no_grad():
        data = model.eval().data_preprocessor(batch((100, 75)))
        results = model(**data, mode='predict')
    for result in results:
        boxes = result.pred_instances.bboxes
        values = getattr(boxes, 'tensor', boxes)
        assert values.shape[1:] == (5,) and torch.isfinite(values).all()


REALTIME = 'deimv2-l_lingbot-s_2xb4-72e_dota'


def test_deim_with_an_angle_follows_o2_rtdetr_s_recipe() -> None:
    """wokaikaixinxin/ai4rs at e018cb4, o2_rtdetr_r50vd_2xb4_72e_dota.py and dota_rr.py."""
    cfg, model = load(REALTIME), offline(REALTIME)
    assert f'| {sum(p.numel() for p in model.parameters()):,} |' in readme()
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == (
        'AdamW',
        1e-4,
        1e-4,
    )
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=0.1, norm_type=2)
    (warm_up,) = cfg.param_scheduler
    assert (warm_up.start_factor, warm_up.begin, warm_up.end) == (0.001, 0, 2000)
    assert (cfg.train_cfg.max_epochs, cfg.train_cfg.val_interval) == (72, 6)
    assert (cfg.train_dataloader.batch_size, cfg.auto_scale_lr.base_batch_size) == (
        4,
        8,
    )
    (average,) = cfg.custom_hooks
    assert (average.ema_type, average.momentum) == ('mmdet.ExpMomentumEMA', 1e-4)
    head = cfg.model.bbox_head
    assert head.matching == dict(class_cost=2.0, bbox_cost=5.0, kld_cost=2.0)
    assert (head.loss_weights.bbox, head.loss_weights.kld, head.num_queries) == (
        5.0,
        2.0,
        300,
    )
    rotate = next(
        t for t in cfg.train_dataloader.dataset.pipeline if t.type == 'RandomRotate'
    )
    assert (rotate.prob, rotate.angle_range, rotate.rect_obj_labels) == (
        0.5,
        180,
        [9, 11],
    )
    rates = groups(REALTIME)
    for path, param in model.named_parameters():
        is_backbone = path.startswith('backbone.')
        assert math.isclose(rates[param][0], 1e-5 if is_backbone else 1e-4), path
        if path.endswith('bias') or '.norm' in path:
            assert rates[param][1] == 0, path


def test_deim_with_an_angle_takes_a_training_step_and_predicts() -> None:
    cfg = load(REALTIME)
    arch = dict(
        embed_dims=32, depth=3, num_heads=2, rope=dict(type='MixedRoPE', theta=10.0)
    )
    cfg.model.backbone.update(arch=arch, out_indices=(0, 1, 2), init_cfg=None)
    cfg.model.neck.in_channels = 32
    model = MODELS.build(cfg.model)
    data = model.train().data_preprocessor(batch((100, 75)), training=True)
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    assert torch.isfinite(loss) and 'loss_kld' in logged
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    with torch.no_grad():
        results = model(
            **model.eval().data_preprocessor(batch((100, 75))), mode='predict'
        )
    for result in results:
        boxes = result.pred_instances.bboxes
        assert boxes.shape == (300, 5) or len(boxes) > 100
        assert torch.isfinite(boxes).all() and (boxes[:, 2] >= boxes[:, 3]).all()
