"""Rotary embedding and attention of a block from the configs ``rope`` and ``attention``.

The stem and the blocks of a plain ViT, from its architecture.
"""

from collections.abc import Collection, Sequence
from inspect import isabstract, isclass
from typing import Any

from mmengine.registry import MODELS
from torch import nn

from .. import rope as embeddings
from ..rope import RotaryEmbedding
from ..utils.validation import refuse
from .archs import ViTArch
from .attention import Attention, GlobalPrefixAttention, Place
from .block import Block, build_mlp
from .layers import (
    ConvPatchEmbed,
    PatchEmbed,
    SineConvEmbed,
    SineEmbed,
    linear_rates,
    module_list,
)

# All embeddings of rope/, which depends on torch alone.
for name in embeddings.__all__:
    part = getattr(embeddings, name)
    if isclass(part) and issubclass(part, RotaryEmbedding) and not isabstract(part):
        MODELS.register_module(module=part)


def build_rope(
    rope: dict | None, *, head_dim: int, num_heads: int
) -> RotaryEmbedding | None:
    """Build the rotary embedding of one block from ``rope``; ValueError for no config of one."""
    if rope is None:
        return None
    if not isinstance(rope, dict) or 'type' not in rope:
        refuse(
            'rope',
            rope,
            "None or a dict with a type, such as dict(type='MixedRoPE', theta=10.0)",
        )
    return MODELS.build(dict(rope, head_dim=head_dim, num_heads=num_heads))


def build_attention(attention: dict | None, place: Place, **layers: Any) -> Attention:
    """Build the attention of one block from the config ``attention``; None for plain attention.

    Args:
        attention: type, registered in mmengine's MODELS, and settings of a kind; or None.
        place: where the block is.
        layers: arguments of ``AttentionLayers``.

    Raises:
        ValueError: not a config of a kind of attention, or one that cannot have ``global_prefix``.
    """
    shares_prefix = place.in_windows and place.global_prefix
    if attention is None:
        return (GlobalPrefixAttention if shares_prefix else Attention)(**layers)
    if not isinstance(attention, dict) or 'type' not in attention:
        refuse(
            'attention',
            attention,
            "None or a dict with a type, such as dict(type='TableBias')",
        )
    kind = (
        attention['type']
        if isclass(attention['type'])
        else MODELS.get(attention['type'])
    )
    if not isclass(kind) or not issubclass(kind, Attention):
        refuse(
            'attention: type',
            attention['type'],
            'registered, and a subclass of Attention',
        )
    if shares_prefix:
        raise ValueError(
            f"attention {attention['type']} in window blocks needs window_prefix='copy', got "
            "'global'"
        )
    return MODELS.build(dict(attention, place=place, **layers))


def build_stem(arch: ViTArch, in_channels: int) -> PatchEmbed:
    """Build the patch embedding."""
    if arch.conv_stem:
        return ConvPatchEmbed(in_channels, arch.embed_dims)
    norm_cfg = arch.norm_cfg if arch.patch_norm else None
    return PatchEmbed(
        in_channels,
        arch.embed_dims,
        arch.patch_size,
        bias=not arch.pre_norm,
        norm_cfg=norm_cfg,
    )


def build_sine_embed(arch: ViTArch) -> nn.Module | None:
    """Build the position embedding that is computed, if there is one."""
    if arch.use_ape == 'sine':
        return SineEmbed(arch.embed_dims)
    return SineConvEmbed(arch.embed_dims) if arch.use_ape == 'sine_conv' else None


def build_blocks(
    arch: ViTArch,
    window_blocks: Collection[int],
    global_prefix: bool,
    drop_path_rate: float,
) -> Sequence[Block]:
    """Build all blocks of an architecture, some of which attend within windows.

    With ``global_prefix`` prefix tokens of windows attend to all tokens. The rate of dropped paths
    grows linearly from 0 at the first block.
    """
    places = [
        Place(
            arch.grid,
            arch.patch_size,
            in_windows=index in window_blocks,
            global_prefix=global_prefix,
            index=index,
            depth=arch.depth,
        )
        for index in range(arch.depth)
    ]
    rates = linear_rates(drop_path_rate, arch.depth)
    return module_list(
        build_block(arch, place, rate)
        for place, rate in zip(places, rates, strict=True)
    )


def build_block(arch: ViTArch, place: Place, drop_path_rate: float) -> Block:
    """Build a block of an architecture."""
    attn = build_attention(
        arch.attention,
        place,
        embed_dims=arch.embed_dims,
        num_heads=arch.num_heads,
        qkv_bias=arch.qkv_bias,
        rope=build_rope(
            arch.rope,
            head_dim=arch.embed_dims // arch.num_heads,
            num_heads=arch.num_heads,
        ),
        num_prefix_tokens=arch.num_prefix_tokens,
        norm_cfg=arch.norm_cfg if arch.attn_norm else None,
        qk_norm=arch.norm_cfg if arch.qk_norm else None,
    )
    hidden_dims = int(arch.embed_dims * arch.mlp_ratio)
    mlp = build_mlp(arch.mlp, arch.embed_dims, hidden_dims, arch.norm_cfg)
    scale = arch.layer_scale_init_value
    return Block(attn, mlp, arch.norm_cfg, drop_path_rate, scale, arch.layer_scale_mlp)
