"""Slow, obvious implementations in float64: one token, one head, one pair at a time.

Letters: N tokens, h heads, P channel pairs, C channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rope_dense.backbones.attention import Attention
from rope_dense.backbones.position_bias import DecomposedBiasAttention

Positions = Sequence[tuple[float, float]]  # (x, y) of each token


def rotated(x: Tensor, freqs: Tensor, positions: Positions) -> Tensor:
    """Rotate tokens x [N, h, D] by complex multiplication of interleaved pairs; freqs [2, h, P]."""
    out = x.double().clone()
    for n, (column, row) in enumerate(positions):
        for head in range(x.shape[1]):
            for pair in range(freqs.shape[-1]):
                f_x, f_y = freqs[:, head, pair].tolist()
                angle = f_x * column + f_y * row
                value = complex(*x[n, head, 2 * pair : 2 * pair + 2].tolist())
                value *= complex(math.cos(angle), math.sin(angle))
                out[n, head, 2 * pair : 2 * pair + 2] = x.new_tensor(
                    [value.real, value.imag], dtype=torch.float64
                )
    return out


def attention(
    module: Attention, x: Tensor, freqs: Tensor | None, positions: Positions
) -> Tensor:
    """Attention of one sequence x [N, C] at integer positions; freqs [2, h, P] or None.

    Adds the decomposed relative position bias when the module has tables, without resizing them.
    """
    heads = module.num_heads
    x = x.double()
    qkv = x @ module.qkv.weight.double().T + module.qkv.bias.double()
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(1)  # [N, h, D]
    if freqs is not None:
        q, k = rotated(q, freqs, positions), rotated(k, freqs, positions)
    scores = torch.einsum('ihd,jhd->hij', q, k) / math.sqrt(q.shape[-1])
    if isinstance(module, DecomposedBiasAttention):
        scores = scores + relative_position_bias(module, q, positions)
    out = torch.einsum('hij,jhd->ihd', scores.softmax(-1), v).flatten(1)
    return out @ module.proj.weight.double().T + module.proj.bias.double()


def relative_position_bias(
    module: DecomposedBiasAttention, q: Tensor, positions: Positions
) -> Tensor:
    """[h, N, N]: query i meets the table entries of its row and column offset to key j."""
    bias = q.new_zeros(q.shape[1], len(positions), len(positions))
    table_h, table_w = module.rel_pos_h.double(), module.rel_pos_w.double()
    middle_h, middle_w = len(table_h) // 2, len(table_w) // 2
    for i, (column, row) in enumerate(positions):
        for j, (other_column, other_row) in enumerate(positions):
            rows, columns = int(row - other_row), int(column - other_column)
            entry = table_h[rows + middle_h] + table_w[columns + middle_w]
            bias[:, i, j] = q[i] @ entry
    return bias


def windowed_attention(
    module: Attention,
    x: Tensor,
    window_size: tuple[int, int],
    freqs: Tensor | None,
    mask_padding: bool = False,
) -> Tensor:
    """Attention within windows of one image x [H, W, C]: token by token, with *image* coordinates.

    Windows that reach over the bottom or right edge are filled with zero tokens, which take part
    unless ``mask_padding``.
    """
    height, width, channels = x.shape
    out = torch.zeros(height, width, channels, dtype=torch.float64)
    for top in range(0, height, window_size[0]):
        for left in range(0, width, window_size[1]):
            rows = range(top, top + window_size[0])
            columns = range(left, left + window_size[1])
            positions = [(column, row) for row in rows for column in columns]
            if mask_padding:
                positions = [(c, r) for c, r in positions if r < height and c < width]
            inside = [row < height and column < width for column, row in positions]
            tokens = torch.zeros(len(positions), channels, dtype=x.dtype)
            for n, (column, row) in enumerate(positions):
                if inside[n]:
                    tokens[n] = x[row, column]
            result = attention(module, tokens, freqs, positions)
            for n, (column, row) in enumerate(positions):
                if inside[n]:
                    out[row, column] = result[n]
    return out


def attention_among(
    module: Attention, x: Tensor, angles: Tensor, keys: list[list[int]]
) -> Tensor:
    """Attention of one sequence x [N, C], one query and one head at a time; differentiable.

    Args:
        module: in float64, with a bias for queries, keys and values.
        angles: [N, h, P] radians of interleaved pairs, zero for a token without position.
        keys: for each token those that it attends to.
    """
    qkv = x @ module.qkv.weight.T + module.qkv.bias
    q, k, v = qkv.unflatten(-1, (3, module.num_heads, -1)).unbind(1)  # [N, h, D]
    factors = torch.polar(torch.ones_like(angles), angles)  # [N, h, P]
    pairs = (y.unflatten(-1, (-1, 2)).contiguous() for y in (q, k))
    q, k = (
        torch.view_as_real(torch.view_as_complex(y) * factors).flatten(-2)
        for y in pairs
    )
    out = []
    for token, others in enumerate(keys):
        for head in range(module.num_heads):
            products = [q[token, head] @ k[other, head] for other in others]
            weights = (torch.stack(products) / math.sqrt(q.shape[-1])).softmax(0)
            out.append(
                sum(
                    w * v[other, head] for w, other in zip(weights, others, strict=True)
                )
            )
    joined = torch.stack(out).view(len(keys), -1)
    return joined @ module.proj.weight.T + module.proj.bias


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected magnitude."""
    difference = (actual.double() - expected.double()).abs().max()
    return (difference / expected.double().abs().max()).item()
