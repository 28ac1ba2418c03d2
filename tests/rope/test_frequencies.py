"""The angles of rotary embeddings, against published formulas and timm."""

import copy
import math
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from rope_dense.rope import (
    AxialRoPE,
    GridRoPE,
    MixedRoPE,
    OffsetAxialRoPE,
    RopeScaling,
    RotaryEmbedding,
)
from rope_dense.rope.embeddings import linear_angles
from rope_dense.rope.frequencies import axis_frequencies

CPU = torch.device('cpu')
DINOV3 = dict(series='periods', axes='yx', pair_layout='half')


def angles_of(
    rope: RotaryEmbedding, height: int, width: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """[N, h or 1, P]."""
    return rope(torch.empty(1, height * width, 1, dtype=dtype), (height, width)).angles


def grid_positions(height: int, width: int) -> list[tuple[int, int]]:
    """(x, y) of each token."""
    return [(column, row) for row in range(height) for column in range(width)]


# ---------------------------------------------------------------- the formulas


def test_axial_frequencies_are_the_published_series():
    x, y = freqs = AxialRoPE(64, 12, theta=100.0).frequencies(CPU)  # [1, 32] each
    assert freqs.shape == (2, 1, 32)
    expected = torch.tensor([100 ** (-4 * k / 64) for k in range(16)])
    torch.testing.assert_close(x[0, :16], expected)
    torch.testing.assert_close(y[0, 16:], expected)
    assert not x[0, 16:].any() and not y[0, :16].any()
    assert x[0, 0] == 1 and x[0, 15] == pytest.approx(0.0133, abs=1e-4)


def test_swin_axial_ends_at_the_published_frequency():
    x, _ = AxialRoPE(32, 3, theta=50.0).frequencies(CPU)
    assert x[0, 7] == pytest.approx(0.0326, abs=1e-4)


def test_series_of_an_axis():
    periods = 2 * math.pi / axis_frequencies(16, 100.0, 'periods')
    torch.testing.assert_close(periods, torch.tensor([1.0, 100**0.25, 10.0, 100**0.75]))


def test_the_order_of_the_axes_exchanges_the_halves():
    xy, yx = (AxialRoPE(16, 2, axes=axes).frequencies(CPU) for axes in ('xy', 'yx'))
    assert torch.equal(xy.roll(4, -1), yx)


def test_mixed_starts_with_orthogonal_halves_of_axial_length():
    freqs = MixedRoPE(64, 12, theta=10.0).freqs
    assert freqs.shape == (2, 12, 32)
    expected = torch.tensor([10 ** (-4 * k / 64) for k in range(16)])
    torch.testing.assert_close(freqs.norm(dim=0), expected.repeat(2).expand(12, 32))
    first, second = freqs.chunk(2, -1)
    torch.testing.assert_close(
        (first * second).sum(0), torch.zeros(12, 16), atol=1e-6, rtol=0
    )
    directions = torch.atan2(first[1, :, 0], first[0, :, 0])
    assert len(directions.unique()) == 12  # of each head
    assert not torch.equal(MixedRoPE(64, 12, theta=10.0).freqs, freqs)  # and each block


@pytest.mark.parametrize('settings', [dict(), DINOV3])
def test_learned_axial_starts_as_axial_and_every_frequency_learns(settings: dict):
    fixed, learned = (
        AxialRoPE(16, 2, learned=learned, **settings) for learned in (False, True)
    )
    angles = angles_of(learned, 3, 5)
    torch.testing.assert_close(angles, angles_of(fixed, 3, 5).expand(-1, 2, -1))
    angles.square().sum().backward()
    assert learned.freqs.shape == (2, 2, 4) and (learned.freqs.grad != 0).all()


def test_axial_has_no_state():
    assert not AxialRoPE(64, 12).state_dict()


@pytest.mark.parametrize(
    'rope', [MixedRoPE(16, 2), AxialRoPE(16, 2), AxialRoPE(16, 2, axes='yx')]
)
def test_angles_are_the_sum_of_both_axes(rope: GridRoPE):
    f_x, f_y = rope.frequencies(CPU).double()
    expected = torch.stack([f_x * x + f_y * y for x, y in grid_positions(3, 5)])
    torch.testing.assert_close(angles_of(rope, 3, 5, torch.float64), expected)


def test_positions_of_any_tokens_have_linear_angles():
    rope = MixedRoPE(8, 2)
    positions = torch.tensor(grid_positions(4, 5), dtype=torch.float32)
    some = torch.stack([torch.randperm(20)[:7] for _ in range(3)])  # [B, n]
    angles = linear_angles(positions[some], rope.freqs)
    assert angles.shape == (3, 7, 2, 4)
    torch.testing.assert_close(angles, angles_of(rope, 4, 5)[some])


def test_windows_have_the_angles_of_one_window():
    for rope in (
        MixedRoPE(8, 2),
        AxialRoPE(8, 2),
        MixedRoPE(8, 2, coordinates=dict(reference=9)),
    ):
        in_windows = rope(torch.empty(1, 40, 16), (5, 8), (2, 3))
        assert torch.equal(in_windows.angles, angles_of(rope, 2, 3))


def test_angles_are_in_the_precision_of_the_input_and_float32_at_least():
    for settings in (
        dict(reference=8),
        dict(type='centres', rescale=2.0),
        dict(type='corners'),
    ):
        rope = MixedRoPE(8, 2, coordinates=settings)
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            assert angles_of(rope, 2, 3, dtype).dtype == torch.float32
        assert angles_of(rope, 2, 3, torch.float64).dtype == torch.float64
        assert angles_of(rope.half(), 2, 3, torch.float16).dtype == torch.float32


LEARNED = [MixedRoPE(16, 2), AxialRoPE(16, 2, learned=True)]


def test_an_offset_is_subtracted_from_all_angles_whatever_the_scaling():
    """And stays in float32 in a model in half precision."""
    plain, rope = AxialRoPE(16, 2), OffsetAxialRoPE(16, 2)
    offset = nn.init.normal_(rope.angle_offset).detach().clone()
    for scaling in (
        None,
        RopeScaling((2, 3), 'linear'),
        RopeScaling((2, 3), 'by_parts'),
    ):
        plain.set_scaling(scaling), rope.set_scaling(scaling)
        for size in ((4, 9), (1, 5)):
            expected = angles_of(plain, *size) - offset
            assert torch.equal(angles_of(rope, *size), expected)
        window = rope(torch.empty(1, 40, 16), (5, 8), (2, 3)).angles
        assert torch.equal(window, angles_of(plain, 2, 3) - offset)
    angles_of(rope, 4, 9).sum().backward()
    assert torch.equal(rope.angle_offset.grad, torch.full((1, 8), -36.0))
    assert torch.equal(rope.half().angle_offset, offset)


@pytest.mark.parametrize('rope', LEARNED, ids=lambda rope: type(rope).__name__)
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_learned_frequencies_stay_in_float32_in_a_model_in_half(
    rope: RotaryEmbedding, dtype: torch.dtype
):
    """At the 63rd patch, rounded frequencies would give other angles."""
    rope = copy.deepcopy(rope)
    expected, param = angles_of(rope, 1, 64), rope.freqs
    rounded = copy.deepcopy(rope)
    rounded.freqs.data = param.data.to(dtype)
    assert (angles_of(rounded, 1, 64) - expected)[62].abs().max() > 1e-3
    model = nn.Sequential(nn.Linear(2, 2), rope)
    for cast in (
        model.to,
        lambda dtype: model.half() if dtype == torch.float16 else model.bfloat16(),
    ):
        cast(dtype)
        assert (model[0].weight.dtype, rope.freqs.dtype) == (dtype, torch.float32)
        assert rope.freqs is param and torch.equal(
            angles_of(rope, 1, 64, dtype), expected
        )
    model.to('meta', dtype)
    assert rope.freqs.is_meta and rope.freqs.dtype == torch.float32
    assert model.double()[1].freqs.dtype == torch.float64


# ---------------------------------------------------------------- timm's modules


@pytest.mark.parametrize('height, width', [(4, 4), (3, 7)])
def test_mixed_angles_equal_timm(timm: ModuleType, height: int, width: int):
    from timm.layers.pos_embed_sincos import RotaryEmbeddingMixed

    theirs = RotaryEmbeddingMixed(
        dim=48, depth=2, num_heads=3, temperature=10.0, feat_shape=None
    )
    ours = MixedRoPE(16, 3)
    ours.freqs.data.copy_(theirs.freqs[:, 1].view_as(ours.freqs))
    sin, cos = theirs.get_embed((height, width))[1].chunk(
        2, -1
    )  # [h, N, D], pairs repeated
    angles = angles_of(ours, height, width)
    torch.testing.assert_close(
        angles.sin(), sin[..., ::2].transpose(0, 1), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        angles.cos(), cos[..., ::2].transpose(0, 1), atol=1e-5, rtol=0
    )


# Ours, timm's class and its arguments: EVA-02, Perception Encoder, RoPE-ViT, pixel bands, DINOv3.
PUBLISHED = [
    (
        dict(theta=1e4, axes='yx', coordinates=dict(reference=16)),
        'RotaryEmbeddingCat',
        dict(in_pixels=False, temperature=1e4, ref_feat_shape=(16, 16)),
    ),
    (
        dict(theta=1e4, coordinates=dict(offset=1.0, reference=(14, 12))),
        'RotaryEmbeddingCat',
        dict(
            in_pixels=False,
            temperature=1e4,
            ref_feat_shape=(14, 12),
            grid_offset=1.0,
            grid_indexing='xy',
        ),
    ),
    (
        dict(),
        'RotaryEmbeddingCat',
        dict(in_pixels=False, temperature=100.0, grid_indexing='xy'),
    ),
    *(
        (
            dict(DINOV3, coordinates=dict(type='centres', normalize=normalize)),
            'RotaryEmbeddingDinoV3',
            dict(normalize_coords=normalize),
        )
        for normalize in ('separate', 'min', 'max')
    ),
]


@pytest.mark.parametrize('height, width', [(4, 4), (16, 16), (3, 7), (33, 20)])
@pytest.mark.parametrize('ours, name, theirs', PUBLISHED)
def test_fixed_angles_equal_timm(
    timm: ModuleType, ours: dict, name: str, theirs: dict, height: int, width: int
):
    from timm.layers import pos_embed_sincos

    module = getattr(pos_embed_sincos, name)(dim=16, feat_shape=None, **theirs)
    rope = AxialRoPE(16, 2, **ours)
    angles = angles_of(rope, height, width)[:, 0]  # [N, P]
    sin, cos = module.get_embed([height, width]).chunk(2, -1)  # [N, D], pairs repeated
    pairs = slice(None, 8) if rope.pair_layout == 'half' else slice(None, None, 2)
    torch.testing.assert_close(angles.sin(), sin[:, pairs], atol=1e-5, rtol=0)
    torch.testing.assert_close(angles.cos(), cos[:, pairs], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    'theirs, ours',
    [
        (dict(rescale_coords=2.0), dict(rescale=2.0)),
        (dict(jitter_coords=1.5), dict(jitter=1.5)),
        (dict(shift_coords=0.3), dict(shift=0.3)),
        (
            dict(shift_coords=0.3, jitter_coords=1.5, rescale_coords=2.0),
            dict(shift=0.3, jitter=1.5, rescale=2.0),
        ),
    ],
)
def test_augmented_angles_equal_timm_with_the_same_seed(
    timm: ModuleType, theirs: dict, ours: dict
):
    from timm.layers.pos_embed_sincos import RotaryEmbeddingDinoV3

    module = RotaryEmbeddingDinoV3(dim=16, **theirs)
    rope = AxialRoPE(16, 2, coordinates=dict(type='centres', **ours), **DINOV3)
    torch.manual_seed(1)
    sin = module.get_embed([3, 5])[:, :8]
    torch.manual_seed(1)
    angles = angles_of(rope, 3, 5)[:, 0]
    torch.testing.assert_close(angles.sin(), sin, atol=1e-5, rtol=0)


def test_augmentation_is_drawn_in_training_only():
    settings = dict(type='centres', shift=0.5, jitter=1.5, rescale=2.0)
    rope = AxialRoPE(8, 2, coordinates=settings)
    plain = angles_of(AxialRoPE(8, 2, coordinates=dict(type='centres')), 3, 4)
    first, second = angles_of(rope, 3, 4), angles_of(rope, 3, 4)
    assert not torch.equal(first, second) and not torch.equal(first, plain)
    assert torch.equal(angles_of(rope.eval(), 3, 4), plain)


@pytest.mark.parametrize('settings', [dict(reference=4), dict(type='centres')])
def test_normalized_coordinates_depend_on_its_size(settings: dict):
    """Scores depend on the offset of two tokens, and then on the size of the grid as well."""

    def offset(
        settings: dict, size: int, query: tuple[int, int], key: tuple[int, int]
    ) -> Tensor:
        """Difference of the angles of two tokens, each at a (row, column) of a square grid."""
        rope = AxialRoPE(8, 1, theta=10.0, coordinates=settings)
        angles = angles_of(rope, size, size, torch.float64).unflatten(0, (size, size))
        return angles[key] - angles[query]

    for coordinates in (settings, dict()):
        near = offset(coordinates, 6, (0, 1), (2, 0))
        torch.testing.assert_close(offset(coordinates, 6, (3, 5), (5, 4)), near)
        torch.testing.assert_close(offset(coordinates, 6, (2, 0), (0, 1)), -near)
    torch.testing.assert_close(offset(dict(), 9, (4, 4), (6, 3)), near)
    other = offset(settings, 9, (4, 4), (6, 3)) - offset(settings, 6, (0, 1), (2, 0))
    assert other.abs().max() > 1e-2


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(head_dim=6), 'head_dim must be a multiple of 4.*got 6'),
        (dict(head_dim=0), 'head_dim must be an integer from 1 up, got 0'),
        (dict(num_heads=0), 'num_heads must be an integer from 1 up, got 0'),
        (dict(theta=0.0), 'theta must be a finite number, more than 0, got 0.0'),
        (dict(theta=float('nan')), 'theta must be .* got nan'),
        (dict(theta='10'), "theta must be .* got '10'"),
        (
            dict(pair_layout='halves'),
            r"pair_layout must be one of \('interleaved', 'half'\), got",
        ),
        (dict(pair_layout='split'), "pair_layout must be one of .* got 'split'"),
    ],
)
@pytest.mark.parametrize('cls', [AxialRoPE, MixedRoPE])
def test_bad_arguments_are_named(cls: type, arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        cls(**{'head_dim': 8, 'num_heads': 2, **arguments})


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(series='pixels'), "series must be one of.*got 'pixels'"),
        (dict(axes='ij'), "axes must be one of.*got 'ij'"),
        (dict(learned=1), r'learned must be one of \(True, False\), got 1'),
    ],
)
def test_bad_arguments_of_axial_are_named(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        AxialRoPE(8, 2, **arguments)
