"""Rotation on a GPU: one Triton kernel for queries and keys, forward and backward, in place and
from a grid to its windows and back.

The mathematics is that of ``autograd``, which see. What differs from ``packed`` is the traffic:
queries and keys are read and written once, cosines and sines come from the row and column tables
(H + W entries; their product is made in registers), arithmetic is in float32 whatever the storage.
Backward reads the gradients where attention left them and writes them, turned back, to where those
of the projection belong. The gradient of the frequencies is deterministic: each program sums its
tokens in a fixed order and writes to a slot of its own; the slots are then summed.

Checked against ``rotate.rotate`` in tests/test_triton.py. Never run compiled on a GPU so far: block
sizes were chosen by the instructions that the compiler emits, not by measurement.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ..rotation import QKV, PairLayout, Rotation
from ..windows import Partition

SWITCH = 'ROPE_DENSE_TRITON'  # an environment variable: 0 keeps to PyTorch's own operations
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Programs that a launch aims for, several for each place on the largest GPUs (132 processors with
# room for about five). With frequencies to learn fewer: each writes a slot of sums.
PROGRAMS, PROGRAMS_WITH_SUMS = 4096, 2048
THREADS = 128


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``rotate_windows`` cannot take ``qkv`` [T, 3, h, D], or None."""
    if torch.compiler.is_compiling():
        return 'the compiler fuses the plain form'
    if os.environ.get(SWITCH) == '0':
        return f'{SWITCH}=0 is set'
    if qkv.device.type != 'cuda':
        return f'Triton runs on CUDA devices, qkv is on {qkv.device.type!r}'
    if not triton_installed():
        return 'Triton is not installed'
    if qkv.dtype not in DTYPES:
        return f'the kernel computes in float32, qkv is {qkv.dtype}'
    return None


@cache
def triton_installed() -> bool:
    return find_spec('triton') is not None


def turn(sources: Sequence[Tensor], targets: Sequence[Tensor], rotation: Rotation) -> None:
    """See ``autograd.FastPath``."""
    for source, target in zip(sources, targets, strict=True):
        parts, outs = source.unbind(-3), target.unbind(-3)
        if source is not target:
            copy_rest(parts, outs, rotation)
        launch(parts, outs, rotation)


def turn_back(
    grads: Sequence[QKV],
    targets: Sequence[Tensor],
    rotation: Rotation,
    partition: Partition,
    rotated: Sequence[Tensor] | None,
) -> Tensor | None:
    """See ``autograd.FastPath``."""
    grads = list(
        zip(*(partition.one_by_one(parts) for parts in zip(*grads, strict=True)), strict=True)
    )
    learned = rotated is not None
    rotated = partition.one_by_one(rotated) if learned else [None] * len(grads)
    grad_freqs = 0.0
    for parts, target, turned in zip(grads, targets, rotated, strict=True):
        outs = target.unbind(-3)
        copy_rest(parts, outs, rotation)
        sums = launch(parts, outs, rotation, backward=True, rotated=turned)
        grad_freqs = grad_freqs + sums if learned else None
    return grad_freqs


def copy_rest(sources: Sequence[Tensor], targets: Sequence[Tensor], rotation: Rotation) -> None:
    """Copy what does not turn of queries, keys and values."""
    channels = 2 * rotation.freqs.shape[-1]
    for first, source, target in zip((channels, channels, 0), sources, targets, strict=True):
        if first < source.shape[-1]:
            target[..., first:].copy_(source[..., first:])


def launch(
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    rotation: Rotation,
    backward: bool = False,
    rotated: Tensor | None = None,
) -> Tensor | None:
    """Turn queries and keys, [B, R, S, H, W, h, D] each, of windows of one size.

    Args:
        sources, targets: queries, keys and what else. May be the same memory.
        backward: turn by the opposite angles.
        rotated: [B, R, S, H, W, 3, h, D], to get the gradient of the frequencies from when
            ``sources`` are gradients of it; None for no gradient.

    Returns:
        [2, h, P], the gradient of ``rotation.freqs``, or None.
    """
    from .triton_jit import turn_kernel

    (q_in, k_in, *_), (q_out, k_out, *_) = sources, targets
    if q_in.stride(-1) != 1 or q_in.stride() != k_in.stride():
        q_in, k_in = q_in.contiguous(), k_in.contiguous()
    images, rows, columns, height, width, heads, _ = q_in.shape
    rotation, (_, rotated_heads, pairs) = (
        rotation.crop(height=height, width=width),
        rotation.freqs.shape,
    )
    batch, num_pairs, learned = images * rows * columns, heads * pairs, rotated is not None
    q_rotated, k_rotated, _ = rotated.unbind(-3) if learned else (q_out, k_out, None)
    # Pairs of a thread: two 128-bit loads of queries and two of keys, as many as registers allow.
    pairs_each = 4 if learned or q_in.dtype == torch.float32 else 8
    block_j, block_x, grid, rows_each, images_each = tiles(
        num_pairs,
        height=height,
        width=width,
        batch=batch,
        size=pairs_each * THREADS,
        programs=PROGRAMS_WITH_SUMS if learned else PROGRAMS,
    )
    slots = grid[0] // -(-num_pairs // block_j) * grid[1] * grid[2]
    sums = q_in.new_empty(2, slots if learned else 0, heads, pairs, dtype=torch.float32)
    with torch.cuda.device_of(q_in):
        turn_kernel[grid](
            *(q_in, k_in, q_out, k_out, q_rotated, k_rotated),
            *(cos_sin(table, rotation.layout) for table in (rotation.columns, rotation.rows)),
            rotation.x.float(),
            rotation.y.float(),
            sums,
            *(x.stride()[:-1] for x in (q_in, q_out, q_rotated)),
            num_pairs,
            batch,
            rows,
            columns,
            height,
            width,
            rows_each,
            images_each,
            P=pairs,
            ADJACENT=rotation.layout == 'adjacent',
            SHARED=rotated_heads == 1,
            BACKWARD=backward,
            LEARNED=learned,
            BLOCK_J=block_j,
            BLOCK_X=block_x,
            num_warps=max(1, block_j * block_x // pairs_each // 32),
        )
    if not learned:
        return None
    grad = sums.sum(1)  # [2, h, P]
    grad = grad.sum(1, keepdim=True) if rotated_heads == 1 else grad
    return grad.to(rotation.freqs.dtype)


def cos_sin(table: Tensor, layout: PairLayout) -> Tensor:
    """[.., h, P] complex to float32: [.., h, P, 2] for adjacent pairs, [2, .., h, P] for split."""
    parts = torch.view_as_real(table.to(torch.complex64))
    return (parts if layout == 'adjacent' else parts.movedim(-1, 0)).contiguous()


def tiles(
    num_pairs: int, *, height: int, width: int, batch: int, size: int, programs: int
) -> tuple[int, int, tuple[int, int, int], int, int]:
    """Cut the work of the kernel into about ``programs`` parts.

    Args:
        num_pairs: channel pairs of all heads.
        size: pairs, over channels and columns, that a program turns at once; at most.

    Returns:
        Pairs and columns of a program, the grid of programs, rows and images of a program.
    """
    block_j = num_pairs & -num_pairs  # the largest power of two that divides it
    if not 64 <= block_j <= 128:
        block_j = min(128, power_of_two(num_pairs))
    block_x = min(size // block_j, power_of_two(width))
    blocks = -(-num_pairs // block_j) * -(-width // block_x)
    steps = -(-blocks * height * batch // programs)  # of a program, each a row of an image
    images_each = min(batch, steps)
    rows_each = min(height, -(-steps // images_each))
    grid = (blocks, -(-height // rows_each), -(-batch // images_each))
    return block_j, block_x, grid, rows_each, images_each


def power_of_two(number: int) -> int:
    """The smallest power of two from ``number`` up."""
    return 1 << (number - 1).bit_length()
