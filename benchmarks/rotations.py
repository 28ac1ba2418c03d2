"""Forms of the rotation of queries and keys that are in use, for bench_rotate and gpu.

Each takes a packed projection [B, N, 3, h, D], the angles and the number of prefix tokens, and
returns rotated queries and keys, and values, [B, h, N, D] each. The forms of other projects are
written from their formulas, with their layout of memory and their order of operations.

Letters: see ``rope_dense.rope.rotation``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from rope_dense.rope import AxialRoPE, MixedRoPE, Rotary, rotate, rotate_definition
from rope_dense.rope.rotation import (
    Implementation,
    PairLayout,
    Rotate,
    complex_backward,
    rotate_complex,
)

QKV = tuple[Tensor, Tensor, Tensor]
Form = Callable[[Tensor, Rotary, int], QKV]
Kind = Literal['axial', 'mixed']


@dataclass(frozen=True)
class RotationShape:
    """The rotation in one attention of a model.

    Attributes:
        batch: images, or windows.
        grid: (height, width) in tokens, of an image or of a window.
        kind: 'mixed', learned angles for each head, or 'axial', fixed and the same for all heads.
    """

    batch: int
    grid: tuple[int, int]
    num_heads: int
    head_dim: int
    num_prefix_tokens: int = 0
    kind: Kind = 'mixed'
    pair_layout: PairLayout = 'interleaved'

    def qkv(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """[B, N, 3, h, D], random."""
        num_tokens = self.num_prefix_tokens + self.grid[0] * self.grid[1]
        shape = self.batch, num_tokens, 3, self.num_heads, self.head_dim
        return torch.randn(shape, device=device, dtype=dtype)

    def rotary(self, device: torch.device) -> Rotary:
        """The angles, without gradient."""
        cls = dict(axial=AxialRoPE, mixed=MixedRoPE)[self.kind]
        rope = cls(self.head_dim, self.num_heads, pair_layout=self.pair_layout).to(
            device
        )
        with torch.no_grad():
            return rope(torch.empty(0, device=device), self.grid)


# One image each. Swin cuts the maps of 800 x 1344 pixels, 200 x 336 tokens, into windows of 7 x 7.
SHAPES = {
    'ViT-B, 512 px, mixed': RotationShape(1, (32, 32), 12, 64, 1),
    'ViT-B, 512 px, axial': RotationShape(1, (32, 32), 12, 64, 1, 'axial'),
    'ViT-B, 1024 px, mixed': RotationShape(1, (64, 64), 12, 64, 1),
    'DINOv3-L, 1024 px': RotationShape(1, (64, 64), 16, 64, 5, 'axial', 'half'),
    'Swin-T, stage 1, mixed': RotationShape(29 * 48, (7, 7), 3, 32),
    'Swin-T, stage 3, mixed': RotationShape(8 * 12, (7, 7), 12, 32),
}


COMPLEX = Implementation(rotate_complex, complex_backward)


def forms(device: torch.device, pair_layout: PairLayout) -> dict[str, Form]:
    """Form by name; what cannot run on the device is left out."""
    by_name = {
        'packed': by(COMPLEX),
        'definition': definition,
        'definition, compiled': compiled_definition(),
        'stack (timm form)': stack_form,
        'complex (rope-vit form)': complex_form,
    }
    if not why_no_triton(device):
        by_name = {'triton': by(kernel()), **by_name}
    if pair_layout == 'half':
        del by_name['complex (rope-vit form)']
    if find_spec('flash_attn'):
        by_name['flash-attention'] = flash_form
    return by_name


def kernel() -> Implementation:
    """The Triton kernel; its module imports Triton."""
    from rope_dense.rope import rotation_triton

    return Implementation(
        rotation_triton.rotate_triton, rotation_triton.triton_backward
    )


def why_no_triton(device: torch.device) -> str | None:
    """A reason why the kernel cannot run on a device, or None."""
    if find_spec('triton') is None:
        return 'Triton is not installed'
    if device.type == 'cuda':
        from rope_dense.rope import rotation_triton

        return rotation_triton.why_not(device, torch.float32)
    return None if os.environ.get('TRITON_INTERPRET') == '1' else 'Triton needs a GPU'


def by(implementation: Implementation) -> Form:
    """Return the function that ``rotate`` calls for this implementation."""

    def rotate_by(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int) -> QKV:
        settings = rotary.pair_layout, num_prefix_tokens, implementation
        return unpack(Rotate.apply(qkv, rotary.angles, rotary.cos_sin, *settings))

    return rotate_by


def definition(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int) -> QKV:
    return unpack(rotate_definition(qkv, rotary, num_prefix_tokens))


def compiled_definition() -> Form:
    @torch.compile(dynamic=False)
    def run(
        qkv: Tensor, angles: Tensor, pair_layout: PairLayout, num_prefix_tokens: int
    ) -> QKV:
        return definition(qkv, Rotary(angles, pair_layout), num_prefix_tokens)

    return lambda qkv, rotary, prefix: run(
        qkv, rotary.angles, rotary.pair_layout, prefix
    )


def none(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int) -> QKV:
    """Attention without position."""
    return rotate(qkv, None)


def unpack(qkv: Tensor) -> QKV:
    q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
    return q, k, v


def complex_form(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int) -> QKV:
    """Naver's rope-vit: a complex product in float32, behind a permutation."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, h, N, D] each
    table = (
        complex_table(rotary)
        if rotary.angles.requires_grad
        else fixed_complex_table(rotary)
    )

    def rotated(x: Tensor) -> Tensor:
        prefix, tokens = x[:, :, :num_prefix_tokens], x[:, :, num_prefix_tokens:]
        pairs = torch.view_as_complex(tokens.float().reshape(*tokens.shape[:-1], -1, 2))
        return torch.cat(
            [prefix, torch.view_as_real(pairs * table).flatten(3).type_as(x)], 2
        )

    return rotated(q), rotated(k), v


def complex_table(rotary: Rotary) -> Tensor:
    """[h or 1, n, P]."""
    angles = rotary.angles.transpose(0, 1)
    return torch.polar(torch.ones_like(angles), angles)


def stack_form(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int) -> QKV:
    """timm's EVA, LLaMA in many ports: x cos + x' sin; x' has (-b, a) for each pair (a, b)."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    tables = (
        real_tables(rotary)
        if rotary.angles.requires_grad
        else fixed_real_tables(rotary)
    )
    cos, sin = (table.to(qkv.dtype) for table in tables)

    def rotated(x: Tensor) -> Tensor:
        prefix, tokens = x[:, :, :num_prefix_tokens], x[:, :, num_prefix_tokens:]
        if rotary.pair_layout == 'half':
            a, b = tokens.chunk(2, -1)
            other = torch.cat([-b, a], -1)
        else:
            other = torch.stack([-tokens[..., 1::2], tokens[..., ::2]], -1).reshape(
                tokens.shape
            )
        return torch.cat([prefix, tokens * cos + other * sin], 2)

    return rotated(q), rotated(k), v


def flash_form(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int) -> QKV:
    """flash-attention's kernel, a launch for queries and one for keys; all heads have one angle,
    which has no gradient."""
    from flash_attn.layers.rotary import apply_rotary_emb

    table = rotary.cos_sin[:, 0].to(qkv.dtype)  # [n, P, 2]
    cos, sin = table[..., 0].contiguous(), table[..., 1].contiguous()
    q, k, v = qkv.unbind(2)  # [B, N, h, D] each

    def rotated(x: Tensor) -> Tensor:
        prefix, tokens = x[:, :num_prefix_tokens], x[:, num_prefix_tokens:]
        interleaved = rotary.pair_layout == 'interleaved'
        return torch.cat([prefix, apply_rotary_emb(tokens, cos, sin, interleaved)], 1)

    return rotated(q).transpose(1, 2), rotated(k).transpose(1, 2), v.transpose(1, 2)


def real_tables(rotary: Rotary) -> tuple[Tensor, Tensor]:
    """Cosines and sines, [h or 1, n, D] each: every value twice."""
    angles = rotary.angles.transpose(0, 1)
    if rotary.pair_layout == 'half':
        angles = torch.cat([angles, angles], -1)
    else:
        angles = angles.repeat_interleave(2, -1)
    return angles.cos(), angles.sin()


# Tables of fixed angles are made once, as in the code of these projects.
fixed_complex_table, fixed_real_tables = (
    lru_cache(4)(complex_table),
    lru_cache(4)(real_tables),
)
