"""The kinds of attention that the blocks of ``RoPEViT`` can have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from ..utils.sizes import Size
from ..utils.validation import check_choice, check_size
from .archs import ViTArch
from .attention.attention import (
    Attention,
    DecomposedBiasAttention,
    LocalPositionAttention,
    TableBiasAttention,
)
from .attention.linear import LinearAttention, LinearKernel
from .layers import TableResize

AttentionKind = Callable[..., Attention]  # a class, or one with some of its arguments


def attention_kinds(
    arch: ViTArch,
    *,
    use_rel_pos: bool,
    rel_pos_img_size: int | Size,
    rpb_resize: TableResize,
    linear_attention: LinearKernel | None,
) -> tuple[AttentionKind, AttentionKind]:
    """The attention of blocks with windows, and that of the others.

    The options are those of ``RoPEViT``.

    Raises:
        ValueError: options that are not allowed, or exclude each other.
    """
    check_choice('use_rel_pos', use_rel_pos, (True, False))
    check_choice('rpb_resize', rpb_resize, get_args(TableResize))
    check_choice('linear_attention', linear_attention, (None, *get_args(LinearKernel)))
    if use_rel_pos and arch.rope is not None:
        raise ValueError('use_rel_pos=True is the baseline without rotary embedding: set rope=None')
    options = dict(use_rel_pos=use_rel_pos, use_rpb=arch.use_rpb, use_lpe=arch.use_lpe)
    options['linear_attention'] = linear_attention is not None
    if len(kinds := [name for name, value in options.items() if value]) > 1:
        raise ValueError(f'{" and ".join(kinds)} exclude each other: each is an attention')
    if arch.num_prefix_tokens and (use_rel_pos or arch.use_rpb):
        raise ValueError(
            f'{kinds[0]} needs with_cls_token=False and num_registers=0, got '
            f'{arch.with_cls_token} and {arch.num_registers}'
        )
    if use_rel_pos:
        height, width = check_size('rel_pos_img_size', rel_pos_img_size, arch.patch_size)
        grids = arch.grid, (height // arch.patch_size, width // arch.patch_size)
        in_windows, elsewhere = (partial(DecomposedBiasAttention, bias_grid=grid) for grid in grids)
        return in_windows, elsewhere
    if arch.use_rpb:
        table_bias = partial(TableBiasAttention, bias_window=arch.grid, resize=rpb_resize)
        return table_bias, table_bias
    if arch.use_lpe:
        return LocalPositionAttention, LocalPositionAttention
    if linear_attention is not None:
        return Attention, partial(LinearAttention, kernel=linear_attention)
    return Attention, Attention
