"""Kinds of attention as a config: the interface for subclasses."""

import pytest
import torch
from torch import Tensor

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.windows import window_plan
from rope_dense.rope import MixedRoPE

GRID, PREFIX, C, HEADS = (4, 6), 2, 16, 2
CPU = torch.device('cpu')
VIT = dict(embed_dims=16, depth=2, num_heads=2)


def positions(grid: tuple[int, int]) -> Tensor:
    """Positions (row, column) of tokens, [H W, 2], from the middle of the grid."""
    rows, columns = (torch.arange(side).double() - (side - 1) / 2 for side in grid)
    return torch.cartesian_prod(rows, columns)


class DistanceBias(Attention):
    """Scores minus the squared distance."""

    def bias(self, q: Tensor, size: tuple[int, int]) -> Tensor:
        return (
            -torch.cdist(positions(size), positions(size))
            .square()
            .expand(HEADS, -1, -1)
        )


class DistanceChannels(Attention):
    """The same without values of all pairs: 2 p . p' - |p'|^2 - |p|^2; zeros for prefix tokens."""

    def attend(self, x, q, k, v, scale, grid, plan, mask) -> Tensor:
        place = positions(grid)
        squares = place.square().sum(1, keepdim=True)
        ones = torch.ones_like(squares)
        sides = [2 * place, -ones, -squares], [place, squares, ones]
        pair = torch.stack([torch.cat(side, 1) for side in sides], 1)  # [H W, 2, 4]
        before = x.shape[1] - pair.shape[0]
        pair = torch.cat([pair.new_zeros(before, 2, 4), pair]).expand(
            x.shape[0], -1, -1, -1
        )
        pair = (pair if plan is None else plan.partition(pair)).to(
            q.dtype
        )  # [B or W, n, 2, 4]
        more_q, more_k = (y.expand(-1, HEADS, -1, -1) for y in pair[:, None].unbind(3))
        q, k = torch.cat([q, more_q / scale], -1), torch.cat([k, more_k], -1)
        return super().attend(x, q, k, v, scale, grid, plan, mask)


def random_attention(kind: type[Attention]) -> Attention:
    torch.manual_seed(0)
    rope = MixedRoPE(C // HEADS, HEADS)
    return kind(C, HEADS, rope=rope, num_prefix_tokens=PREFIX).double()


@pytest.mark.parametrize('windows', [False, True])
def test_channels_add_their_products_to_the_scores(windows: bool) -> None:
    """Squared distances as four channels of queries and keys, and as values of all pairs."""
    plan = (
        window_plan(2, GRID, (2, 3), num_copies=PREFIX, device=CPU) if windows else None
    )
    x = torch.randn(2, PREFIX + 24, C, dtype=torch.float64)
    x = x if plan is None else plan.copy_prefix(x)
    by_bias, by_channels = map(random_attention, (DistanceBias, DistanceChannels))
    out = by_bias(x, GRID, plan)
    torch.testing.assert_close(by_channels(x, GRID, plan), out)
    assert not torch.allclose(random_attention(Attention)(x, GRID, plan), out)


@pytest.mark.parametrize('windows', [False, True])
def test_the_bias_is_between_tokens_of_the_grid(windows: bool) -> None:
    """-inf between all of them: a token of the grid sees the prefix alone, the prefix sees all."""

    class Blind(Attention):
        def bias(self, q: Tensor, size: tuple[int, int]) -> Tensor:
            number = size[0] * size[1]
            assert q.shape[2] == number
            return torch.full((HEADS, number, number), -torch.inf)

    size = (2, 3) if windows else GRID
    number = PREFIX + size[0] * size[1]
    plan = (
        window_plan(1, GRID, size, num_copies=PREFIX, device=CPU) if windows else None
    )
    x = torch.randn(1, PREFIX + 24, C, dtype=torch.float64)
    with_copies = x if plan is None else plan.copy_prefix(x)
    out = random_attention(Blind)(with_copies, GRID, plan)
    split = (lambda y: y) if plan is None else plan.partition
    mask = torch.ones(1, 1, number, number, dtype=torch.bool)
    mask[..., PREFIX:, PREFIX:] = False
    expected = random_attention(Attention)(split(with_copies), size, mask=mask)
    torch.testing.assert_close(split(out), expected)


@pytest.mark.slow
def test_channels_are_exported_with_any_size() -> None:
    kind, size = dict(type=DistanceChannels), torch.export.Dim.DYNAMIC
    model = RoPEViT(
        VIT, attention=kind, window_size=3, window_block_indexes=(0,)
    ).eval()
    sizes = {0: size, 2: size, 3: size}
    graph = torch.export.export(
        model, (torch.randn(2, 3, 64, 112),), dynamic_shapes=(sizes,)
    )
    image = torch.randn(3, 3, 128, 80)
    torch.testing.assert_close(graph.module()(image), model(image))
