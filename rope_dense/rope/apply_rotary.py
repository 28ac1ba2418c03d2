"""The rotation of one tensor, of queries or of keys: for attention that is not of this package.

It needs torch alone, and runs by the implementations that attention in this package uses: Triton on
a GPU, else complex products, and the definition while tracing.

Letters: B batch, h heads, N tokens, C channels of a head, P rotated channel pairs, 2 P <= C.
Checked in tests/rope/test_apply_rotary.py against a loop in float64 over tokens, heads and pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .rotate import Rotary, rotate_packed

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def apply_rotary(x: Tensor, theta: Tensor) -> Tensor:
    """Rotate each channel pair (t, t + P) of each token by its angle.

    (a, b) becomes (a cos - b sin, a sin + b cos); channels from 2 P on stay. Computed in float32,
    or in float64 if ``x`` or ``theta`` is, and rounded once. Backward is the opposite rotation, and
    gives the gradient of ``theta`` if that asks for one. This is the operator "fast-rope" of
    "Revisiting Positional Information in Transformers in the Era of Fused Attention".

    Args:
        x: [B, h, N, C], float16, bfloat16, float32 or float64; any strides.
        theta: [h or 1, N, P], radians, in any of these types.

    Returns:
        A new tensor like ``x``.

    Raises:
        ValueError: the shapes do not fit each other.
        TypeError: another type.
    """
    packed, rotary = as_packed(x, theta)
    if needs_double(x, theta):
        return rotate_packed(packed.double(), rotary)[:, :, 0].transpose(1, 2).to(x.dtype)
    return rotate_packed(packed, rotary)[:, :, 0].transpose(1, 2)


def apply_rotary_(x: Tensor, theta: Tensor) -> Tensor:
    """``apply_rotary`` that writes to ``x``, and returns it.

    The last stride of ``x`` is 1, and it is not expanded. If ``theta`` asks for a gradient, a copy
    of the result is saved for it, so that ``x`` and what shares its memory, such as keys beside
    queries, may change again.

    Raises:
        ValueError, TypeError: see ``apply_rotary``; or ``x`` has other strides.
        RuntimeError: ``x`` is a leaf that requires a gradient; in backward, that another operation
            needs what was changed.
    """
    packed, rotary = as_packed(x, theta)
    steps = [step for step, side in zip(x.stride(), x.shape, strict=True) if side > 1]
    if 0 in steps or (x.shape[-1] > 1 and steps[-1] != 1):
        raise ValueError(f'the last stride of x must be 1 and none 0, got {x.stride()}')
    return x.copy_(apply_rotary(x.clone(), theta))


def as_packed(x: Tensor, theta: Tensor) -> tuple[Tensor, Rotary]:
    """``x`` as [B, N, 1, h, C], and its angles [N, h or 1, P] in the precision to compute in.

    Raises:
        ValueError, TypeError: see ``apply_rotary``.
    """
    for name, tensor in (('x', x), ('theta', theta)):
        if tensor.dtype not in DTYPES:
            raise TypeError(f'{name} must be one of {DTYPES}, got {tensor.dtype}')
    fits = x.ndim == 4 and theta.ndim == 3
    if fits:
        heads, tokens, pairs = theta.shape
        fits = heads in (1, x.shape[1]) and tokens == x.shape[2] and 2 * pairs <= x.shape[3]
    if not fits:
        raise ValueError(
            'x must be [B, h, N, C] and theta [h or 1, N, P] with 2 P <= C, got '
            f'{list(x.shape)} and {list(theta.shape)}'
        )
    dtype = torch.promote_types(torch.promote_types(x.dtype, theta.dtype), torch.float32)
    return x.transpose(1, 2).unsqueeze(2), Rotary(theta.transpose(0, 1).to(dtype), 'half')


def needs_double(x: Tensor, theta: Tensor) -> bool:
    """Whether ``x`` is less precise than what it is rotated in."""
    return theta.dtype == torch.float64 != x.dtype
