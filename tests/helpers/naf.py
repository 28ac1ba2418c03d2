"""NAF written out position by position in float64, its published keys, and its authors' code.

``ROPE_DENSE_NAF`` names a checkout of valeoai/NAF (checked at ad4e24d). NATTEN, which it needs, is
replaced by loops.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

VARIABLE = 'ROPE_DENSE_NAF'


def published_weights() -> dict[str, Tensor]:
    """Random weights with the names and shapes of naf_release.pth."""
    weights: dict[str, Tensor] = {}
    for name, kernel in (('encoder', 1), ('sem_encoder', 3)):
        weights[f'{name}.0.weight'] = torch.randn(128, 3, kernel, kernel) * 0.3
        weights[f'{name}.0.bias'] = torch.randn(128) * 0.1
        for block in (1, 2):
            for part in (1, 2):
                path, fan_in = f'{name}.{block}', 128 * kernel**2
                weight = torch.randn(128, 128, kernel, kernel) * 1.5 * fan_in**-0.5
                weights[f'{path}.conv{part}.weight'] = weight
                weights[f'{path}.norm{part}.weight'] = torch.rand(128) + 0.5
                for layer in ('conv', 'norm'):
                    weights[f'{path}.{layer}{part}.bias'] = torch.randn(128) * 0.1
    periods = {'rope.periods': 100 ** (torch.arange(16) / 16)}
    return {
        f'image_encoder.{name}': value for name, value in (weights | periods).items()
    }


def fine_features(
    weights: dict[str, Tensor], image: Tensor, features: Tensor, size: tuple[int, int]
) -> Tensor:
    """The formula, [B, C, h, w] to [B, C, H, W], in float64."""
    weights = {name.split('.', 1)[1]: value.double() for name, value in weights.items()}
    image, features = image.double(), features.double()
    limit = 4 * min(size)
    if image.shape[2] > 4 * size[0] or image.shape[3] > 4 * size[1]:
        sides = [min(side, limit) for side in image.shape[2:]]
        image = F.interpolate(image, sides, mode='bilinear', align_corners=False)
    maps = [convolutions(weights, name, image) for name in ('encoder', 'sem_encoder')]
    queries = rotated(averages(torch.cat(maps, 1), size))
    height, width = features.shape[2:]
    keys = averages(queries, (height, width))
    out = features.new_zeros(*features.shape[:2], *size)
    rows, columns = (
        [window(i, coarse, fine) for i in range(fine)]
        for coarse, fine in zip(features.shape[2:], size, strict=True)
    )
    q, k, v, result = (x.unflatten(1, (4, -1)) for x in (queries, keys, features, out))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            near, values = (x[:, :, :, row][..., column].flatten(3) for x in (k, v))
            scores = torch.einsum('bhd,bhdn->bhn', q[..., i, j], near) / 8
            result[..., i, j] = torch.einsum(
                'bhn,bhen->bhe', scores.softmax(-1), values
            )
    return out


def convolutions(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    def convolve(path: str, x: Tensor) -> Tensor:
        weight = weights[f'{path}.weight']
        side = weight.shape[-1] // 2
        x = F.pad(x, (side, side, side, side), mode='reflect')
        return F.conv2d(x, weight, weights[f'{path}.bias'])

    def norm(path: str, x: Tensor) -> Tensor:
        groups = x.unflatten(1, (8, 16)).flatten(2)
        mean, var = (
            groups.mean(2, keepdim=True),
            groups.var(2, keepdim=True, unbiased=False),
        )
        x = ((groups - mean) / (var + 1e-5).sqrt()).view_as(x)
        weight, bias = (
            weights[f'{path}.{part}'].view(-1, 1, 1) for part in ('weight', 'bias')
        )
        return x * weight + bias

    x = convolve(f'{name}.0', x)
    for block in (1, 2):
        for part in (1, 2):
            x = norm(f'{name}.{block}.norm{part}', x)
            x = convolve(f'{name}.{block}.conv{part}', x * x.sigmoid())
    return x


def averages(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Means of the pixels that each position covers, also in part."""
    out = x.new_zeros(*x.shape[:2], *size)
    spans = [
        [
            (i * n // parts, math.ceil(Fraction((i + 1) * n, parts)))
            for i in range(parts)
        ]
        for n, parts in zip(x.shape[2:], size, strict=True)
    ]
    for i, (top, bottom) in enumerate(spans[0]):
        for j, (left, right) in enumerate(spans[1]):
            out[:, :, i, j] = x[:, :, top:bottom, left:right].mean((2, 3))
    return out


def rotated(x: Tensor) -> Tensor:
    """Complex products; channels t and t + 32 of a head of 64 are a pair, 16 of rows first."""
    y, x_axis = (2 * (torch.arange(n).double() + 0.5) / n - 1 for n in x.shape[2:])
    frequencies = 2 * math.pi * 100 ** (-torch.arange(16).double() / 16)
    rows = (
        (y[:, None] * frequencies).T[:, :, None].expand(-1, -1, len(x_axis))
    )  # [16, H, W]
    columns = (x_axis[:, None] * frequencies).T[:, None].expand(-1, len(y), -1)
    angles = torch.cat([rows, columns])  # [32, H, W]
    real, imaginary = x.unflatten(1, (4, 2, 32)).unbind(2)
    z = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
    return torch.stack([z.real, z.imag], 2).flatten(1, 3)


def window(i: int, coarse: int, fine: int, length: int = 9) -> list[int]:
    """Coarse positions that fine position i sees along an axis, some of them several times."""
    length = min(length, coarse)
    members = range(i % (fine // coarse), fine, fine // coarse)
    start = min(max(members.index(i) - length // 2, 0), len(members) - length)
    enlarged = members[start : start + length]
    return [math.floor((Fraction(1, 2) + j) * coarse / fine) for j in enlarged]


def naf() -> nn.Module:
    """The authors' model with random weights; skips without a checkout."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f'{VARIABLE} names no checkout of NAF')
    pytest.importorskip('einops')
    folder = Path(os.environ[VARIABLE])
    assert (folder / 'src' / 'model' / 'naf.py').is_file(), folder
    sys.modules['natten'] = natten = ModuleType('natten')
    natten.na2d = neighbourhood_attention  # type: ignore[attr-defined]
    sys.path.insert(0, str(folder))
    return importlib.import_module('src.model.naf').NAF().eval()


def neighbourhood_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kernel_size: tuple[int, int],
    dilation: tuple[int, int],
    **others: object,
) -> Tensor:
    """NATTEN's ``na2d`` of [B, H, W, heads, D], position by position."""

    def start(i: int, length: int, kernel: int, step: int) -> int:
        first, last = i % step, (length - 1 - i % step) // step
        return first + step * min(max(i // step - kernel // 2, 0), last + 1 - kernel)

    out = torch.zeros_like(v)
    for i in range(q.shape[1]):
        top = start(i, q.shape[1], kernel_size[0], dilation[0])
        for j in range(q.shape[2]):
            left = start(j, q.shape[2], kernel_size[1], dilation[1])
            rows = slice(top, top + dilation[0] * kernel_size[0], dilation[0])
            columns = slice(left, left + dilation[1] * kernel_size[1], dilation[1])
            near, values = (x[:, rows, columns].flatten(1, 2) for x in (k, v))
            scores = (
                torch.einsum('bhd,bnhd->bhn', q[:, i, j], near) * q.shape[-1] ** -0.5
            )
            out[:, i, j] = torch.einsum('bhn,bnhd->bhd', scores.softmax(-1), values)
    return out
