"""docs/foundation.md against timm, the configs and the links that it has."""

import re
from types import ModuleType

import pytest
from foundation import RECIPES
from grid import CONFIGS

PAGE = CONFIGS.parent / 'docs' / 'foundation.md'
IN_TIMM = {
    'DINOv3, LVD-1689M': 'vit_base_patch16_dinov3.lvd1689m',
    'DINOv3, SAT-493M': 'vit_large_patch16_dinov3.sat493m',
    'LingBot-Vision': 'vit_base_patch16_lingbot.robbyant',
    'EUPE': 'vit_base_patch16_dinov3_qkvb.eupe_lvd1689m',
    'EVA-02': 'eva02_base_patch14_224.mim_in22k',
    'Perception Encoder, spatial': 'vit_pe_spatial_base_patch16_512.fb',
    'Perception Encoder, core': 'vit_pe_core_base_patch16_224.fb',
    "`rope_reg`, timm's": 'vit_base_patch16_rope_reg1_gap_256.sbb_in1k',
    "RoPE-ViT, naver's": 'vit_base_patch16_rope_224.naver_in1k',
}


def rows(first_column: str) -> list[list[str]]:
    """Cells of the table whose first column is called so."""
    table = PAGE.read_text().partition(f'| {first_column} |')[2].partition('\n\n')[0]
    return [line.strip('| ').split(' | ') for line in table.splitlines()[2:]]


def test_every_family_has_a_row() -> None:
    assert {row[0] for row in rows('family')} == {*IN_TIMM, 'SAM3'}
    assert all(len(row) == 7 for row in rows('family'))


@pytest.mark.parametrize('family, name', IN_TIMM.items())
def test_mean_and_std_are_timm_s(timm: ModuleType, family: str, name: str) -> None:
    """EVA-02's first ones, of the pre-training; those of its detectors are ImageNet's."""
    (row,) = (row for row in rows('family') if row[0] == family)
    settings = timm.models.get_pretrained_cfg(name)
    for cell, expected in ((row[2], settings.mean), (row[3], settings.std)):
        given = [float(number) for number in re.findall(r'[\d.]+', cell)[:3]]
        assert given == pytest.approx([255 * value for value in expected], abs=1e-3)


def test_every_config_is_listed() -> None:
    listed = re.findall(r'\]\(\.\./configs/foundation/(\S+)\.py\)', PAGE.read_text())
    assert sorted(listed) == sorted(RECIPES)


def test_links_exist() -> None:
    links = re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', PAGE.read_text())
    assert len(links) > len(RECIPES)
    assert all((PAGE.parent / link).exists() for link in links)
