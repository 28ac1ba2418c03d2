"""What frequencies represent, against formulas written out and cases computed by hand."""

from __future__ import annotations

import cmath
import itertools
import math

import kinds  # noqa: F401 (RasterRoPE)
import pytest
import torch

from research import partial_sums, patch_frequencies, reconstruct
from research.frequencies import (
    POINT_SETS,
    axial_reference,
    cross_reference,
    sequence_frequencies,
    series_of_dimensions,
)
from research.tables import angle_rows, decay_rows, fourier_rows
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.rope import AxialRoPE, MixedRoPE, Rotary, rotate
from rope_dense.rope.embeddings import linear_angles

SMALL = dict(
    embed_dims=32, depth=2, num_heads=2, patch_size=4, img_size=16, with_cls_token=False
)


# Fourier reconstruction


def test_two_frequencies_by_hand() -> None:
    """One along x and one along y, a quarter turn a patch, and the point (1, 0): the mean of
    cos(pi/2 (x - 1)) and cos(pi/2 y)."""
    freqs = torch.tensor([[math.pi / 2, 0.0], [0.0, math.pi / 2]])
    positions = [(1, 0), (0, 0), (-1, 0), (1, 1), (1, 2), (2, 1), (-1, 2)]
    expected = torch.tensor([1.0, 0.5, 0.0, 0.5, 0.0, 0.0, -1.0])
    found = reconstruct(
        freqs, torch.tensor([[1.0, 0.0]]), torch.tensor(positions).float()
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_all_frequencies_of_a_grid_give_the_points_back() -> None:
    """The discrete Fourier transform of 4 x 4 places, and its inverse."""
    series = torch.arange(4) * math.pi / 2
    freqs = torch.cartesian_prod(series, series).T
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4)).float()
    points = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    expected = (places[:, None] == points).all(-1).any(-1).float()
    found = reconstruct(freqs, points, places)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize('points', POINT_SETS)
def test_reconstruction_is_that_of_a_loop(points: tuple[tuple[int, int], ...]) -> None:
    freqs = torch.randn(2, 6, dtype=torch.float64)
    for x, y in itertools.product((-5, 0, 2), (-3, 1)):
        total = 0.0
        for f_x, f_y in freqs.T.tolist():
            coefficient = sum(cmath.exp(-1j * (f_x * a + f_y * b)) for a, b in points)
            total += (coefficient * cmath.exp(1j * (f_x * x + f_y * y))).real
        at = torch.tensor([[x, y]], dtype=torch.float64)
        found = reconstruct(freqs, torch.tensor(points, dtype=torch.float64), at)
        assert found.item() == pytest.approx(total / 6, abs=1e-12)


def test_axial_frequencies_smear_a_point_along_both_axes() -> None:
    """Pairs of the other axis see no difference along a line through the point: half of its value
    stays however far away. Frequencies across the axes do not have such lines."""
    steps, base = torch.arange(1, 7).float(), axial_reference()[0, :16]
    point = torch.tensor([[1.0, 1.0]])
    expected = (1 + torch.cos(steps[:, None] * base).mean(-1)) / 2
    for direction in ([1.0, 0.0], [0.0, -1.0]):
        line = point + steps[:, None] * torch.tensor(direction)
        axial, cross = (
            reconstruct(of, point, line)
            for of in (axial_reference(), cross_reference())
        )
        torch.testing.assert_close(axial, expected, rtol=0, atol=1e-6)
        assert axial.min() > 0.5 and cross.min() < axial.min()


def test_axial_frequencies_confuse_the_corners_of_a_rectangle() -> None:
    """Of the points (3, 3) and (-2, 2), the value at (3, 2) is as large as at (3, 3): both have a
    point in their row and one in their column. Diagonals tell them apart."""
    points = torch.tensor(POINT_SETS[2]).float()
    corners = torch.tensor([[3.0, 3.0], [3.0, 2.0], [-2.0, 2.0], [-2.0, 3.0]])
    axial, cross = (
        reconstruct(of, points, corners)
        for of in (axial_reference(), cross_reference())
    )
    torch.testing.assert_close(axial, axial[:1].expand(4), rtol=0, atol=1e-6)
    assert cross[[0, 2]].min() > cross[[1, 3]].max() + 0.02


def test_references_are_those_of_the_author() -> None:
    """Written out from the author's description: D = 64, theta = 100."""
    base = [100 ** (-4 * j / 64) for j in range(16)]
    expected = torch.tensor([base + [0] * 16, [0] * 16 + base])
    torch.testing.assert_close(axial_reference(), expected)
    base = [100 ** (-8 * j / 64) for j in range(8)]
    minus = [-value for value in base]
    expected = torch.tensor(
        [base + [0] * 8 + base + base, [0] * 8 + base + base + minus]
    )
    torch.testing.assert_close(cross_reference(), expected)


# Decay


def test_decay_of_the_blog() -> None:
    """B(0) = (d / 2 + 1) / 2 = 32.5 for d = 128, and elsewhere the formula in a loop."""
    offsets = torch.arange(257).double()[:, None]
    sums = partial_sums(sequence_frequencies().double(), offsets)
    assert sums.shape == (257, 64)
    assert sums[0].mean().item() == 32.5
    for m in (1, 7, 100, 256):
        running, total = 0, 0.0
        for i in range(64):
            running += cmath.exp(1j * m * 10000 ** (-2 * i / 128))
            total += abs(running)
        assert sums[m].mean().item() == pytest.approx(total / 64, rel=1e-6)
    decays = [
        sums[part].mean().item() for part in (slice(8), slice(8, 64), slice(64, 257))
    ]
    assert 32.5 > decays[0] > decays[1] > decays[2]


def test_the_sum_of_all_depends_on_the_offset_alone_and_falls() -> None:
    """Equation 3 of the fused-attention paper, in one dimension."""
    angles = (
        torch.arange(160).double()[:, None] * sequence_frequencies().double()
    )  # [m, j]
    pairs = torch.exp(1j * (angles[:, None] - angles[None])).sum(-1).abs()  # [m, n]
    offsets = torch.arange(160)[:, None].double()
    expected = partial_sums(sequence_frequencies().double(), offsets)[:, -1]
    index = torch.arange(160)
    torch.testing.assert_close(pairs, expected[(index[:, None] - index).abs()])
    means = [
        expected[part].mean() for part in (slice(16), slice(16, 64), slice(64, 160))
    ]
    assert expected[0] == 64 and means[0] > means[1] > means[2]


@pytest.mark.parametrize('kind', ['sequence', 'mixed', 'axial'])
def test_no_score_is_over_the_bound(kind: str) -> None:
    """Scores as attention computes them, of random queries and keys at random positions."""
    if kind == 'sequence':
        freqs = torch.cat([sequence_frequencies(32), torch.zeros(1, 16)])[:, None]
    else:
        rope = (MixedRoPE if kind == 'mixed' else AxialRoPE)(32, 2)
        freqs = rope.frequencies(torch.device('cpu')).detach()  # [2, h or 1, P]
    tokens, near = 24, []
    positions = torch.randint(-40, 40, (tokens, 2)).double()
    qkv = torch.randn(1, tokens, 3, 2, 32, dtype=torch.float64)
    qkv[:, :12] = qkv[:, :1] + 0.1 * qkv[:, :12]  # alike, so that they come near it
    q, k, _ = rotate(
        qkv, Rotary(linear_angles(positions, freqs.double()))
    )  # [1, h, N, D]
    scores = (q @ k.transpose(2, 3))[0]
    as_complex = torch.view_as_complex(qkv.unflatten(-1, (16, 2)))[0]  # [N, 3, h, P]
    for head, m, n in itertools.product(range(2), range(tokens), range(tokens)):
        h = as_complex[m, 0, head] * as_complex[n, 1, head].conj()
        steps = torch.cat([h, h.new_zeros(1)]).diff().abs().max()
        of_head = freqs[:, head if freqs.shape[1] > 1 else 0].double()
        bound = 16 * partial_sums(of_head, positions[m] - positions[n]).mean() * steps
        near.append((scores[head, m, n].abs() / bound).item())
    assert max(near) <= 1


def test_the_bound_is_attained() -> None:
    """Steps of h of length 1, each against the direction of its sum: nothing cancels."""
    rope = MixedRoPE(32, 1)
    freqs = rope.freqs.detach().double()  # [2, 1, P]
    positions = torch.tensor([[7.0, -3.0], [2.0, 5.0]], dtype=torch.float64)
    sums = torch.exp(1j * ((positions[0] - positions[1]) @ freqs[:, 0])).cumsum(0)
    steps = sums.conj() / sums.abs()  # h_i - h_(i + 1)
    h = steps.flip(0).cumsum(0).flip(0)
    qkv = torch.zeros(1, 2, 3, 1, 32, dtype=torch.float64)
    qkv[0, 0, 0, 0] = torch.view_as_real(h).flatten()
    qkv[0, 1, 1, 0, ::2] = 1  # all pairs of the key are the number 1
    q, k, _ = rotate(qkv, Rotary(linear_angles(positions, freqs)))
    bound = 16 * partial_sums(freqs[:, 0], positions[0] - positions[1]).mean()
    torch.testing.assert_close((q[0, 0, 0] * k[0, 0, 1]).sum(), bound)


# Frequencies of a model


def test_frequencies_of_a_model_are_its_parameters() -> None:
    model = RoPEViT(SMALL, rope=dict(type='MixedRoPE')).eval()
    for block in range(2):
        found = patch_frequencies(model, block, (24, 16))
        torch.testing.assert_close(found, model.blocks[block].attn.rope.freqs.detach())


def test_units_and_scaling_are_in_the_frequencies() -> None:
    axial = RoPEViT(SMALL, rope=dict(type='AxialRoPE')).eval()
    original = patch_frequencies(axial, 0, (16, 16))
    torch.testing.assert_close(
        original[0, 0, :4], torch.tensor([100 ** (-j / 4) for j in range(4)])
    )
    axial.set_rope_scaling(dict(type='linear'))
    torch.testing.assert_close(patch_frequencies(axial, 0, (32, 32)), original / 2)
    centres = dict(type='AxialRoPE', coordinates=dict(type='centres'))
    fitted = patch_frequencies(RoPEViT(SMALL, rope=centres).eval(), 0, (16, 32))
    steps = torch.tensor([2 / 8, 2 / 4])[
        :, None, None
    ]  # x over 8 columns, y over 4 rows
    torch.testing.assert_close(fitted, original * steps, rtol=0, atol=1e-6)
    raster = RoPEViT(SMALL, rope=dict(type='RasterRoPE')).eval()
    x, y = patch_frequencies(raster, 0, (16, 24))
    torch.testing.assert_close(y, 6 * x, rtol=0, atol=1e-5)


@pytest.mark.parametrize('kind', ['swin', 'nat'])
def test_windows_take_the_step_of_their_map(kind: str) -> None:
    """Log-axial: half of the longer side of the map is 1, in stage 0 of 16 and in stage 1 of 8."""
    sizes = dict(embed_dims=16, depths=(1, 1), num_heads=(1, 2))
    rope = dict(type='LogAxialRoPE', k_rope=1)
    if kind == 'swin':
        model = RoPESwin(sizes, rope=rope, window_size=4, out_indices=(1,)).eval()
    else:
        model = RoPENAT(
            dict(sizes, mlp_ratio=2.0),
            rope=rope,
            kernel_size=3,
            pretrain_kernel_size=3,
            dilations=((1,), (1,)),
            out_indices=(1,),
        ).eval()
    for block, (side, heads) in enumerate([(16, 1), (8, 2)]):
        found = patch_frequencies(model, block, (64, 48))  # [2, h, P], y first
        series = [
            [math.pi * 10 ** ((j * heads + i) / (4 * heads)) for j in range(4)]
            for i in range(heads)
        ]
        torch.testing.assert_close(found[1, :, :4], torch.tensor(series) * 2 / side)


def test_frequencies_that_cannot_be_had() -> None:
    with pytest.raises(ValueError, match='block 1 has no rotary embedding'):
        patch_frequencies(RoPEViT(SMALL, rope=None), 1, (16, 16))
    model = RoPEViT(SMALL, rope=dict(type='MixedRoPE')).eval()
    with pytest.raises(
        ValueError, match=r'1 x 4 tokens of images of 4 x 16 pixels: give a larger'
    ):
        patch_frequencies(model, 0, (4, 16))
    model.blocks[0].attn.rope.forward = lambda x, grid, window: Rotary(
        torch.rand(16, 2, 8)
    )
    with pytest.raises(ValueError, match='not linear in the position'):
        patch_frequencies(model, 0, (16, 16))
    model.blocks[0].attn.rope.forward = lambda x, grid, window: Rotary(
        torch.rand(1, 16, 2, 8)
    )
    with pytest.raises(ValueError, match='differ from image to image'):
        patch_frequencies(model, 0, (16, 16))


# Tables


def test_dimension_wise_angles() -> None:
    """Log-axial from pi to 10 pi in each head, head after head; 2D RoPE from 1 down."""
    for dims in (256, 512):
        series, number, heads = series_of_dimensions(dims), dims // 4, dims // 32
        log = [
            math.pi * 10 ** (m / number)
            for head in range(heads)
            for m in range(head, number, heads)
        ]
        plain = torch.tensor([100 ** (-4 * j / dims) for j in range(number)])
        found = series['log-axial, per head (unit: half a side of the map)']
        torch.testing.assert_close(found, torch.tensor(log))
        assert (
            found.diff() < 0
        ).sum() == heads - 1  # "in chunks, and repeated multiple times"
        torch.testing.assert_close(series['2D RoPE (unit: a patch)'], plain)
    freqs = torch.randn(2, 3, 4)
    rows = [
        row
        for row in angle_rows('mine', freqs)
        if row['frequencies'].startswith('mine')
    ]
    assert len(rows) == 12 and {row['channels'] for row in rows} == {
        '24 rotated channels'
    }
    assert rows[5]['radians'] == pytest.approx(freqs[:, 1, 1].norm().item())


def test_rows_have_their_positions() -> None:
    freqs = torch.randn(2, 8)
    rows = fourier_rows('mine', freqs)
    assert len(rows) == 3 * 3 * 121
    (at,) = (
        row
        for row in rows
        if (row['frequencies'], row['points'], row['x'], row['y'])
        == ('mine', '(1, 1)', 3, -2)
    )
    expected = torch.cos(2 * freqs[0] - 3 * freqs[1]).mean().item()
    assert at['value'] == pytest.approx(expected, abs=1e-5)
    decay = [row for row in decay_rows('mine', freqs) if row['frequencies'] == 'mine']
    (at,) = (row for row in decay if (row['x'], row['y']) == (5, -7))
    angles = 5 * freqs[0].double() - 7 * freqs[1].double()
    assert at['sum'] == pytest.approx(
        torch.exp(1j * angles).sum().abs().item(), rel=1e-6
    )
