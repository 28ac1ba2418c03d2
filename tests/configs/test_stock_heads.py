"""configs/stock_heads, and stock configs of mmdet and mmseg with their backbone exchanged: they
build, take a training step and predict."""

import copy
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from helpers.grid import CONFIGS, GRID
from helpers.stock_heads import (
    CLASSES,
    FOLDER,
    SIZE,
    SMALL,
    SWIN,
    VIT,
    batch,
    load,
    small,
)
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.project.checks.recipe import recipe_text

PAGE = CONFIGS.parent / 'docs' / 'heads.md'
every_config = pytest.mark.parametrize('name', SMALL)


@cache
def build_offline(name: str) -> nn.Module:
    """The whole model without storage. Not to be changed."""
    cfg = load(name)
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.glob('*.py')} == set(SMALL)


def test_the_page_lists_every_config_and_its_links_exist() -> None:
    links = re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', PAGE.read_text())
    assert sorted(Path(link).stem for link in links if link.endswith('.py')) == sorted(
        SMALL
    )
    assert all((PAGE.parent / link).exists() for link in links)


def test_the_example_of_the_page_builds(tmp_path: Path) -> None:
    code = PAGE.read_text().partition('```python\n')[2].partition('```')[0]
    (tmp_path / 'config.py').write_text(code)
    cfg = Config.fromfile(tmp_path / 'config.py')
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    assert type(model).__name__ == 'FasterRCNN'
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    assert sum(len(group['params']) for group in groups) == len(
        list(model.parameters())
    )


@every_config
def test_backbones_have_weights_that_fit(name: str) -> None:
    """Those of the grid, whose weights have its position embedding and size."""
    backbone = load(name).model.backbone
    weights = backbone.init_cfg.checkpoint
    (leaf, *_) = (leaf for leaf in GRID if leaf.weights == weights)
    expected = leaf.load().model.backbone
    assert all(backbone[key] == expected[key] for key in ('type', 'arch', 'rope'))


@every_config
def test_whole_models_build_and_every_parameter_is_in_a_group(name: str) -> None:
    model, wrapper = build_offline(name), load(name).optim_wrapper
    groups = build_optim_wrapper(model, wrapper).optimizer.param_groups
    settings = {p: (g['lr'], g['weight_decay']) for g in groups for p in g['params']}
    assert len(settings) == len(list(model.parameters()))
    frequencies = [p for n, p in model.named_parameters() if n.endswith('rope.freqs')]
    assert frequencies and all(settings[freqs][1] == 0 for freqs in frequencies)
    assert settings[model.backbone.patch_embed.proj.weight][1] > 0


@every_config
def test_recipes_can_be_printed(name: str) -> None:
    cfg, model = load(name), build_offline(name)
    text = recipe_text(cfg, model)
    assert (
        type(model).__name__ in text and cfg.model.backbone.init_cfg.checkpoint in text
    )


@pytest.mark.parametrize(
    'name', [name for name in SMALL if 'vit-b_rope-mixed_8xb8' in name]
)
def test_vitdet_s_recipe(name: str) -> None:
    """detectron2's projects/ViTDet/configs/COCO and common/coco_loader_lsj.py."""
    cfg, model = load(name), build_offline(name)
    assert model.neck.num_outs == 5 and len(model.neck.branches) == 4
    assert len(model.rpn_head.rpn_conv) == 2
    boxes, masks = model.roi_head.bbox_head, model.roi_head.mask_head
    if 'cascade' not in name:
        boxes, masks = [boxes], [masks]
    assert all(len(head.shared_fcs) == 1 for head in boxes)
    for convs in [
        *(head.shared_convs for head in boxes),
        *(head.convs for head in masks),
    ]:
        assert len(convs) == 4
        assert all(conv.norm.eps == 1e-6 and conv.conv.bias is None for conv in convs)
    assert cfg.optim_wrapper.optimizer == dict(
        type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1
    )
    assert cfg.optim_wrapper.paramwise_cfg.layer_decay == 0.7
    assert (cfg.train_cfg.max_iters, cfg.param_scheduler[1].milestones) == (
        184375,
        [163889, 177546],
    )
    assert (cfg.auto_scale_lr.base_batch_size, cfg.train_dataloader.batch_size) == (
        64,
        8,
    )
    assert cfg.model.data_preprocessor.pad_size_divisor == 1024
    _flip, resize, crop = cfg.train_dataloader.dataset.pipeline[2:5]
    assert (resize.scale, resize.ratio_range) == ((1024, 1024), (0.1, 2.0))
    assert (crop.crop_type, crop.crop_size) == ('absolute', (1024, 1024))
    for loader in (cfg.val_dataloader, cfg.test_dataloader):
        assert loader.dataset.pipeline[1].scale == (1024, 1024)
    if 'cascade' in name:
        stds = [
            tuple(head.bbox_coder.target_stds) for head in cfg.model.roi_head.bbox_head
        ]
        inverse = [
            (1 / a, 1 / a, 1 / b, 1 / b) for a, b in ((10, 5), (20, 10), (30, 15))
        ]
        assert stds == inverse


@pytest.mark.parametrize(
    'name, stock_config',
    [
        ('segformer_swin-t', 'segformer/segformer_mit-b2_8xb2-160k_ade20k-512x512.py'),
        ('dpt_vit-b', 'dpt/dpt_vit-b16_8xb2-160k_ade20k-512x512.py'),
    ],
)
def test_heads_and_learning_rates_are_mmseg_s(name: str, stock_config: str) -> None:
    expected = stock('mmseg', stock_config)
    cfg = load(next(config for config in SMALL if config.startswith(name)))
    head, other = cfg.model.decode_head, expected.model.decode_head
    different = {
        key for key in head | other if list_of(head.get(key)) != list_of(other.get(key))
    }
    # Channels of another backbone; mmseg's default is written out.
    assert different <= {'in_channels', 'align_corners'} and not head.align_corners
    assert cfg.model.test_cfg == expected.model.test_cfg
    optimizer, other = cfg.optim_wrapper.optimizer, expected.optim_wrapper.optimizer
    assert (optimizer.lr, optimizer.weight_decay) == (other.lr, other.weight_decay)


def list_of(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def take_a_step(
    model: nn.Module, scope: str, optim_wrapper: dict | None = None
) -> None:
    """A training step in which all of the backbone has a gradient, and a prediction."""
    optimizer = dict(type='AdamW', lr=1e-4)
    wrapper = build_optim_wrapper(
        model, optim_wrapper or dict(type='OptimWrapper', optimizer=optimizer)
    )
    data = model.train().data_preprocessor(batch(scope), training=True)
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    assert torch.isfinite(loss) and len(logged) > 1
    loss.backward()
    without = [
        n
        for n, p in model.backbone.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert without == []
    before = copy.deepcopy(model.backbone.patch_embed.proj.weight)
    wrapper.step()
    assert not torch.equal(model.backbone.patch_embed.proj.weight, before)
    data = batch(scope)
    inputs = dict(inputs=data['inputs'][:1], data_samples=data['data_samples'][:1])
    with torch.no_grad():
        (result,) = model.eval()(**model.data_preprocessor(inputs), mode='predict')
    if scope == 'mmseg':
        assert tuple(result.pred_sem_seg.shape) == SIZE
    else:
        assert torch.isfinite(result.pred_instances.scores).all()
        if 'masks' in result.pred_instances:
            assert tuple(result.pred_instances.masks.shape[1:]) == SIZE


@every_config
def test_takes_a_training_step_and_predicts(name: str) -> None:
    cfg = load(name)
    take_a_step(small(cfg, SMALL[name]), cfg.default_scope, cfg.optim_wrapper)


# Stock configs, as they come with mmdet and mmseg.


def stock(package: str, path: str) -> Config:
    folder = Path(find_spec(package).origin).parent / '.mim' / 'configs'
    cfg = Config.fromfile(folder / path)
    init_default_scope(package)
    return cfg


FASTER_RCNN = {
    'neck.out_channels': 16,
    'rpn_head.in_channels': 16,
    'rpn_head.feat_channels': 16,
    'roi_head.bbox_roi_extractor.out_channels': 16,
    'roi_head.bbox_head.in_channels': 16,
    'roi_head.bbox_head.fc_out_channels': 32,
    'roi_head.bbox_head.num_classes': CLASSES,
    'test_cfg.rpn.max_per_img': 20,
}
FCOS = {
    'neck.out_channels': 32,
    'bbox_head.in_channels': 32,
    'bbox_head.feat_channels': 64,
    'bbox_head.num_classes': CLASSES,
}


@pytest.mark.parametrize(
    'path, head',
    [
        ('faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py', FASTER_RCNN),
        ('fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py', FCOS),
    ],
)
def test_standard_pyramid_for_heads_made_for_an_fpn(path: str, head: dict) -> None:
    """Strides 4 to 64 for Faster R-CNN, 8 to 128 for FCOS."""
    cfg = stock('mmdet', path)
    scales = (4, 2, 1, 0.5) if 'faster' in path else (2, 1, 0.5)
    cfg.model.backbone = dict(type='RoPEViT', arch=VIT, with_cls_token=False)
    cfg.model.neck = dict(
        type='PlainViTFPN', in_channels=32, scale_factors=scales, num_outs=5
    )
    take_a_step(small(cfg, head), 'mmdet')


# mmseg's segmentors hand their `pretrained` down to the backbone, 29 of its 50 bases set it.
UPERNET = {
    'decode_head.in_channels': [16, 32, 64, 128],
    'decode_head.channels': 16,
    'decode_head.num_classes': CLASSES,
    'auxiliary_head.in_channels': 64,
    'auxiliary_head.channels': 16,
    'auxiliary_head.num_classes': CLASSES,
    'data_preprocessor.size': (112, 112),
}


def upernet(**backbone: object) -> Config:
    """mmseg's UperNet on ResNet-50, with our backbone in its place."""
    cfg = stock('mmseg', '_base_/models/upernet_r50.py')
    assert cfg.model.pretrained == 'open-mmlab://resnet50_v1c'
    cfg.model.backbone = dict(
        type='RoPESwin', window_size=4, drop_path_rate=0.0, **backbone
    )
    return cfg


def test_init_cfg_counts_where_a_base_has_pretrained(tmp_path: Path) -> None:
    weights = RoPESwin(SWIN).state_dict()
    torch.save(weights, tmp_path / 'weights.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'weights.pth'))
    model = small(upernet(), UPERNET, init_cfg)
    actual = model.backbone.state_dict()
    assert all(torch.equal(actual[key], weights[key]) for key in weights)
    take_a_step(model, 'mmseg')


def test_pretrained_counts_without_init_cfg(tmp_path: Path) -> None:
    weights = RoPEViT(VIT).state_dict()
    torch.save(weights, tmp_path / 'weights.pth')
    model = RoPEViT(VIT, pretrained=str(tmp_path / 'weights.pth'))
    model.init_weights()
    assert all(torch.equal(model.state_dict()[key], weights[key]) for key in weights)


def test_pretrained_of_another_backbone_is_refused_without_init_cfg() -> None:
    with pytest.raises(
        CheckpointError, match='open-mmlab://resnet50_v1c: unknown kind of address'
    ):
        small(upernet(), UPERNET)
