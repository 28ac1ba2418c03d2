"""Attention distance and entropy against attention token by token in float64."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import kinds  # noqa: F401 (LinearAttention)
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.reference_nat import neighbours
from helpers.reference_swin import label, padded_size
from research import attention_statistics
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.base import Backbone

Place = tuple[int, int]  # (row, column)
MIXED = dict(type='MixedRoPE')


@dataclass
class Token:
    """A query or key: its features [C], where it is rotated to, and where it is in the image."""

    x: Tensor
    rotated_to: Place | None = None
    place: Place | None = None  # None for the prefix and for padding
    weight: float = 1.0


Group = tuple[list[Token], list[Token]]  # queries and their keys
Grouping = Callable[[Attention, Tensor, Place], Iterator[Group]]
Bias = Callable[[Attention, int, Token, Token], float]  # by head


def projected(attn: Attention, token: Token, part: int) -> list[list[complex]]:
    """The query (0) or key (1) of a token, each head as complex numbers, rotated."""
    channels = attn.proj.in_features
    rows = slice(part * channels, (part + 1) * channels)
    values = (attn.qkv.weight[rows] @ token.x + attn.qkv.bias[rows]).view(
        attn.num_heads, -1, 2
    )
    out = []
    for head in range(attn.num_heads):
        numbers = [complex(*pair) for pair in values[head].tolist()]
        if attn.rope is not None and token.rotated_to is not None:
            row, column = token.rotated_to
            for pair, (f_x, f_y) in enumerate(attn.rope.freqs[:, head].T.tolist()):
                numbers[pair] *= cmath.exp(1j * (f_x * column + f_y * row))
        out.append(numbers)
    return out


def loop(attn: Attention, groups: Iterator[Group], bias: Bias | None) -> list[float]:
    """Sums over queries and heads of weighted distance and entropy, and of the weights."""
    sums = [0.0, 0.0, 0.0]
    head_dim = attn.proj.in_features // attn.num_heads
    for queries, keys in groups:
        all_keys = [projected(attn, key, 1) for key in keys]
        for query in queries:
            q = projected(attn, query, 0)
            for head in range(attn.num_heads):
                scores = [
                    sum(
                        (a * b.conjugate()).real
                        for a, b in zip(q[head], k[head], strict=True)
                    )
                    / math.sqrt(head_dim)
                    + (bias(attn, head, query, key) if bias else 0.0)
                    for key, k in zip(keys, all_keys, strict=True)
                ]
                exps = [math.exp(score - max(scores)) for score in scores]
                for key, value in zip(keys, exps, strict=True):
                    p = value / sum(exps)
                    if query.place is not None and key.place is not None:
                        sums[0] += query.weight * p * math.dist(query.place, key.place)
                    sums[1] -= query.weight * p * math.log(p)
                sums[2] += query.weight
    return sums


def places(height: int, width: int) -> list[Place]:
    return list(itertools.product(range(height), range(width)))


def grid_tokens(x: Tensor, grid: Place) -> list[Token]:
    """Prefix tokens, which are what is more than the grid, and tokens of the grid."""
    before = len(x) - grid[0] * grid[1]
    prefix = [Token(row) for row in x[:before]]
    return prefix + [
        Token(row, at, at) for row, at in zip(x[before:], places(*grid), strict=True)
    ]


def whole(attn: Attention, x: Tensor, grid: Place) -> Iterator[Group]:
    tokens = grid_tokens(x, grid)
    yield tokens, tokens


def window_groups(
    tokens: dict[Place, Token], window: Place, x: Tensor
) -> Iterator[list[Token]]:
    """The tokens of each window, padding among them, rotated to their places in the window."""
    height, width = padded_size(
        tuple(max(axis) + 1 for axis in zip(*tokens, strict=True)), window
    )
    for top, left in itertools.product(
        range(0, height, window[0]), range(0, width, window[1])
    ):
        inside = []
        for row, column in places(*window):
            token = tokens.get(
                (top + row, left + column), Token(torch.zeros_like(x[0]), weight=0)
            )
            inside.append(Token(token.x, (row, column), token.place, token.weight))
        yield inside


def copied_windows(attn: Attention, x: Tensor, grid: Place) -> Iterator[Group]:
    """Windows of 3 x 2, each with its copy of the prefix tokens."""
    number, window = attn.num_prefix_tokens, (3, 2)
    before = len(x) - grid[0] * grid[1]
    tokens = {token.place: token for token in grid_tokens(x, grid)[before:]}
    for index, inside in enumerate(window_groups(tokens, window, x)):
        copies = x[index * number : (index + 1) * number]
        prefix = [Token(row, weight=number / before) for row in copies]
        yield prefix + inside, prefix + inside


def windows_and_prefix(attn: Attention, x: Tensor, grid: Place) -> Iterator[Group]:
    """Windows of 3 x 2 that see the prefix tokens, which see all; positions of the whole grid."""
    tokens = grid_tokens(x, grid)
    prefix, others = tokens[: attn.num_prefix_tokens], tokens[attn.num_prefix_tokens :]
    for inside in window_groups({token.place: token for token in others}, (3, 2), x):
        real = [
            Token(token.x, token.place, token.place) for token in inside if token.place
        ]
        yield real, prefix + real
    yield prefix, tokens


def shifted_windows(attn: Attention, x: Tensor, grid: Place) -> Iterator[Group]:
    """Swin's windows of 3 x 3 in an even or odd block: tokens with the same label."""
    window, shift = (3, 3), (1, 1) if attn.is_shifted else (0, 0)
    rows, columns = padded_size(grid, window)
    groups: dict[object, list[Token]] = {}
    for row, column in places(rows, columns):
        is_real = row < grid[0] and column < grid[1]
        features = x[row * grid[1] + column] if is_real else torch.zeros_like(x[0])
        token = Token(
            features, (row, column), (row, column) if is_real else None, float(is_real)
        )
        groups.setdefault(
            label((row, column), (rows, columns), window, shift), []
        ).append(token)
    for group in groups.values():
        yield group, group


def swin_bias(attn: Attention, head: int, query: Token, key: Token) -> float:
    """Entry of a table for windows of 3 x 3; shifted windows wrap around the padded grid."""
    (row, column), (other_row, other_column) = query.rotated_to, key.rotated_to
    entry = (row - other_row + 2) * 5 + column - other_column + 2
    return float(attn.relative_position_bias_table[entry, head])


def neighbourhoods(attn: Attention, x: Tensor, grid: Place) -> Iterator[Group]:
    """3 x 3 neighbours of each token, padded to 3 times the dilation."""
    rows, columns = (max(side, 3 * attn.dilation) for side in grid)
    nothing = torch.zeros_like(x[0])
    tokens = {at: Token(nothing, at) for at in places(rows, columns)}
    tokens |= {token.place: token for token in grid_tokens(x, grid)}
    for row, column in places(*grid):
        near = itertools.product(
            neighbours(row, rows, 3, attn.dilation),
            neighbours(column, columns, 3, attn.dilation),
        )
        yield [tokens[row, column]], [tokens[at] for at in near]


def nat_bias(attn: Attention, head: int, query: Token, key: Token) -> float:
    steps = [
        (a - b) // attn.dilation + 2
        for a, b in zip(query.rotated_to, key.rotated_to, strict=True)
    ]
    return float(attn.relative_position_bias_table[steps[0] * 5 + steps[1], head])


SMALL = dict(embed_dims=16, depth=2, num_heads=2, patch_size=4, img_size=16)
PREFIX = dict(
    with_cls_token=True,
    num_registers=1,
    window_size=(3, 2),
    window_block_indexes=(0, 1),
)
STAGES = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
MODELS: dict[str, tuple[Callable[[], Backbone], Grouping, Bias | None]] = {
    'vit mixed': (lambda: RoPEViT(SMALL, rope=MIXED, with_cls_token=True), whole, None),
    'vit ape': (lambda: RoPEViT(SMALL, rope=None, use_ape=True), whole, None),
    'vit windows, copied prefix': (
        lambda: RoPEViT(SMALL, rope=MIXED, **PREFIX),
        copied_windows,
        None,
    ),
    'vit windows, global prefix': (
        lambda: RoPEViT(SMALL, rope=MIXED, window_prefix='global', **PREFIX),
        windows_and_prefix,
        None,
    ),
    'swin': (
        lambda: RoPESwin(
            STAGES,
            rope=MIXED,
            attention=dict(type='TableBias'),
            window_size=3,
            pretrain_window_size=3,
            out_indices=(1,),
        ),
        shifted_windows,
        swin_bias,
    ),
    'nat': (
        lambda: RoPENAT(
            dict(STAGES, mlp_ratio=2.0),
            rope=MIXED,
            attention=dict(type='TableBias'),
            kernel_size=3,
            pretrain_kernel_size=3,
            dilations=((1, 2), (1, 3)),
            out_indices=(1,),
        ),
        neighbourhoods,
        nat_bias,
    ),
}


def lively(model: Backbone) -> Backbone:
    """Weights that make attention uneven."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'freqs' not in name:
            nn.init.normal_(parameter, std=0.5)
        elif name.endswith('bias'):
            nn.init.normal_(parameter, std=0.2)
    return model.double().eval()


@pytest.mark.parametrize('name', MODELS)
@torch.no_grad()
def test_statistics_are_those_of_a_loop(name: str) -> None:
    """Two images of 20 x 28 pixels: 5 x 7 tokens, then 3 x 4, which windows have to pad."""
    build, grouping, bias = MODELS[name]
    model, seen = lively(build()), []
    images = [torch.randn(1, 3, 20, 28, dtype=torch.float64) for _ in range(2)]
    for index, block in enumerate(model.ordered_blocks):
        block.attn.is_shifted = index % 2 == 1
        block.attn.dilation = {1: 2, 3: 3}.get(index, 1)
        block.attn.register_forward_pre_hook(
            lambda attn, args: seen.append((attn, *args[:2]))
        )
    found = attention_statistics(model, images)
    expected: dict[Attention, list[float]] = {}
    for attn, x, grid in seen:
        sums = expected.setdefault(attn, [0.0, 0.0, 0.0])
        for index, value in enumerate(loop(attn, grouping(attn, x[0], grid), bias)):
            sums[index] += value
    for statistics, (distance, entropy, weight) in zip(
        found, expected.values(), strict=True
    ):
        assert statistics.distance == pytest.approx(distance / weight, rel=1e-9)
        assert statistics.entropy == pytest.approx(entropy / weight, rel=1e-9)
    assert [of.block for of in found] == list(range(len(model.ordered_blocks)))
    strides = [4, 4, 4, 4] if name.startswith('vit') else [4, 4, 8, 8]
    assert [of.stride for of in found] == strides[: len(found)]
    assert found[-1].distance_px == found[-1].distance * strides[len(found) - 1]


@pytest.mark.parametrize('name', MODELS)
def test_images_count_alike_one_by_one_and_together(name: str) -> None:
    model = lively(MODELS[name][0]())
    images = torch.randn(3, 3, 20, 28, dtype=torch.float64)
    together, apart = (
        attention_statistics(model, of) for of in (images[None], images[:, None])
    )
    for one, other in zip(together, apart, strict=True):
        assert one.distance == pytest.approx(other.distance, rel=1e-9)
        assert one.entropy == pytest.approx(other.entropy, rel=1e-9)


def test_the_model_is_as_before() -> None:
    model, image = (
        lively(MODELS['swin'][0]()),
        torch.randn(1, 3, 20, 28, dtype=torch.float64),
    )
    before = model(image)[0]
    attention_statistics(model, [image])
    assert torch.equal(model(image)[0], before)
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )


def test_even_attention_has_the_mean_distance_and_the_logarithm() -> None:
    model = RoPEViT(dict(SMALL, depth=1), rope=None, with_cls_token=False).eval()
    nn.init.zeros_(model.blocks[0].attn.qkv.weight)
    (found,) = attention_statistics(model, [torch.randn(1, 3, 16, 32)])
    at = places(4, 8)
    mean = sum(math.dist(a, b) for a in at for b in at) / len(at) ** 2
    assert found.distance == pytest.approx(mean, rel=1e-6)
    assert found.entropy == pytest.approx(math.log(32), rel=1e-6)


class LargestTensor(TorchDispatchMode):
    """The elements of the largest tensor that any operation makes within it."""

    elements = 0

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().nbytes():
                stored = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, stored)
        return out


def test_memory_does_not_grow_with_the_square_of_the_tokens() -> None:
    """576 tokens: 331,776 pairs and two heads; no tensor is larger than the activations."""
    model = RoPEViT(dict(SMALL, depth=1), rope=MIXED, with_cls_token=False).eval()
    image, tokens = torch.randn(1, 3, 96, 96), 24 * 24
    activations = tokens * 4 * 16  # of the MLP
    found = {}
    for chunk in (2**14, 2**24):
        with LargestTensor() as largest:
            (found[chunk],) = attention_statistics(model, [image], chunk)
        if chunk == 2**14:
            assert largest.elements <= max(chunk, activations) < tokens**2 / 8
    assert largest.elements == 2 * tokens**2  # in one piece
    assert found[2**14].distance == pytest.approx(found[2**24].distance, rel=1e-6)
    assert found[2**14].entropy == pytest.approx(found[2**24].entropy, rel=1e-6)


def test_what_cannot_be_measured() -> None:
    linear = RoPEViT(
        SMALL, rope=MIXED, attention=dict(type='LinearAttention', kernel='elu')
    ).eval()
    with pytest.raises(
        ValueError, match='block 0: LinearAttention does not call scaled_dot'
    ):
        attention_statistics(linear, [torch.randn(1, 3, 16, 16)])
    with pytest.raises(ValueError, match='images: there is none'):
        attention_statistics(RoPEViT(SMALL).eval(), [])
