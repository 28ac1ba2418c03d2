"""Rotation on a GPU: one launch of a Triton kernel, forward and backward.

Each value is read and written once (rotated ones are read too for the gradient of the angles).
``rotate`` computes in float32 whatever the storage, with cosines and sines from a table that all
blocks share. ``apply`` computes them itself, in float32, or in float64 if a tensor has it. The
gradient of the angles is deterministic: each program of ``rotate`` sums in a fixed order to a slot
of its own, and the slots are then summed; a program of ``apply`` sums over all images.

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

from . import definition, packed
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
LANES_EACH = 512  # of a program of ``apply``: a thread loads 4 values of each half of the channels

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


def apply(x: Tensor, theta: Tensor, in_place: bool) -> Tensor:
    """See ``packed.apply``."""
    target = x if in_place else torch.empty_like(x, memory_format=torch.contiguous_format)
    launch_apply(x, target, theta)
    return target


def apply_backward(
    grad: Tensor, theta: Tensor, rotated: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """See ``packed.apply_backward``."""
    grad_x = torch.empty_like(grad, memory_format=torch.contiguous_format)
    grad_theta = None
    if rotated is not None:
        rotated = rotated.contiguous()
        grad_theta = torch.empty_like(theta, memory_format=torch.contiguous_format)
    launch_apply(grad, grad_x, theta, True, rotated, grad_theta)
    return grad_x, grad_theta


def launch_apply(
    source: Tensor,
    target: Tensor,
    theta: Tensor,
    backward: bool = False,
    rotated: Tensor | None = None,
    grad_theta: Tensor | None = None,
) -> None:
    """Rotate ``source`` [B, h, N, C] to ``target`` in one launch.

    Backward by the opposite angles, and with the gradient of the angles to ``grad_theta`` if
    ``rotated`` is given.
    """
    from .triton_jit import apply_kernel

    (batch, heads, num_tokens, channels), (theta_heads, _, pairs) = source.shape, theta.shape
    lanes = pairs if target is source else channels - pairs
    if not source.numel() or not lanes:
        if grad_theta is not None:
            grad_theta.zero_()
        return
    blocks = -(-theta_heads * num_tokens * lanes // LANES_EACH)
    # The gradient of an angle is the sum over all images, and is written once.
    images_each = batch if grad_theta is not None else max(1, batch * blocks // PROGRAMS)
    with torch.cuda.device_of(source):
        apply_kernel[(-(-batch // images_each) * blocks,)](
            *(source, target, theta, rotated, grad_theta),
            *(*source.stride(), *target.stride(), *theta.stride()),
            *(batch, num_tokens, images_each),
            **dict(HEADS=heads, THETA_HEADS=theta_heads, P=pairs, LANES=lanes, BLOCK=LANES_EACH),
            **dict(BACKWARD=backward, THETA_GRAD=grad_theta is not None),
            DOUBLE=torch.float64 in (source.dtype, theta.dtype),
        )


def can_use(qkv: Tensor) -> str | None:
    """A reason why ``rotate`` cannot take ``qkv``, or None.

    The first call on a device compiles the kernels and checks them.
    """
    if reason := why_not_like(qkv):
        return reason
    if qkv.dtype not in DTYPES:
        return f'the kernel computes in float32, qkv is {qkv.dtype}'
    if qkv.shape[-1] % 2:
        return f'the kernel takes channels in pairs, a head has {qkv.shape[-1]}'
    if qkv.shape[1:].numel() >= 2**31:
        return 'the kernel counts the values of an image with 32 bits'
    return why_not_checked(qkv.device)


def can_apply(x: Tensor, theta: Tensor) -> str | None:
    """A reason why ``apply`` cannot take these tensors, or None; see ``can_use``."""
    if reason := why_not_like(x) or why_not_like(theta):
        return reason
    if x.shape[1:].numel() >= 2**31 - LANES_EACH:
        return 'the kernel counts the values of an image with 32 bits'
    return why_not_checked(x.device)


def why_not_like(x: Tensor) -> str | None:
    """A reason why no kernel takes tensors like ``x``, or None."""
    if not IS_ENABLED:
        return f'{SWITCH}=0 is set'
    if x.device.type != DEVICE_TYPE:
        return f'Triton runs on CUDA devices, the tensor is on {x.device.type!r}'
    if type(x) not in (Tensor, nn.Parameter):
        return f'the kernel takes plain tensors, this is a {type(x).__name__}'
    return None


def why_not_checked(device: torch.device) -> str | None:
    """A reason why the kernels cannot be used on a device, found by the first call, or None."""
    if device not in reasons:
        if torch.cuda.is_current_stream_capturing():
            return f'a CUDA graph is captured, and the kernel was not used on {device} before'
        with lock:
            if device not in reasons:
                reasons[device] = why_not_on(device)
    return reasons[device]


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

    Values and gradients in float32 and bfloat16, with channels that are not rotated, of ``rotate``
    for both layouts with prefix tokens, for angles shared by all heads and images and for separate
    ones, and of ``apply``, in place too.
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
    for dtype, heads in product(TOLERANCES, (1, 3)):
        x, theta = waves((2, 3, 9, 20), device).to(dtype), waves((heads, 9, 8), device)
        out = packed.apply(x, theta, False)
        torch.testing.assert_close(
            [apply(x, theta, False), apply(x.clone(), theta, True), *apply_backward(x, theta, out)],
            [out, out, *packed.apply_backward(x, theta, out)],
            rtol=0,
            atol=4 * TOLERANCES[dtype],
        )


def waves(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Values in [-1, 1], without use of the user's random numbers."""
    return torch.arange(math.prod(shape), device=device).float().square().sin().view(shape)
