"""Neighbourhood attention against attention token by token, in float64 and with gradients."""

import sys
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from helpers.reference_nat import neighbourhood_attention, neighbours
from rope_dense.backbones import natten_backend
from rope_dense.backbones import neighbours as plans
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.neighbours import (
    NeighbourAttention,
    NeighbourPlan,
    TableBiasNeighbourAttention,
    checked_kernel_size,
    neighbour_plan,
)
from rope_dense.rope import MixedRoPE, Rotary
from rope_dense.utils import memo
from rope_dense.utils.sizes import Size

CPU = torch.device('cpu')
# Grid, kernel, dilation: one tile and many, incomplete tiles, groups of unequal size (a dilation
# that does not divide), sides of one neighbourhood, other sides for rows and columns, padding.
CASES = [
    ((7, 7), (7, 7), 1),
    ((9, 13), (3, 5), 1),
    ((11, 8), (7, 7), 1),
    ((16, 11), (5, 3), 2),
    ((17, 9), (3, 3), 3),
    ((11, 15), (5, 5), 2),
    ((5, 4), (7, 3), 1),
    ((3, 20), (3, 3), 4),
    ((1, 1), (3, 3), 2),
]
every_case = pytest.mark.parametrize('grid, kernel, dilation', CASES)


@pytest.fixture
def traced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of the sizes that a traced model has, which do not follow the grid, if it is true."""
    memo.RESULTS.clear()
    monkeypatch.setattr(plans, 'is_tracing', lambda: request.param)


def plan_of(
    grid: tuple[int, int], kernel: tuple[int, int], dilation: int
) -> NeighbourPlan:
    return neighbour_plan(grid, kernel, dilation, device=CPU)


@every_case
@pytest.mark.parametrize('traced', [False, True], indirect=True)
def test_every_query_is_there_once_with_its_neighbours(
    traced: None, grid: tuple[int, int], kernel: tuple[int, int], dilation: int
) -> None:
    plan = plan_of(grid, kernel, dilation)
    assert plan.padded == tuple(
        max(n, k * dilation) for n, k in zip(grid, kernel, strict=True)
    )
    for axis, length, padded, side in zip(
        (plan.rows, plan.columns), grid, plan.padded, kernel, strict=True
    ):
        assert axis.queries[axis.tile, axis.place].tolist() == list(range(length))
        for index, (tile, place) in enumerate(zip(axis.tile, axis.place, strict=True)):
            near = axis.near[tile, place]
            assert axis.keys[tile][near].tolist() == neighbours(
                index, padded, side, dilation
            )
        assert axis.near.sum(-1).eq(side).all()  # of repeated queries too


def test_a_tile_has_less_than_four_keys_for_each_query() -> None:
    for grid, kernel in (((56, 56), 7), ((57, 61), 7), ((200, 336), 7), ((64, 64), 13)):
        plan = plan_of(grid, (kernel, kernel), 1)
        tokens = grid[0] * grid[1]
        queries = plan.rows.queries.numel() * plan.columns.queries.numel()
        keys = plan.rows.keys.numel() * plan.columns.keys.numel()
        assert queries < 1.3 * tokens and keys < 4.5 * tokens < kernel**2 * tokens
        assert plan.mask.numel() < 4 * kernel**2 * queries


def attention(
    kind: type, *, rope: bool, coordinates: dict | None = None, **arguments: object
) -> NeighbourAttention:
    embedding = MixedRoPE(8, 2, coordinates=coordinates) if rope else None
    attn = kind(16, 2, rope=embedding, **arguments).double()
    with torch.no_grad():
        for parameter in attn.parameters():
            parameter.normal_(std=0.4)
    return attn


def written_out(
    attn: NeighbourAttention,
    x: Tensor,
    grid: tuple[int, int],
    kernel: tuple[int, int],
    dilation: int,
) -> Tensor:
    """The reference for images [B, H W, C], with the parameters of ``attn``."""
    weights = {name: p for name, p in attn.named_parameters() if 'rope' not in name}
    table = weights.pop('relative_position_bias_table', None)
    if table is not None:  # over query - key, here over key - query
        sizes = [2 * side - 1 for side in kernel]
        weights['rpb'] = table.T.unflatten(1, sizes).flip(1, 2)
    centres = (
        grid if attn.rope is not None and attn.rope.coordinates.is_normalized else None
    )
    rotation = None if attn.rope is None else rotation_of(attn.rope.freqs, centres)
    outs = [
        neighbourhood_attention(
            image.unflatten(0, grid),
            weights,
            attn.num_heads,
            kernel,
            dilation,
            rotation,
        )
        for image in x
    ]
    return torch.stack(outs).flatten(1, 2)


def rotation_of(
    freqs: Tensor, centres: Size | None = None
) -> Callable[[Tensor], Tensor]:
    """Complex products with interleaved pairs; freqs [2, h, P].

    At integer positions, or at the centres of the tokens of a grid whose edges are at -1 and 1.
    """

    def rotated(x: Tensor) -> Tensor:  # [H, W, h, D]
        rows, columns = (torch.arange(n).double()[..., None, None] for n in x.shape[:2])
        if centres is not None:
            rows, columns = (
                2 * (n + 0.5) / side - 1
                for n, side in zip((rows, columns), centres, strict=True)
            )
        angles = freqs[0] * columns + freqs[1] * rows[:, None]  # [H, W, h, P]
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(
            pairs * torch.polar(torch.ones_like(angles), angles)
        ).flatten(-2)

    return rotated


SETTINGS = [(True, False, False), (True, True, True), (False, True, False)]


@pytest.mark.parametrize(
    'grid, kernel, dilation, rope, bias, traced',
    [
        (*case, *settings)
        for case, settings in zip(CASES, cycle(SETTINGS), strict=False)
    ],
    indirect=['traced'],
)
def test_values_and_gradients(
    traced: None,
    grid: tuple[int, int],
    kernel: tuple[int, int],
    dilation: int,
    rope: bool,
    bias: bool,
) -> None:
    if bias:
        attn = attention(TableBiasNeighbourAttention, rope=rope, bias_kernel=kernel)
    else:
        attn = attention(NeighbourAttention, rope=rope)
    x = torch.randn(2, grid[0] * grid[1], 16, dtype=torch.float64, requires_grad=True)
    out = attn(x, grid, plan_of(grid, kernel, dilation))
    expected = written_out(attn, x, grid, kernel, dilation)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    wanted, upstream = [x, *attn.parameters()], torch.randn_like(out)
    grads = torch.autograd.grad(out, wanted, upstream)
    for actual, of in zip(
        grads, torch.autograd.grad(expected, wanted, upstream), strict=True
    ):
        torch.testing.assert_close(actual, of, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('grid, dilation', [((3, 4), 2), ((5, 2), 1), ((4, 9), 3)])
def test_padding_does_not_move_normalised_coordinates(
    grid: Size, dilation: int
) -> None:
    attn = attention(NeighbourAttention, rope=True, coordinates=dict(type='centres'))
    plan = plan_of(grid, (3, 3), dilation)
    assert plan.padded != grid
    x = torch.randn(2, grid[0] * grid[1], 16).double()
    reference = written_out(attn, x, grid, (3, 3), dilation)
    torch.testing.assert_close(attn(x, grid, plan), reference)


def test_a_kernel_over_the_whole_grid_is_global_attention() -> None:
    """On a grid of one neighbourhood every token sees the same keys."""
    attn = attention(NeighbourAttention, rope=True)
    x = torch.randn(2, 35, 16, dtype=torch.float64)
    everywhere = Attention(16, 2, rope=attn.rope).double()
    everywhere.load_state_dict(attn.state_dict())
    expected = everywhere(x, (5, 7))
    torch.testing.assert_close(attn(x, (5, 7), plan_of((5, 7), (5, 7), 1)), expected)


def test_a_bias_table_is_resized_to_the_kernel() -> None:
    attn = attention(TableBiasNeighbourAttention, rope=False, bias_kernel=(3, 3))
    x, plan = torch.randn(1, 81, 16, dtype=torch.float64), plan_of((9, 9), (5, 5), 1)
    with torch.no_grad():
        attn.relative_position_bias_table.fill_(
            0.7
        )  # the same for all: no bias at any size
        plain = attention(NeighbourAttention, rope=False)
        plain.load_state_dict(attn.state_dict(), strict=False)
        # The table is resized in float32.
        torch.testing.assert_close(
            attn(x, (9, 9), plan), plain(x, (9, 9), plan), rtol=1e-3, atol=1e-5
        )


class OfEachImage(MixedRoPE):
    """The same angles for each image, [B, n, h, P]."""

    def forward(
        self, x: Tensor, grid: tuple[int, int], window_size: object = None
    ) -> Rotary:
        angles = super().forward(x, grid).angles
        return Rotary(angles.expand(len(x), -1, -1, -1), self.pair_layout)


def test_angles_of_each_image_are_padded_along() -> None:
    """Padding has no angles of its own then, which makes no difference where its keys are zero."""
    attn = attention(NeighbourAttention, rope=True)
    with torch.no_grad():
        attn.qkv.bias.zero_()
    x, plan = torch.randn(2, 12, 16, dtype=torch.float64), plan_of((3, 4), (5, 5), 1)
    expected = attn(x, (3, 4), plan)
    embedding = OfEachImage(8, 2).double()
    embedding.load_state_dict(attn.rope.state_dict())
    attn.rope = embedding
    torch.testing.assert_close(attn(x, (3, 4), plan), expected)


def test_natten_cannot_add_a_bias() -> None:
    with pytest.raises(
        ValueError, match=r"backend must be .+ have no bias.+, got 'natten'"
    ):
        TableBiasNeighbourAttention(16, 2, bias_kernel=(3, 3), backend='natten')


def test_natten_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, 'find_spec', lambda name: None)
    with pytest.raises(
        ValueError, match=r"backend must be .+ not installed .+, got 'natten'"
    ):
        NeighbourAttention(16, 2, backend='natten')


def test_neighbourhoods_take_no_mask() -> None:
    attn, plan = NeighbourAttention(16, 2), plan_of((3, 3), (3, 3), 1)
    with pytest.raises(ValueError, match='mask must be None: a neighbourhood'):
        attn(torch.ones(1, 9, 16), (3, 3), plan, torch.ones(9, 9, dtype=torch.bool))


def test_natten_is_for_cuda() -> None:
    assert 'CUDA' in natten_backend.why_not(torch.zeros(1, 3, 3, 3, 2, 8))
    assert not attention(NeighbourAttention, rope=False).is_fused(torch.zeros(1))


@pytest.mark.parametrize(
    'has_kernels, dtype, channels, reason',
    [
        (None, torch.float16, 8, 'not installed'),
        (False, torch.float16, 8, 'without its CUDA library'),
        (True, torch.float64, 8, 'float16, bfloat16 and float32'),
        (True, torch.float16, 12, 'these have 12'),
        (True, torch.float16, 8, None),
    ],
)
def test_natten_is_used_on_a_gpu_where_it_can(
    has_kernels: bool | None,
    dtype: torch.dtype,
    channels: int,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What decides it: a stand-in has the attributes of a tensor on a GPU."""
    natten = None if has_kernels is None else SimpleNamespace(HAS_LIBNATTEN=has_kernels)
    monkeypatch.setitem(sys.modules, 'natten', natten)
    monkeypatch.setattr(natten_backend, 'find_spec', lambda name: natten)
    messages: list[str] = []
    monkeypatch.setattr(natten_backend, 'log_once', messages.append)
    qkv = SimpleNamespace(is_cuda=True, dtype=dtype, shape=(1, 3, 3, 3, 2, channels))
    assert attention(NeighbourAttention, rope=False).is_fused(qkv) == (reason is None)
    assert len(messages) == (reason is not None) and all(
        reason in text for text in messages
    )


@pytest.mark.parametrize('value', [0, 4, (3, 4), '7', 7.0, (3, 3, 3)])
def test_wrong_kernels(value: object) -> None:
    with pytest.raises(ValueError, match=r'kernel_size must be .+, got '):
        checked_kernel_size('kernel_size', value)


@pytest.mark.parametrize('grid, kernel, dilation', [c for c in CASES if c[1][0] > 1])
def test_natten_has_the_same_neighbourhoods(
    grid: tuple[int, int], kernel: tuple[int, int], dilation: int
) -> None:
    """Forward, as NATTEN has no backward on a CPU."""
    pytest.importorskip('natten', reason='pip install natten')
    fused, tiles = (
        NeighbourAttention(64, 2, backend=backend).eval()
        for backend in ('natten', 'torch')
    )
    tiles.load_state_dict(fused.state_dict())
    x, plan = torch.randn(2, grid[0] * grid[1], 64), plan_of(grid, kernel, dilation)
    with torch.no_grad():
        torch.testing.assert_close(
            fused(x, grid, plan), tiles(x, grid, plan), rtol=1e-4, atol=1e-5
        )
