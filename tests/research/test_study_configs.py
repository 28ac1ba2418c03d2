"""Small models to test at other resolutions: one recipe, position embeddings as the names say."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch.nn.modules.batchnorm import _BatchNorm

from rope_dense.backbones.position_bias import TableBiasAttention

STUDY = Path(__file__).parents[2] / 'configs' / 'research' / 'study'
PARTS = {  # rotary embedding, absolute position embedding, relative position bias
    'vit_ape': (None, True, False),
    'vit_rope_axial': ('AxialRoPE', False, False),
    'vit_rope_mixed': ('MixedRoPE', False, False),
    'vit_rope_mixed_ape': ('MixedRoPE', True, False),
    'swin_rpb': (None, False, True),
    'swin_rope_axial': ('AxialRoPE', False, False),
    'swin_rope_mixed': ('MixedRoPE', False, False),
}
STREETS = ('vit', 'vit_windows', 'swin')  # see also test_scaling_study.py


def load(name: str) -> Config:
    config = Config.fromfile(STUDY / f'upernet_{name}_shapes.py')
    config.pop('custom_imports')
    return config


def test_all_configs_are_here() -> None:
    shapes = {f'upernet_{name}_shapes' for name in PARTS}
    streets = {f'linear_{name}_rope_mixed_camvid' for name in STREETS}
    assert {path.stem for path in STUDY.glob('*.py')} == shapes | streets


@pytest.mark.parametrize('name', PARTS)
def test_position_embeddings_are_as_named(name: str) -> None:
    config = load(name)
    with MODELS.switch_scope_and_registry(config.default_scope) as models:
        model = models.build(config.model).eval()
    backbone = model.backbone
    attn = backbone.ordered_blocks[0].attn
    rope, bias = attn.rope, isinstance(attn, TableBiasAttention)
    kind = None if rope is None else type(rope).__name__
    assert (kind, getattr(backbone, 'pos_embed', None) is not None, bias) == PARTS[name]
    assert any(isinstance(module, _BatchNorm) for module in model.modules())
    side = config.model.data_preprocessor.size[0]
    with torch.no_grad():
        scores = model.encode_decode(
            torch.randn(1, 3, side, side), [dict(img_shape=(side, side))]
        )
    assert scores.shape == (1, 7, side, side)


@pytest.mark.parametrize('name', PARTS)
def test_one_recipe_for_each_backbone(name: str) -> None:
    config, reference = load(name), load(f'{name.split("_")[0]}_rope_mixed')
    for of in (config, reference):
        of.model.pop('backbone')
    assert config.to_dict() == reference.to_dict()
