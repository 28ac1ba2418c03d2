"""Attention: windows, padding, biases, the qkv projection, and embeddings of any tokens."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.reference import attention, relative_error, windowed_attention
from helpers.reference_swin import groups, separate_attention
from rope_dense.backbones import attention as attention_module
from rope_dense.backbones.attention import Attention, Place, QVBiasLinear
from rope_dense.backbones.position_bias import (
    DecomposedBiasAttention,
    TableBiasAttention,
    gather_by_offset,
    pair_bias,
)
from rope_dense.backbones.windows import WindowPlan, shifted_plan, window_plan
from rope_dense.rope import AxialRoPE, MixedRoPE, Rotary, RotaryEmbedding
from rope_dense.rope.embeddings import linear_angles
from rope_dense.utils.sizes import Size

CPU = torch.device('cpu')
C, HEADS, HEAD_DIM = 16, 2, 8
ROPES = {
    'mixed': lambda: MixedRoPE(HEAD_DIM, HEADS),
    'axial': lambda: AxialRoPE(HEAD_DIM, HEADS),
    'learned axial': lambda: AxialRoPE(HEAD_DIM, HEADS, learned=True),
}


def random(module: nn.Module) -> nn.Module:
    """Weights far from zero, but not frequencies; in float64."""
    for name, parameter in module.named_parameters():
        if not name.endswith('freqs'):
            nn.init.normal_(parameter, std=0.4)
    return module.double()


def tokens(*size: int) -> Tensor:
    """[B, N, C]."""
    return torch.randn(size[0], math.prod(size[1:]), C, dtype=torch.float64)


def plan_of(batch: int, grid: Size, window_size: Size, **options: object) -> WindowPlan:
    make = shifted_plan if 'shift' in options else window_plan
    return make(batch, grid, window_size, device=CPU, **options)


# ---------------------------------------------------------------- against slow references


@pytest.mark.parametrize('rope', ROPES.values(), ids=ROPES)
@pytest.mark.parametrize('grid', [(6, 6), (5, 7), (2, 4), (1, 1)])
@pytest.mark.parametrize('mask_padding', [False, True])
@torch.no_grad()
def test_windows_equal_the_reference_with_image_coordinates(
    rope: type, grid: Size, mask_padding: bool
):
    module, x = random(Attention(C, HEADS, rope=rope())), tokens(1, *grid)
    plan = plan_of(1, grid, (3, 2), mask_padding=mask_padding)
    freqs = module.rope.frequencies(CPU).expand(-1, HEADS, -1)
    expected = windowed_attention(
        module, x[0].unflatten(0, grid), (3, 2), freqs, mask_padding
    )
    assert relative_error(module(x, grid, plan)[0].unflatten(0, grid), expected) < 1e-12


@pytest.mark.parametrize('use_window', [True, False])
@pytest.mark.parametrize('mask_padding', [False, True])
@torch.no_grad()
def test_decomposed_bias_equals_the_reference(use_window: bool, mask_padding: bool):
    grid = (4, 5)
    place = Place((3, 2) if use_window else grid, in_windows=True)
    module, x = random(DecomposedBiasAttention(C, HEADS, place=place)), tokens(1, *grid)
    if use_window:
        plan = plan_of(1, grid, (3, 2), mask_padding=mask_padding)
        actual = module(x, grid, plan)[0].unflatten(0, grid)
        expected = windowed_attention(
            module, x[0].unflatten(0, grid), (3, 2), None, mask_padding
        )
    else:
        actual = module(x, grid)[0]
        positions = [
            (column, row) for row in range(grid[0]) for column in range(grid[1])
        ]
        expected = attention(module, x[0], None, positions)
    assert relative_error(actual, expected) < 1e-12


def test_decomposed_tables_start_at_zero_and_are_resized_linearly():
    module = DecomposedBiasAttention(C, HEADS, place=Place((2, 2), in_windows=True))
    assert not module.rel_pos_h.any() and not module.rel_pos_w.any()
    nn.init.normal_(module.rel_pos_h)
    table = gather_by_offset(module.rel_pos_h, 3)  # 3 entries become 5
    weight = torch.tensor(
        [[1, 0, 0], [0.6, 0.4, 0], [0, 1, 0], [0, 0.4, 0.6], [0, 0, 1]]
    )
    resized = weight @ module.rel_pos_h
    for i in range(3):
        for k in range(3):
            torch.testing.assert_close(table[i, k], resized[i - k + 2])


def test_the_index_of_the_bias_table_is_the_offset():
    index = pair_bias(torch.arange(5 * 9)[:, None], (3, 5))[0]
    assert index.unique().tolist() == list(range(5 * 9))
    assert index[0, 0] == index[14, 14] == index.unique().median()
    assert index[2 * 5 + 1, 0 * 5 + 4] == (2 + 2) * 9 + (
        1 - 4 + 4
    )  # two down, three to the left


@torch.no_grad()
def test_bias_tables_are_resized_bicubically():
    module = random(TableBiasAttention(C, HEADS, place=Place((2, 3))))
    other = random(TableBiasAttention(C, HEADS, place=Place((4, 4))))
    as_map = module.relative_position_bias_table.T.reshape(1, HEADS, 3, 5)
    resized = F.interpolate(as_map, (7, 7), mode='bicubic', align_corners=False)
    state = dict(
        module.state_dict(), relative_position_bias_table=resized[0].flatten(1).T
    )
    other.load_state_dict(state)
    x, plan = tokens(1, 4, 8), plan_of(1, (4, 8), (4, 4))
    # ``resize_grid`` computes in float32.
    torch.testing.assert_close(
        module(x, (4, 8), plan), other(x, (4, 8), plan), atol=1e-6, rtol=0
    )


# ---------------------------------------------------------------- padding and masks


@pytest.mark.parametrize('mask_padding', [False, True])
@pytest.mark.parametrize('qkv_bias', [True, False, 'qv'])
@torch.no_grad()
def test_padding_is_zero_tokens_as_in_detectron2(
    mask_padding: bool, qkv_bias: bool | str
):
    """Five tokens in a window of eight: the mean of their values and of those of padding."""
    module = random(Attention(C, HEADS, qkv_bias=qkv_bias))
    module.qkv.weight[: 2 * C] = (
        0  # all scores of a query are alike without a bias of queries
    )
    bias = torch.zeros(3 * C, dtype=torch.float64)
    if qkv_bias is True:
        module.qkv.bias[:C] = 0
        bias = module.qkv.bias
    elif qkv_bias == 'qv':
        module.qkv.q_bias.zero_()
        bias = module.qkv.packed_bias()
    x = tokens(1, 1, 5)
    seen = x if mask_padding else F.pad(x, (0, 0, 0, 3))
    values = (seen @ module.qkv.weight[2 * C :].T + bias[2 * C :]).mean(1, keepdim=True)
    expected = module.proj(values).expand(1, 5, C)
    plan = plan_of(1, (1, 5), (1, 8), mask_padding=mask_padding)
    torch.testing.assert_close(module(x, (1, 5), plan), expected)


@pytest.mark.parametrize(
    'options, masks',
    [
        (None, [None]),  # global
        (dict(), [None]),
        (
            dict(shift=(1, 1)),
            [None, (10, 1, 9, 9)],
        ),  # the border of 3 x 3 windows of two images
        (dict(mask_padding=True), [(18, 1, 1, 9)]),
        (dict(shift=(1, 1), mask_padding=True), [(18, 1, 9, 9)]),
    ],
)
def test_border_windows_alone_have_a_mask(
    options: dict | None, masks: list, monkeypatch: pytest.MonkeyPatch
):
    """Fused kernels are for attention without a mask."""
    seen = []

    def attend(
        *inputs: Tensor, attn_mask: Tensor | None = None, scale: float
    ) -> Tensor:
        *qkv, attn_mask = inputs if len(inputs) == 4 else (*inputs, attn_mask)
        seen.append(None if attn_mask is None else tuple(attn_mask.shape))
        return original(*qkv, attn_mask=attn_mask, scale=scale)

    original = F.scaled_dot_product_attention
    monkeypatch.setattr(attention_module.F, 'scaled_dot_product_attention', attend)
    module, x = random(Attention(C, HEADS, rope=ROPES['mixed']())), tokens(2, 8, 8)
    plan = None if options is None else plan_of(2, (8, 8), (3, 3), **options)
    module(x, (8, 8), plan)
    assert seen == masks


@pytest.mark.parametrize(
    'cls', [Attention, TableBiasAttention, DecomposedBiasAttention]
)
def test_no_images(cls: type[Attention]):
    rope = None if cls is DecomposedBiasAttention else ROPES['mixed']()
    place = Place((3, 2), in_windows=True)
    module, x = (
        random(cls(C, HEADS, rope=rope, place=place)),
        tokens(0, 5, 7).requires_grad_(),
    )
    for plan in (
        None,
        plan_of(0, (5, 7), (3, 2)),
        plan_of(0, (5, 7), (3, 2), shift=(1, 1)),
    ):
        out = module(x, (5, 7), plan)
        assert out.shape == (0, 35, C)
        out.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize('windows', [False, True])
def test_the_attention_scale_multiplies_scores(windows: bool):
    class Still(RotaryEmbedding):
        def forward(
            self, x: Tensor, grid: Size, window_size: Size | None = None
        ) -> Rotary:
            height, width = window_size or grid
            return Rotary(x.new_zeros(height * width, 1, 4), attention_scale=3.0)

    scaled, plain = (
        random(Attention(C, HEADS, rope=Still(HEAD_DIM, HEADS))),
        Attention(C, HEADS),
    )
    plain.double().load_state_dict(scaled.state_dict())
    plain.qkv.weight.data[:C] *= 3
    plain.qkv.bias.data[:C] *= 3
    x, plan = (
        tokens(2, 4, 5),
        plan_of(2, (4, 5), (2, 3), shift=(1, 1)) if windows else None,
    )
    torch.testing.assert_close(scaled(x, (4, 5), plan), plain(x, (4, 5), plan))


# ---------------------------------------------------------------- the qkv projection


def test_biases_of_queries_and_values_are_those_of_a_key_bias_of_zero():
    some, full = (
        random(Attention(C, HEADS, qkv_bias='qv')),
        Attention(C, HEADS).double(),
    )
    state = some.state_dict()
    q_bias, v_bias = state.pop('qkv.q_bias'), state.pop('qkv.v_bias')
    packed = torch.cat([q_bias, torch.zeros_like(q_bias), v_bias])
    full.load_state_dict({**state, 'qkv.bias': packed})
    x, plan = tokens(2, 3, 5), plan_of(2, (3, 5), (2, 2))
    for of in (None, plan):
        torch.testing.assert_close(some(x, (3, 5), of), full(x, (3, 5), of))
    none = Attention(C, HEADS, qkv_bias=False).double()
    none.load_state_dict(state)
    assert relative_error(some(x, (3, 5)), none(x, (3, 5))) > 1e-2


@pytest.mark.parametrize('qkv_bias', [True, False, 'qv'])
@pytest.mark.parametrize('windows', [False, True])
@pytest.mark.parametrize('training', [False, True])
def test_a_hook_on_the_projection_sees_it_unrotated(
    qkv_bias: bool | str, windows: bool, training: bool
):
    module, x = random(Attention(C, HEADS, qkv_bias, ROPES['axial']())), tokens(2, 3, 5)
    seen = []
    module.qkv.register_forward_hook(lambda _, inputs, out: seen.append(out))
    plan = plan_of(2, (3, 5), (2, 2)) if windows else None
    with torch.set_grad_enabled(training):
        module(x, (3, 5), plan)
        expected = x @ module.qkv.weight.T
        if qkv_bias:
            expected = expected + module.qkv(torch.zeros(C, dtype=torch.float64))
    torch.testing.assert_close(seen[0], expected)
    assert len(seen) == 1 + bool(qkv_bias)  # the second is that of this test


class Adapter(nn.Module):
    """A low-rank change beside a linear layer, in its place."""

    def __init__(self, linear: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.up(self.down(x))


@pytest.mark.parametrize('qkv_bias', [True, False, 'qv'])
@pytest.mark.parametrize('windows', [False, True])
def test_a_module_in_the_place_of_the_projection_is_used(
    qkv_bias: bool | str, windows: bool
):
    module, x = random(Attention(C, HEADS, qkv_bias, ROPES['mixed']())), tokens(2, 3, 5)
    merged = Attention(C, HEADS, qkv_bias, ROPES['mixed']()).double()
    merged.load_state_dict(module.state_dict())
    module.qkv = Adapter(module.qkv).double()
    merged.qkv.weight.data += module.qkv.up.weight @ module.qkv.down.weight
    plan = plan_of(2, (3, 5), (2, 2)) if windows else None
    out = module(x, (3, 5), plan)
    torch.testing.assert_close(out, merged(x, (3, 5), plan))
    out.sum().backward()
    assert module.qkv.up.weight.grad.any() and module.rope.freqs.grad.any()


def test_the_bias_of_queries_and_values_is_a_linear_layer():
    layer, x = random(QVBiasLinear(C)), tokens(1, 2, 2)
    assert [name for name, _ in layer.named_parameters()] == [
        'weight',
        'q_bias',
        'v_bias',
    ]
    q, k, v = (layer(x) - x @ layer.weight.T).chunk(3, -1)
    torch.testing.assert_close(q, layer.q_bias.expand_as(q))
    torch.testing.assert_close(v, layer.v_bias.expand_as(v))
    torch.testing.assert_close(k, torch.zeros_like(k))


# ---------------------------------------------------------------- angles of any tokens


class ContentRoPE(RotaryEmbedding):
    """Angles from what attention is about to project, zero for a token of zeros."""

    def __init__(self, head_dim: int, num_heads: int) -> None:
        super().__init__(head_dim, num_heads)
        self.linear = nn.Linear(
            head_dim * num_heads, num_heads * head_dim // 2, bias=False
        )

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        return Rotary(
            self.linear(x).unflatten(-1, (self.num_heads, -1))
        )  # [B, n, h, P]


class TokenPositionsRoPE(MixedRoPE):
    """Mixed frequencies at positions of single tokens, which are set before the call."""

    positions: Tensor  # [B, N, 2], (x, y)

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        return Rotary(linear_angles(self.positions, self.freqs), self.pair_layout)


@pytest.mark.parametrize('shift', [(0, 0), (1, 2)])
@pytest.mark.parametrize('mask_padding', [False, True])
def test_angles_of_content_go_along_into_windows(shift: Size, mask_padding: bool):
    """Windows equal attention among the tokens of each alone, with all gradients."""
    grid, window_size = (5, 7), (3, 4)
    module = random(Attention(C, HEADS, rope=ContentRoPE(HEAD_DIM, HEADS)))
    x = tokens(2, *grid).requires_grad_()
    plan = plan_of(2, grid, window_size, shift=shift, mask_padding=mask_padding)
    padded = F.pad(x.unflatten(1, grid), (0, 0, 0, 1, 0, 1))
    expected = {}
    for group in groups(grid, window_size, shift, mask_padding):
        inputs = torch.stack([padded[:, row, column] for row, column in group], 1)
        expected.update(
            zip(group, module(inputs, (1, len(group))).unbind(1), strict=True)
        )
    tokens_of_grid = [
        (row, column) for row in range(grid[0]) for column in range(grid[1])
    ]
    outs = (
        module(x, grid, plan),
        torch.stack([expected[token] for token in tokens_of_grid], 1),
    )
    weights, inputs = torch.randn_like(x), [x, *module.parameters()]
    results = [[out, *torch.autograd.grad(out, inputs, weights)] for out in outs]
    for found, wanted in zip(*results, strict=True):
        assert relative_error(found, wanted) < 1e-12


@pytest.mark.parametrize('plan', [None, plan_of(2, (2, 3), (2, 2), shift=(1, 1))])
def test_gradients_reach_the_parameters_of_an_embedding_of_content(
    plan: WindowPlan | None,
):
    module = random(Attention(C, HEADS, rope=ContentRoPE(HEAD_DIM, HEADS)))
    x = tokens(2, 2, 3).requires_grad_()

    def function(x: Tensor, *_: Tensor) -> Tensor:
        return module(x, (2, 3), plan)

    assert torch.autograd.gradcheck(function, (x, *module.parameters()), fast_mode=True)


def test_some_tokens_attend_as_among_all_without_the_others():
    """An embedding of the positions of a random subset of tokens, another one of each image."""
    rope = TokenPositionsRoPE(HEAD_DIM, HEADS)
    module, x = random(Attention(C, HEADS, rope=rope)), tokens(2, 4, 5).requires_grad_()
    grid = torch.tensor(
        [(c, r) for r in range(4) for c in range(5)], dtype=torch.float64
    )
    some = torch.stack([torch.randperm(20)[:7] for _ in range(2)])  # [B, n]
    rope.positions = grid[some]
    out = module(x.gather(1, some[..., None].expand(-1, -1, C)), (1, 7))
    for image in range(2):
        positions = [tuple(position) for position in grid[some[image]].tolist()]
        expected = attention(module, x[image, some[image]], rope.freqs, positions)
        assert relative_error(out[image], expected) < 1e-12

    def function(x: Tensor, freqs: Tensor) -> Tensor:
        return module(x, (4, 5))

    rope.positions = grid.expand(2, -1, -1)
    assert torch.autograd.gradcheck(function, (x, rope.freqs), fast_mode=True)


@pytest.mark.parametrize('prefix', [0, 2])
def test_an_offset_of_the_grid_matters_to_prefix_tokens_alone(prefix: int):
    """They are not rotated, so a score with them depends on the position of the other token."""
    module = random(
        Attention(C, HEADS, rope=ROPES['mixed'](), num_prefix_tokens=prefix)
    )
    moved = MixedRoPE(HEAD_DIM, HEADS, coordinates=dict(offset=5.0))
    other = Attention(C, HEADS, rope=moved, num_prefix_tokens=prefix).double()
    other.load_state_dict(module.state_dict())
    x = torch.randn(2, prefix + 6, C, dtype=torch.float64)
    assert torch.allclose(module(x, (2, 3)), other(x, (2, 3))) == (prefix == 0)


def test_shifted_windows_equal_separate_groups_in_global_coordinates():
    module = random(Attention(C, HEADS, rope=ROPES['mixed']()))
    x = tokens(1, 7, 9)
    plan = plan_of(1, (7, 9), (3, 4), shift=(2, 1))
    expected = separate_attention(module, x.unflatten(1, (7, 9)), (3, 4), (2, 1), False)
    torch.testing.assert_close(module(x, (7, 9), plan), expected.flatten(1, 2))
