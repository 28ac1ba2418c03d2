"""V-JEPA 2.1's encoder of images against its formulas in float64 (tests/helpers/published_meta.py):
no installable package has it.

``python tests/checkpoints/test_vjepa.py`` compares the base size (minutes).
"""

import tempfile
from pathlib import Path

import pytest
import torch

from helpers.published_meta import NORMED, Weights, vjepa2_1, vjepa2_1_maps
from helpers.reference import relative_error
from helpers.small_checkpoints import load, refusal, saved
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.publishers import TARGETS, find_layout
from rope_dense.rope import VideoRoPE
from rope_dense.rope.grid import RopeScaling

SMALL = dict(RoPEViT.ARCHS['vjepa2_1_base'], embed_dims=128, num_heads=2, mlp_ratio=2.0)
SIZES = {  # channels, blocks, hidden channels, and the parameters without the stem of videos
    'base': (768, 12, 3072),
    'large': (1024, 24, 4096),
    'giant': (1408, 40, 6144),
    'gigantic': (1664, 48, 8192),
}


@pytest.fixture(scope='module')
def published() -> Weights:
    torch.manual_seed(0)
    return vjepa2_1(128, 12, hidden=256)


@pytest.fixture(scope='module')
def path(published: Weights, tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved({'ema_encoder': published}, tmp_path_factory.mktemp('vjepa'))


# ---------------------------------------------------------------- parity


@torch.no_grad()
def largest_error(model: RoPEViT, weights: Weights, grid: tuple[int, int]) -> float:
    """Relative, of the four maps of an image."""
    image = torch.randn(1, 3, *(16 * side for side in grid))
    expected = vjepa2_1_maps(weights, image[0], model.arch.num_heads)
    return max(
        relative_error(x[0], y) for x, y in zip(model(image), expected, strict=True)
    )


@pytest.mark.parametrize('grid', [(3, 5), (6, 4), (1, 7), (1, 1)])
def test_same_maps_as_the_formulas(
    published: Weights, path: str, grid: tuple[int, int]
):
    model = load(RoPEViT, path, arch=SMALL, out_indices=NORMED[12]).eval()
    assert largest_error(model, published, grid) < 2e-6


@torch.no_grad()
def test_the_formula_of_its_authors_is_linear_scaling_of_indexes(path: str):
    """15 i / (H - 1) is i divided by a factor: with factors for each axis, the same maps."""
    rope = dict(type='VideoRoPE', coordinates=dict(type='index'))
    scaling = dict(type='linear', factor=(8 / 15, 4 / 15))
    published, scaled = (
        load(RoPEViT, path, arch=SMALL, **settings).eval()
        for settings in (dict(), dict(rope=rope, rope_scaling=scaling))
    )
    image = torch.randn(1, 3, 16 * 9, 16 * 5)
    assert relative_error(scaled(image)[0], published(image)[0]) < 2e-6


# ---------------------------------------------------------------- files


LARGE = [pytest.param(size, marks=pytest.mark.slow) for size in SIZES if size != 'base']


@pytest.mark.parametrize('size', ['base', *LARGE])
def test_every_size_loads_strictly(size: str, tmp_path: Path):
    channels, depth, hidden = SIZES[size]
    with torch.device('meta'):
        weights = vjepa2_1(channels, depth, hidden=hidden)
        file = saved(
            {'target_encoder': {f'module.backbone.{k}': x for k, x in weights.items()}},
            tmp_path,
        )
        model = load(RoPEViT, file, arch=f'vjepa2_1_{size}', out_indices=NORMED[depth])
    videos = ('patch_embed.', 'video_mod_embed', 'img_mod_embed')
    expected = sum(
        x.numel() for key, x in weights.items() if not key.startswith(videos)
    )
    assert sum(p.numel() for p in model.parameters()) == expected
    assert model.blocks[0].attn.rope.head_dim == 64


def test_norms_of_outputs_that_are_not_taken_are_dropped(published: Weights, path: str):
    last, none, two = (
        load(RoPEViT, path, arch=SMALL, **settings).state_dict()
        for settings in (dict(), dict(final_norm=False), dict(out_indices=(5, 11)))
    )
    norms = [key for key in two if key.startswith('norm')]
    assert norms == ['norm.weight', 'norm.bias', 'norm5.weight', 'norm5.bias']
    assert torch.equal(two['norm5.bias'], published['norms_block.1.bias'])
    assert torch.equal(last['norm.bias'], published['norms_block.3.bias'])
    assert not any(key.startswith('norm') for key in none)


def test_an_output_without_a_published_norm_is_refused(path: str):
    assert 'missing: norm3.weight, norm3.bias' in refusal(
        RoPEViT, path, arch=SMALL, out_indices=(3, 11)
    )


@pytest.mark.parametrize('out_indices', [(11,), (5, 11)])
def test_timm_has_no_such_model(out_indices: tuple[int, ...]):
    with torch.device('meta'):
        weights = RoPEViT('vjepa2_1_base', out_indices=out_indices).state_dict()
    with pytest.raises(CheckpointError, match='timm has no V-JEPA'):
        TARGETS['timm'].from_ours(weights)


def test_other_depths_are_refused(tmp_path: Path):
    path = saved(vjepa2_1(128, 3, hidden=256), tmp_path)
    assert '3 blocks' in refusal(RoPEViT, path, arch=dict(SMALL, depth=3))


def test_a_file_of_a_whole_training_in_our_layout(published: Weights, tmp_path: Path):
    """A model of four outputs, saved and loaded, and with fewer outputs."""
    assert find_layout(published, 'file').name == 'V-JEPA 2.1'
    model = RoPEViT(dict(SMALL, depth=3), out_indices=(0, 1, 2))
    path = saved(model.state_dict(), tmp_path)
    again = load(
        RoPEViT, path, arch=dict(SMALL, depth=3), out_indices=(1, 2)
    ).state_dict()
    assert all(torch.equal(x, model.state_dict()[key]) for key, x in again.items())


# ---------------------------------------------------------------- windows, scaling, training


@torch.no_grad()
def test_each_window_is_an_image_of_its_own(path: str):
    windows = dict(window_size=4, window_block_indexes=range(12))
    model = load(RoPEViT, path, arch=SMALL, **windows).eval()
    image = torch.randn(1, 3, 64, 128)
    (whole,) = model(image)
    for left in (0, 4):
        (part,) = model(image[..., 16 * left : 16 * (left + 4)])
        assert relative_error(whole[..., left : left + 4], part) < 2e-6


def test_scaling_by_parts_leaves_the_pairs_of_the_time():
    rope = VideoRoPE(64, 2)
    rope.set_scaling(RopeScaling((16, 16), 'by_parts'))
    one, two = (
        rope(torch.empty(1, 1, 1), (side, side)).angles[-1, 0] for side in (16, 32)
    )
    assert not one[:10].any() and not two[:10].any() and one[10:].all()
    row, twice = one[10:20] / 15, two[10:20] / 31  # radians per patch
    torch.testing.assert_close(row, 10000.0 ** (-torch.arange(10) / 10))
    assert twice[0] == pytest.approx(
        row[0].item()
    )  # 2.5 periods over the grid of pre-training
    torch.testing.assert_close(twice[4:], row[4:] / 2)  # below one


def test_normalised_positions_are_not_scaled():
    with pytest.raises(ValueError, match='cover the same range on every grid'):
        RoPEViT(dict(SMALL, depth=1), rope_scaling=dict(type='linear'))


def test_norms_of_outputs_train_and_freeze_with_the_end():
    model = RoPEViT(dict(SMALL, depth=3), out_indices=(0, 2))
    sum(x.square().sum() for x in model(torch.randn(1, 3, 32, 48))).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert model.layer_of('norm0.weight') == model.layer_of('norm.bias') == 4
    frozen = RoPEViT(
        dict(SMALL, depth=3), out_indices=(0, 1), frozen_stages='all'
    ).train()
    assert not any(p.requires_grad for p in frozen.parameters())
    assert (
        not frozen.norm0.training and not frozen.norm1.training and frozen.norm is None
    )


if __name__ == '__main__':
    torch.manual_seed(0)
    weights = vjepa2_1(768, 12, hidden=3072)
    with tempfile.TemporaryDirectory() as folder:
        file = saved(weights, Path(folder))
        base = load(RoPEViT, file, arch='vjepa2_1_base', out_indices=NORMED[12]).eval()
    for grid in ((24, 24), (20, 30), (1, 24)):
        print(grid, f'{largest_error(base, weights, grid):.1e}')
