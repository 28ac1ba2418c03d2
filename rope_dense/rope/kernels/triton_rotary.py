"""Rotation on a GPU: one launch of a Triton kernel, forward and backward.

Each value is read and written once (rotated ones are read too for the gradient of the angles),
arithmetic is in float32 whatever the storage. The gradient of
the angles is deterministic: each program of the kernel sums in a fixed order to a slot of its own;
the slots are then summed.

Letters: see ``rotary``. Checked against its definition in tests/rope/test_triton.py, in Triton's
interpreter, and on each GPU at first use. Never measured on a GPU so far: block sizes were chosen
by the instructions that the compiler emits.
"""

from __future__ import annotations

import math
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import product
from threading import Lock
from typing import get_args

import torch
from torch import Tensor, nn

from . import definition
from .definition import PairLayout

SWITCH = 'ROPE_DENSE_TRITON'  # an environment variable: 0 leaves the rotation to ``packed``
IS_ENABLED = os.environ.get(SWITCH) != '0'
DEVICE_TYPE = 'cuda'
MIN_VERSION = (3, 2)  # comes with torch 2.6, the oldest that the package takes
MIN_CAPABILITY = (8, 0)  # of NVIDIA's GPUs: what Triton supports, and what has bfloat16
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Differences from the definition that rounding explains, for values around 1.
TOLERANCES = {torch.float32: 5e-5, torch.bfloat16: 2e-2}
# Programs to aim for: several for each place on the largest GPUs (132 processors with room for five
# to ten). The fewer, the more images use cosines and sines that are in registers.
PROGRAMS = 4096
THREADS = 128

reasons: dict[torch.device, str | None] = {}  # why the kernel is not used on a device
lock = Lock()


def rotate(
    qkv: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
) -> Tensor:
    """See ``packed.rotate``."""
    return launch(qkv, cos_sin, layout, num_prefix_tokens)[0]


def rotate_backward(
    grad: Tensor,
    cos_sin: Tensor,
    layout: PairLayout,
    num_prefix_tokens: int,
    rotated: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """See ``packed.rotate_backward``. The gradient of the angles is in float32."""
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
    the angles. If angles differ between images, each image has a slot.
    """
    from .triton_jit import rotate_kernel

    batch, num_tokens, parts, heads, head_dim = source.shape
    positions, _, pairs, _ = cos_sin.shape[-4:]
    block = THREADS * 16 // source.element_size()  # pairs: a thread loads two vectors of 128 bits
    blocks = -(-num_tokens * heads * head_dim // 2 // block)
    images_each = 1 if cos_sin.dim() == 5 else max(1, batch * blocks // PROGRAMS)
    slots = -(-batch // images_each)
    source = source if source.stride(-1) == 1 else source.contiguous()
    target = torch.empty_like(source, memory_format=torch.contiguous_format)
    sums = None
    if rotated is not None:
        rotated = rotated.contiguous()
        sums = target.new_empty(slots, positions, heads, pairs, dtype=torch.float32)
    if not (source.numel() and cos_sin.numel()):
        return target.copy_(source), sums
    table = cos_sin.expand(batch, -1, heads, -1, -1)  # what is shared has a stride of 0
    with torch.cuda.device_of(source):
        rotate_kernel[(slots * blocks,)](
            *(source, target, cos_sin, rotated, sums),
            *(*source.stride()[:-1], *target.stride()[:-1], *table.stride()[:-2]),
            *(batch, num_tokens, num_prefix_tokens, images_each),
            **dict(H=heads, D=head_dim, P=pairs, PARTS=parts, BLOCK=block),
            **dict(INTERLEAVED=layout == 'interleaved', BACKWARD=backward),
            ANGLE_GRADS=rotated is not None,
        )
    return target, sums


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``rotate`` cannot take ``qkv``, or None. The first call on a device compiles the
    kernel and checks it."""
    if not IS_ENABLED:
        return f'{SWITCH}=0 is set'
    if qkv.device.type != DEVICE_TYPE:
        return f'Triton runs on CUDA devices, qkv is on {qkv.device.type!r}'
    if type(qkv) not in (Tensor, nn.Parameter):
        return f'the kernel takes plain tensors, qkv is a {type(qkv).__name__}'
    if qkv.dtype not in DTYPES:
        return f'the kernel computes in float32, qkv is {qkv.dtype}'
    if qkv.shape[-1] % 2:
        return f'the kernel takes channels in pairs, a head has {qkv.shape[-1]}'
    if qkv.shape[1:].numel() >= 2**31:
        return 'the kernel counts the values of an image with 32 bits'
    if qkv.device not in reasons:
        if torch.cuda.is_current_stream_capturing():
            return f'a CUDA graph is captured, and the kernel was not used on {qkv.device} before'
        with lock:
            if qkv.device not in reasons:
                reasons[qkv.device] = why_not_on(qkv.device)
    return reasons[qkv.device]


def why_not_on(device: torch.device) -> str | None:
    """A reason why the kernel cannot be used on a GPU, or None."""
    if find_spec('triton') is None:
        return 'Triton is not installed'
    if not (os.environ.get('CC') or shutil.which('gcc') or shutil.which('clang')):
        return 'Triton needs a C compiler: none of $CC, gcc and clang was found'
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        return f'Triton needs compute capability {MIN_CAPABILITY}, {device} has {capability}'
    try:  # in a thread of its own: modes (inference, checkpointing) are those of a thread
        with ThreadPoolExecutor(1) as executor:
            executor.submit(self_check, device).result()
    except Exception as error:
        reason = f'the Triton kernel failed its check on {device}: {type(error).__name__}: {error}'
        warnings.warn(f'{reason}\n``packed`` rotates instead. {SWITCH}=0 skips this.', stacklevel=2)
        return reason
    return None


def self_check(device: torch.device) -> None:
    """Raise an error that says what is wrong unless the kernel gives what the definition gives.

    Values and gradients of both layouts in float32 and bfloat16, with prefix tokens and channels
    that are not rotated, for angles shared by all heads and images, and for separate ones.
    """
    import triton

    version = tuple(int(number) for number in triton.__version__.split('.')[:2])
    if version < MIN_VERSION:
        raise RuntimeError(f'Triton {triton.__version__} is too old, it takes {MIN_VERSION}')
    shapes = (7, 1, 8), (2, 7, 3, 8)
    for layout, dtype, shape in product(get_args(PairLayout), TOLERANCES, shapes):
        qkv, grad = waves((2, 2, 9, 3, 3, 32), device).to(dtype)
        angles = waves(shape, device)
        rotated = definition.rotate(qkv, angles, layout, 2)
        expected = (
            rotated,
            definition.rotate(grad, -angles, layout, 2),
            definition.angle_gradient(rotated, grad, angles, layout, 2),
        )
        settings = torch.stack([angles.cos(), angles.sin()], -1), layout, 2
        actual = (
            rotate(qkv, *settings),
            *rotate_backward(grad, *settings, rotated),
        )
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCES[b.dtype])


def waves(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Values in [-1, 1], without use of the user's random numbers."""
    return torch.arange(math.prod(shape), device=device).float().square().sin().view(shape)
