"""State dicts with random weights in the exact layouts of the published files, by hand.

Naver's files keep them under 'model'. Shapes are those of the published sizes unless others are
asked for; on the meta device they cost nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

VIT_SIZES = {'small': (384, 12), 'base': (768, 12), 'large': (1024, 24)}  # channels, blocks
SWIN_SIZES = {  # channels, blocks, heads
    'tiny': (96, (2, 2, 6, 2), (3, 6, 12, 24)),
    'small': (96, (2, 2, 18, 2), (3, 6, 12, 24)),
    'base': (128, (2, 2, 18, 2), (4, 8, 16, 32)),
}


def linear(name: str, rows: int, columns: int, **kind: object) -> dict[str, Tensor]:
    weight, bias = torch.randn(rows, columns, **kind), torch.randn(rows, **kind)
    return {f'{name}.weight': weight, f'{name}.bias': bias}


def norm(name: str, channels: int, **kind: object) -> dict[str, Tensor]:
    return {
        f'{name}.weight': torch.randn(channels, **kind),
        f'{name}.bias': torch.randn(channels, **kind),
    }


def block(name: str, channels: int, **kind: object) -> dict[str, Tensor]:
    return {
        **norm(f'{name}.norm1', channels, **kind),
        **linear(f'{name}.attn.qkv', 3 * channels, channels, **kind),
        **linear(f'{name}.attn.proj', channels, channels, **kind),
        **norm(f'{name}.norm2', channels, **kind),
        **linear(f'{name}.mlp.fc1', 4 * channels, channels, **kind),
        **linear(f'{name}.mlp.fc2', channels, 4 * channels, **kind),
    }


def naver_vit(
    channels: int, depth: int, *, mixed: bool, ape: bool, device: str = 'cpu'
) -> dict[str, Tensor]:
    kind = dict(device=device)
    weights = {
        'cls_token': torch.randn(1, 1, channels, **kind),
        'patch_embed.proj.weight': torch.randn(channels, 3, 16, 16, **kind),
        'patch_embed.proj.bias': torch.randn(channels, **kind),
        **norm('norm', channels, **kind),
        **linear('head', 1000, channels, **kind),
    }
    for index in range(depth):
        weights |= block(f'blocks.{index}', channels, **kind)
        for gamma in ('gamma_1', 'gamma_2'):
            weights[f'blocks.{index}.{gamma}'] = torch.randn(channels, **kind)
    if ape:
        weights['pos_embed'] = torch.randn(1, 196, channels, **kind)
    if mixed:
        weights['freqs'] = torch.randn(2, depth, channels // 2)
        weights['freqs_t_x'] = torch.arange(196.0) % 14
        weights['freqs_t_y'] = torch.arange(196.0) // 14
    return weights


def naver_swin(
    channels: int,
    depths: tuple[int, ...],
    heads: tuple[int, ...],
    variant: str,
    device: str = 'cpu',
    theta: float = 50.0,
    window_size: int = 7,
) -> dict[str, Tensor]:
    """``variant`` is 'mixed', 'axial' or 'rpb'."""
    kind = dict(device=device)
    weights = {
        'patch_embed.proj.weight': torch.randn(channels, 3, 4, 4, **kind),
        'patch_embed.proj.bias': torch.randn(channels, **kind),
        **norm('patch_embed.norm', channels, **kind),
        **norm('norm', channels * 2 ** (len(depths) - 1), **kind),
        **linear('head', 1000, channels * 2 ** (len(depths) - 1), **kind),
    }
    tokens = window_size**2
    for stage, depth in enumerate(depths):
        width = channels * 2**stage
        for index in range(depth):
            name = f'layers.{stage}.blocks.{index}'
            weights |= block(name, width, **kind)
            if index % 2 and stage < 3:  # shifted; the last map is one window
                windows = (56 // 2**stage // 7) ** 2
                weights[f'{name}.attn_mask'] = torch.zeros(windows, tokens, tokens, **kind)
            if variant == 'rpb':
                table = torch.randn((2 * window_size - 1) ** 2, heads[stage], **kind)
                weights[f'{name}.attn.relative_position_bias_table'] = table
                index = torch.zeros(tokens, tokens, dtype=torch.int64, **kind)
                weights[f'{name}.attn.relative_position_index'] = index
                continue
            freqs = torch.randn(2, heads[stage], 16)
            if variant == 'axial':
                freqs = axial_buffer(heads[stage], theta)
            weights[f'{name}.attn.rope_freqs'] = freqs
            weights[f'{name}.attn.rope_t_x'] = torch.arange(float(tokens)) % window_size
            weights[f'{name}.attn.rope_t_y'] = torch.arange(float(tokens)) // window_size
        if stage < len(depths) - 1:
            weights |= norm(f'layers.{stage}.downsample.norm', 4 * width, **kind)
            reduction = torch.randn(2 * width, 4 * width, **kind)
            weights[f'layers.{stage}.downsample.reduction.weight'] = reduction
    return weights


def axial_buffer(heads: int, theta: float) -> Tensor:
    """[2, heads, 16]: naver builds it like a mixed one, turned by an angle of 0."""
    magnitudes = theta ** -(4 * torch.arange(8) / 32)
    turn = torch.zeros(heads, 1)
    quarter = turn + torch.pi / 2
    x = torch.cat([magnitudes * turn.cos(), magnitudes * quarter.cos()], -1)
    y = torch.cat([magnitudes * turn.sin(), magnitudes * quarter.sin()], -1)
    return torch.stack([x, y])
