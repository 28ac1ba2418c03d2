"""Rotation in place in the packed qkv projection, as one step of autograd; what turns the pairs,
forward and backward, is given to it.

The projection's own backward does not need its output, so the rotated values may take its place.
Backward is the opposite rotation of the gradient. With z' = a' + i b' a *rotated* pair and
g = g_a + i g_b its gradient,

    d loss / d angle = a' g_b - b' g_a = Im(conj(z') g)

which needs only the rotated queries and keys. Attention keeps those anyway: rotating saves no
activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from ..rotation import QKV, Rotation, Windows, split_windows

# Lists have one entry for each size of windows.
# Rotates the queries and keys of each qkv [number, N, 3, h, D].
Turn = Callable[[list[Tensor], Sequence[Windows], Rotation], None]
# From the gradients of rotated queries and keys and of values (first argument) writes those of each
# qkv [number, N, 3, h, D] (second). Given the rotated qkv too (last, else None) it returns the
# gradient of the frequencies.
TurnBack = Callable[
    [list[QKV], list[Tensor], Sequence[Windows], Rotation, list[Tensor] | None], Tensor | None
]


def cannot_overwrite(qkv: Tensor) -> str | None:
    """A reason why ``rotate_in_place`` cannot take ``qkv`` [T, 3, h, D], or None."""
    owner = qkv if qkv._base is None else qkv._base
    if owner.requires_grad and owner.is_leaf:
        return 'qkv is a leaf that needs a gradient, so it must not be overwritten'
    if qkv.stride(-1) != 1:
        return 'the channels of a head are not contiguous'
    return None


def rotate_in_place(
    qkv: Tensor,
    windows: Sequence[Windows],
    rotation: Rotation | None,
    turn: Turn,
    turn_back: TurnBack,
) -> list[QKV]:
    """``rotate.rotate_windows`` in place: the results are views of the overwritten ``qkv``."""
    function, freqs = Unpack, None
    if rotation is not None:
        function, freqs = RotateInPlace, rotation.freqs
    return triples(function.apply(qkv, freqs, windows, rotation, turn, turn_back))


class RotateInPlace(torch.autograd.Function):
    """qkv [T, 3, h, D] and freqs [2, h, P] to queries, keys and values, [number, h, N, D] each, of
    the first size of windows, of the second, and so on."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        qkv: Tensor,
        freqs: Tensor | None,
        windows: Sequence[Windows],
        rotation: Rotation | None,
        turn: Turn,
        turn_back: TurnBack,
    ) -> tuple[Tensor, ...]:
        qkv = qkv.detach()
        pieces = split(qkv, windows, rotation)
        if rotation is not None:
            turn(pieces, windows, rotation)
            # Detached, it shares the version counter: whoever saved qkv for backward is told.
            torch.autograd.graph.increment_version(qkv)
        ctx.windows, ctx.rotation, ctx.turn_back = windows, rotation, turn_back
        ctx.shape = qkv.shape
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(qkv)  # the memory of q and k, which attention saves
        return tuple(part for piece in pieces for part in piece.permute(2, 0, 3, 1, 4))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        windows, rotation = ctx.windows, ctx.rotation
        grad_qkv, grad_freqs = grads[0].new_empty(ctx.shape), None
        grads, pieces = triples(grads), split(grad_qkv, windows, rotation)
        if rotation is None:
            for of_size, piece in zip(grads, pieces, strict=True):
                pack(of_size, piece)
        else:
            rotated = None
            if ctx.needs_input_grad[1]:
                rotated = split(ctx.saved_tensors[0], windows, rotation)
            grad_freqs = ctx.turn_back(grads, pieces, windows, rotation, rotated)
        return grad_qkv, grad_freqs, None, None, None, None


class Unpack(RotateInPlace):
    """Without rotation, under a name of its own in profiles."""


def split(qkv: Tensor, windows: Sequence[Windows], rotation: Rotation | None) -> list[Tensor]:
    """[T, 3, h, D] to [number, N, 3, h, D] for each size."""
    return split_windows(qkv, windows, 0 if rotation is None else rotation.num_prefix_tokens)


def triples(tensors: Sequence[Tensor]) -> list[QKV]:
    """Queries, keys and values of the first size, of the second, and so on."""
    return list(zip(tensors[::3], tensors[1::3], tensors[2::3], strict=True))


def pack(qkv: QKV, packed: Tensor) -> None:
    """Write queries, keys and values [B, h, N, D] to packed [B, N, 3, h, D]."""
    torch.stack([x.transpose(1, 2) for x in qkv], 2, out=packed)
