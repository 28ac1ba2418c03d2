"""State dicts with random weights in the layouts of V-JEPA 2.1's and Sapiens2's files, and V-JEPA
2.1 itself, written from its formulas: float64, one token and one channel pair at a time.

Values are of a size that keeps the tokens of all blocks alike.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

NORMED = {
    12: (2, 5, 8, 11),
    24: (5, 11, 17, 23),
    40: (9, 19, 29, 39),
    48: (11, 23, 37, 47),
}
Weights = dict[str, Tensor]


def linear(name: str, rows: int, columns: int) -> Weights:
    weight = torch.randn(rows, columns) / math.sqrt(columns)
    return {f'{name}.weight': weight, f'{name}.bias': 0.2 * torch.randn(rows)}


def layer_norm(name: str, channels: int) -> Weights:
    bias = 0.2 * torch.randn(channels)
    return {f'{name}.weight': 1 + 0.2 * torch.randn(channels), f'{name}.bias': bias}


def vjepa2_1(channels: int, depth: int, *, hidden: int) -> Weights:
    """The encoder in a file of V-JEPA 2.1."""
    weights = {
        'img_mod_embed': torch.randn(1, 1, channels),
        'video_mod_embed': torch.randn(1, 1, channels),
        'patch_embed_img.proj.weight': torch.randn(channels, 3, 1, 16, 16) / 28,
        'patch_embed_img.proj.bias': torch.randn(channels),
        'patch_embed.proj.weight': torch.randn(channels, 3, 2, 16, 16) / 39,
        'patch_embed.proj.bias': torch.randn(channels),
    }
    for index in range(depth):
        name = f'blocks.{index}'
        weights |= layer_norm(f'{name}.norm1', channels) | layer_norm(
            f'{name}.norm2', channels
        )
        weights |= linear(f'{name}.attn.qkv', 3 * channels, channels)
        weights |= linear(f'{name}.attn.proj', channels, channels)
        weights |= linear(f'{name}.mlp.fc1', hidden, channels)
        weights |= linear(f'{name}.mlp.fc2', channels, hidden)
    for number in range(4):
        weights |= layer_norm(f'norms_block.{number}', channels)
    return weights


def sapiens2(
    channels: int, depth: int, *, heads: int, shared: range, hidden: int | None = None
) -> Weights:
    """A file of Sapiens2; the blocks ``shared`` have half as many heads of keys and values."""
    hidden, head_dim = hidden or 4 * channels, channels // heads
    weights = {
        'cls_token': torch.randn(1, 1, channels),
        'storage_tokens': torch.randn(1, 8, channels),
        'patch_embed.projection.weight': torch.randn(channels, 3, 16, 16) / 28,
        'patch_embed.projection.bias': torch.randn(channels),
        'rope_embed.periods': (
            100.0 ** (torch.arange(head_dim // 4) * 4 / head_dim)
        ).bfloat16(),
        'ln1.weight': 1 + 0.2 * torch.randn(channels),
    }
    for index in range(depth):
        name, rows = f'blocks.{index}', channels // 2 if index in shared else channels
        for norm in ('ln1', 'ln2'):
            weights[f'{name}.{norm}.weight'] = 1 + 0.2 * torch.randn(channels)
        weights |= linear(f'{name}.attn.wq', channels, channels)
        weights |= linear(f'{name}.attn.wk', rows, channels)
        weights |= linear(f'{name}.attn.wv', rows, channels)
        weights |= linear(f'{name}.attn.proj', channels, channels)
        for norm in ('q_norm', 'k_norm'):
            weights[f'{name}.attn.{norm}.weight'] = 1 + 0.2 * torch.randn(head_dim)
        weights[f'{name}.attn.gamma.weight'] = torch.randn(channels)
        weights |= linear(f'{name}.ffn.w12', 2 * hidden, channels)
        weights |= linear(f'{name}.ffn.w3', channels, hidden)
    return weights


# ---------------------------------------------------------------- V-JEPA 2.1


def vjepa2_1_maps(weights: Weights, image: Tensor, heads: int) -> list[Tensor]:
    """The maps [C, H, W] of the four blocks that have a norm, of one image [3, height, width]."""
    w = {key: x.double() for key, x in weights.items()}
    frames = image.double()[
        None, :, None
    ]  # a video of one frame, [1, 3, 1, height, width]
    kernel, bias = w['patch_embed_img.proj.weight'], w['patch_embed_img.proj.bias']
    patches = F.conv3d(frames, kernel, bias, stride=(1, 16, 16))[0, :, 0]  # [C, H, W]
    height, width = patches.shape[1:]
    x = patches.flatten(1).T + w['img_mod_embed'][0]  # [H W, C]
    depth = 1 + max(int(key.split('.')[1]) for key in w if key.startswith('blocks.'))
    maps = []
    for index in range(depth):
        part = {
            key.removeprefix(f'blocks.{index}.'): v
            for key, v in w.items()
            if key.startswith(f'blocks.{index}.')
        }
        x = x + attention(part, normed(part, 'norm1', x), heads, (height, width))
        hidden = (
            normed(part, 'norm2', x) @ part['mlp.fc1.weight'].T + part['mlp.fc1.bias']
        )
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        x = x + hidden @ part['mlp.fc2.weight'].T + part['mlp.fc2.bias']
        if index in NORMED[depth]:
            out = normed(w, f'norms_block.{NORMED[depth].index(index)}', x)
            maps.append(out.T.unflatten(1, (height, width)))
    return maps


def attention(part: Weights, x: Tensor, heads: int, grid: tuple[int, int]) -> Tensor:
    """Attention of tokens x [H W, C]."""
    qkv = x @ part['attn.qkv.weight'].T + part['attn.qkv.bias']
    q, k, v = qkv.unflatten(1, (3, heads, -1)).unbind(1)  # [H W, h, D]
    q, k = rotated(q, grid), rotated(k, grid)
    scores = torch.einsum('ihd,jhd->hij', q, k) / math.sqrt(q.shape[-1])
    out = torch.einsum('hij,jhd->ihd', scores.softmax(-1), v).flatten(1)
    return out @ part['attn.proj.weight'].T + part['attn.proj.bias']


def rotated(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens [H W, h, 64]: channels 0 to 19 belong to the time, which is 0, 20 to 39 to the row, 40
    to 59 to the column, and the last four to nothing."""
    (height, width), out = grid, x.clone()
    for token in range(len(x)):
        row, column = divmod(token, width)
        down = row * 15 / (height - 1) if height > 1 else 0.0
        right = column * 15 / (width - 1) if width > 1 else 0.0
        for first, position in ((20, down), (40, right)):
            for k in range(10):
                angle = position / 10000 ** (k / 10)
                a, b = x[token, :, first + 2 * k], x[token, :, first + 2 * k + 1]
                out[token, :, first + 2 * k] = a * math.cos(angle) - b * math.sin(angle)
                out[token, :, first + 2 * k + 1] = b * math.cos(angle) + a * math.sin(
                    angle
                )
    return out


def normed(part: Weights, name: str, x: Tensor) -> Tensor:
    """LayerNorm of tokens [N, C]."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return centred / deviation * part[f'{name}.weight'] + part[f'{name}.bias']
