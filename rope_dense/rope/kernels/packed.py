"""Rotation by PyTorch's own operations: one complex product, from where the pairs are to where they
belong.

Checked against ``rotate.rotate`` and by gradcheck in float64 in tests/test_packed.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import or_

import torch
from torch import Tensor

from ..rotation import QKV, PairLayout, Rotation
from ..windows import Partition

PART = 2**21  # values that ``angle_gradient`` takes at once: chosen by its time


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``turn`` cannot take a projection, or None."""
    if torch.compiler.is_compiling():
        return 'the compiler fuses the plain form'
    return None


def turn(sources: Sequence[Tensor], targets: Sequence[Tensor], rotation: Rotation) -> None:
    """See ``autograd.FastPath``."""
    table, channels = window_table(rotation), 2 * rotation.freqs.shape[-1]
    table = table.unsqueeze(2)  # [H, W, 1, h, P]
    multiply, whole_table = product_of(table, rotation.layout, *sources, *targets), None
    for source, target in zip(sources, targets, strict=True):
        height, width = source.shape[3:5]
        if source is not target and multiply is multiply_views:
            if whole_table is None:
                whole_table = with_ones(table, target)
            multiply(source, whole_table[:height, :width], target)
            continue
        if source is not target:
            target.copy_(source)
        pairs = target[..., :2, :, :channels]
        multiply(pairs, table[:height, :width], pairs)


def turn_back(
    grads: Sequence[QKV],
    targets: Sequence[Tensor],
    rotation: Rotation,
    partition: Partition,
    rotated: Sequence[Tensor] | None,
) -> Tensor | None:
    """See ``autograd.FastPath``."""
    table, channels = window_table(rotation).conj().resolve_conj(), 2 * rotation.freqs.shape[-1]
    all_q, all_k, all_v = zip(*grads, strict=True)
    grad_freqs = None
    if rotated is not None:
        grad_freqs = freqs_gradient(rotated, all_q, all_k, rotation, partition)
    multiply = product_of(table, rotation.layout, *all_q, *all_k, *targets)
    blocks = zip(*map(partition.one_by_one, (all_q, all_k, all_v)), strict=True)
    for (*turning, values), target in zip(blocks, targets, strict=True):
        height, width = values.shape[3:5]
        *outs, values_out = target.unbind(-3)
        values_out.copy_(values)
        of_window = table[:height, :width]
        for grad, out in zip(turning, outs, strict=True):
            if channels < out.shape[-1]:
                out[..., channels:].copy_(grad[..., channels:])
                grad, out = grad[..., :channels], out[..., :channels]
            multiply(grad, of_window, out)
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


# ``product(x, table, out)``: pairs of x [..., 2 P] times table [..., P], to ``out``.
Product = Callable[[Tensor, Tensor, Tensor], None]


def product_of(table: Tensor, layout: PairLayout, *tensors: Tensor) -> Product:
    """How to multiply pairs in ``tensors``, or in views of them that keep whole pairs: at once if
    they lie as complex numbers do, those of the table."""
    dtype = table.dtype.to_real()
    if layout == 'adjacent' and all(x.dtype == dtype and has_complex_view(x) for x in tensors):
        return multiply_views
    return partial(multiply_copies, layout=layout)


def multiply_views(x: Tensor, table: Tensor, out: Tensor) -> None:
    """A ``Product``."""
    torch.mul(x.view(table.dtype), table, out=out.view(table.dtype))


def multiply_copies(x: Tensor, table: Tensor, out: Tensor, *, layout: PairLayout) -> None:
    """A ``Product``, in float32 or float64."""
    dtype = torch.promote_types(x.dtype, table.dtype.to_real())
    table = table.to(dtype.to_complex())
    out.copy_(from_complex(as_complex(x.to(dtype), layout) * table, layout))


def freqs_gradient(
    rotated: Sequence[Tensor],
    q_grads: Sequence[Tensor],
    k_grads: Sequence[Tensor],
    rotation: Rotation,
    partition: Partition,
) -> Tensor:
    """Gradient [2, h, P] of the frequencies, from rotated queries and keys and their gradients."""
    (_, heads, pairs), (*_, num_heads, head_dim) = rotation.freqs.shape, q_grads[0].shape
    shape = len(rotation.y), len(rotation.x), num_heads, 2 * pairs
    by_channel = rotation.freqs.new_zeros(shape)
    minus_i = rotation.rows.new_full((), -1j)
    multiply = product_of(minus_i, rotation.layout, *q_grads, *k_grads)
    for (height, width), qkv, *grads in zip(
        partition.sizes, rotated, q_grads, k_grads, strict=True
    ):
        q, k, _ = qkv.unbind(2)
        turning = q, k, *grads
        if 2 * pairs < head_dim:
            turning = (x[..., : 2 * pairs] for x in turning)
        of_size = angle_gradient(*turning, multiply, minus_i)
        by_channel[:height, :width].add_(of_size.view(height, width, *shape[2:]))
    angle = sum_pairs(by_channel, rotation.layout)  # [H, W, h, P]
    if heads == 1:
        angle = angle.sum(2, keepdim=True)
    # Products and sums, which autocast leaves in float32 (it would round positions in an einsum).
    along_x = (rotation.x[:, None, None] * angle.sum(0)).sum(0)
    along_y = (rotation.y[:, None, None] * angle.sum(1)).sum(0)
    return torch.stack([along_x, along_y])


def angle_gradient(
    q: Tensor,
    k: Tensor,
    q_grad: Tensor,
    k_grad: Tensor,
    multiply: Product,
    minus_i: Tensor,
) -> Tensor:
    """[N, h, 2 P] from [number, N, h, 2 P] each; the gradient of an angle is the sum of the two
    channels of its pair. In parts that stay in the cache, of the windows or of the tokens."""

    def of_part(q: Tensor, k: Tensor, q_grad: Tensor, k_grad: Tensor) -> Tensor:
        products = q.new_empty(2, *q.shape, dtype=minus_i.dtype.to_real())
        for x, grad, product in zip((q, k), (q_grad, k_grad), products, strict=True):
            multiply(grad, minus_i, product)  # (g_a, g_b) to (g_b, -g_a)
            product.mul_(x)
        return products.sum((0, 1))

    tensors = q, k, q_grad, k_grad
    num_parts = -(-q.numel() // PART)
    if num_parts == 1 or max(q.shape[:2]) == 1:
        return of_part(*tensors)
    dim = 0 if q.shape[0] > q.shape[1] else 1
    parts = zip(*(x.chunk(num_parts, dim) for x in tensors), strict=True)
    found = [of_part(*part) for part in parts]
    return sum(found) if dim == 0 else torch.cat(found)


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
