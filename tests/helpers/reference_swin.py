"""Slow, obvious attention in shifted windows, in two forms that gradients pass through.

``masked_attention``: all tokens of the padded grid at once, with a mask over pairs.
``separate_attention``: without a mask; the tokens that attend to each other, one group at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.backbones.attention import Attention
from rope_dense.backbones.position_bias import TableBiasAttention

Token = tuple[int, int]  # (row, column) in the padded grid


def stage_output(
    blocks: Sequence[nn.Module],
    x: Tensor,
    window: Token,
    attention: Callable[..., Tensor],
    mask_padding: bool = False,
) -> Tensor:
    """Swin blocks without drop path; every other is shifted. x: [B, H, W, C].

    Args:
        attention: ``masked_attention`` or ``separate_attention``.
    """
    for index, block in enumerate(blocks):
        shift = tuple(side // 2 if index % 2 else 0 for side in window)
        x = x + attention(block.attn, block.norm1(x), window, shift, mask_padding)
        x = x + block.mlp.fc2(F.gelu(block.mlp.fc1(block.norm2(x))))
    return x


def masked_attention(
    attn: Attention, x: Tensor, window: Token, shift: Token, mask_padding: bool
) -> Tensor:
    """Attention [B, H, W, C] with the weights of ``attn``, in positions of the whole grid."""
    _, height, width, _ = x.shape
    rows, columns = padded_size((height, width), window)
    x = F.pad(x, (0, 0, 0, columns - width, 0, rows - height))
    tokens = list(itertools.product(range(rows), range(columns)))
    labels = [label(token, (rows, columns), window, shift) for token in tokens]
    together = torch.tensor([[one == other for other in labels] for one in labels])
    if mask_padding:  # padding sees itself only, so that its rows are numbers
        real = torch.tensor([row < height and column < width for row, column in tokens])
        together = together & (real | torch.eye(len(tokens), dtype=torch.bool))
    out = attend(attn, x.flatten(1, 2), tokens, window, together)
    return out.unflatten(1, (rows, columns))[:, :height, :width]


def separate_attention(
    attn: Attention, x: Tensor, window: Token, shift: Token, mask_padding: bool
) -> Tensor:
    """The same, in separate groups of tokens."""
    _, height, width, _ = x.shape
    rows, columns = padded_size((height, width), window)
    padded = F.pad(x, (0, 0, 0, columns - width, 0, rows - height))
    outs: dict[tuple[int, int], Tensor] = {}
    for group in groups((height, width), window, shift, mask_padding):
        together = torch.ones(len(group), len(group), dtype=torch.bool)
        inputs = torch.stack([padded[:, row, column] for row, column in group], 1)
        out = attend(attn, inputs, group, window, together)
        outs.update(zip(group, out.unbind(1), strict=True))
    tokens = itertools.product(range(height), range(width))
    return torch.stack([outs[token] for token in tokens], 1).unflatten(
        1, (height, width)
    )


def groups(
    size: Token, window: Token, shift: Token = (0, 0), mask_padding: bool = False
) -> list[list[Token]]:
    """The tokens that attend to each other; padding is left out with ``mask_padding``."""
    height, width = size
    rows, columns = padded_size(size, window)
    found: dict[tuple, list[Token]] = {}
    for row, column in itertools.product(range(rows), range(columns)):
        if not mask_padding or (row < height and column < width):
            of = label((row, column), (rows, columns), window, shift)
            found.setdefault(of, []).append((row, column))
    return list(found.values())


def padded_size(size: Token, window: Token) -> Token:
    rows, columns = (
        math.ceil(side / of) * of for side, of in zip(size, window, strict=True)
    )
    return rows, columns


def label(
    token: Token, size: Token, window: Token, shift: Token
) -> tuple[tuple[int, bool], ...]:
    """The window of a token after a cyclic shift, and whether it was moved over the edge."""
    sides = zip(token, size, window, shift, strict=True)
    return tuple(
        ((place - by) % of // side, place < by) for place, of, side, by in sides
    )


def attend(
    attn: Attention, x: Tensor, tokens: Sequence[Token], window: Token, together: Tensor
) -> Tensor:
    """[B, N, C] to the same; each of ``tokens`` sees those that ``together`` [N, N] says."""
    qkv = F.linear(x, attn.qkv.weight, attn.qkv.bias)
    q, k, v = qkv.unflatten(-1, (3, attn.num_heads, -1)).unbind(2)  # [B, N, h, D]
    if attn.rope is not None:
        freqs = attn.rope.frequencies(x.device).to(x.dtype)
        q, k = rotate(q, tokens, freqs), rotate(k, tokens, freqs)
    scores = torch.einsum('bnhd,bmhd->bhnm', q, k) / q.shape[-1] ** 0.5
    if isinstance(attn, TableBiasAttention):
        scores = scores + position_bias(
            attn.relative_position_bias_table, tokens, window
        )
    probabilities = scores.masked_fill(~together, -math.inf).softmax(-1)
    out = torch.einsum('bhnm,bmhd->bnhd', probabilities, v).flatten(2)
    return F.linear(out, attn.proj.weight, attn.proj.bias)


def rotate(x: Tensor, tokens: Sequence[Token], freqs: Tensor) -> Tensor:
    """x: [B, N, h, D], interleaved pairs; freqs: [2, h or 1, P]."""
    angles = torch.stack([freqs[0] * column + freqs[1] * row for row, column in tokens])
    rotated = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angles)
    return torch.view_as_real(rotated).flatten(-2)


def position_bias(table: Tensor, tokens: Sequence[Token], window: Token) -> Tensor:
    """[h, N, N]; pairs too far apart for the table get its first row, to be masked."""
    indexes = []
    for (row, column), (key_row, key_column) in itertools.product(tokens, tokens):
        down, right = row - key_row, column - key_column
        inside = abs(down) < window[0] and abs(right) < window[1]
        index = (down + window[0] - 1) * (2 * window[1] - 1) + right + window[1] - 1
        indexes.append(index if inside else 0)
    return table[indexes].T.unflatten(1, (len(tokens), len(tokens)))


def axial_frequencies(head_dim: int, theta: float) -> Tensor:
    """[2, 1, P], float64: the first half of the pairs rotates with x, the second half with y."""
    series = [theta ** (-4 * pair / head_dim) for pair in range(head_dim // 4)]
    zeros = [0.0] * len(series)
    return torch.tensor([series + zeros, zeros + series], dtype=torch.float64)[:, None]
