"""Kinds of attention as a config: interface for subclasses, and names of the first release."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.linear_attention import LinearAttention
from rope_dense.backbones.neighbours import TableBiasNeighbourAttention
from rope_dense.backbones.position_bias import TableBiasAttention
from rope_dense.backbones.windows import WindowPlan, window_plan
from rope_dense.rope import MixedRoPE

GRID, PREFIX, C, HEADS = (4, 6), 2, 16, 2
CPU = torch.device('cpu')
VIT = dict(embed_dims=16, depth=2, num_heads=2)
STAGES = dict(embed_dims=16, depths=(1,), num_heads=(2,))
TABLE = dict(type='TableBias')


def positions(grid: tuple[int, int]) -> Tensor:
    """Positions (row, column) of tokens, [H W, 2], from the middle of the grid."""
    rows, columns = (torch.arange(side).double() - (side - 1) / 2 for side in grid)
    return torch.cartesian_prod(rows, columns)


class DistanceBias(Attention):
    """Scores minus the squared distance."""

    def bias(self, q: Tensor, size: tuple[int, int]) -> Tensor:
        return -torch.cdist(positions(size), positions(size)).square().expand(HEADS, -1, -1)


class DistanceChannels(Attention):
    """The same without values of all pairs: 2 p . p' - |p'|^2 - |p|^2; zeros for prefix tokens."""

    def channels(
        self, x: Tensor, grid: tuple[int, int], plan: WindowPlan | None
    ) -> tuple[Tensor, Tensor]:
        place = positions(grid)
        squares = place.square().sum(1, keepdim=True)
        ones = torch.ones_like(squares)
        q, k = torch.cat([2 * place, -ones, -squares], 1), torch.cat([place, squares, ones], 1)
        pair = torch.stack([q, k], 1)  # [H W, 2, 4]
        before = x.shape[1] - pair.shape[0]
        pair = torch.cat([pair.new_zeros(before, 2, 4), pair]).expand(x.shape[0], -1, -1, -1)
        pair = pair if plan is None else plan.partition(pair)
        q, k = pair[:, None].unbind(3)  # [B or W, 1, n, 4]
        return q * (C / HEADS) ** 0.5, k  # the scale is of all channels


def random_attention(kind: type[Attention]) -> Attention:
    torch.manual_seed(0)
    rope = MixedRoPE(C // HEADS, HEADS)
    return kind(C, HEADS, rope=rope, num_prefix_tokens=PREFIX).double()


@pytest.mark.parametrize('windows', [False, True])
def test_channels_add_their_products_to_the_scores(windows: bool) -> None:
    """Squared distances as four channels of queries and keys, and as values of all pairs."""
    plan = window_plan(2, GRID, (2, 3), num_copies=PREFIX, device=CPU) if windows else None
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
    plan = window_plan(1, GRID, size, num_copies=PREFIX, device=CPU) if windows else None
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
    model = RoPEViT(VIT, attention=kind, window_size=3, window_block_indexes=(0,)).eval()
    sizes = {0: size, 2: size, 3: size}
    graph = torch.export.export(model, (torch.randn(2, 3, 64, 112),), dynamic_shapes=(sizes,))
    image = torch.randn(3, 3, 128, 80)
    torch.testing.assert_close(graph.module()(image), model(image))


@pytest.mark.parametrize(
    'old, new',
    [
        (dict(use_rpb=True), TABLE),
        (dict(use_rpb=True, rpb_resize='zeros', use_lpe=False), dict(TABLE, resize='zeros')),
        (dict(use_rpb=False), None),
        (dict(use_lpe=True, rope='default'), dict(type='LocalPosition')),
        (dict(use_rel_pos=True, rope=None), dict(type='DecomposedBias')),
        (
            dict(use_rel_pos=True, rel_pos_img_size=64, rope=None),
            dict(type='DecomposedBias', img_size=64),
        ),
        (dict(linear_attention='elu'), dict(type='LinearAttention', kernel='elu')),
        (dict(arch=dict(VIT, use_rpb=True), rpb_resize='zeros'), dict(TABLE, resize='zeros')),
        (dict(arch=dict(VIT, use_rpb=True), use_rel_pos=False), TABLE),
        (dict(arch='isotropic_small', use_rpb=False), None),
        (
            dict(arch='isotropic_small', use_rpb='default', rpb_resize='zeros'),
            dict(TABLE, resize='zeros'),
        ),
    ],
)
def test_names_of_the_first_release_work(old: dict[str, Any], new: dict | None) -> None:
    with pytest.warns(DeprecationWarning, match='give attention=') as warned, torch.device('meta'):
        model = RoPEViT(**dict(arch=VIT) | old)
    assert model.arch.attention == new
    assert warned[0].filename == __file__


def test_names_of_the_first_release_work_in_stages() -> None:
    with pytest.warns(DeprecationWarning, match='use_rpb, rpb_resize: .*attention=') as warned:
        attn = RoPESwin(STAGES, use_rpb=True, rpb_resize='zeros', out_indices=(0,))
    attn = attn.layers[0].blocks[0].attn
    assert isinstance(attn, TableBiasAttention) and attn.resize == 'zeros'
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match='use_rpb'):
        model = RoPENAT(STAGES, use_rpb=True, out_indices=(0,))
    assert isinstance(model.layers[0].blocks[0].attn, TableBiasNeighbourAttention)
    with pytest.raises(TypeError, match='use_rbp'):
        RoPESwin(STAGES, use_rbp=True)


@pytest.mark.parametrize(
    'settings, message',
    [
        (dict(use_rpb=True, use_lpe=True), 'use_rpb and use_lpe exclude each other'),
        (dict(use_lpe=True, linear_attention='elu'), 'use_lpe and linear_attention exclude'),
        (dict(use_rpb=True, attention=dict(type='LocalPosition')), 'use_rpb and attention exclude'),
        (dict(use_rpb=1), 'use_rpb must be one of .* got 1'),
    ],
)
def test_two_kinds_at_once_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RoPEViT(VIT, **settings)


def test_a_swin_keeps_the_softmax_in_its_windows() -> None:
    model = RoPESwin(STAGES, attention=dict(type='LinearAttention', kernel='elu'), out_indices=(0,))
    assert not isinstance(model.layers[0].blocks[0].attn, LinearAttention)
