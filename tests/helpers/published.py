"""State dicts with random weights in the exact layouts of the published files, by hand.

Naver's files keep them under 'model'. Shapes are those of the published sizes unless others are
asked for; on the meta device they cost nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VIT_SIZES = {
    'small': (384, 12),
    'base': (768, 12),
    'large': (1024, 24),
}  # channels, blocks
SWIN_SIZES = {  # channels, blocks, heads
    'tiny': (96, (2, 2, 6, 2), (3, 6, 12, 24)),
    'small': (96, (2, 2, 18, 2), (3, 6, 12, 24)),
    'base': (128, (2, 2, 18, 2), (4, 8, 16, 32)),
}


def linear(name: str, rows: int, columns: int, **kind: Any) -> dict[str, Tensor]:
    weight, bias = torch.randn(rows, columns, **kind), torch.randn(rows, **kind)
    return {f'{name}.weight': weight, f'{name}.bias': bias}


def norm(name: str, channels: int, **kind: Any) -> dict[str, Tensor]:
    return {
        f'{name}.weight': torch.randn(channels, **kind),
        f'{name}.bias': torch.randn(channels, **kind),
    }


def block(name: str, channels: int, **kind: Any) -> dict[str, Tensor]:
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
    kind: dict[str, Any] = dict(device=device)
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
    kind: dict[str, Any] = dict(device=device)
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
                weights[f'{name}.attn_mask'] = torch.zeros(
                    windows, tokens, tokens, **kind
                )
            if variant == 'rpb':
                table = torch.randn((2 * window_size - 1) ** 2, heads[stage], **kind)
                weights[f'{name}.attn.relative_position_bias_table'] = table
                indexes = torch.zeros(tokens, tokens, dtype=torch.int64, **kind)
                weights[f'{name}.attn.relative_position_index'] = indexes
                continue
            freqs = torch.randn(2, heads[stage], 16)
            if variant == 'axial':
                freqs = axial_buffer(heads[stage], theta)
            weights[f'{name}.attn.rope_freqs'] = freqs
            weights[f'{name}.attn.rope_t_x'] = torch.arange(float(tokens)) % window_size
            weights[f'{name}.attn.rope_t_y'] = (
                torch.arange(float(tokens)) // window_size
            )
        if stage < len(depths) - 1:
            weights |= norm(f'layers.{stage}.downsample.norm', 4 * width, **kind)
            reduction = torch.randn(2 * width, 4 * width, **kind)
            weights[f'layers.{stage}.downsample.reduction.weight'] = reduction
    return weights


def axial_buffer(heads: int, theta: float) -> Tensor:
    """[2, heads, 16]: naver builds it like a mixed one, rotated by an angle of 0."""
    magnitudes = theta ** -(4 * torch.arange(8) / 32)
    angle = torch.zeros(heads, 1)
    quarter = angle + torch.pi / 2
    x = torch.cat([magnitudes * angle.cos(), magnitudes * quarter.cos()], -1)
    y = torch.cat([magnitudes * angle.sin(), magnitudes * quarter.sin()], -1)
    return torch.stack([x, y])


def meta_dinov3(
    channels: int,
    depth: int,
    *,
    hidden: int,
    swiglu: bool = False,
    qkv_bias: bool = True,
) -> dict[str, Tensor]:
    """Meta's own files of DINOv3, and so EUPE's and LingBot-Vision's; those of the ViT-7B have no
    qkv bias and another norm."""
    weights = {
        'cls_token': torch.randn(1, 1, channels),
        'storage_tokens': torch.randn(1, 4, channels),
        'mask_token': torch.randn(1, channels),
        'patch_embed.proj.weight': torch.randn(channels, 3, 16, 16),
        'patch_embed.proj.bias': torch.randn(channels),
        'rope_embed.periods': dinov3_periods(),
        **norm('norm', channels),
    }
    for index in range(depth):
        name = f'blocks.{index}'
        weights |= norm(f'{name}.norm1', channels) | norm(f'{name}.norm2', channels)
        weights |= linear(f'{name}.attn.proj', channels, channels)
        weights[f'{name}.attn.qkv.weight'] = torch.randn(3 * channels, channels)
        if qkv_bias:
            mask = torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(channels)
            weights[f'{name}.attn.qkv.bias'] = torch.randn(
                3 * channels
            )  # those of k are hidden
            weights[f'{name}.attn.qkv.bias_mask'] = mask
        else:
            weights |= norm('local_cls_norm', channels)
        for part in ('ls1', 'ls2'):
            weights[f'{name}.{part}.gamma'] = torch.randn(channels)
        names = ('w1', 'w2', 'w3') if swiglu else ('fc1', 'fc2')
        for inner in names[:-1]:
            weights |= linear(f'{name}.mlp.{inner}', hidden, channels)
        weights |= linear(f'{name}.mlp.{names[-1]}', channels, hidden)
    return weights


def dinov3_periods() -> Tensor:
    """[16], for heads of 64 channels; rounded, as in the published files."""
    return (100.0 ** (torch.arange(16) / 16)).bfloat16().float()


def hf_dinov3(
    channels: int,
    depth: int,
    *,
    hidden: int,
    swiglu: bool = False,
    qkv_bias: bool = True,
) -> dict[str, Tensor]:
    """The same models in Hugging Face's transformers."""
    weights = {
        'embeddings.cls_token': torch.randn(1, 1, channels),
        'embeddings.mask_token': torch.randn(1, 1, channels),
        'embeddings.register_tokens': torch.randn(1, 4, channels),
        'embeddings.patch_embeddings.weight': torch.randn(channels, 3, 16, 16),
        'embeddings.patch_embeddings.bias': torch.randn(channels),
        **norm('norm', channels),
    }
    for index in range(depth):
        name = f'layer.{index}'
        weights |= norm(f'{name}.norm1', channels) | norm(f'{name}.norm2', channels)
        for letter in 'qkvo':
            projection = linear(f'{name}.attention.{letter}_proj', channels, channels)
            if letter == 'k' or (letter in 'qv' and not qkv_bias):
                del projection[f'{name}.attention.{letter}_proj.bias']
            weights |= projection
        for part in ('layer_scale1', 'layer_scale2'):
            weights[f'{name}.{part}.lambda1'] = torch.randn(channels)
        for inner in ('gate_proj', 'up_proj') if swiglu else ('up_proj',):
            weights |= linear(f'{name}.mlp.{inner}', hidden, channels)
        weights |= linear(f'{name}.mlp.down_proj', channels, hidden)
    return weights


def timm_eva02(
    channels: int, depth: int, *, hidden: int, packed: bool = False, side: int = 16
) -> dict[str, Tensor]:
    """timm's EVA-02: tiny and small (``packed``), base and large."""
    weights = {
        'cls_token': torch.randn(1, 1, channels),
        'pos_embed': torch.randn(1, 1 + side**2, channels),
        'patch_embed.proj.weight': torch.randn(channels, 3, 14, 14),
        'patch_embed.proj.bias': torch.randn(channels),
        **norm('fc_norm', channels),
    }
    for index in range(depth):
        name = f'blocks.{index}'
        weights |= norm(f'{name}.norm1', channels) | norm(f'{name}.norm2', channels)
        weights |= linear(f'{name}.attn.proj', channels, channels)
        weights |= linear(f'{name}.mlp.fc2', channels, hidden)
        if packed:
            weights[f'{name}.attn.qkv.weight'] = torch.randn(3 * channels, channels)
            weights[f'{name}.attn.q_bias'] = torch.randn(channels)
            weights[f'{name}.attn.v_bias'] = torch.randn(channels)
            weights |= linear(f'{name}.mlp.fc1', 2 * hidden, channels)
            continue
        for letter in 'qkv':
            weights |= linear(f'{name}.attn.{letter}_proj', channels, channels)
        del weights[f'{name}.attn.k_proj.bias']
        weights |= linear(f'{name}.mlp.fc1_g', hidden, channels)
        weights |= linear(f'{name}.mlp.fc1_x', hidden, channels)
        weights |= norm(f'{name}.mlp.norm', hidden)
    return weights


def timm_pe(channels: int, depth: int, *, side: int, core: bool) -> dict[str, Tensor]:
    """timm's Perception Encoder: 'core' has a final norm and a head that pools by attention."""
    weights = {
        'cls_token': torch.randn(1, 1, channels),
        'pos_embed': torch.randn(1, 1 + side**2, channels),
        'patch_embed.proj.weight': torch.randn(channels, 3, 16, 16),
        **norm('norm_pre', channels),
    }
    for index in range(depth):
        weights |= block(f'blocks.{index}', channels)
    if core:
        weights |= norm('norm', channels) | linear('head', 1024, channels)
        weights |= linear('attn_pool.q', channels, channels)
        weights['attn_pool.latent'] = torch.randn(1, 1, channels)
    return weights


def meta_pe(
    channels: int,
    depth: int,
    *,
    side: int,
    core: bool,
    gigantic: bool = False,
    layer_scale: bool = False,
) -> dict[str, Tensor]:
    """Meta's own files of Perception Encoder; 'core' has a final norm and a head that pools by
    attention, 'gigantic' no class token. All 'lang' and the gigantic 'spatial' have LayerScale."""
    weights = {
        'positional_embedding': torch.randn(side**2 + (not gigantic), channels),
        'conv1.weight': torch.randn(channels, 3, 16, 16),
        **norm('ln_pre', channels),
    }
    if not gigantic:
        weights['class_embedding'] = torch.randn(channels)
    for index in range(depth):
        name = f'transformer.resblocks.{index}'
        weights |= norm(f'{name}.ln_1', channels) | norm(f'{name}.ln_2', channels)
        weights |= in_projection(f'{name}.attn', channels)
        weights |= linear(f'{name}.attn.out_proj', channels, channels)
        weights |= linear(f'{name}.mlp.c_fc', 4 * channels, channels)
        weights |= linear(f'{name}.mlp.c_proj', channels, 4 * channels)
        if layer_scale:
            weights[f'{name}.ls_1.gamma'] = torch.randn(channels)
            weights[f'{name}.ls_2.gamma'] = torch.randn(channels)
    if core:
        weights |= norm('ln_post', channels) | norm('attn_pool.layernorm', channels)
        weights |= in_projection('attn_pool.attn', channels)
        weights |= linear('attn_pool.attn.out_proj', channels, channels)
        weights |= linear('attn_pool.mlp.c_fc', 4 * channels, channels)
        weights |= linear('attn_pool.mlp.c_proj', channels, 4 * channels)
        weights['attn_pool.probe'] = torch.randn(1, 1, channels)
        weights['proj'] = torch.randn(channels, 1024)
    return weights


def in_projection(name: str, channels: int) -> dict[str, Tensor]:
    """Of torch's MultiheadAttention."""
    return {
        f'{name}.in_proj_weight': torch.randn(3 * channels, channels),
        f'{name}.in_proj_bias': torch.randn(3 * channels),
    }


def meta_sam3(
    channels: int, depth: int, *, hidden: int, side: int
) -> dict[str, Tensor]:
    """The image encoder in Meta's own file of SAM3; its buffers are dropped whatever they hold."""
    weights = {
        'pos_embed': torch.randn(
            1, 1 + side**2, channels
        ),  # with a place for a class token
        'patch_embed.proj.weight': torch.randn(channels, 3, 14, 14),
        **norm('ln_pre', channels),
    }
    for index in range(depth):
        name = f'blocks.{index}'
        weights |= norm(f'{name}.norm1', channels) | norm(f'{name}.norm2', channels)
        weights |= linear(f'{name}.attn.qkv', 3 * channels, channels)
        weights |= linear(f'{name}.attn.proj', channels, channels)
        weights |= linear(f'{name}.mlp.fc1', hidden, channels)
        weights |= linear(f'{name}.mlp.fc2', channels, hidden)
        weights[f'{name}.attn.freqs_cis'] = torch.randn(
            side**2, 8, dtype=torch.complex64
        )
    return weights


def hf_sam3(channels: int, depth: int, *, hidden: int, side: int) -> dict[str, Tensor]:
    """The same encoder in Hugging Face's transformers."""
    weights = {
        'embeddings.position_embeddings': torch.randn(1, side**2, channels),
        'embeddings.patch_embeddings.projection.weight': torch.randn(
            channels, 3, 14, 14
        ),
        **norm('layer_norm', channels),
    }
    for index in range(depth):
        name = f'layers.{index}'
        weights |= norm(f'{name}.layer_norm1', channels) | norm(
            f'{name}.layer_norm2', channels
        )
        for letter in 'qkvo':
            weights |= linear(f'{name}.attention.{letter}_proj', channels, channels)
        weights |= linear(f'{name}.mlp.fc1', hidden, channels)
        weights |= linear(f'{name}.mlp.fc2', channels, hidden)
    return weights


def shi_nat(
    channels: int,
    depths: tuple[int, ...],
    heads: tuple[int, ...],
    *,
    mlp_ratio: float,
    overlapping: bool = True,
    layer_scale: bool = False,
    device: str = 'cpu',
    kernel: int = 7,
) -> dict[str, Tensor]:
    """SHI-Labs' NAT and DiNAT (``overlapping``), or DiNAT-s."""
    kind: dict[str, Any] = dict(device=device)
    stem = {'proj.': (channels, 3, 4, 4)}
    if overlapping:
        stem = {
            'proj.0.': (channels // 2, 3, 3, 3),
            'proj.1.': (channels, channels // 2, 3, 3),
        }
    last = channels * 2 ** (len(depths) - 1)
    weights = {
        **norm('patch_embed.norm', channels, **kind),
        **norm('norm', last, **kind),
    }
    weights |= linear('head', 1000, last, **kind)
    for name, shape in stem.items():
        weights[f'patch_embed.{name}weight'] = torch.randn(*shape, **kind)
        weights[f'patch_embed.{name}bias'] = torch.randn(shape[0], **kind)
    levels = 'levels' if overlapping else 'layers'
    for stage, depth in enumerate(depths):
        width = channels * 2**stage
        for index in range(depth):
            name = f'{levels}.{stage}.blocks.{index}'
            weights |= block(name, width, **kind)
            hidden = int(width * mlp_ratio)
            weights |= linear(f'{name}.mlp.fc1', hidden, width, **kind)
            weights |= linear(f'{name}.mlp.fc2', width, hidden, **kind)
            side = 2 * kernel - 1
            weights[f'{name}.attn.rpb'] = torch.randn(heads[stage], side, side, **kind)
            for gamma in ('gamma1', 'gamma2') if layer_scale else ():
                weights[f'{name}.{gamma}'] = torch.randn(width, **kind)
        if stage < len(depths) - 1:
            name = f'{levels}.{stage}.downsample'
            sides = (width, 3, 3) if overlapping else (4 * width,)
            weights[f'{name}.reduction.weight'] = torch.randn(2 * width, *sides, **kind)
            weights |= norm(f'{name}.norm', (2 if overlapping else 4) * width, **kind)
    return weights
