"""docs/foundation.md against timm, the configs and the links that it has."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.foundation import ALL
from helpers.grid import CONFIGS
from helpers.small_checkpoints import saved

PAGE = CONFIGS.parent / 'docs' / 'foundation.md'
IN_TIMM = {
    'DINOv3, LVD-1689M': 'vit_base_patch16_dinov3.lvd1689m',
    'DINOv3, SAT-493M': 'vit_large_patch16_dinov3.sat493m',
    'LingBot-Vision': 'vit_base_patch16_lingbot.robbyant',
    'EUPE': 'vit_base_patch16_dinov3_qkvb.eupe_lvd1689m',
    'EVA-02': 'eva02_base_patch14_224.mim_in22k',
    'Perception Encoder, spatial': 'vit_pe_spatial_base_patch16_512.fb',
    'Perception Encoder, lang': 'vit_pe_lang_large_patch14_448.fb',
    'Qwen3-VL, Qwen3.5': 'qwen3_vit_88m_enc.qwen3_5_0_8b',
    'Perception Encoder, core': 'vit_pe_core_base_patch16_224.fb',
    "`rope_reg`, timm's": 'vit_base_patch16_rope_reg1_gap_256.sbb_in1k',
    "RoPE-ViT, naver's": 'vit_base_patch16_rope_224.naver_in1k',
}


def rows(first_column: str) -> list[list[str]]:
    """Cells of the table whose first column is called so."""
    table = PAGE.read_text().partition(f'| {first_column} |')[2].partition('\n\n')[0]
    return [line.strip('| ').split(' | ') for line in table.splitlines()[2:]]


def test_every_family_has_a_row() -> None:
    assert {row[0] for row in rows('family')} == {
        *(*IN_TIMM, 'SAM3', 'MLCD, RICE', 'V-JEPA 2.1', 'Sapiens2')
    }
    assert all(len(row) == 7 for row in rows('family'))


@pytest.mark.parametrize('family, name', IN_TIMM.items())
def test_mean_and_std_are_timm_s(timm: ModuleType, family: str, name: str) -> None:
    """EVA-02's first ones, of the pre-training; those of its detectors are ImageNet's."""
    betwixt, eva02 = map(
        timm.models.get_pretrained_cfg,
        ('vit_betwixt_patch16_rope_reg4_gap_256.sbb_in1k', IN_TIMM['EVA-02']),
    )
    assert (betwixt.mean, betwixt.std) == (eva02.mean, eva02.std)
    (row,) = (row for row in rows('family') if row[0] == family)
    settings = timm.models.get_pretrained_cfg(name)
    for cell, expected in ((row[2], settings.mean), (row[3], settings.std)):
        given = [float(number) for number in re.findall(r'[\d.]+', cell)[:3]]
        assert given == pytest.approx([255 * value for value in expected], abs=1e-3)


def test_every_config_is_listed() -> None:
    listed = re.findall(r'\]\(\.\./configs/foundation/(\S+)\.py\)', PAGE.read_text())
    assert sorted(listed) == sorted(ALL)


def test_the_example_fits_its_weights(timm: ModuleType, tmp_path: Path) -> None:
    code = PAGE.read_text().partition('```python\n')[2].partition('```')[0]
    (tmp_path / 'config.py').write_text(code.replace("'configs/", f"'{CONFIGS}/"))
    cfg = Config.fromfile(tmp_path / 'config.py')
    name = cfg.model.backbone.init_cfg.checkpoint.removeprefix('hf-hub:timm/')
    settings = timm.models.get_pretrained_cfg(name)
    assert cfg.model.data_preprocessor.mean == pytest.approx(
        [255 * v for v in settings.mean]
    )
    assert cfg.model.data_preprocessor.std == pytest.approx(
        [255 * v for v in settings.std]
    )
    with torch.device('meta'):
        weights = timm.create_model(name.split('.')[0])
        cfg.model.backbone.init_cfg.checkpoint = saved(weights.state_dict(), tmp_path)
        init_default_scope(cfg.default_scope)
        model = MODELS.build(cfg.model)
        model.backbone.init_weights()
    assert model.decode_head.conv_seg.in_channels == model.backbone.out_channels[-1]
