"""Rotation of the packed qkv projection as one step of autograd, in place or on the way into
windows; what turns the pairs, forward and backward, is given to it.

The projection's own backward does not need its output, so the rotated values may take its place, or
the projection may be let go of once its tokens are in their windows. Backward is the opposite
rotation of the gradient. With z' = a' + i b' a *rotated* pair and g = g_a + i g_b its gradient,

    d loss / d angle = a' g_b - b' g_a = Im(conj(z') g)

which needs only the rotated queries and keys. Attention keeps those anyway: rotating saves no
activation.

Letters: B images, N tokens, h heads, D channels of a head, P rotated pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from ..rotation import QKV, Rotation
from ..windows import Partition, cut_windows


class FastPath(Protocol):
    """Transfers projections, queries and keys turned.

    Projections are given as views [B, R, S, height, width, 3, h, D] of the tokens of R x S windows
    of B images, one for each of a partition's windows. Each window takes the top left
    ``height`` x ``width`` tokens of the rotation.
    """

    def can_use(self, qkv: Tensor) -> str | None:
        """A reason why this cannot take a projection like ``qkv``, or None."""

    def turn(
        self, sources: Sequence[Tensor], targets: Sequence[Tensor], rotation: Rotation
    ) -> None:
        """From ``sources`` to ``targets``; in place where they are the same object."""

    def turn_back(
        self,
        grads: Sequence[QKV],
        targets: Sequence[Tensor],
        rotation: Rotation,
        partition: Partition,
        rotated: Sequence[Tensor] | None,
    ) -> Tensor | None:
        """Write the gradients of what ``turn`` took.

        Args:
            grads: of what it gave, [number, N, h, D] each, for each size of windows.
            targets: gradients of its ``sources``.
            rotated: what it gave, [number, N, 3, h, D] for each size of windows, or None.

        Returns:
            [2, h, P], the gradient of the frequencies, if ``rotated`` is given.
        """


def cannot_overwrite(qkv: Tensor) -> str | None:
    """A reason why ``rotate_in_place`` cannot take ``qkv`` [B, N, 3, h, D], or None."""
    owner = qkv if qkv._base is None else qkv._base
    if owner.requires_grad and owner.is_leaf:
        return 'qkv is a leaf that needs a gradient, so it must not be overwritten'
    if qkv.stride(-1) != 1:
        return 'the channels of a head are not contiguous'
    return None


def rotate_in_place(qkv: Tensor, rotation: Rotation, path: FastPath) -> QKV:
    """``rotate.rotate_qkv`` in place: the results are views of the overwritten ``qkv``."""
    return RotateInPlace.apply(qkv, rotation.freqs, rotation, path)


def rotate_into_windows(
    qkv: Tensor,
    partition: Partition,
    rotation: Rotation | None,
    padding: Tensor | None,
    path: FastPath,
) -> list[QKV]:
    """``rotate.rotate_windows``, each token read and written once."""
    function, freqs = IntoWindows, None
    if rotation is not None:
        function, freqs = RotateIntoWindows, rotation.freqs
    out = function.apply(qkv, padding, freqs, partition, rotation, path)
    return list(zip(out[::3], out[1::3], out[2::3], strict=True))


class RotateInPlace(torch.autograd.Function):
    """qkv [B, N, 3, h, D] and freqs [2, h, P] to queries, keys and values, [B, h, N, D] each."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, qkv: Tensor, freqs: Tensor, rotation: Rotation, path: FastPath
    ) -> QKV:
        qkv = qkv.detach()
        grid = (len(rotation.y), len(rotation.x))
        partition = cut_windows((len(qkv), *grid), grid)  # one window
        tokens = partition.one_by_one([qkv[:, rotation.num_prefix_tokens :]])
        path.turn(tokens, tokens, rotation)
        # Detached, it shares the version counter: whoever saved qkv for backward is told.
        torch.autograd.graph.increment_version(qkv)
        ctx.partition, ctx.rotation, ctx.path, ctx.shape = partition, rotation, path, qkv.shape
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(qkv)  # the memory of q and k, which attention saves
        return qkv.permute(2, 0, 3, 1, 4).unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        partition, rotation, rotated = ctx.partition, ctx.rotation, None
        prefix = rotation.num_prefix_tokens
        grads = [grad.transpose(1, 2) for grad in grads]  # [B, N, h, D]
        grad_qkv = grads[0].new_empty(ctx.shape)
        if prefix:
            pack([grad[:, :prefix] for grad in grads], grad_qkv[:, :prefix])
        if ctx.needs_input_grad[1]:
            rotated = [ctx.saved_tensors[0][:, prefix:]]
        targets = partition.one_by_one([grad_qkv[:, prefix:]])
        grads = [tuple(grad[:, prefix:] for grad in grads)]
        grad_freqs = ctx.path.turn_back(grads, targets, rotation, partition, rotated)
        return grad_qkv, grad_freqs, None, None


class RotateIntoWindows(torch.autograd.Function):
    """qkv [B, H, W, 3, h, D], padding [3, h, D] or None, and freqs [2, h, P] to queries, keys and
    values, [number, h, N, D] each, of the first size of windows, of the second, and so on."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        qkv: Tensor,
        padding: Tensor | None,
        freqs: Tensor | None,
        partition: Partition,
        rotation: Rotation | None,
        path: FastPath,
    ) -> tuple[Tensor, ...]:
        out = qkv.new_empty(partition.num_tokens, *qkv.shape[3:])
        of_sizes = partition.by_size(out)
        sources, targets = [], partition.one_by_one(of_sizes)
        for windows, target in zip(partition.windows, targets, strict=True):
            if windows.padded or rotation is None:
                windows.fill(target, qkv, padding)
            sources.append(target if windows.padded else windows.of_grid(qkv))
        if rotation is not None:
            path.turn(sources, targets, rotation)
        ctx.partition, ctx.rotation, ctx.path, ctx.shape = partition, rotation, path, qkv.shape
        if ctx.needs_input_grad[2]:
            ctx.save_for_backward(out)  # the memory of q and k, which attention saves
        return tuple(part for of_size in of_sizes for part in of_size.permute(2, 0, 3, 1, 4))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        partition, rotation, rotated = ctx.partition, ctx.rotation, None
        grads = [grad.transpose(1, 2) for grad in grads]  # [number, N, h, D]
        grads = list(zip(grads[::3], grads[1::3], grads[2::3], strict=True))
        grad_qkv = grads[0][0].new_empty(ctx.shape)
        targets = [  # of padded windows a copy, from which what is inside goes to the grid
            grad_qkv.new_empty(*windows.shape(len(grad_qkv)), *ctx.shape[3:])
            if windows.padded
            else windows.of_grid(grad_qkv)
            for windows in partition.windows
        ]
        grad_freqs = None
        if rotation is None:
            parts = [partition.one_by_one(part) for part in zip(*grads, strict=True)]
            for *of_windows, target in zip(*parts, targets, strict=True):
                pack(of_windows, target)
        else:
            if ctx.needs_input_grad[2]:
                rotated = partition.by_size(ctx.saved_tensors[0])
            grad_freqs = ctx.path.turn_back(grads, targets, rotation, partition, rotated)
        grad_padding = grads[0][0].new_zeros(ctx.shape[3:]) if ctx.needs_input_grad[1] else None
        for windows, target in zip(partition.windows, targets, strict=True):
            if windows.padded:
                inside = windows.inside(target)
                windows.of_grid(grad_qkv).copy_(inside)
                if grad_padding is not None:
                    inside.zero_()
                    grad_padding += target.sum((0, 1, 2, 3, 4))
        return grad_qkv, grad_padding, grad_freqs, None, None, None


class IntoWindows(RotateIntoWindows):
    """Without rotation, under a name of its own in profiles."""


def pack(qkv: Sequence[Tensor], packed: Tensor) -> None:
    """Write queries, keys and values [..., h, D] to packed [..., 3, h, D]."""
    for part, target in zip(qkv, packed.unbind(-3), strict=True):
        target.copy_(part)
