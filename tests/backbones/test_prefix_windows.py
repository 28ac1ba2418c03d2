"""Prefix tokens and windows: copies for each window, or a prefix that attends globally."""

import pytest
import torch
from torch import Tensor, nn

from helpers.reference import attention_among, relative_error
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.attention import Attention, GlobalPrefixAttention, Place
from rope_dense.backbones.position_bias import (
    RelativePrefixAttention,
    TableBiasAttention,
)
from rope_dense.backbones.windows import WindowPlan, token_indexes, window_plan
from rope_dense.rope import AxialRoPE, MixedRoPE, Rotary, RotaryEmbedding
from rope_dense.rope.embeddings import linear_angles
from rope_dense.utils.sizes import Size

CPU = torch.device('cpu')
C, HEADS, HEAD_DIM = 16, 2, 8
P = 2  # prefix tokens
WINDOW = (3, 2)
ROPES = {
    'mixed': lambda: MixedRoPE(HEAD_DIM, HEADS),
    'axial': lambda: AxialRoPE(HEAD_DIM, HEADS),
    'that fits the grid': lambda: MixedRoPE(
        HEAD_DIM, HEADS, coordinates=dict(type='centres')
    ),
}
every_rope = pytest.mark.parametrize('rope', ROPES.values(), ids=ROPES)
GRIDS = (6, 4), (5, 3), (2, 5), (1, 2)
every_grid = pytest.mark.parametrize('grid', GRIDS)
every_form = pytest.mark.parametrize('form', ['copy', 'global'])


def random(module: nn.Module) -> nn.Module:
    """Weights far from zero, but not frequencies; in float64."""
    for name, parameter in module.named_parameters():
        if not name.endswith('freqs'):
            nn.init.normal_(parameter, std=0.4)
    return module.double()


def tokens(batch: int, grid: Size) -> Tensor:
    """[B, P + H W, C]."""
    x = torch.randn(batch, P + grid[0] * grid[1], C, dtype=torch.float64)
    return x.requires_grad_()


def same_with_gradients(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> bool:
    """To 1e-10 of the largest value of each."""
    weights = torch.randn_like(expected)
    results = [
        [out, *torch.autograd.grad(out, inputs, weights, retain_graph=True)]
        for out in (found, expected)
    ]
    return all(relative_error(a, b) < 1e-10 for a, b in zip(*results, strict=True))


# ---------------------------------------------------------------- token by token


def angles_at(
    rope: MixedRoPE | AxialRoPE, grid: Size, places: list[tuple[int, int]]
) -> Tensor:
    """[P + n, h, pairs]: zero for the prefix, and of (row, column) ``places`` on a grid."""
    step, start = 1.0, 0.0
    positions = torch.tensor(
        [(column, row) for row, column in places], dtype=torch.float64
    )
    if rope.coordinates.type == 'centres':  # in [-1, 1] on each axis
        sides = torch.tensor([grid[1], grid[0]], dtype=torch.float64)
        step, start = 2 / sides, 1 / sides - 1
    freqs = rope.frequencies(CPU).double().expand(-1, HEADS, -1)
    angles = linear_angles(positions * step + start, freqs)
    return torch.cat([angles.new_zeros(P, *angles.shape[1:]), angles])


def windows_of(grid: Size) -> list[list[tuple[int, int]]]:
    """(row, column) of the places of each window, padding included."""
    return [
        [
            (top + row, left + column)
            for row in range(WINDOW[0])
            for column in range(WINDOW[1])
        ]
        for top in range(0, grid[0], WINDOW[0])
        for left in range(0, grid[1], WINDOW[1])
    ]


def twice_with_copies(
    module: Attention, x: Tensor, grid: Size, mask_padding: bool
) -> Tensor:
    """Two attentions of one image [P + H W, C], each window with copies of the prefix, and the
    mean of the copies."""
    local = [(row, column) for row in range(WINDOW[0]) for column in range(WINDOW[1])]
    angles = angles_at(module.rope, WINDOW, local)
    windows, prefix, out = windows_of(grid), [], {}
    for window in windows:
        inside = [row < grid[0] and column < grid[1] for row, column in window]
        sequence = [*x[:P]]
        for (row, column), token_is_inside in zip(window, inside, strict=True):
            zero = torch.zeros(C, dtype=x.dtype)
            sequence.append(x[P + row * grid[1] + column] if token_is_inside else zero)
        keys = [
            n
            for n in range(len(sequence))
            if n < P or inside[n - P] or not mask_padding
        ]
        for _ in range(2):
            result = attention_among(
                module, torch.stack(sequence), angles, [keys] * len(sequence)
            )
            real = [n for n in range(len(sequence)) if n < P or inside[n - P]]
            sequence = [result[n] if n in real else zero for n in range(len(sequence))]
        prefix.append(torch.stack(sequence[:P]))
        out.update(zip(window, sequence[P:], strict=True))
    real = [out[row, column] for row in range(grid[0]) for column in range(grid[1])]
    return torch.cat([torch.stack(prefix).mean(0), torch.stack(real)])


@every_rope
@pytest.mark.parametrize(
    'grid, mask_padding', [*zip(GRIDS, [False, True] * 2, strict=True)]
)
def test_copies_equal_the_reference(rope, grid: Size, mask_padding: bool):
    module = random(Attention(C, HEADS, rope=rope(), num_prefix_tokens=P))
    options = dict(num_copies=P, mask_padding=mask_padding, device=CPU)
    plan, x = window_plan(2, grid, WINDOW, **options), tokens(2, grid)
    found = plan.mean_prefix(
        module(module(plan.copy_prefix(x), grid, plan), grid, plan)
    )
    expected = torch.stack(
        [twice_with_copies(module, of, grid, mask_padding) for of in x]
    )
    assert same_with_gradients(found, expected, [x, *module.parameters()])


@every_rope
@every_grid
def test_a_global_prefix_equals_the_reference(rope, grid: Size):
    """Global attention, in which a token of the grid sees its window and the prefix alone."""
    module = random(GlobalPrefixAttention(C, HEADS, rope=rope(), num_prefix_tokens=P))
    plan = window_plan(2, grid, WINDOW, num_shared=P, mask_padding=True, device=CPU)
    places = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
    window = {
        place: number for number, of in enumerate(windows_of(grid)) for place in of
    }
    keys = [[*range(P + len(places))]] * P
    for place in places:
        others = [
            P + n for n, other in enumerate(places) if window[other] == window[place]
        ]
        keys.append([*range(P), *others])
    x, angles = tokens(2, grid), angles_at(module.rope, grid, places)
    expected = torch.stack([attention_among(module, of, angles, keys) for of in x])
    assert same_with_gradients(
        module(x, grid, plan), expected, [x, *module.parameters()]
    )


def dilated_plan(batch: int, grid: Size, number: int = P) -> WindowPlan:
    """Every second token of each axis in one window of four, with copies of the prefix."""
    token = torch.arange(grid[0] * grid[1]).view(grid[0] // 2, 2, grid[1] // 2, 2)
    token = token.permute(1, 3, 0, 2).reshape(4, -1) + 4 * number  # [4, n]
    token = torch.cat([torch.arange(4 * number).view(4, -1), token], 1)
    image = torch.arange(batch).repeat_interleave(4)[:, None]
    shape = batch, 4 * number + grid[0] * grid[1]
    indexes = token_indexes(token.repeat(batch, 1), image, shape, is_padded=False)
    size = grid[0] // 2, grid[1] // 2
    return WindowPlan(size, 4, number, shape, 4 * batch, contiguous=False, **indexes)


@every_rope
@pytest.mark.parametrize('kind', [Attention, RelativePrefixAttention])
def test_tokens_of_dilated_windows_keep_their_positions(kind: type[Attention], rope):
    """As global attention with a mask; one prefix token in each window, which sees the window."""
    grid = (4, 6)
    module = random(kind(C, HEADS, rope=rope(), num_prefix_tokens=P))
    plan, x = dilated_plan(2, grid), tokens(2, grid)
    window = torch.arange(2)[:, None] * 2 + torch.arange(2)
    window = window.repeat(2, 3).flatten()  # [H W]
    mask = torch.ones(len(window) + P, len(window) + P, dtype=torch.bool)
    mask[P:, P:] = window[:, None] == window
    found = module(plan.copy_prefix(x), grid, plan)[:, 4 * P :]
    expected = module(x, grid, mask=mask.expand(2, 1, -1, -1))[:, P:]
    assert same_with_gradients(found, expected, [x, *module.parameters()])


def test_a_bias_by_offsets_refuses_dilated_windows():
    place = Place(grid=(4, 6), in_windows=True)
    module = TableBiasAttention(C, HEADS, num_prefix_tokens=0, place=place)
    x = torch.randn(1, 24, C)
    with pytest.raises(ValueError, match='needs windows of neighbours'):
        module(x, (4, 6), dilated_plan(1, (4, 6), 0))


# ---------------------------------------------------------------- the backbone


class ContentRoPE(RotaryEmbedding):
    """Angles from what attention is about to project."""

    def __init__(self, head_dim: int, num_heads: int) -> None:
        super().__init__(head_dim, num_heads)
        self.linear = nn.Linear(
            head_dim * num_heads, num_heads * head_dim // 2, bias=False
        )

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        x = x[:, -grid[0] * grid[1] :]
        return Rotary(
            self.linear(x).unflatten(-1, (self.num_heads, -1))
        )  # [B, n, h, pairs]


def vit(
    form: str, window_size: int | Size | None, rope: dict | None = None, **options
) -> RoPEViT:
    """Of four blocks, all but the third in windows; with the same weights in each call."""
    torch.manual_seed(0)
    settings = dict(
        arch=dict(embed_dims=C, depth=4, num_heads=HEADS),
        patch_size=2,
        rope=rope or dict(type='MixedRoPE'),
        num_registers=P - 1,
        window_size=window_size,
        window_block_indexes=(0, 1, 3),
        window_prefix=form,
    )
    return random(RoPEViT(**settings | options))


def images(height: int, width: int) -> Tensor:
    """Two, of ``height`` x ``width`` patches."""
    return torch.randn(2, 3, 2 * height, 2 * width, dtype=torch.float64)


@every_form
@pytest.mark.parametrize('coordinates', [None, dict(type='centres')])
def test_one_window_is_a_global_block(form: str, coordinates: dict | None):
    rope, image = dict(type='MixedRoPE', coordinates=coordinates), images(5, 7)
    results = []
    for window_size in (None, (5, 7)):
        model = vit(form, window_size, rope, output_prefix='all')
        out, prefix = model(image)[0]
        loss = out.square().sum() + prefix.square().sum()
        results.append(
            [out, prefix, *torch.autograd.grad(loss, list(model.parameters()))]
        )
    whole, one_window = results
    assert all(
        relative_error(a, b) < 1e-10 for a, b in zip(one_window, whole, strict=True)
    )
    if form == 'copy':
        assert torch.equal(one_window[0], whole[0]) and torch.equal(
            one_window[1], whole[1]
        )


@pytest.mark.parametrize('embedding', [MixedRoPE, ContentRoPE])
def test_a_window_with_copies_is_an_image_of_its_own(embedding: type[RotaryEmbedding]):
    """But for global blocks, which have the mean of the copies."""
    grid, window = (4, 6), (2, 3)
    model = vit('copy', window, output_prefix='all', out_indices=(0, 3))
    for block in model.blocks:
        block.attn.rope = random(embedding(HEAD_DIM, HEADS))
    image = images(*grid)
    (first, first_prefix), (last, last_prefix) = model(image)
    x, _ = model.embed(image)
    windows = model.blocks[0](cut(x, grid, window), window)
    expected = join(windows, grid, window)
    assert relative_error(first_prefix, expected[:, :P]) < 1e-10
    assert relative_error(first.flatten(2).mT, expected[:, P:]) < 1e-10
    x = model.blocks[2](join(model.blocks[1](windows, window), grid, window), grid)
    expected = join(model.blocks[3](cut(x, grid, window), window), grid, window)
    assert relative_error(last_prefix, expected[:, :P]) < 1e-10
    assert relative_error(last.flatten(2).mT, expected[:, P:]) < 1e-10


def cut(x: Tensor, grid: Size, window: Size) -> Tensor:
    """Images [B, P + H W, C] to windows [W, P + n, C], each with the prefix of its image."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    windows = (
        x[:, P:].unflatten(1, (rows, window[0], columns, window[1])).transpose(2, 3)
    )
    windows = windows.flatten(3, 4).flatten(1, 2)  # [B, W / B, n, C]
    prefix = x[:, None, :P].expand(-1, rows * columns, -1, -1)
    return torch.cat([prefix, windows], 2).flatten(0, 1)


def join(windows: Tensor, grid: Size, window: Size) -> Tensor:
    """The inverse, with the mean of the prefix tokens of the windows."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    windows = windows.unflatten(0, (-1, rows * columns))  # [B, W / B, P + n, C]
    tokens = windows[:, :, P:].unflatten(2, window).unflatten(1, (rows, columns))
    tokens = tokens.transpose(2, 3).flatten(1, 4)  # [B, H W, C]
    return torch.cat([windows[:, :, :P].mean(1), tokens], 1)


@every_form
@torch.no_grad()
def test_without_prefix_tokens_both_forms_are_plain_windows(form: str):
    plain = dict(with_cls_token=False, num_registers=0)
    model, image = vit(form, (3, 2), **plain), images(5, 7)
    assert all(type(block.attn) is Attention for block in model.blocks)
    plan = model.plan_windows(2, (5, 7), CPU)
    assert (
        plan.shape == (2, 35) and plan.mask is None
    )  # padding takes part, as published
    (out,) = model(image)
    assert not torch.equal(out, vit(form, (3, 2), mask_padding=True, **plain)(image)[0])


@torch.no_grad()
def test_a_global_prefix_sees_through_windows():
    """A change in one corner reaches the opposite one through the prefix, one block later."""
    model = vit('global', (2, 2), window_block_indexes=range(4), out_indices=(0, 1))
    image = images(4, 4)
    changed = image.clone()
    changed[:, :, :2, :2] += 1
    outs = zip(model(image), model(changed), strict=True)
    first, second = ((a - b).abs().amax(1)[0] > 1e-9 for a, b in outs)  # [4, 4]
    corner = torch.zeros(4, 4, dtype=torch.bool)
    corner[:2, :2] = True
    assert torch.equal(first, corner) and second.all()


@pytest.mark.parametrize('form, factor', [('copy', None), ('global', (2.0, 2.0))])
def test_a_fixed_scaling_belongs_to_coordinates_of_the_whole_grid(
    form: str, factor: object
):
    model = vit(form, 3, rope_scaling=dict(type='linear', factor=2.0))
    factors = [block.attn.rope.scaling.factor for block in model.blocks]
    assert factors == [factor, factor, (2.0, 2.0), factor]


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize('batch', [0, 1, 3])
@every_grid
def test_each_window_has_the_prefix_of_its_image(batch: int, grid: Size):
    plan = window_plan(batch, grid, WINDOW, num_copies=P, device=CPU)
    number = P + grid[0] * grid[1]
    x = torch.arange(batch * number).view(batch, number, 1)
    copied = plan.copy_prefix(x)
    windows = plan.partition(copied, torch.tensor([-1]))[..., 0]  # [W, P + n]
    assert windows.shape == (batch * plan.num_windows, P + 6)
    for window in windows:
        image = window[0] // number
        assert torch.equal(window[:P], x[image, :P, 0])
        real = window[P:][window[P:] >= 0]
        assert len(real) and bool((real // number == image).all())
    assert torch.equal(plan.unpartition(windows[..., None]), copied)
    assert torch.equal(plan.mean_prefix(copied.double()), x.double())


@pytest.mark.parametrize('options', [dict(num_copies=P), dict(num_shared=P)])
def test_masks_keep_padding_out_and_the_prefix_in(options: dict):
    plan = window_plan(2, (5, 3), WINDOW, mask_padding=True, device=CPU, **options)
    assert plan.num_unmasked == 0 and plan.mask.shape == (8, 1, 1, P + 6)
    assert plan.mask[..., :P].all()
    assert plan.mask[..., P:].sum() == 2 * 5 * 3
    whole = window_plan(2, (6, 4), WINDOW, mask_padding=True, device=CPU, **options)
    assert whole.mask is None
