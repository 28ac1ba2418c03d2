"""What a training starts from, and the labels that it ignores."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image
from torch import nn

from helpers.small_configs import make_data
from helpers.tool_names import Fails, Main
from rope_dense.backbones import RoPEViT
from rope_dense.project.checks.recipe import positions_text
from rope_dense.project.checks.schedule import warn_of_random_weights, warn_of_sgd
from rope_dense.project.model import build_model, build_shapes, random_model
from rope_dense.project.weights import (
    check_initial_weights,
    check_whole_backbone,
    load_from_source,
)
from rope_dense.utils.errors import UsageError


def test_a_checkpoint_without_all_of_the_backbone(
    segmentor: str, detector: str
) -> None:
    model = build_model(Config.fromfile(segmentor))
    weights = model.state_dict()
    heads = {
        key: value[None]
        for key, value in weights.items()
        if key.startswith('decode_head.')
    }
    check_whole_backbone(model, weights | heads, 'x')  # of other sizes: they start anew
    check_whole_backbone(
        model, {k: w for k, w in weights.items() if 'head' not in k}, 'x'
    )
    lacking = {key: weight for key, weight in weights.items() if 'blocks.1.' not in key}
    other = {f'module.{key}': weight for key, weight in weights.items()}
    larger = weights | {'backbone.blocks.0.attn.qkv.weight': torch.zeros(3, 3)}
    more = weights | {
        'backbone.blocks.0.attn.q_bias': torch.zeros(3)
    }  # which would be lost
    cases = (lacking, 'it lacks'), (other, 'it lacks'), (larger, 'size mismatch')
    for wrong, says in (*cases, (more, 'it has 1 weights more, such as blocks')):
        with pytest.raises(
            UsageError, match=f"'x.pth' does not fit the backbone.*{says}"
        ):
            check_whole_backbone(model, wrong, "load_from 'x.pth'")


def test_load_from_another_model(
    train: Main, segmentor: str, detector: str, weights: str, fails: Fails
) -> None:
    """Both have the same backbone here but for its depth."""
    options = ['--cfg-options', 'model.backbone.arch.embed_dims=64']
    options += ['model.neck.0.in_channels=64']
    says = [
        f'load_from {weights!r} does not fit the backbone',
        'size mismatch',
        'init_cfg',
    ]
    fails(train, detector, '--load-from', weights, *options, says=says)


@pytest.mark.parametrize(
    'option, part',
    [
        ('model.decode_head.in_channels=[9,9,9,9]', 'model.decode_head fails'),
        ('model.auxiliary_head.in_index=7', 'model.auxiliary_head fails'),
        ('model.neck.embed_dim=48', 'model.neck fails'),
    ],
)
def test_a_part_that_does_not_take_the_maps_is_named(
    train: Main,
    segmentor: str,
    option: str,
    part: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ['--work-dir', str(tmp_path / 'work'), '--cfg-options', option]
    assert train([segmentor, *options]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f'error: {part}: ')
    assert 'the maps of the backbone have channels 32, 32' in last


@pytest.mark.parametrize('kind', ['SGD', 'AdamW'])
def test_sgd_of_a_stock_config_gives_a_warning(
    segmentor: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = Config.fromfile(segmentor)
    cfg.optim_wrapper.optimizer = dict(type=kind, lr=0.01)
    warn_of_sgd(cfg, build_shapes(cfg))
    said = capsys.readouterr().err
    assert ('warning: SGD(lr=0.01) trains a transformer' in said) == (kind == 'SGD')


def test_a_head_of_other_classes_starts_anew_and_says_so(
    segmentor: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = Config.fromfile(segmentor)
    model = build_model(cfg)
    weights = model.state_dict()
    torch.save(dict(state_dict=weights), tmp_path / 'x.pth')
    cfg.load_from = str(tmp_path / 'x.pth')
    check_initial_weights(cfg, model)
    assert 'does not name its classes' in capsys.readouterr().out
    classes = cfg.model.decode_head.num_classes
    for head in (cfg.model.decode_head, cfg.model.auxiliary_head):
        head.num_classes = 3
    model = build_model(cfg)
    check_initial_weights(cfg, model)
    _, said = capsys.readouterr().out.splitlines()
    assert '4 weights of auxiliary_head, decode_head start anew' in said
    assert f'({classes},) -> (3,)' in said or f'({classes}, ' in said
    left = load_from_source(cfg.load_from)['state_dict']
    assert not model.load_state_dict(left, strict=False).unexpected_keys
    assert len(left) == len(weights) - 4


@pytest.mark.parametrize('scale', [None, 1.0, 1e-4])
def test_a_layer_scale_that_hides_position_gives_a_warning(
    segmentor: str, scale: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = Config.fromfile(segmentor)
    cfg.model.backbone.layer_scale_init_value = scale
    model = build_model(cfg)
    warn_of_random_weights(cfg, model)
    assert ('a LayerScale of 1e-04' in capsys.readouterr().err) == (scale == 1e-4)
    cfg.load_from = 'x.pth'
    warn_of_random_weights(cfg, model)
    assert not capsys.readouterr().err


@pytest.mark.parametrize('side', [96, 224])
def test_crops_of_another_size_than_img_size_give_a_warning(
    segmentor: str, side: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = Config.fromfile(segmentor)
    cfg.model.backbone.update(
        img_size=224, layer_scale_init_value=None, rope_scaling=None
    )
    (crop,) = (
        step
        for step in cfg.train_dataloader.dataset.pipeline
        if step.type == 'RandomCrop'
    )
    crop.crop_size = (side, side)
    model = build_shapes(cfg)
    warn_of_random_weights(cfg, model)
    says = 'relative to an img_size of 224 x 224: set model.backbone.img_size=(96, 96)'
    assert (says in capsys.readouterr().err) == (side == 96)
    assert 'scalings are relative to 14 x 14 tokens' in positions_text(model)
    model.backbone.set_rope_scaling(dict(type='linear'))
    assert '14 x 14 tokens, and as without one up to them' in positions_text(model)


def test_no_scaling_is_offered_to_coordinates_that_refuse_each() -> None:
    settings = dict(embed_dims=32, depth=1, num_heads=2)
    rope = dict(type='AxialRoPE', coordinates=dict(type='centres', normalize='max'))
    model = nn.Module()
    model.backbone = RoPEViT(settings, rope=rope)
    with pytest.raises(ValueError, match='cover the same range'):
        model.backbone.set_rope_scaling(dict(type='linear'))
    assert 'scaling' not in positions_text(model)
    model.backbone.set_rope_scaling(dict(type='none', temperature='log'))
    said = "scaled by {'type': 'none', 'temperature': 'log'}, relative to 14 x 14"
    assert said in positions_text(model)


@pytest.mark.parametrize(
    'frozen', [dict(frozen_stages='all'), dict(lora=dict(rank=2)), {}]
)
def test_frozen_random_weights_give_a_warning(
    segmentor: str, frozen: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = Config.fromfile(segmentor)
    cfg.model.backbone.update(frozen, layer_scale_init_value=1.0)
    model = build_model(cfg)
    warn_of_random_weights(cfg, model)
    assert ('are frozen' in capsys.readouterr().err) == bool(frozen)
    cfg.load_from = 'x.pth'
    warn_of_random_weights(cfg, model)
    assert not capsys.readouterr().err


def test_labels_that_the_evaluator_does_not_ignore(
    test: Main, segmentor: str, fails: Fails, tmp_path: Path
) -> None:
    data, weights = make_data(tmp_path / 'data') / 'ade', tmp_path / 'x.pth'
    torch.save(random_model(Config.fromfile(segmentor)).state_dict(), weights)
    path = min((data / 'annotations' / 'validation').iterdir())
    mask = np.asarray(Image.open(path)).copy()
    mask[0, 0] = 12
    Image.fromarray(mask).save(path)
    options = ['--cfg-options', f'test_dataloader.dataset.data_root={data}']
    heads = [
        f'model.{head}.ignore_index=11' for head in ('decode_head', 'auxiliary_head')
    ]
    options += [*heads, 'model.data_preprocessor.seg_pad_val=11']
    says = [
        f'{path} has label 11',
        'ignored: test_evaluator (7 classes, ignore_index=255);',
    ]
    fails(test, segmentor, str(weights), *options, says=says)
    Image.fromarray(mask[:-3]).save(path)
    says = [f'{path} and its image', 'differ in size, (61, 96) and (64, 96)']
    fails(test, segmentor, str(weights), *options, says=says)
