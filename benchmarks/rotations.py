"""Forms of the rotation of queries and keys that are in use, for bench_rotate.

Each takes a packed projection [B, N, 3, h, D] and gives rotated queries and keys, and values,
[B, h, N, D] each.
The forms of other projects are written from their formulas; theirs is the layout of memory and the
order of operations. Adjacent pairs, no prefix tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from rope_dense.rope import AxialRoPE, MixedRoPE, Rotation, rotate
from rope_dense.rope.kernels import packed, triton_rotary
from rope_dense.rope.kernels.autograd import rotate_in_place

Rotate = Callable[[Tensor], tuple[Tensor, ...]]


def make_rotation(
    kind: str, *, num_heads: int, head_dim: int, side: int, device: torch.device
) -> Rotation:
    """The rotation of a grid of ``side`` x ``side`` tokens in a block; mixed frequencies learn."""
    cls = MixedRoPE if kind == 'mixed' else AxialRoPE
    rope = cls(head_dim, num_heads, 1).to(device)
    rotation = rope([0], height=side, width=side, device=device)[0]
    # A leaf, so that every backward has the same graph to go through.
    return replace(rotation, freqs=rotation.freqs.detach().requires_grad_(kind == 'mixed'))


def in_place(path: ModuleType) -> Callable[[Tensor, Rotation], tuple[Tensor, ...]]:
    """``rotate_qkv`` by one of the fast paths."""

    def rotate_qkv(qkv: Tensor, rotation: Rotation) -> tuple[Tensor, ...]:
        return rotate_in_place(qkv, rotation, path)

    return rotate_qkv


def plain(qkv: Tensor, rotation: Rotation) -> tuple[Tensor, ...]:
    """The definition: float32 sines of every token, out of place."""
    q, k, v = qkv.unbind(2)
    return tuple(x.transpose(1, 2) for x in (rotate(q, rotation), rotate(k, rotation), v))


def complex_form(qkv: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Naver's rope-vit: a complex product out of place, in float32, behind a permutation.

    table: [h or 1, N, P] complex.
    """
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, h, N, D] each

    def turned(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * table).flatten(3).type_as(x)

    return turned(q), turned(k), v


def stacked_form(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """timm's EVA, LLaMA in many ports: x cos + (the pairs (a, b) turned to (-b, a)) sin.

    cos, sin: [h or 1, N, D], every value twice.
    """
    q, k, v = qkv.permute(2, 0, 3, 1, 4)

    def turned(x: Tensor) -> Tensor:
        quarter = torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        return (x * cos + quarter * sin).type_as(x)

    return turned(q), turned(k), v


def forms(qkv: Tensor, kind: str, side: int) -> dict[str, Rotate]:
    """Name to form, for the grid of ``side`` x ``side`` tokens; what cannot run here is left out.

    Args:
        qkv: an example.
        kind: 'mixed', angles for each head, or 'axial', the same for all.
    """
    num_heads, head_dim = qkv.shape[3:]
    rotation = make_rotation(
        kind, num_heads=num_heads, head_dim=head_dim, side=side, device=qkv.device
    )
    table = rotation.table().transpose(0, 1).contiguous()  # [h or 1, N, P]
    twice = table.repeat_interleave(2, -1).resolve_conj()
    cos, sin = (part.to(qkv.dtype) for part in (twice.real, twice.imag))
    compiled = torch.compile(plain, dynamic=False)
    found: dict[str, Rotate] = {
        'packed in place': lambda qkv: in_place(packed)(qkv, rotation),
        'definition': lambda qkv: plain(qkv, rotation),
        'definition, compiled': lambda qkv: compiled(qkv, rotation),
        'complex (rope-vit form)': lambda qkv: complex_form(qkv, table),
        'stack (timm form)': lambda qkv: stacked_form(qkv, cos, sin),
    }
    if qkv.is_cuda and triton_rotary.triton_installed():
        found = {'triton in place': lambda qkv: in_place(triton_rotary)(qkv, rotation)} | found
    return found


def others(qkv: Tensor, side: int) -> dict[str, Rotate]:
    """Kernels of other projects, where installed: forward, and angles that all heads share."""
    num_heads, head_dim = qkv.shape[3:]
    rotation = make_rotation(
        'axial', num_heads=num_heads, head_dim=head_dim, side=side, device=qkv.device
    )
    table = rotation.table()[:, 0]  # [N, P]
    return flash_attention(table, qkv.dtype) | liger(table, qkv.dtype)


def flash_attention(table: Tensor, dtype: torch.dtype) -> dict[str, Rotate]:
    """flash-attn's Triton kernel in place, adjacent pairs."""
    if not find_spec('flash_attn'):
        return {}
    turn = import_module('flash_attn.layers.rotary').apply_rotary_emb_qkv_
    cos, sin = table.real.to(dtype).contiguous(), table.imag.to(dtype).contiguous()
    return {'flash-attn': lambda qkv: turn(qkv, cos, sin, interleaved=True).permute(2, 0, 3, 1, 4)}


def liger(table: Tensor, dtype: torch.dtype) -> dict[str, Rotate]:
    """Liger-Kernel's Triton kernel in place; its pairs are split, so only its time compares."""
    if not find_spec('liger_kernel'):
        return {}
    turn = import_module('liger_kernel.ops.rope').LigerRopeFunction.apply
    twice = torch.cat([table, table], -1)[None]  # [1, N, D]
    cos, sin = twice.real.to(dtype).contiguous(), twice.imag.to(dtype).contiguous()

    def run(qkv: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return *turn(q, k, cos, sin), v

    return {'liger (split pairs)': run}
