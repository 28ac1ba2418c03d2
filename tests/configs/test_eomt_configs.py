"""The configs of configs/eomt against the source that they name (eomt_recipes.py), their weights
and the page about them."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope

from helpers.eomt_recipes import (
    FAMILIES,
    FOLDER,
    NAMES,
    VARIANTS,
    build_offline,
    load,
    parts,
    rate,
    recipe,
)
from helpers.grid import CONFIGS, value
from helpers.published import naver_vit
from helpers.small_checkpoints import load as load_weights
from helpers.small_checkpoints import saved
from rope_dense.backbones import RoPEViT
from rope_dense.project.checks.recipe import recipe_text

RECIPES = sorted(path.stem for path in FOLDER.glob('*.py'))
PAGE = CONFIGS.parent / 'docs' / 'eomt.md'
every_config = pytest.mark.parametrize('name', [*RECIPES, *VARIANTS])


def test_sizes_and_families_are_complete() -> None:
    found = {parts(name) for name in (*RECIPES, *VARIANTS)}
    for family in FAMILIES:
        for size in 'bl' if family.startswith('rope') else 'sbl':
            assert {
                (family, size, 'semantic', 512),
                (family, size, 'panoptic', 640),
            } <= found
    assert {('dinov3', size, 'instance', 640) for size in 'sbl'} <= found
    assert {('dinov3', 'l', task, 1280) for task in ('panoptic', 'instance')} <= found
    assert len(RECIPES) == 8 and len(found) == 8 + len(VARIANTS) == 25


@every_config
def test_settings_are_those_of_the_source(name: str) -> None:
    expected = recipe(name)
    assert {path: value(load(name), path) for path in expected} == expected


@pytest.mark.parametrize(
    'name', [n for n in (*RECIPES, *VARIANTS) if '-b_' in n or '-l_8xb2-88k' in n]
)
def test_every_parameter_has_its_learning_rate_and_decay(name: str) -> None:
    """Weight decay for all, but for learned frequencies, which the source does not have."""
    cfg, model = load(name), build_offline(name)
    base = cfg.optim_wrapper.optimizer
    actual = {
        id(param): (group['lr'] / base.lr, group['weight_decay'], group['name'])
        for group in build_optim_wrapper(
            model, cfg.optim_wrapper
        ).optimizer.param_groups
        for param in group['params']
    }
    for key, param in model.named_parameters():
        learning_rate, decay, group = actual[id(param)]
        assert learning_rate == pytest.approx(rate(name, key)), key
        assert decay == (0 if key.endswith('rope.freqs') else 0.05), key
        # TwoStageWarmupPolyLR tells them by that.
        assert group.startswith('backbone') == key.startswith('backbone.')


@pytest.mark.slow
@pytest.mark.parametrize(
    'name', [n for n in (*RECIPES, *VARIANTS) if 'ade20k' in n and '-b_' in n]
)
def test_named_weights_fit(timm: ModuleType, name: str, tmp_path: Path) -> None:
    family, size, *_ = parts(name)
    backbone = load(name).model.backbone
    source = backbone.pop('init_cfg').checkpoint.split('/')[1].split('.')[0]
    assert backbone.pop('type') == 'RoPEViT'
    arch = RoPEViT.ARCHS[backbone.arch]
    with torch.device('meta'):
        if family.startswith('rope'):
            mixed = family == 'rope-mixed'
            weights = naver_vit(
                arch['embed_dims'], arch['depth'], mixed=mixed, ape=False
            )
        else:
            in_timm = (
                f'vit_{NAMES[size]}_patch16_lingbot' if family == 'lingbot' else source
            )
            weights = timm.create_model(in_timm).state_dict()
    if 'freqs' in weights:  # whose values count
        weights['freqs'] = torch.rand(weights['freqs'].shape)
    with torch.device('meta'):
        model = load_weights(RoPEViT, saved(weights, tmp_path), **backbone)
    assert model.norm is not None


@pytest.mark.parametrize('name', [n for n in RECIPES if n.startswith('eomt_dinov3-b')])
def test_print_recipe_says_what_is_particular(name: str) -> None:
    cfg = load(name)
    text = re.sub(r'\s+', ' ', recipe_text(cfg, build_offline(name)))
    length = f'{cfg.train_cfg.max_iters} iterations of 2 images per process, 1 process'
    assert f'{length} (recipe: 8 x 2; --auto-scale-lr)' in text
    assert 'TwoStageWarmupPolyLR(' in text and 'backbone_warmup=3000' in text
    annealing = cfg.custom_hooks[0]
    for start, end in zip(annealing.start, annealing.end, strict=True):
        assert f'{start} to {end}' in text
    if 'coco' in name:
        assert re.search(
            r'backbone\.blocks\.\*/decay x 0\.0859 to x 0\.512 0\.05', text
        )


def test_every_config_is_listed() -> None:
    listed = re.findall(r'\]\(\.\./configs/eomt/(\S+)\.py\)', PAGE.read_text())
    assert sorted(listed) == RECIPES


def test_links_exist() -> None:
    links = re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', PAGE.read_text())
    assert len(links) > len(RECIPES)
    assert all((PAGE.parent / link).exists() for link in links)


def test_the_example_fits_its_weights(timm: ModuleType, tmp_path: Path) -> None:
    examples = re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)
    code = next(code for code in examples if 'hf-hub:timm/' in code)
    (tmp_path / 'config.py').write_text(code.replace("'configs/", f"'{CONFIGS}/"))
    cfg = Config.fromfile(tmp_path / 'config.py')
    init_default_scope(cfg.default_scope)
    name = cfg.model.backbone.init_cfg.checkpoint.removeprefix('hf-hub:timm/')
    settings = timm.models.get_pretrained_cfg(name)
    assert cfg.model.data_preprocessor.mean == pytest.approx(
        [255 * v for v in settings.mean]
    )
    with torch.device('meta'):
        weights = timm.create_model(name.split('.')[0]).state_dict()
        cfg.model.backbone.init_cfg.checkpoint = saved(weights, tmp_path)
        model = MODELS.build(cfg.model)
        model.backbone.init_weights()
    assert model.backbone.norm is None and model.decode_head.eomt.norm is not None
