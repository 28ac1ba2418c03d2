"""Slow, obvious Swin attention: all tokens of the padded grid at once, with a mask over pairs."""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def stage_output(
    stage: nn.Module,
    x: Tensor,
    window: tuple[int, int],
    freqs: Tensor | None,
    mask_padding: bool = False,
) -> Tensor:
    """The blocks of a SwinStage without drop path. x: [B, H, W, C], freqs: [2, L, h, P] or None."""
    for index, block in enumerate(stage.blocks):
        shift = [side // 2 if index % 2 else 0 for side in window]
        of_block = None if freqs is None else freqs[:, index]
        normed = block.norm1(x)
        x = x + window_attention(block.attn, normed, window, shift, of_block, mask_padding)
        x = x + block.mlp.fc2(F.gelu(block.mlp.fc1(block.norm2(x))))
    return x


def window_attention(
    attn: nn.Module,
    x: Tensor,
    window: tuple[int, int],
    shift: list[int],
    freqs: Tensor | None,
    mask_padding: bool,
) -> Tensor:
    """Attention [B, H, W, C] with the weights of ``attn``, freqs [2, h, P] in global positions."""
    _, height, width, channels = x.shape
    rows = math.ceil(height / window[0]) * window[0]
    columns = math.ceil(width / window[1]) * window[1]
    padded = x.new_zeros(len(x), rows, columns, channels)
    padded[:, :height, :width] = x
    tokens = list(itertools.product(range(rows), range(columns)))
    qkv = F.linear(padded.flatten(1, 2), attn.qkv.weight, attn.qkv.bias)
    q, k, v = qkv.unflatten(-1, (3, attn.num_heads, -1)).unbind(2)  # [B, N, h, D]
    if freqs is not None:
        q, k = rotate(q, tokens, freqs), rotate(k, tokens, freqs)
    scores = torch.einsum('bnhd,bmhd->bhnm', q, k) / q.shape[-1] ** 0.5
    if attn.relative_position_bias_table is not None:
        scores = scores + position_bias(attn.relative_position_bias_table, tokens, window)
    together = same_window(tokens, (rows, columns), window, shift)
    if mask_padding:  # padding sees itself only, so that its rows are numbers
        real = torch.tensor([row < height and column < width for row, column in tokens])
        together = together & (real | torch.eye(len(tokens), dtype=torch.bool))
    probabilities = scores.masked_fill(~together, -math.inf).softmax(-1)
    out = torch.einsum('bhnm,bmhd->bnhd', probabilities, v).flatten(2)
    out = F.linear(out, attn.proj.weight, attn.proj.bias)
    return out.unflatten(1, (rows, columns))[:, :height, :width]


def rotate(x: Tensor, tokens: list[tuple[int, int]], freqs: Tensor) -> Tensor:
    """x: [B, N, h, D]; adjacent channels are real and imaginary part."""
    angles = torch.stack([freqs[0] * column + freqs[1] * row for row, column in tokens])
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angles)
    return torch.view_as_real(turned).flatten(-2)


def position_bias(table: Tensor, tokens: list[tuple[int, int]], window: tuple[int, int]) -> Tensor:
    """[h, N, N]; pairs too far apart for the table get its first row, to be masked."""
    indexes = []
    for (row, column), (key_row, key_column) in itertools.product(tokens, tokens):
        down, right = row - key_row, column - key_column
        inside = abs(down) < window[0] and abs(right) < window[1]
        index = (down + window[0] - 1) * (2 * window[1] - 1) + right + window[1] - 1
        indexes.append(index if inside else 0)
    return table[indexes].T.unflatten(1, (len(tokens), len(tokens)))


def same_window(
    tokens: list[tuple[int, int]],
    size: tuple[int, int],
    window: tuple[int, int],
    shift: list[int],
) -> Tensor:
    """[N, N] bool: in one window after a cyclic shift, and both or neither moved over the edge."""

    def label(token: tuple[int, int]) -> list[tuple[int, bool]]:
        sides = zip(token, size, window, shift, strict=True)
        return [((place - by) % of // side, place < by) for place, of, side, by in sides]

    labels = [label(token) for token in tokens]
    return torch.tensor([[one == other for other in labels] for one in labels])


def axial_frequencies(head_dim: int, theta: float, depth: int, num_heads: int) -> Tensor:
    """[2, L, h, P]: the first half of the pairs turns with x, the second half with y."""
    series = [theta ** (-4 * pair / head_dim) for pair in range(head_dim // 4)]
    zeros = [0.0] * len(series)
    freqs = torch.tensor([series + zeros, zeros + series], dtype=torch.float64)
    return freqs[:, None, None].expand(-1, depth, num_heads, -1)
