"""The table of weights in docs/checkpoints.md against timm's settings of the same weights."""

import csv
import re
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

from helpers.timm_parity import MODELS
from rope_dense.backbones import RoPEViT

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r'^\| `([^`]+\.[^`]+)` \| (.+) \| (.+) \|$', re.MULTILINE)
ROWS = ROW.findall((ROOT / 'docs' / 'checkpoints.md').read_text())
LICENCES = {
    'apache-2.0': 'Apache-2.0',
    'mit': 'MIT',
    'dinov3-license': 'DINOv3 licence',
    'fair-noncommercial-research-license': 'FAIR Noncommercial Research',
    'qwen-community-1.0': 'Qwen Community License 1.0',
}


def patterns(cell: str) -> list[str]:
    """Those that a pattern with {a,b} stands for."""
    match = re.fullmatch(r'(.*)\{(.+)\}(.*)', cell)
    return [match[1] + x + match[3] for x in match[2].split(',')] if match else [cell]


@pytest.mark.parametrize('cell, archs, licence', ROWS, ids=[row[0] for row in ROWS])
def test_the_licence_is_timm_s(timm: ModuleType, cell: str, archs: str, licence: str):
    published = timm.list_pretrained()
    for pattern in patterns(cell):
        names = [name for name in published if fnmatch(name, pattern)]
        assert names, pattern
        for name in names:
            settings = timm.models.get_pretrained_cfg(name)
            assert re.sub(r'[\[\]]', '', licence).startswith(LICENCES[settings.license])
    assert all(
        any(fnmatch(arch, name) for arch in RoPEViT.ARCHS)
        for name in re.findall(r'`(\w+\*?)`', archs)
        if name not in ('rope', 'use_ape')
    )


def test_every_architecture_with_weights_is_in_the_table():
    named = {name for row in ROWS for name in re.findall(r'`(\w+\*?)`', row[1])}
    text = (ROOT / 'docs' / 'checkpoints.md').read_text()
    in_text = {'sam3', 'isotropic_small', 'isotropic_base', 'resformer_small'}
    in_text |= {'deimv2_*', 'ecvit_*', 'mlcd_bigg_336', 'mlcd_bigg_448', 'rice_large'}
    in_text |= {x for x in RoPEViT.ARCHS if x.startswith(('vjepa2_1', 'sapiens2'))}
    assert all(f'`{name}`' in text for name in in_text)
    named |= in_text
    without = [
        arch for arch in RoPEViT.ARCHS if not any(fnmatch(arch, name) for name in named)
    ]
    assert without == ['tiny']


def test_the_recorded_parity_is_summarised() -> None:
    """docs/parity.csv has every model that the tests compare, and the page its largest figures."""
    with (ROOT / 'docs' / 'parity.csv').open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row['timm'] for row in rows] == [model.timm for model in MODELS]
    columns = [name for name in rows[0] if name.startswith('difference')]
    errors = {row['timm']: max(float(row[name]) for name in columns) for row in rows}
    assert len(columns) == 3 and max(errors.values()) < 1e-5
    page = (ROOT / 'docs' / 'checkpoints.md').read_text()
    cells = re.findall(r'^\| [^|]+ \| (\d+) \| (\S+e-\d+) \|$', page, re.MULTILINE)
    assert sum(int(count) for count, _ in cells) == len(rows)
    assert max(float(error) for _, error in cells) == max(errors.values())
