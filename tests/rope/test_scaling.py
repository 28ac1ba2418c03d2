"""Scaling to grids that the weights were not trained on."""

import math

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.reference import relative_error
from rope_dense.backbones import RoPEViT
from rope_dense.rope import (
    AxialRoPE,
    GridRoPE,
    MixedRoPE,
    RopeScaling,
    Rotary,
    RotaryEmbedding,
    rotate,
)

CPU = torch.device('cpu')
GRID = (4, 6)  # of pre-training: height, width
ROPES = {
    'axial': lambda: AxialRoPE(32, 2),
    'learned': lambda: AxialRoPE(32, 2, learned=True),
    'mixed': lambda: MixedRoPE(32, 2),
    'half': lambda: MixedRoPE(32, 2, pair_layout='half'),
}
TYPES = ('none', 'linear', 'by_parts', 'ntk')
FITTING = [
    (name, kind) for name in ROPES for kind in TYPES if kind != 'ntk' or name == 'axial'
]


def rotary_of(
    rope: GridRoPE,
    height: int,
    width: int,
    scaling: RopeScaling | None = None,
    dtype: torch.dtype = torch.float32,
) -> Rotary:
    rope.set_scaling(scaling)
    return rope(torch.empty(1, height * width, 64, dtype=dtype), (height, width))


def scaled_frequencies(
    rope: GridRoPE, scaling: RopeScaling, height: int, width: int
) -> Tensor:
    return scaling.scale(rope.frequencies(CPU), height, width)


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize('name, kind', FITTING)
@pytest.mark.parametrize('temperature', [None, 'log', 'yarn'])
def test_scaling_by_one_changes_no_bit(name: str, kind: str, temperature: str | None):
    rope = ROPES[name]()
    plain = rotary_of(rope, 3, 6)
    for scaling in (
        RopeScaling(
            GRID, kind, temperature=temperature
        ),  # dynamic, on a grid that is no larger
        RopeScaling(GRID, kind, factor=1.0, temperature=temperature),
        RopeScaling(GRID, kind, factor=(1, 1), temperature=temperature),
    ):
        scaled = rotary_of(rope, 3, 6, scaling)
        assert torch.equal(scaled.angles, plain.angles)
        assert torch.equal(scaled.cos_sin, plain.cos_sin)
        assert scaled.attention_scale == 1.0


@pytest.mark.parametrize('name, kind', FITTING)
def test_scores_depend_on_offsets_only(name: str, kind: str):
    height, width = 7, 9
    rotary = rotary_of(
        ROPES[name](), height, width, RopeScaling(GRID, kind, (2, 1.5)), torch.float64
    )
    qkv = torch.randn(1, 1, 3, 2, 32, dtype=torch.float64).expand(
        1, height * width, -1, -1, -1
    )
    q, k, _ = (part[0].unflatten(1, (height, width)) for part in rotate(qkv, rotary))
    scores = torch.einsum('hyxd,hjid->yxjih', q, k)
    # The score of (row, column) and (row + 3, column + 2) is the same wherever the pair is.
    pairs = torch.stack(
        [scores[y, x, y + 3, x + 2] for y in range(4) for x in range(7)]
    )
    torch.testing.assert_close(
        pairs, pairs[:1].expand_as(pairs), rtol=1e-12, atol=1e-12
    )
    assert (scores[0, 0, 3, 2] - scores[0, 0, 2, 3]).abs().max() > 1e-3


def test_axes_scale_on_their_own():
    rope = MixedRoPE(32, 2)
    scaled = scaled_frequencies(
        rope, RopeScaling(GRID, 'linear'), 8, 6
    )  # 8 = 2 x 4, 6 = 1 x 6
    assert torch.equal(scaled[0], rope.freqs[0]) and torch.equal(
        scaled[1], rope.freqs[1] / 2
    )


@pytest.mark.parametrize('kind', ['linear', 'by_parts'])
def test_learned_frequencies_get_their_gradient(kind: str):
    rope = MixedRoPE(8, 1).double()
    scaling = RopeScaling(GRID, kind, factor=2.0, alpha=0.2, beta=0.6)
    factors = (
        scaling.scale(torch.ones_like(rope.freqs) * 1e-9, height=9, width=9) / 1e-9
    )
    assert torch.allclose(
        factors, torch.tensor(0.5, dtype=torch.float64)
    )  # slow ones: 1 / s
    freqs = rope.freqs.detach()
    expected = scaling.scale(freqs, height=9, width=9) / freqs
    scaling.scale(rope.freqs, height=9, width=9).sum().backward()
    torch.testing.assert_close(rope.freqs.grad, expected)
    rotary_of(rope, 9, 9, scaling, torch.float64).angles.sum().backward()
    positions = 9 * 9 * 4.0  # the sum of all columns, or rows
    torch.testing.assert_close(rope.freqs.grad, expected * (1 + positions))


@pytest.mark.parametrize('kind', TYPES)
def test_windows_are_scaled_by_their_own_size(kind: str):
    rope = ROPES['axial']()
    scaling = RopeScaling(GRID, kind, temperature='log')
    of_window = rotary_of(rope, 8, 9, scaling)
    in_windows = rope(torch.empty(1, 40 * 50, 64), (40, 50), (8, 9))
    assert torch.equal(in_windows.angles, of_window.angles)
    assert in_windows.attention_scale == of_window.attention_scale > 1


# ---------------------------------------------------------------- against the formulas


def test_linear_is_the_angle_at_divided_positions():
    rope = ROPES['mixed']().double()
    scaling = RopeScaling(GRID, 'linear', factor=(3.0, 2.0))
    scaled = rotary_of(rope, 12, 12, scaling, torch.float64)
    rows, columns = torch.meshgrid(
        torch.arange(12) / 3, torch.arange(12) / 2, indexing='ij'
    )
    f_x, f_y = rope.freqs  # [h, P] each
    expected = f_x * columns.reshape(-1, 1, 1) + f_y * rows.reshape(-1, 1, 1)
    torch.testing.assert_close(scaled.angles, expected)


@pytest.mark.parametrize('factor', [1.5, 4.0])
def test_ntk_is_a_larger_theta(factor: float):
    n = 8  # frequencies of an axis, for heads of 32 channels
    other = AxialRoPE(32, 2, theta=100.0 * factor ** (n / (n - 1)))
    rope, scaling = ROPES['axial'](), RopeScaling(GRID, 'ntk', factor=factor)
    scaled, plain = scaled_frequencies(rope, scaling, 5, 5), rope.frequencies(CPU)
    torch.testing.assert_close(scaled, other.frequencies(CPU))
    assert scaled[0, 0, 0] == 1.0  # the highest stays
    torch.testing.assert_close(scaled[0, 0, n - 1], plain[0, 0, n - 1] / factor)
    angles = rotary_of(rope, 5, 5, scaling).angles
    torch.testing.assert_close(angles, rotary_of(other, 5, 5).angles)


def test_by_parts_follows_the_periods_of_each_frequency():
    periods = torch.tensor([0.0, 0.5, 1.0, 1.25, 1.75, 2.0, 7.0])
    freqs = torch.zeros(2, 1, 7)
    freqs[0] = periods * 2 * math.pi / GRID[1]  # radians per column
    scaled = RopeScaling(GRID, 'by_parts', factor=4.0).scale(freqs, height=99, width=99)
    expected = torch.tensor(
        [1 / 4, 1 / 4, 1 / 4, 1 / 4 + 3 / 16, 1 / 4 + 9 / 16, 1.0, 1.0]
    )
    torch.testing.assert_close(scaled[0, 0, 1:] / freqs[0, 0, 1:], expected[1:])
    assert not scaled[1].any()


def test_by_parts_with_an_ntk_part():
    """Linear, then as type ntk, then unchanged: by the periods on a grid of 12 rows and columns."""
    rope = AxialRoPE(32, 2)
    plain = rope.frequencies(CPU)[0, 0, :8]
    periods = 12 * plain / (2 * math.pi)
    parts = RopeScaling((12, 12), 'by_parts', 3.0, 1.0, 1.5, ntk=(0.2, 0.5))
    factors = scaled_frequencies(rope, parts, 9, 9)[0, 0, :8] / plain
    for period, factor, k in zip(
        periods.tolist(), factors.tolist(), range(8), strict=True
    ):
        ntk = 3 ** (-k / 7)
        share, kept = (period - 0.2) / 0.3, (period - 1) / 0.5
        share, kept = min(max(share, 0), 1), min(max(kept, 0), 1)
        low = (1 - share) / 3 + share * ntk
        assert factor == pytest.approx(kept + (1 - kept) * low, rel=1e-5)
    assert factors[0] == 1 and factors[-1] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match=r"'ntk' changes the theta .*MixedRoPE"):
        MixedRoPE(32, 2).set_scaling(parts)


def test_by_parts_keeps_the_direction_of_a_learned_vector():
    freqs = torch.randn(2, 3, 2, 16)
    scaled = RopeScaling(GRID, 'by_parts', factor=3.0).scale(freqs, height=9, width=9)
    torch.testing.assert_close(scaled[0] * freqs[1], scaled[1] * freqs[0])
    factors = (scaled / freqs).unique()
    assert factors.min() >= 1 / 3 - 1e-6 and factors.max() <= 1 and len(factors) > 2


def test_temperatures():
    log = RopeScaling(GRID, 'none', temperature='log')
    assert log.attention_scale(height=8, width=12) == pytest.approx(
        math.log(96) / math.log(24)
    )
    yarn = RopeScaling(GRID, 'linear', temperature='yarn')
    assert yarn.attention_scale(height=8, width=12) == pytest.approx(
        (0.1 * math.log(2) + 1) ** 2
    )
    for scaling in (log, yarn):
        assert scaling.attention_scale(height=2, width=3) == 1.0


@pytest.mark.parametrize('window_blocks', [(), (0, 1)])
def test_the_temperature_reaches_the_scores(window_blocks: tuple[int, ...]):
    """A factor on the scores is one on the queries: their rows of the qkv projection."""
    settings = dict(arch=dict(embed_dims=32, depth=2, num_heads=2), img_size=64)
    windows = dict(
        with_cls_token=False, window_block_indexes=window_blocks, window_size=6
    )
    model = RoPEViT(
        **settings, **windows, rope_scaling=dict(type='none', temperature='log')
    ).eval()
    randomise(model)
    plain = RoPEViT(**settings, **windows).eval()
    plain.load_state_dict(model.state_dict())
    image = torch.randn(1, 3, 96, 96)
    factor = math.log(36) / math.log(
        16
    )  # of windows as of the image, 6 x 6 patches for 4 x 4
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
@pytest.mark.parametrize('name, kind', [(n, k) for n, k in FITTING if n != 'half'])
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
    built = MODELS.build(
        dict(cfg, rope=rope, rope_scaling=dict(type=kind, temperature='log'))
    )
    built.load_state_dict(model.state_dict())
    assert torch.equal(final_map(built, image), scaled)
    model.set_rope_scaling(None)
    assert torch.equal(final_map(model, image), plain)


def test_windows_of_a_vit_have_no_fixed_factor():
    model = MODELS.build(SMALL_VIT)
    x = torch.empty(1, 64, 32)

    def angles(block: int, window_size: tuple[int, int] | None) -> Tensor:
        return model.blocks[block].attn.rope(x, (8, 8), window_size).angles

    plain, plain_global = angles(0, (4, 4)), angles(2, None)
    model.set_rope_scaling(dict(type='linear', factor=2.0))
    assert torch.equal(angles(0, (4, 4)), plain)
    torch.testing.assert_close(angles(2, None), plain_global / 2)
    freqs = model.blocks[0].attn.rope.freqs[0]  # of x
    wider = angles(0, (4, 6)).unflatten(
        0, (4, 6)
    )  # 1.5 times the width of pre-training
    torch.testing.assert_close(wider[0, 3], freqs * 3 / 1.5)


def test_a_grid_that_is_given_replaces_the_one_of_pre_training():
    """S3: weights that were fine-tuned without a scaling refer to its grid; windows do not."""
    model = MODELS.build(dict(SMALL_VIT, rope_scaling=dict(type='none', grid=(8, 6))))
    x = torch.empty(1, 64, 32)

    def angles(
        block: int, grid: tuple[int, int], window: tuple[int, int] | None = None
    ) -> Tensor:
        return model.blocks[block].attn.rope(x, grid, window).angles

    plain, larger, window = (
        angles(2, (8, 6)),
        angles(2, (16, 6)),
        angles(0, (8, 6), (4, 8)),
    )
    model.set_rope_scaling(dict(type='linear', grid=(8, 6)))
    assert torch.equal(angles(2, (8, 6)), plain)
    freqs = model.blocks[2].attn.rope.freqs  # [2, h, P]
    torch.testing.assert_close(angles(2, (16, 6))[-1], freqs[0] * 5 + freqs[1] * 15 / 2)
    assert not torch.allclose(angles(2, (16, 6)), larger)
    freqs = model.blocks[0].attn.rope.freqs
    torch.testing.assert_close(
        angles(0, (8, 6), (4, 8))[7], freqs[0] * 7 / 2
    )  # twice 4 columns
    torch.testing.assert_close(window[7], freqs[0] * 7)


def test_windows_of_swin_have_the_factor_that_is_given():
    model = MODELS.build(SMALL_SWIN)
    ropes = [block.attn.rope for block in model.ordered_blocks]
    model.set_rope_scaling(dict(type='linear', factor=3.0))
    assert [rope.scaling.factors(6, 6) for rope in ropes] == [(3.0, 3.0)] * 4
    model.set_rope_scaling(dict(type='linear'))
    assert [rope.scaling.factors(6, 2) for rope in ropes] == [(1.5, 1.0)] * 4


def test_a_setting_that_is_refused_leaves_the_last():
    model = MODELS.build(SMALL_VIT)
    model.set_rope_scaling(dict(type='linear', factor=2.0))
    image = torch.randn(1, 3, 128, 96)
    before = final_map(model, image)
    for refused in (dict(type='ntk'), dict(type='linear', factor=0)):
        with pytest.raises(ValueError, match='rope_scaling'):
            model.set_rope_scaling(refused)
        assert torch.equal(final_map(model, image), before)
        assert model.rope_scaling == dict(type='linear', factor=2.0)


@pytest.mark.parametrize(
    'settings, says',
    [
        (dict(type='yarn'), "type must be one of .*'by_parts'.* got 'yarn'"),
        (
            dict(type='linear', factor=0),
            'factor must be a finite number, more than 0, got 0',
        ),
        (dict(type='linear', factor=-2.0), 'got -2.0'),
        (dict(type='linear', factor=(2, 0)), 'factor must be .* got 0'),
        (dict(type='linear', factor='2'), "factor must be .* got '2'"),
        (dict(type='linear', factor=float('nan')), 'factor must be .* got nan'),
        (dict(type='linear', factor=(2, 2, 2)), r'got \(2, 2, 2\)'),
        (
            dict(type='by_parts', alpha=2.0, beta=2.0),
            'beta must be .*more than 2.0, got 2.0',
        ),
        (
            dict(type='linear', ntk=(1, 2)),
            "ntk must be two periods, of type 'by_parts'",
        ),
        (dict(type='by_parts', ntk=(2, 1)), 'ntk must be .*more than 2, got 1'),
        (dict(type='by_parts', alpha=-1.0), 'alpha must be .*0 or more, got -1.0'),
        (
            dict(type='linear', temperature='hot'),
            "temperature must be one of.* got 'hot'",
        ),
        (dict(type='linear', base=3), r"rope_scaling has \['base'\], allowed are"),
        (dict(type='linear', grid=0), 'rope_scaling: grid must be .* got 0'),
        (dict(factor=2.0), 'rope_scaling needs a type'),
        ('linear', "rope_scaling must be a dict or None, got 'linear'"),
        (
            dict(type='ntk'),
            "'ntk' changes the theta .*MixedRoPE.*'linear' or 'by_parts'",
        ),
    ],
)
@pytest.mark.parametrize('cfg', [SMALL_VIT, SMALL_SWIN], ids=['ViT', 'Swin'])
def test_bad_settings_are_named(cfg: dict, settings: object, says: str):
    with pytest.raises(ValueError, match=f'(?s)rope_scaling.*{says}|{says}'):
        MODELS.build(dict(cfg, rope_scaling=settings))


def test_scaling_needs_an_embedding_and_ntk_a_fixed_one():
    RoPEViT(
        'tiny', rope=None, rope_scaling=dict(type='none', grid=(50, 83))
    )  # of its recipe
    with pytest.raises(ValueError, match='rope_scaling needs a rotary embedding'):
        RoPEViT('tiny', rope=None, rope_scaling=dict(type='linear'))
    with pytest.raises(ValueError, match='AxialRoPE here does not have'):
        RoPEViT(
            'tiny',
            rope=dict(type='AxialRoPE', learned=True),
            rope_scaling=dict(type='ntk'),
        )


def test_an_embedding_that_cannot_be_scaled_says_so():
    class OfContent(RotaryEmbedding):
        def forward(
            self,
            x: Tensor,
            grid: tuple[int, int],
            window_size: tuple[int, int] | None = None,
        ) -> Rotary:
            return Rotary(x.unflatten(-1, (self.num_heads, -1)))

    rope = OfContent(8, 2)
    rope.set_scaling(None)
    with pytest.raises(
        ValueError, match='rope_scaling must be None: OfContent cannot be scaled'
    ):
        rope.set_scaling(RopeScaling(GRID, 'linear'))


@pytest.mark.parametrize('grid', [0, (4, 0), '4', (4, 6, 8)])
def test_a_bad_grid_is_named(grid: object):
    with pytest.raises(ValueError, match='rope_scaling: grid must be'):
        RopeScaling(grid, 'linear')
