"""docs/features.md: its code runs; patches, prefix tokens and norms of the families."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.archs import ViTArch, find_arch

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / 'docs' / 'features.md').read_text()


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)
    code = [block for block in code if 'rope_dense.load' not in block]  # needs a run
    assert len(code) == 8
    names: dict[str, object] = {}
    for block in code:
        exec(block, names)
    assert np.ptp(imread('similarity.png')[..., :3]) > 0.1  # not of one colour


@pytest.mark.parametrize(
    'prefix, patch_sizes, prefix_tokens, final_norm',
    [
        ('dinov3_', {16}, {5}, {'all'}),
        ('eva02_', {14, 16}, {1}, {False}),
        ('pe_', {14, 16}, {0, 1}, {False}),
        ('vjepa2_1_', {16}, {0}, {'separate'}),
        ('sapiens2_', {16}, {9}, {'all'}),
        ('', {16}, {1}, {False}),
    ],
)
def test_the_families(
    prefix: str, patch_sizes: set[int], prefix_tokens: set[int], final_norm: set[object]
) -> None:
    names = [name for name in RoPEViT.ARCHS if prefix and name.startswith(prefix)]
    archs = {
        name: find_arch(ViTArch, RoPEViT.ARCHS, name)
        for name in names or ('tiny', 'small', 'base', 'large')
    }
    assert {arch.patch_size for arch in archs.values()} == patch_sizes
    assert {arch.num_prefix_tokens for arch in archs.values()} == prefix_tokens
    assert {arch.final_norm for arch in archs.values()} == final_norm
    for name, arch in archs.items():
        if name.startswith('eva02_'):
            assert (arch.patch_size == 16) == (name == 'eva02_clip_base')
        elif name.startswith('pe_'):
            assert (arch.patch_size == 14) == name.endswith(('large', 'gigantic'))
            assert (arch.num_prefix_tokens == 0) == name.endswith('gigantic')
