"""Rotation in place by PyTorch's own operations: one complex product on queries and keys at once.

Checked against ``rotate.rotate`` and by gradcheck in float64 in tests/test_packed.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..rotation import QKV, PairLayout, Rotation, Windows
from .in_place import cannot_overwrite, pack, rotate_in_place

PART = 2**18  # channels that ``angle_gradient`` takes at once: chosen by its time


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``rotate_windows`` cannot take ``qkv`` [T, 3, h, D], or None."""
    if torch.compiler.is_compiling():
        return 'the compiler fuses the plain form'
    return cannot_overwrite(qkv)


def rotate_windows(qkv: Tensor, windows: Sequence[Windows], rotation: Rotation | None) -> list[QKV]:
    """``rotate.rotate_windows`` in place: the results are views of the overwritten ``qkv``."""
    return rotate_in_place(qkv, windows, rotation, turn, turn_back)


def turn(qkv: list[Tensor], windows: Sequence[Windows], rotation: Rotation) -> None:
    """See ``in_place.Turn``."""
    for piece, table in zip(qkv, tables(windows, rotation), strict=True):
        turn_pairs(turning(piece, rotation), table, rotation.layout)


def turn_back(
    grads: list[QKV],
    grad_qkv: list[Tensor],
    windows: Sequence[Windows],
    rotation: Rotation,
    rotated: list[Tensor] | None,
) -> Tensor | None:
    """See ``in_place.TurnBack``."""
    for of_size, piece in zip(grads, grad_qkv, strict=True):
        pack(of_size, piece)
    turning_back = [turning(piece, rotation) for piece in grad_qkv]
    grad_freqs = None
    if rotated is not None:
        turned = [turning(piece, rotation) for piece in rotated]
        grad_freqs = freqs_gradient(turned, turning_back, windows, rotation)
    for piece, table in zip(turning_back, tables(windows, rotation), strict=True):
        turn_pairs(piece, table.conj(), rotation.layout)
    return grad_freqs


def tables(windows: Sequence[Windows], rotation: Rotation) -> list[Tensor]:
    """[N, h, P], the table for each size of windows."""
    table = rotation.table().unflatten(0, (len(rotation.y), len(rotation.x)))
    return [table[:height, :width].flatten(0, 1) for _, height, width in windows]


def turning(packed: Tensor, rotation: Rotation) -> Tensor:
    """What turns of packed [B, N, 3, h, D], a view: queries and keys [B, N, 2, h, 2 P] without
    prefix tokens."""
    return packed[:, rotation.num_prefix_tokens :, :2, :, : 2 * rotation.freqs.shape[-1]]


def turn_pairs(x: Tensor, table: Tensor, layout: PairLayout) -> None:
    """Multiply the pairs of x [B, N, 2, h, 2 P] by table [N, h, P], in place."""
    dtype = torch.promote_types(x.dtype, table.dtype.to_real())  # float32 or float64
    table = table.to(dtype.to_complex()).unsqueeze(1)  # [N, 1, h, P]
    if layout == 'adjacent' and x.dtype == dtype:
        as_complex(x, layout).mul_(table)
    else:
        x.copy_(from_complex(as_complex(x.to(dtype), layout) * table, layout))


def freqs_gradient(
    rotated: list[Tensor], grads: list[Tensor], windows: Sequence[Windows], rotation: Rotation
) -> Tensor:
    """Gradient [2, h, P] of the frequencies, from rotated pairs and their gradients.

    Args:
        rotated, grads: [number, N, 2, h, 2 P] for each size of windows.
    """
    angle = 0.0
    for z, g, (_, height, width) in zip(rotated, grads, windows, strict=True):
        of_size = angle_gradient(z, g, rotation).unflatten(0, (height, width))
        missing = len(rotation.y) - height, len(rotation.x) - width
        angle = angle + F.pad(of_size, (0, 0, 0, 0, 0, missing[1], 0, missing[0]))  # [H, W, h, P]
    if rotation.freqs.shape[1] == 1:
        angle = angle.sum(2, keepdim=True)
    # Products and sums, which autocast leaves in float32 (it would round positions in an einsum).
    along_x = (rotation.x[:, None, None] * angle.sum(0)).sum(0)
    along_y = (rotation.y[:, None, None] * angle.sum(1)).sum(0)
    return torch.stack([along_x, along_y])


def angle_gradient(rotated: Tensor, grad: Tensor, rotation: Rotation) -> Tensor:
    """Gradient [N, heads, P] of the angles, summed over windows, queries and keys.

    In parts that stay in the cache: a part of the tokens, and of it some windows after the others.

    Args:
        rotated, grad: [B, N, 2, h, 2 P].
    """
    dtype, layout = torch.promote_types(rotated.dtype, rotation.freqs.dtype), rotation.layout
    num_tokens = max(1, PART // rotated[0, 0].numel())
    angles = []
    for z, g in zip(rotated.split(num_tokens, 1), grad.split(num_tokens, 1), strict=True):
        number, total = max(1, PART // z[0].numel()), None
        for some_z, some_g in zip(z.split(number), g.split(number), strict=True):
            some_z, some_g = some_z.to(dtype), as_complex(some_g.to(dtype), layout)
            turned = from_complex(some_g * -1j, layout)  # pairs (g_b, -g_a)
            if total is None:
                total = some_z * turned
            else:
                total[: len(some_z)].addcmul_(some_z, turned)
        angles.append(sum_pairs(total.sum(0).sum(1), layout))
    return torch.cat(angles).to(rotation.freqs.dtype)


def sum_pairs(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P], the sum of the two channels of each pair."""
    if layout == 'adjacent':
        return x.unflatten(-1, (-1, 2)).sum(-1)
    return x.unflatten(-1, (2, -1)).sum(-2)


def as_complex(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P] complex; a view of x for adjacent pairs."""
    if layout == 'adjacent':
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.complex(*x.chunk(2, -1))


def from_complex(z: Tensor, layout: PairLayout) -> Tensor:
    """The inverse of ``as_complex``."""
    if layout == 'adjacent':
        return torch.view_as_real(z).flatten(-2)
    return torch.cat([z.real, z.imag], -1)
