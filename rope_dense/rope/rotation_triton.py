"""Rotation on a GPU: one launch of a Triton kernel, forward and backward.

Each value is read and written once (rotated ones are read too for the gradient of the angles), in
float32 whatever the storage, with cosines and sines from a table that all blocks share. The
gradient of the angles is deterministic: each program sums in a fixed order to a slot of its own,
and the slots are then summed.

This module imports Triton; ``rotation.implementation`` imports it for the first tensor on a GPU.
Letters: see ``rotation``. Checked against the definition in tests/rope/test_triton.py, in Triton's
interpreter, and on each GPU at first use. Block sizes were chosen by the instructions that the
compiler emits; benchmarks/README.md has the times on an H200.
"""

from __future__ import annotations

import math
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple, get_args

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from .rotation import (
    PairLayout,
    Rotary,
    angle_gradient,
    complex_backward,
    rotate_complex,
    rotate_definition,
)

SWITCH = 'ROPE_DENSE_TRITON'  # an environment variable: 0 leaves the rotation to torch
IS_ENABLED = os.environ.get(SWITCH) != '0'
MIN_VERSION = (3, 2)  # comes with torch 2.6, the oldest that the package takes
MIN_CAPABILITY = (8, 0)  # of NVIDIA's GPUs: what Triton supports, and what has bfloat16
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Differences from the definition that rounding explains, for values around 1.
TOLERANCES = {torch.float32: 5e-5, torch.bfloat16: 2e-2}
# Programs to aim for: several for each place on the largest GPUs (132 processors with room for five
# to ten). The fewer, the more images use cosines and sines that are in registers.
PROGRAMS = 4096
THREADS = 128
PLAIN = (Tensor, nn.Parameter)  # types of tensors that the kernel takes


class Plan(NamedTuple):
    """What is the same in all launches for tensors of the same sizes and strides.

    Attributes:
        programs: how many run.
        slots: of the gradient of the angles.
        numbers: the kernel's arguments behind its tensors.
        constants: its constants.
    """

    programs: int
    slots: int
    numbers: tuple[int, ...]
    constants: dict[str, int | bool]


def rotate_triton(
    qkv: Tensor, cos_sin: Tensor, layout: PairLayout, num_prefix_tokens: int
) -> Tensor:
    """See ``rotate_complex``, which rotates what the kernel cannot take."""
    return launch(qkv, cos_sin, layout, num_prefix_tokens)[0]


def triton_backward(
    grad: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
    rotated: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """See ``complex_backward``. The gradient of the angles is in float32."""
    grad_qkv, sums = launch(grad, cos_sin, layout, num_prefix_tokens, True, rotated)
    return grad_qkv, None if sums is None else sums.sum_to_size(cos_sin.shape[:-1])


def launch(
    source: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
    backward: bool = False,
    rotated: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``source`` [B, N, S, h, D] rotated, backward by the opposite angles.

    If ``rotated`` is given, also returns [slots, n, h, P]; summed over slots it is the gradient of
    the angles. If angles differ between images, each image has a slot. On a GPU, eager models wait
    for the host: this calls little.
    """
    if type(source) not in PLAIN or not fits(source.shape):
        if backward:
            return complex_backward(source, cos_sin, layout, num_prefix_tokens, rotated)
        return rotate_complex(source, cos_sin, layout, num_prefix_tokens), None
    strides = source.stride()
    if strides[-1] != 1:
        source = source.contiguous()
        strides = source.stride()
    target = torch.empty_like(source, memory_format=torch.contiguous_format)
    has_sums = rotated is not None
    plan = plan_launch(
        (source.shape, strides, source.dtype),
        (cos_sin.shape, cos_sin.stride()),
        (layout, num_prefix_tokens, backward, has_sums),
    )
    sums = None
    if rotated is not None:
        rotated = rotated.contiguous()
        shape = plan.slots, cos_sin.shape[-4], source.shape[3], cos_sin.shape[-2]
        sums = target.new_empty(shape, dtype=torch.float32)
    if not plan.programs:
        return target.copy_(source), sums
    run = rotate_kernel[(plan.programs,)]
    arguments = source, target, cos_sin, rotated, sums, *plan.numbers
    if has_several_gpus():
        with torch.cuda.device_of(source):
            run(*arguments, **plan.constants)
    else:
        run(*arguments, **plan.constants)
    return target, sums


@cache
def has_several_gpus() -> bool:
    """Return whether a tensor may be on another GPU than the current one."""
    return torch.cuda.device_count() > 1


@lru_cache(1024)
def fits(shape: torch.Size) -> bool:
    """Return whether the kernel takes a projection: whole pairs, values counted with 32 bits."""
    return shape[-1] % 2 == 0 and shape[1:].numel() < 2**31


@lru_cache(1024)
def plan_launch(
    source: tuple[torch.Size, tuple[int, ...], torch.dtype],
    table: tuple[torch.Size, tuple[int, ...]],
    settings: tuple[PairLayout, int, bool, bool],
) -> Plan:
    """The launch for a projection [B, N, S, h, D] and a table of cosines and sines.

    Args:
        source: shape, strides and type of the projection.
        table: shape and strides.
        settings: layout, prefix tokens, backward, and whether the angles have a gradient.
    """
    (batch, num_tokens, parts, heads, head_dim), strides, dtype = source
    (*images, _, table_heads, pairs, _), table_strides = table
    layout, num_prefix_tokens, backward, angle_grads = settings
    # Pairs: a thread loads two vectors of 128 bits.
    block = THREADS * 16 // dtype.itemsize
    blocks = -(-num_tokens * heads * head_dim // 2 // block)
    images_each = 1 if images else max(1, batch * blocks // PROGRAMS)
    slots = -(-batch // images_each)
    part = heads * head_dim
    target_strides = num_tokens * parts * part, parts * part, part, head_dim
    table_strides = (  # what is shared has a stride of 0
        table_strides[0] if images else 0,
        table_strides[-4],
        table_strides[-3] if table_heads > 1 else 0,
    )
    sizes = batch, num_tokens, num_prefix_tokens, images_each
    constants = dict(
        H=heads, D=head_dim, P=pairs, PARTS=parts, BLOCK=block, BACKWARD=backward
    )
    constants |= dict(INTERLEAVED=layout == 'interleaved', ANGLE_GRADS=angle_grads)
    is_empty = 0 in source[0] or 0 in table[0]
    return Plan(
        0 if is_empty else slots * blocks,
        slots,
        (*strides[:-1], *target_strides, *table_strides, *sizes),
        constants,
    )


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """A reason why the kernel is not used for tensors of a GPU and type, or None.

    Raises:
        RuntimeError: the kernel was not used on the GPU before, and a CUDA graph is captured.
    """
    if not IS_ENABLED:
        return f'{SWITCH}=0 is set'
    if dtype not in DTYPES:
        return f'the kernel computes in float32, the tensor is {dtype}'
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            'the rotation on a GPU is compiled and checked at its first use, which a CUDA graph '
            'cannot capture: run the model once before'
        )
    return why_not_on(device)


@cache
def why_not_on(device: torch.device) -> str | None:
    """A reason why the kernel cannot be used on a GPU, or None. It is compiled and checked."""
    if not (os.environ.get('CC') or shutil.which('gcc') or shutil.which('clang')):
        return 'Triton needs a C compiler: none of $CC, gcc and clang was found'
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        return f'Triton needs compute capability {MIN_CAPABILITY}, {device} has {capability}'
    try:  # in a thread of its own: modes (inference, checkpointing) belong to a thread
        with ThreadPoolExecutor(1) as executor:
            executor.submit(self_check, device).result()
    except Exception as error:
        reason = f'the Triton kernel failed its check on {device}: {type(error).__name__}: {error}'
        warnings.warn(
            f'{reason}\nPyTorch rotates instead. {SWITCH}=0 skips this.', stacklevel=2
        )
        return reason
    return None


def self_check(device: torch.device) -> None:
    """Raise an error that says what is wrong unless the kernel gives what the definition gives.

    Values and gradients in float32 and bfloat16, for both layouts, with prefix tokens and channels
    that are not rotated, for angles shared by all heads and images and for separate ones.
    """
    version = tuple(int(number) for number in triton.__version__.split('.')[:2])
    if version < MIN_VERSION:
        raise RuntimeError(
            f'Triton {triton.__version__} is too old, it takes {MIN_VERSION}'
        )
    shapes = (7, 1, 8), (2, 7, 3, 8)
    for layout, dtype, shape in product(get_args(PairLayout), TOLERANCES, shapes):
        qkv, grad = probe_values((2, 2, 9, 3, 3, 32), device).to(dtype)
        rotary, inverse = (
            Rotary(sign * probe_values(shape, device), layout) for sign in (1, -1)
        )
        rotated = rotate_definition(qkv, rotary, 2)
        expected = (
            rotated,
            rotate_definition(grad, inverse, 2),
            angle_gradient(rotated, grad, rotary.angles, layout, 2),
        )
        settings = rotary.cos_sin, layout, 2
        actual = (
            rotate_triton(qkv, *settings),
            *triton_backward(grad, *settings, rotated),
        )
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCES[b.dtype])


def probe_values(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Values in [-1, 1], without use of the user's random numbers."""
    return (
        torch.arange(math.prod(shape), device=device).float().square().sin().view(shape)
    )


# Sizes that differ between images: one compiled kernel serves all of them.
SIZES = ['batch', 'num_tokens', 'num_prefix_tokens', 'images_each']


@triton.jit(do_not_specialize=SIZES)
def rotate_kernel(
    source,
    target,
    cos_sin,
    rotated,
    angle_grads,
    source_batch_stride,
    source_token_stride,
    source_part_stride,
    source_head_stride,
    target_batch_stride,
    target_token_stride,
    target_part_stride,
    target_head_stride,
    table_batch_stride,
    table_token_stride,
    table_head_stride,
    batch,
    num_tokens,
    num_prefix_tokens,
    images_each,
    H: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    PARTS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACKWARD: tl.constexpr,
    ANGLE_GRADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy ``source`` [B, N, PARTS, H, D] to ``target``, queries and keys rotated.

    These are the first two parts. With BACKWARD they are rotated by the opposite angles. Each part
    of an image has H D / 2 pairs for each token, numbered consecutively. A program takes BLOCK
    consecutive numbers: it loads their cosines and sines once, and goes through the parts of
    ``images_each`` images. Prefix tokens and pairs behind the first P of a head are copied.

    With ANGLE_GRADS it also sums, over the queries and keys of its images, what they add to the
    gradient of each angle, from ``rotated`` (with the strides of ``target``) and its gradient
    ``source``, to a slot of its own: ``angle_grads`` [slots, n, H, P].
    """
    blocks = tl.cdiv(num_tokens * (H * D // 2), BLOCK)
    block = tl.program_id(0) % blocks
    slot = (tl.program_id(0) // blocks).to(tl.int64)  # 64 bits: offsets may need them
    token, head, pair = locate(block * BLOCK + tl.arange(0, BLOCK), H, D // 2)
    position = token - num_prefix_tokens
    rotates = (token < num_tokens) & (position >= 0) & (pair < P)
    angle = (position * H + head) * P + pair

    # A cosine and its sine lie side by side, like both channels of an interleaved pair.
    entry_token, entry_head, entry = locate(
        block * 2 * BLOCK + tl.arange(0, 2 * BLOCK), H, D
    )
    entry_position = entry_token - num_prefix_tokens
    has_angle = (entry_token < num_tokens) & (entry_position >= 0) & (entry < 2 * P)
    table = entry_position * table_token_stride + entry_head * table_head_stride + entry
    cos, sin = load_channels(
        cos_sin + slot * table_batch_stride + table, 0, has_angle, True
    )
    if BACKWARD:
        sin = -sin

    if INTERLEAVED:
        token, head, channel, second = entry_token, entry_head, entry, 0
    else:  # P first channels, P second ones, and the channels to copy as two halves, too
        channel = tl.where(pair < P, pair, pair + P)
        second = tl.where(pair < P, P, D // 2 - P)
    mask = token < num_tokens
    read = token * source_token_stride + head * source_head_stride + channel
    write = token * target_token_stride + head * target_head_stride + channel
    angle_grad = tl.zeros((BLOCK,), tl.float32)

    first = slot * images_each
    for image in range(first, tl.minimum(first + images_each, batch)):
        source_part = source + image * source_batch_stride + read
        start = image * target_batch_stride + write
        for part in tl.static_range(PARTS):
            a, b = load_channels(source_part, second, mask, INTERLEAVED)
            if part < 2:
                if ANGLE_GRADS:
                    rotated_a, rotated_b = load_channels(
                        rotated + start, second, mask, INTERLEAVED
                    )
                    angle_grad += rotated_a * b - rotated_b * a
                new_a, new_b = a * cos - b * sin, a * sin + b * cos
                a, b = tl.where(rotates, new_a, a), tl.where(rotates, new_b, b)
            store_pairs(target + start, second, mask, INTERLEAVED, a, b)
            source_part += source_part_stride
            start += target_part_stride

    if ANGLE_GRADS:
        slot_start = slot * (num_tokens - num_prefix_tokens) * (H * P)
        tl.store(angle_grads + slot_start + angle, angle_grad, mask=rotates)


@triton.jit
def locate(index, H: tl.constexpr, D: tl.constexpr):
    """The token and the head, in 64 bits, and the place in it of an index into [N, H, D]."""
    return (index // (H * D)).to(tl.int64), (index // D % H).to(tl.int64), index % D


@triton.jit
def load_channels(first, second, mask, INTERLEAVED: tl.constexpr):
    """Both channels of pairs in float32.

    Interleaved ones are one contiguous load, split in registers; else the second is ``second``
    elements behind the first.
    """
    a = tl.load(first, mask=mask, other=0.0).to(tl.float32)
    if INTERLEAVED:
        a, b = tl.split(tl.reshape(a, (a.shape[0] // 2, 2)))
    else:
        b = tl.load(first + second, mask=mask, other=0.0).to(tl.float32)
    return a, b


@triton.jit
def store_pairs(first, second, mask, INTERLEAVED: tl.constexpr, a, b):
    """The inverse of ``load_channels``, rounding to what the pointers point to."""
    if INTERLEAVED:
        tl.store(first, tl.interleave(a, b), mask=mask)
    else:
        tl.store(first, a, mask=mask)
        tl.store(first + second, b, mask=mask)
