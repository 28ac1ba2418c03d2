import math

import pytest
import torch
from mmengine.registry import MODELS
from reference import relative_error
from torch import Tensor, nn

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.rope import AxialRoPE, MixedRoPE, RopeScaling, RotaryEmbedding, Rotation, rotate

CPU = torch.device('cpu')
GRID = (4, 6)  # of pre-training: height, width
ROPES = {
    'axial': lambda: AxialRoPE(32, 2, 3),
    'learned': lambda: AxialRoPE(32, 2, 3, learned=True),
    'mixed': lambda: MixedRoPE(32, 2, 3),
    'split': lambda: MixedRoPE(32, 2, 3, pair_layout='split'),
}
TYPES = ('none', 'linear', 'by_parts', 'ntk')
FITTING = [(name, kind) for name in ROPES for kind in TYPES if kind != 'ntk' or name == 'axial']


def rotation_of(
    rope: RotaryEmbedding, height: int, width: int, scaling: RopeScaling | None = None
) -> Rotation:
    return rope([1], height=height, width=width, device=CPU, scaling=scaling)[0]


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize('name, kind', FITTING)
@pytest.mark.parametrize('temperature', [None, 'log', 'yarn'])
def test_scaling_by_one_changes_no_bit(name: str, kind: str, temperature: str | None):
    rope = ROPES[name]()
    plain = rotation_of(rope, 3, 6)
    for scaling in (
        RopeScaling(GRID, kind, temperature=temperature),  # dynamic, on a grid that is no larger
        RopeScaling(GRID, kind, factor=1.0, temperature=temperature),
        RopeScaling(GRID, kind, factor=(1, 1), temperature=temperature),
    ):
        scaled = rotation_of(rope, 3, 6, scaling)
        assert torch.equal(scaled.freqs, plain.freqs) and torch.equal(scaled.table(), plain.table())
        assert scaled.score_factor == 1.0


@pytest.mark.parametrize('name, kind', FITTING)
def test_scores_depend_on_offsets_only(name: str, kind: str):
    height, width = 7, 9
    rotation = rotation_of(ROPES[name]().double(), height, width, RopeScaling(GRID, kind, (2, 1.5)))
    q, k = torch.randn(2, 1, 1, 2, 32, dtype=torch.float64).expand(2, height * width, 1, 2, 32)
    q, k = (rotate(x.transpose(0, 1), rotation)[0].unflatten(0, (height, width)) for x in (q, k))
    scores = torch.einsum('yxhd,jihd->yxjih', q, k)
    # The score of (row, column) and (row + 3, column + 2) is the same wherever the pair is.
    pairs = torch.stack([scores[y, x, y + 3, x + 2] for y in range(4) for x in range(7)])
    torch.testing.assert_close(pairs, pairs[:1].expand_as(pairs), rtol=1e-6, atol=1e-6)
    assert (scores[0, 0, 3, 2] - scores[0, 0, 2, 3]).abs().max() > 1e-3


def test_axes_scale_on_their_own():
    rope = MixedRoPE(32, 2, 3)
    plain = rotation_of(rope, 8, 6).freqs
    scaled = rotation_of(rope, 8, 6, RopeScaling(GRID, 'linear')).freqs  # 8 = 2 x 4, 6 = 1 x 6
    assert torch.equal(scaled[0], plain[0]) and torch.equal(scaled[1], plain[1] / 2)


@pytest.mark.parametrize('kind', ['linear', 'by_parts'])
def test_learned_frequencies_get_their_gradient(kind: str):
    rope = MixedRoPE(8, 1, 2).double()
    scaling = RopeScaling(GRID, kind, factor=2.0, alpha=0.2, beta=0.6)
    factors = scaling.scale(torch.ones_like(rope.freqs) * 1e-9, height=9, width=9) / 1e-9
    assert torch.allclose(factors, torch.tensor(0.5, dtype=torch.float64))  # slow ones: 1 / s
    freqs = rope.freqs.detach()
    expected = scaling.scale(freqs, height=9, width=9) / freqs
    scaling.scale(rope.freqs, height=9, width=9).sum().backward()
    torch.testing.assert_close(rope.freqs.grad, expected)


# ---------------------------------------------------------------- against the formulas


def test_linear_is_the_angle_at_divided_positions():
    rope = ROPES['mixed']().double()
    scaled = rotation_of(rope, 12, 12, RopeScaling(GRID, 'linear', factor=(3.0, 2.0)))
    rows, columns = torch.meshgrid(torch.arange(12) / 3, torch.arange(12) / 2, indexing='ij')
    f_x, f_y = rope.freqs[:, 1]  # [h, P] each
    expected = f_x * columns.reshape(-1, 1, 1) + f_y * rows.reshape(-1, 1, 1)
    torch.testing.assert_close(scaled.angles(), expected)


@pytest.mark.parametrize('factor', [1.5, 4.0])
def test_ntk_is_a_larger_theta(factor: float):
    n = 8  # frequencies of an axis, for heads of 32 channels
    other = AxialRoPE(32, 2, 3, theta=100.0 * factor ** (n / (n - 1)))
    scaled = rotation_of(ROPES['axial'](), 5, 5, RopeScaling(GRID, 'ntk', factor=factor))
    torch.testing.assert_close(scaled.freqs, rotation_of(other, 5, 5).freqs)
    assert scaled.freqs[0, 0, 0] == 1.0  # the highest stays
    slowest = rotation_of(ROPES['axial'](), 5, 5).freqs[0, 0, n - 1]
    torch.testing.assert_close(scaled.freqs[0, 0, n - 1], slowest / factor)


def test_by_parts_follows_the_turns_of_each_frequency():
    turns = torch.tensor([0.0, 0.5, 1.0, 1.25, 1.75, 2.0, 7.0])
    freqs = torch.zeros(2, 1, 7)
    freqs[0] = turns * 2 * math.pi / GRID[1]  # radians per column
    scaled = RopeScaling(GRID, 'by_parts', factor=4.0).scale(freqs, height=99, width=99)
    expected = torch.tensor([1 / 4, 1 / 4, 1 / 4, 1 / 4 + 3 / 16, 1 / 4 + 9 / 16, 1.0, 1.0])
    torch.testing.assert_close(scaled[0, 0, 1:] / freqs[0, 0, 1:], expected[1:])
    assert not scaled[1].any()


def test_by_parts_keeps_the_direction_of_a_learned_vector():
    freqs = torch.randn(2, 3, 2, 16)
    scaled = RopeScaling(GRID, 'by_parts', factor=3.0).scale(freqs, height=9, width=9)
    torch.testing.assert_close(scaled[0] * freqs[1], scaled[1] * freqs[0])
    factors = (scaled / freqs).unique()
    assert factors.min() >= 1 / 3 - 1e-6 and factors.max() <= 1 and len(factors) > 2


def test_temperatures():
    log = RopeScaling(GRID, 'none', temperature='log')
    assert log.score_factor(height=8, width=12) == pytest.approx(math.log(96) / math.log(24))
    yarn = RopeScaling(GRID, 'linear', temperature='yarn')
    assert yarn.score_factor(height=8, width=12) == pytest.approx((0.1 * math.log(2) + 1) ** 2)
    for scaling in (log, yarn):
        assert scaling.score_factor(height=2, width=3) == 1.0


@pytest.mark.parametrize('window_blocks', [(), (0, 1)])
def test_the_temperature_reaches_the_scores(window_blocks: tuple[int, ...]):
    """A factor on the scores is one on the queries: their rows of the qkv projection."""
    settings = dict(arch=dict(embed_dims=32, depth=2, num_heads=2), img_size=64)
    windows = dict(with_cls_token=False, window_block_indexes=window_blocks, window_size=6)
    model = RoPEViT(**settings, **windows, rope_scaling=dict(type='none', temperature='log')).eval()
    randomise(model)
    plain = RoPEViT(**settings, **windows).eval()
    plain.load_state_dict(model.state_dict())
    image = torch.randn(1, 3, 96, 96)
    factor = math.log(36) / math.log(16)
    with torch.no_grad():
        before = plain(image)[0]
        for block in plain.blocks:
            block.attn.qkv.weight[:32] *= factor
            block.attn.qkv.bias[:32] *= factor
        assert relative_error(model(image)[0], plain(image)[0]) < 1e-6
        assert relative_error(model(image)[0], before) > 1e-3


# ---------------------------------------------------------------- in the backbones

SMALL_VIT = dict(
    type='RoPEViT',
    arch=dict(embed_dims=32, depth=3, num_heads=2),
    img_size=64,
    with_cls_token=False,
    window_size=4,
    window_block_indexes=(0, 1),
)
SMALL_SWIN = dict(
    type='RoPESwin',
    arch=dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2)),
    window_size=6,
    pretrain_window_size=4,
    out_indices=(0, 1),
)


def randomise(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.init.normal_(parameter.data, std=0.4)


def final_map(model: nn.Module, image: Tensor) -> Tensor:
    with torch.no_grad():
        return model.eval()(image)[-1]


@pytest.mark.parametrize('cfg', [SMALL_VIT, SMALL_SWIN], ids=['ViT', 'Swin'])
@pytest.mark.parametrize('name, kind', [(n, k) for n, k in FITTING if n != 'split'])
def test_backbones_scale_and_go_back(cfg: dict, name: str, kind: str):
    rope = dict(type='MixedRoPE')
    if name != 'mixed':
        rope = dict(type='AxialRoPE', learned=name == 'learned')
    model, image = MODELS.build(dict(cfg, rope=rope)), torch.randn(1, 3, 128, 96)
    randomise(model)
    plain = final_map(model, image)
    model.set_rope_scaling(dict(type=kind, temperature='log'))
    scaled = final_map(model, image)
    assert relative_error(scaled, plain) > 1e-3 and scaled.isfinite().all()
    built = MODELS.build(dict(cfg, rope=rope, rope_scaling=dict(type=kind, temperature='log')))
    built.load_state_dict(model.state_dict())
    assert torch.equal(final_map(built, image), scaled)
    model.set_rope_scaling(None)
    assert torch.equal(final_map(model, image), plain)


def test_windows_of_a_vit_have_no_fixed_factor():
    model = RoPEViT(**{k: v for k, v in SMALL_VIT.items() if k != 'type'})
    plain = model.rotations((8, 8), (4, 4), CPU)
    model.set_rope_scaling(dict(type='linear', factor=2.0))
    scaled = model.rotations((8, 8), (4, 4), CPU)
    assert torch.equal(scaled[0].freqs, plain[0].freqs)
    assert torch.equal(scaled[2].freqs, plain[2].freqs / 2)
    wider = model.rotations((8, 8), (4, 6), CPU)[0]
    torch.testing.assert_close(wider.freqs[0], plain[0].freqs[0] / 1.5)


@pytest.mark.parametrize(
    'settings, says',
    [
        (dict(type='yarn'), "type must be one of .*'by_parts'.* got 'yarn'"),
        (dict(type='linear', factor=0), 'factor must be a positive number.* got 0'),
        (dict(type='linear', factor=-2.0), 'got -2.0'),
        (dict(type='linear', factor=(2, 0)), r'got \(2, 0\)'),
        (dict(type='linear', factor=(2, 2, 2)), r'got \(2, 2, 2\)'),
        (dict(type='by_parts', alpha=2.0, beta=2.0), 'alpha < beta.*alpha=2.0, beta=2.0'),
        (dict(type='linear', temperature='hot'), "temperature must be one of.* got 'hot'"),
        (dict(type='linear', base=3), r"rope_scaling has \['base'\], allowed are"),
        (dict(factor=2.0), 'rope_scaling needs a type'),
        (dict(type='ntk'), "'ntk' changes the theta .*MixedRoPE.*'linear' or 'by_parts'"),
    ],
)
@pytest.mark.parametrize('cls', [RoPEViT, RoPESwin])
def test_bad_settings_are_named(cls: type[nn.Module], settings: dict, says: str):
    with pytest.raises(ValueError, match=f'(?s)rope_scaling.*{says}|{says}'):
        cls(rope_scaling=settings)


def test_scaling_needs_an_embedding_and_ntk_a_fixed_one():
    with pytest.raises(ValueError, match='rope_scaling needs a rotary embedding'):
        RoPEViT('tiny', rope=None, rope_scaling=dict(type='linear'))
    with pytest.raises(ValueError, match='AxialRoPE here does not have'):
        RoPEViT('tiny', rope=dict(type='AxialRoPE', learned=True), rope_scaling=dict(type='ntk'))
