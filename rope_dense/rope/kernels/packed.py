"""Rotation by PyTorch's own operations: one complex product, from where the pairs are to where they
belong.

Checked against ``rotate.rotate`` and by gradcheck in float64 in tests/test_packed.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_

import torch
from torch import Tensor

from ..rotation import QKV, PairLayout, Rotation
from ..windows import Partition

PART = 2**19  # channels that ``freqs_gradient`` takes at once: chosen by its time


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``turn`` cannot take a projection, or None."""
    if torch.compiler.is_compiling():
        return 'the compiler fuses the plain form'
    return None


def turn(sources: Sequence[Tensor], targets: Sequence[Tensor], rotation: Rotation) -> None:
    """See ``in_place.FastPath``."""
    table, channels = window_table(rotation), 2 * rotation.freqs.shape[-1]
    table = table.unsqueeze(2)  # [H, W, 1, h, P]
    whole_table = None
    for source, target in zip(sources, targets, strict=True):
        height, width = source.shape[3:5]
        if source is not target and have_complex_views(rotation, source, target):
            if whole_table is None:
                whole_table = with_ones(table, target)
            dtype = whole_table.dtype
            torch.mul(source.view(dtype), whole_table[:height, :width], out=target.view(dtype))
            continue
        if source is not target:
            target.copy_(source)
        pairs = target[..., :2, :, :channels]
        turn_pairs(pairs, pairs, table[:height, :width], rotation)


def turn_back(
    grads: Sequence[QKV],
    targets: Sequence[Tensor],
    rotation: Rotation,
    partition: Partition,
    rotated: Sequence[Tensor] | None,
) -> Tensor | None:
    """See ``in_place.FastPath``."""
    table, channels = window_table(rotation).conj().resolve_conj(), 2 * rotation.freqs.shape[-1]
    grad_freqs = None
    if rotated is not None:
        grad_freqs = freqs_gradient(rotated, grads, rotation, partition)
    blocks = zip(
        *(partition.one_by_one(of_sizes) for of_sizes in zip(*grads, strict=True)), strict=True
    )
    for (*turning, values), target in zip(blocks, targets, strict=True):
        height, width = values.shape[3:5]
        *outs, values_out = target.unbind(-3)
        values_out.copy_(values)
        for grad, out in zip(turning, outs, strict=True):
            if channels < out.shape[-1]:
                out[..., channels:].copy_(grad[..., channels:])
                grad, out = grad[..., :channels], out[..., :channels]
            turn_pairs(grad, out, table[:height, :width], rotation)
    return grad_freqs


def window_table(rotation: Rotation) -> Tensor:
    """[H, W, h, P], see ``Rotation.table``."""
    return rotation.table().unflatten(0, (len(rotation.y), len(rotation.x)))


def with_ones(table: Tensor, qkv: Tensor) -> Tensor:
    """The table [H, W, 3, h, D / 2] of all that is in ``qkv`` [..., 3, h, D], from that of what
    turns, [H, W, 1, h, P]."""
    *_, heads, channels = qkv.shape
    whole = table.new_ones(*table.shape[:2], 3, heads, channels // 2)
    whole[..., :2, :, : table.shape[-1]] = table
    return whole


def turn_pairs(x: Tensor, out: Tensor, table: Tensor, rotation: Rotation) -> None:
    """Multiply the pairs of x [..., H, W, ..., h, 2 P] by table [H, W, ..., h, P]."""
    if have_complex_views(rotation, x, out):
        torch.mul(x.view(table.dtype), table, out=out.view(table.dtype))
        return
    dtype, layout = torch.promote_types(x.dtype, table.dtype.to_real()), rotation.layout
    table = table.to(dtype.to_complex())  # float32 or float64
    out.copy_(from_complex(as_complex(x.to(dtype), layout) * table, layout))


def have_complex_views(rotation: Rotation, *tensors: Tensor) -> bool:
    """Whether pairs lie as complex numbers do, those of the tables."""
    return rotation.layout == 'adjacent' and all(
        x.dtype == rotation.freqs.dtype and has_complex_view(x) for x in tensors
    )


def freqs_gradient(
    rotated: Sequence[Tensor], grads: Sequence[QKV], rotation: Rotation, partition: Partition
) -> Tensor:
    """Gradient [2, h, P] of the frequencies, from rotated queries and keys and their gradients."""
    (_, heads, pairs), num_heads = rotation.freqs.shape, grads[0][0].shape[-2]
    shape = len(rotation.y), len(rotation.x), num_heads, 2 * pairs
    by_channel = rotation.freqs.new_zeros(shape)
    for size, qkv, (q_grad, k_grad, _) in zip(partition.sizes, rotated, grads, strict=True):
        q, k, _ = qkv.unbind(2)
        turning = (x[..., : 2 * pairs] for x in (q, k, q_grad, k_grad))
        turning = (x.unflatten(1, size) for x in turning)  # [number, H, W, h, 2 P]
        for top, *part in cache_parts(*turning):
            of_part = angle_gradient(*part, rotation)
            height, width = of_part.shape[:2]
            by_channel[top : top + height, :width] += of_part
    angle = sum_pairs(by_channel, rotation.layout)  # [H, W, h, P]
    if heads == 1:
        angle = angle.sum(2, keepdim=True)
    # Products and sums, which autocast leaves in float32 (it would round positions in an einsum).
    along_x = (rotation.x[:, None, None] * angle.sum(0)).sum(0)
    along_y = (rotation.y[:, None, None] * angle.sum(1)).sum(0)
    return torch.stack([along_x, along_y])


def angle_gradient(
    q: Tensor, k: Tensor, q_grad: Tensor, k_grad: Tensor, rotation: Rotation
) -> Tensor:
    """[H, W, h, 2 P] from [number, H, W, h, 2 P] each; the gradient of an angle is the sum of the
    two channels of its pair."""
    minus_i = rotation.rows.new_full((), -1j)
    products = q.new_empty(2, *q.shape, dtype=rotation.freqs.dtype)
    for x, grad, product in zip((q, k), (q_grad, k_grad), products, strict=True):
        turn_pairs(grad, product, minus_i, rotation)  # (g_a, g_b) to (g_b, -g_a)
        product.mul_(x)
    return products.sum((0, 1))


def cache_parts(*tensors: Tensor) -> Iterator[tuple[int | Tensor, ...]]:
    """Cut tensors [number, H, W, ...] alike into parts of about ``PART`` values each.

    Yields:
        The first row of a part in H, and the parts.
    """
    first = tensors[0]
    if first.numel() <= PART:
        yield 0, *tensors
        return
    dim = 0 if first.shape[0] > first.shape[1] else 1
    total, number = first.shape[dim], -(-first.numel() // PART)
    length = -(-total // number)
    for start in range(0, total, length):
        size = min(length, total - start)
        yield start if dim == 1 else 0, *(x.narrow(dim, start, size) for x in tensors)


def sum_pairs(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P], the sum of the two channels of each pair."""
    first, second = (x[..., 0::2], x[..., 1::2]) if layout == 'adjacent' else x.chunk(2, -1)
    return first + second


def as_complex(x: Tensor, layout: PairLayout) -> Tensor:
    """[..., 2 P] to [..., P] complex; a view of x for adjacent pairs, if it has one."""
    if layout == 'adjacent':
        x = x if has_complex_view(x) else x.clone(memory_format=torch.contiguous_format)
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.complex(*x.chunk(2, -1))


def has_complex_view(x: Tensor) -> bool:
    """Whether the channels of each adjacent pair lie as those of a complex number."""
    *strides, last = x.stride()
    return last == 1 and reduce(or_, strides, x.storage_offset()) % 2 == 0  # all even


def from_complex(z: Tensor, layout: PairLayout) -> Tensor:
    """The inverse of ``as_complex``."""
    if layout == 'adjacent':
        return torch.view_as_real(z).flatten(-2)
    return torch.cat([z.real, z.imag], -1)
