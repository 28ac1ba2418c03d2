"""Neighbourhood attention and SHI-Labs' models, written out from their papers and weights.

Attention is computed token by token, from the names and tables of the published files; gradients
pass through. Letters: K kernel size, d dilation, h heads, D channels of a head, C channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
Rotation = Callable[[Tensor], Tensor]  # of [H, W, h, D]


def neighbours(index: int, length: int, kernel: int, dilation: int) -> list[int]:
    """The positions that ``index`` attends to along an axis of ``length`` >= K d tokens."""
    group, place = index % dilation, index // dilation
    size = len(range(group, length, dilation))
    start = min(max(place - kernel // 2, 0), size - kernel)
    return [group + dilation * (start + step) for step in range(kernel)]


def neighbourhood_attention(
    x: Tensor,
    weights: Weights,
    heads: int,
    kernel: tuple[int, int],
    dilation: int,
    rotation: Rotation | None = None,
) -> Tensor:
    """Attention of one image [H, W, C] in float64.

    Args:
        weights: qkv, proj and, for a bias, rpb [h, 2 K - 1, 2 K - 1] over (key - query) / d.
        rotation: of queries and keys; sees the padded image.
    """
    height, width, _ = x.shape
    rows, columns = (
        max(n, k * dilation) for n, k in zip((height, width), kernel, strict=True)
    )
    x = F.pad(x, (0, 0, 0, columns - width, 0, rows - height))
    qkv = F.linear(x, weights['qkv.weight'], weights['qkv.bias'])
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(2)  # [H', W', h, D]
    if rotation is not None:
        q, k = rotation(q), rotation(k)
    out = []
    for row, column in itertools.product(range(height), range(width)):
        keys = list(
            itertools.product(
                neighbours(row, rows, kernel[0], dilation),
                neighbours(column, columns, kernel[1], dilation),
            )
        )
        scores = (
            torch.stack([(q[row, column] * k[key]).sum(-1) for key in keys])
            / q.shape[-1] ** 0.5
        )
        if 'rpb' in weights:
            offsets = [
                (
                    (r - row) // dilation + kernel[0] - 1,
                    (c - column) // dilation + kernel[1] - 1,
                )
                for r, c in keys
            ]
            scores = scores + torch.stack([weights['rpb'][:, i, j] for i, j in offsets])
        values = torch.stack([v[key] for key in keys])  # [K * K, h, D]
        out.append((scores.softmax(0)[..., None] * values).sum(0).flatten())
    out = torch.stack(out).unflatten(0, (height, width))
    return F.linear(out, weights['proj.weight'], weights['proj.bias'])


def published_model(
    weights: Weights,
    image: Tensor,
    heads: Sequence[int],
    dilations: Sequence[Sequence[int]],
    kernel: int,
) -> list[Tensor]:
    """The maps of each stage before their norms, [C, H, W] of one image [3, height, width], from a
    state dict of NAT, DiNAT (``levels``) or DiNAT-s (``layers``) in float64."""
    levels = 'levels.0.blocks.0.norm1.weight' in weights
    x = conv_stem(weights, image) if levels else patch_stem(weights, image)  # [H, W, C]
    outs = []
    for stage, (number, of_stage) in enumerate(zip(heads, dilations, strict=True)):
        name = f'{"levels" if levels else "layers"}.{stage}'
        for block, dilation in enumerate(of_stage):
            x = transformer_block(
                part(weights, f'{name}.blocks.{block}'), x, number, kernel, dilation
            )
        outs.append(x.permute(2, 0, 1))
        if stage + 1 < len(heads):
            reduce = conv_reduction if levels else patch_merging
            x = reduce(part(weights, f'{name}.downsample'), x)
    return outs


def part(weights: Weights, name: str) -> Weights:
    start = f'{name}.'
    return {
        key.removeprefix(start): w
        for key, w in weights.items()
        if key.startswith(start)
    }


def norm(weights: Weights, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weights['weight'], weights['bias'], 1e-5)


def transformer_block(
    weights: Weights, x: Tensor, heads: int, kernel: int, dilation: int
) -> Tensor:
    gammas = [
        weights.get(name, torch.ones(x.shape[-1])) for name in ('gamma1', 'gamma2')
    ]
    y = norm(part(weights, 'norm1'), x)
    y = neighbourhood_attention(
        y, part(weights, 'attn'), heads, (kernel, kernel), dilation
    )
    x = x + gammas[0] * y
    y = norm(part(weights, 'norm2'), x)
    hidden = F.gelu(F.linear(y, weights['mlp.fc1.weight'], weights['mlp.fc1.bias']))
    return x + gammas[1] * F.linear(
        hidden, weights['mlp.fc2.weight'], weights['mlp.fc2.bias']
    )


def conv_stem(weights: Weights, image: Tensor) -> Tensor:
    x = image[None]
    for name in ('patch_embed.proj.0', 'patch_embed.proj.1'):
        x = F.conv2d(
            x, weights[f'{name}.weight'], weights[f'{name}.bias'], stride=2, padding=1
        )
    return norm(part(weights, 'patch_embed.norm'), x[0].permute(1, 2, 0))


def conv_reduction(weights: Weights, x: Tensor) -> Tensor:
    x = F.conv2d(
        x.permute(2, 0, 1)[None], weights['reduction.weight'], stride=2, padding=1
    )
    return norm(part(weights, 'norm'), x[0].permute(1, 2, 0))


def patch_stem(weights: Weights, image: Tensor) -> Tensor:
    height, width = image.shape[1:]
    image = F.pad(image, (0, -width % 4, 0, -height % 4))
    name = 'patch_embed.proj'
    x = F.conv2d(
        image[None], weights[f'{name}.weight'], weights[f'{name}.bias'], stride=4
    )
    return norm(part(weights, 'patch_embed.norm'), x[0].permute(1, 2, 0))


def patch_merging(weights: Weights, x: Tensor) -> Tensor:
    height, width, _ = x.shape
    x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
    corners = [x[row::2, column::2] for column in (0, 1) for row in (0, 1)]
    return F.linear(
        norm(part(weights, 'norm'), torch.cat(corners, -1)), weights['reduction.weight']
    )
