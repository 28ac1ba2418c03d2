"""Scores of two tokens depend on the offset between them alone, for every embedding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rope_dense.rope import (
    AxialRoPE,
    LogAxialRoPE,
    MixedRoPE,
    Rotary,
    RotaryEmbedding,
    VideoRoPE,
    rotate,
)
from rope_dense.rope.embeddings import linear_angles
from rope_dense.rope.frequencies import axial_frequencies, axis_frequencies

HEAD_DIM, HEADS, GRID, WINDOW = 16, 2, (6, 8), (3, 4)
CENTRES = dict(type='centres', normalize='min')
EMBEDDINGS: dict[str, Callable[..., RotaryEmbedding]] = {
    'axial': AxialRoPE,
    'axial, y first': lambda *args, **kw: AxialRoPE(*args, axes='yx', **kw),
    'axial, learned': lambda *args, **kw: AxialRoPE(*args, learned=True, **kw),
    'axial, half of the channels': lambda *args, **kw: AxialRoPE(*args, k_rope=2, **kw),
    'axial, each head': lambda *args, **kw: AxialRoPE(*args, shared=False, **kw),
    'periods': lambda *args, **kw: AxialRoPE(
        *args, series='periods', coordinates=CENTRES, **kw
    ),
    'log-axial': LogAxialRoPE,
    'mixed': MixedRoPE,
    'video': VideoRoPE,
}


def scores(rotary: Rotary) -> Tensor:
    """[h, n, n] of tokens that all have the same query and the same key."""
    generator = torch.Generator().manual_seed(0)
    content = torch.randn(
        1, 1, 3, HEADS, HEAD_DIM, dtype=torch.float64, generator=generator
    )
    q, k, _ = rotate(content.expand(1, len(rotary.angles), -1, -1, -1), rotary)
    return (q @ k.transpose(-2, -1))[0]


def assert_relative(scores: Tensor, height: int, width: int) -> None:
    """Scores of all pairs of tokens with the same offset are equal; offsets differ in theirs."""
    by_offset = {}
    places = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    for i, query in enumerate(places):
        for j, key in enumerate(places):
            offset = tuple((query - key).tolist())
            by_offset.setdefault(offset, []).append(scores[:, i, j])
    assert len(by_offset) == (2 * height - 1) * (2 * width - 1)
    for of_pairs in by_offset.values():
        torch.testing.assert_close(
            torch.stack(of_pairs),
            of_pairs[0].expand(len(of_pairs), -1),
            atol=1e-12,
            rtol=0,
        )
    values = torch.stack(
        [of_pairs[0] for of_pairs in by_offset.values()]
    )  # [offsets, h]
    assert (torch.pdist(values) > 1e-9).all()


@pytest.mark.parametrize('pair_layout', ['interleaved', 'half'])
@pytest.mark.parametrize('name', EMBEDDINGS)
@torch.no_grad()
def test_scores_depend_on_the_offset_alone(name: str, pair_layout: str):
    torch.manual_seed(0)
    rope = EMBEDDINGS[name](HEAD_DIM, HEADS, pair_layout=pair_layout)
    x = torch.empty(1, GRID[0] * GRID[1], 1, dtype=torch.float64)
    of_grid, of_window = rope(x, GRID), rope(x, GRID, WINDOW)
    globally, within = scores(of_grid), scores(of_window)
    assert_relative(globally, *GRID)
    assert_relative(within, *WINDOW)

    # Equation 16 of the fused-attention paper: a phase that all tokens share cancels.
    phase = torch.randn(of_grid.angles.shape[1:], dtype=torch.float64)
    shifted = scores(Rotary(of_grid.angles + phase, pair_layout))
    torch.testing.assert_close(shifted, globally, atol=1e-12, rtol=0)

    # So a window has the scores that its tokens have in the grid, wherever it is, unless positions
    # are normalised by the window.
    if name != 'periods':
        index = torch.arange(GRID[0] * GRID[1]).view(GRID)
        for top, left in ((0, 0), (3, 4), (2, 1)):
            tokens = index[top : top + WINDOW[0], left : left + WINDOW[1]].flatten()
            torch.testing.assert_close(
                globally[:, tokens[:, None], tokens], within, atol=1e-12, rtol=0
            )


@pytest.mark.parametrize('order', [(0, 1, 2), (2, 0, 1)])
def test_three_axes(order: tuple[int, ...]):
    """Tokens of a volume, (t, y, x): each pair rotates along one axis, scores depend on offsets."""
    sides = 2, 3, 4
    positions = torch.cartesian_prod(*(torch.arange(side).double() for side in sides))
    series = [
        axis_frequencies(24, theta, num_axes=3).double()
        for theta in (10.0, 50.0, 100.0)
    ]
    angles = linear_angles(
        positions, axial_frequencies([x[None] for x in series], order)
    )
    for n, position in enumerate(positions):
        for axis in range(3):
            places = [order.index(axis) * 4 + k for k in range(4)]
            torch.testing.assert_close(
                angles[n, 0, places], position[axis] * series[axis]
            )
    rotary = Rotary(angles[:, :, :8], 'half')
    values = scores(rotary)
    by_offset = {}
    for i, query in enumerate(positions):
        for j, key in enumerate(positions):
            offset = tuple((query - key).tolist())
            first = by_offset.setdefault(offset, values[:, i, j])
            torch.testing.assert_close(values[:, i, j], first, atol=1e-12, rtol=0)
    assert len(by_offset) == 3 * 5 * 7
