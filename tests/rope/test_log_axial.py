"""The embeddings of the fused-attention paper, its Table 1, against formulas written out."""

import math

import pytest
import torch
from torch import Tensor

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.rope import AxialRoPE, GridRoPE, LogAxialRoPE, Rotary, rotate_definition

CPU = torch.device('cpu')
MAP = dict(type='centres', normalize='max', windows='map')
TWO_D = dict(axes='yx', pair_layout='half')  # "2D RoPE" of the paper
K_ROPES = (1, 2, 4, 8, 16)


def rotary_of(
    rope: GridRoPE, grid: tuple[int, int], window: tuple[int, int] | None = None
):
    """The angles of a grid in float64, [N, h or 1, P]."""
    return rope(torch.empty(1, grid[0] * grid[1], 1, dtype=torch.float64), grid, window)


def k_diffusion_angles(
    head_dim: int, num_heads: int, height: int, width: int
) -> Tensor:
    """[H W, h, D / 2]: angles of HDiT for heads with ``head_dim`` rotated channels.

    The heads deal out N = h D / 4 frequencies from pi to 10 pi, one after the other. Positions are
    the centres of the cells of a box that touches [-1, 1] with its longer side. Rows come first.
    """
    number = num_heads * head_dim // 4
    step = (math.log(10 * math.pi) - math.log(math.pi)) / number
    longer = max(height, width)
    angles = torch.zeros(height * width, num_heads, head_dim // 2, dtype=torch.float64)
    for row in range(height):
        y = (2 * row + 1 - height) / longer
        for column in range(width):
            x = (2 * column + 1 - width) / longer
            for head in range(num_heads):
                for index in range(head_dim // 4):
                    frequency = math.exp(
                        math.log(math.pi) + step * (index * num_heads + head)
                    )
                    token = angles[row * width + column, head]
                    token[index] = frequency * y
                    token[head_dim // 4 + index] = frequency * x
    return angles


# ---------------------------------------------------------------- the formulas


@pytest.mark.parametrize('k_rope', [1, 2, 4])
@pytest.mark.parametrize('grid', [(4, 4), (3, 7), (5, 2), (1, 1)])
def test_angles_are_those_of_k_diffusion(grid: tuple[int, int], k_rope: int):
    """Up to where the origin is: attention sees differences only."""
    expected = k_diffusion_angles(32 // k_rope, 3, *grid)
    actual = rotary_of(LogAxialRoPE(32, 3, k_rope), grid)
    assert actual.angles.shape == expected.shape and actual.pair_layout == 'half'
    tolerance = dict(atol=1e-5, rtol=0)  # frequencies are float32
    torch.testing.assert_close(
        actual.angles - actual.angles[:1], expected - expected[:1], **tolerance
    )
    if grid[0] == grid[1]:
        torch.testing.assert_close(actual.angles, expected, **tolerance)


def test_shared_angles_are_one_series_for_all_heads():
    x, y = LogAxialRoPE(64, 6, k_rope=4, shared=True).frequencies(CPU)
    series = [math.pi * 10 ** (j / 4) for j in range(4)]
    torch.testing.assert_close(y, torch.tensor([[*series, 0, 0, 0, 0]]))
    torch.testing.assert_close(x, torch.tensor([[0, 0, 0, 0, *series]]))


def test_the_formula_as_printed():
    """Equation 5: 10 ** (j / d) with j up to d / 4."""
    rope = LogAxialRoPE(64, 6, k_rope=1, shared=True, low=1.0, high=10**0.25)
    expected = [10 ** (j / 64) for j in range(16)]
    torch.testing.assert_close(
        rope.frequency_source().of_axis()[0], torch.tensor(expected)
    )


@pytest.mark.parametrize('k_rope', K_ROPES)
def test_2d_rope_is_axial_rope(k_rope: int):
    """The other column of the paper's Table 1: 100 ** (-4 j / d), positions 0, 1, 2, ..."""
    rotary = rotary_of(AxialRoPE(64, 6, k_rope=k_rope, **TWO_D), (2, 3))
    rotated = 64 // k_rope
    series = torch.tensor([100 ** (-4 * j / rotated) for j in range(rotated // 4)])
    for row in range(2):
        for column in range(3):
            expected = torch.cat([row * series, column * series]).double()
            torch.testing.assert_close(rotary.angles[3 * row + column, 0], expected)


@pytest.mark.parametrize('k_rope', K_ROPES)
def test_2d_rope_with_frequencies_of_each_head(k_rope: int):
    rope = AxialRoPE(64, 6, k_rope=k_rope, shared=False, **TWO_D)
    n = 64 // k_rope // 4
    expected = [
        [100 ** (-(j * 6 + head) / (n * 6)) for j in range(n)] for head in range(6)
    ]
    torch.testing.assert_close(
        rope.frequency_source().of_axis(), torch.tensor(expected)
    )


# ---------------------------------------------------------------- share of the channels


@pytest.mark.parametrize('k_rope', K_ROPES)
@pytest.mark.parametrize('shared', [False, True])
@pytest.mark.parametrize('cls', [AxialRoPE, LogAxialRoPE])
def test_the_first_channels_are_rotated_as_halves(cls: type, shared: bool, k_rope: int):
    rope = cls(64, 2, k_rope=k_rope, shared=shared, pair_layout='half')
    rotary = rotary_of(rope, (2, 3))
    pairs = 32 // k_rope
    assert rotary.angles.shape == (6, 1 if shared else 2, pairs)
    qkv = torch.randn(1, 6, 3, 2, 64, dtype=torch.float64)
    rotated = rotate_definition(qkv, rotary)
    factors = torch.polar(torch.ones(()).double(), rotary.angles)[
        :, None
    ]  # [N, 1, h or 1, P]
    z = (
        torch.complex(qkv[:, :, :2, :, :pairs], qkv[:, :, :2, :, pairs : 2 * pairs])
        * factors
    )
    torch.testing.assert_close(rotated[:, :, :2, :, :pairs], z.real)
    torch.testing.assert_close(rotated[:, :, :2, :, pairs : 2 * pairs], z.imag)
    assert torch.equal(rotated[..., 2 * pairs :], qkv[..., 2 * pairs :])


@pytest.mark.parametrize('shared', [False, True])
def test_scores_depend_on_the_offset_only(shared: bool):
    rotary = rotary_of(LogAxialRoPE(16, 2, shared=shared), (5, 6))
    content = torch.randn(
        1, 1, 3, 2, 16, dtype=torch.float64
    )  # the same for all tokens
    q, k, _ = rotate_definition(content.expand(1, 30, -1, -1, -1), rotary)[0].unbind(1)
    scores = torch.einsum('qhd,khd->hqk', q, k).view(2, 5, 6, 5, 6)
    for rows, columns in ((1, 0), (0, 2), (3, -1)):
        first = [
            scores[:, row, column, row + rows, column + columns]
            for row in range(5 - rows)
            for column in range(max(0, -columns), 6 - max(0, columns))
        ]
        torch.testing.assert_close(torch.stack(first), first[0].expand(len(first), -1))


def test_learned_frequencies_of_some_channels_start_at_the_fixed_ones():
    fixed, learned = (
        AxialRoPE(32, 2, k_rope=2, shared=False, learned=learned)
        for learned in (False, True)
    )
    angles = rotary_of(learned, (3, 5)).angles
    torch.testing.assert_close(angles, rotary_of(fixed, (3, 5)).angles)
    angles.square().sum().backward()
    assert learned.freqs.shape == (2, 2, 4) and (learned.freqs.grad != 0).all()


def test_log_axial_has_no_state():
    assert not LogAxialRoPE(64, 12).state_dict()


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize('type', ['centres', 'corners'])
@pytest.mark.parametrize('grid', [(8, 12), (12, 8), (7, 7)])
def test_a_window_is_the_top_left_of_the_map(type: str, grid: tuple[int, int]):
    rope = LogAxialRoPE(16, 2, coordinates=dict(MAP, type=type))
    whole = rotary_of(rope, grid).angles.unflatten(0, grid)
    window = rotary_of(rope, grid, (4, 6)).angles.unflatten(0, (4, 6))
    torch.testing.assert_close(window, whole[:4, :6])
    over = rotary_of(rope, grid, (20, 20)).angles.unflatten(0, (20, 20))  # padded
    torch.testing.assert_close(over[: grid[0], : grid[1]], whole)
    torch.testing.assert_close(
        over[1:] - over[:-1], (over[1:2] - over[:1]).expand(19, -1, -1, -1)
    )


@pytest.mark.parametrize('step', ['window', 'map'])
def test_steps_in_the_windows_of_a_swin(step: str):
    """2 / 56 in the first of four stages at 224 pixels, 2 / 7 in the last."""
    arch = dict(embed_dims=16, depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8))
    rope = dict(type='LogAxialRoPE', shared=True, coordinates=dict(MAP, windows=step))
    model, steps = RoPESwin(arch, rope=rope).eval(), []

    def record(rope: LogAxialRoPE, inputs: tuple, rotary: Rotary) -> None:
        angles = rotary.angles.unflatten(0, (7, 7))  # [7, 7, 1, P]
        of_y, of_x = (
            (angles[1, 0] - angles[0, 0])[0, 0],
            (angles[0, 1] - angles[0, 0])[0, -1],
        )
        freqs = rope.frequency_source().of_axis()[0]
        torch.testing.assert_close(of_y / freqs[0], of_x / freqs[-1])
        steps.append(float(of_y / freqs[0]))

    for block in model.ordered_blocks:
        block.attn.rope.register_forward_hook(record)
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))
    sides = (56, 28, 14, 7) if step == 'map' else (7, 7, 7, 7)
    assert steps == pytest.approx([2 / side for side in sides], rel=1e-4)


def test_windows_that_cover_the_map_equal_global_attention():
    """The step of the map decides: 5 x 7 tokens, also in one window of 7 x 9."""
    arch = dict(embed_dims=16, depth=2, num_heads=2, layer_scale_init_value=None)
    rope = dict(type='LogAxialRoPE')
    settings = dict(rope=rope, patch_size=8, with_cls_token=False, mask_padding=True)
    model = RoPEViT(
        arch, window_block_indexes=(0, 1), window_size=(7, 9), **settings
    ).double()
    image = torch.randn(1, 3, 40, 56, dtype=torch.float64)
    (windowed,) = model(image)
    model.set_window_size(None)
    torch.testing.assert_close(windowed, model(image)[0])


# ---------------------------------------------------------------- arguments


def test_k_rope_has_to_fit_the_head():
    for cls in (AxialRoPE, LogAxialRoPE):
        with pytest.raises(
            ValueError, match=r'head_dim must be a multiple of 64 .* got 32'
        ):
            cls(32, 12, k_rope=16)


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(k_rope=0), 'k_rope must be an integer from 1 up, got 0'),
        (dict(k_rope=2.0), 'k_rope must be an integer from 1 up, got 2.0'),
        (dict(shared=None), r'shared must be one of \(True, False\), got None'),
        (dict(low=0.0), 'low must be a finite number, more than 0, got 0.0'),
        (dict(high=1.0), 'high must be a finite number, more than 3.14.*, got 1.0'),
        (dict(axes='x'), "axes must be one of .* got 'x'"),
        (
            dict(coordinates=dict(windows='grid')),
            "windows must be one of .* got 'grid'",
        ),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        LogAxialRoPE(32, 2, **arguments)


def test_scaling_is_refused_because_the_coordinates_are_normalized():
    arch = dict(embed_dims=32, depth=1, num_heads=1)
    for kind in ('linear', 'ntk', 'by_parts'):
        with pytest.raises(
            ValueError, match=r'rope_scaling: .* cover the same range on every grid'
        ):
            RoPEViT(arch, rope=dict(type='LogAxialRoPE'), rope_scaling=dict(type=kind))


@pytest.mark.parametrize(
    'rope',
    [
        dict(type='LogAxialRoPE', coordinates=dict(type='index')),
        dict(type='AxialRoPE', shared=False),
    ],
)
def test_scaling_of_theta_is_refused_where_frequencies_are_no_single_series(rope: dict):
    arch = dict(embed_dims=32, depth=1, num_heads=1)
    with pytest.raises(
        ValueError, match=r"'ntk' changes the theta .* take 'linear' or 'by_parts'"
    ):
        RoPEViT(arch, rope=rope, rope_scaling=dict(type='ntk'))
    RoPEViT(arch, rope=rope, rope_scaling=dict(type='linear'))
