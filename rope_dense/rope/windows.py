"""Windows of a token grid: where they are cut, and the way of tokens into them and back.

Letters: B images, H x W tokens of the grid, R x S windows of h x w tokens each, N = h * w, T tokens
of all windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from operator import index
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

Size = tuple[int, int]  # (height, width) in tokens


class Span(NamedTuple):
    """Windows of one size, side by side along one axis of a grid.

    Attributes:
        start: the first token.
        number: of windows.
        size: tokens of a window.
        inside: those of them that the grid has; the others, at the end, are padding. Less than
            ``size`` only where there is a single window.
    """

    start: int
    number: int
    size: int
    inside: int


class Windows(NamedTuple):
    """Windows of one size that tile a part of a grid."""

    rows: Span
    columns: Span

    @property
    def size(self) -> Size:
        """(height, width) of a window."""
        return self.rows.size, self.columns.size

    @property
    def padded(self) -> bool:
        """Whether some of the tokens are padding."""
        return self.rows.inside < self.rows.size or self.columns.inside < self.columns.size

    def shape(self, num_images: int) -> tuple[int, ...]:
        """(B, R, S, h, w)."""
        return num_images, self.rows.number, self.columns.number, *self.size

    def of_grid(self, x: Tensor) -> Tensor:
        """The view [B, R, S, h, w, ...] of a grid [B, H, W, ...]: what is inside."""
        rows, columns = self
        x = x.narrow(1, rows.start, rows.number * rows.inside)
        x = x.narrow(2, columns.start, columns.number * columns.inside)
        sides = rows.number, rows.inside, columns.number, columns.inside
        return x.view(len(x), *sides, *x.shape[3:]).transpose(2, 3)

    def inside(self, x: Tensor) -> Tensor:
        """What of whole windows [B, R, S, h, w, ...] is inside, a view."""
        return x[:, :, :, : self.rows.inside, : self.columns.inside]

    def fill(self, whole: Tensor, x: Tensor, padding: Tensor | None = None) -> None:
        """Write the tokens of a grid [B, H, W, ...] to whole windows [B, R, S, h, w, ...], and
        ``padding`` [...], or zeros, to what is not inside."""
        if self.padded:
            whole.zero_() if padding is None else whole.copy_(padding)
        self.inside(whole).copy_(self.of_grid(x))


@dataclass(frozen=True)
class Partition:
    """Windows that cover the grids of some images, those of one size one after the other.

    Attributes:
        shape: (B, H, W).
        windows: see ``cut_windows``.
        sizes: the windows of all images, counted by their size.
    """

    shape: tuple[int, int, int]
    windows: tuple[Windows, ...]
    sizes: dict[Size, int]

    @property
    def num_tokens(self) -> int:
        """T, padding too."""
        return sum(number * height * width for (height, width), number in self.sizes.items())

    def by_size(self, tokens: Tensor) -> list[Tensor]:
        """[T, ...] to a view [number, N, ...] for each size."""
        lengths = [number * height * width for (height, width), number in self.sizes.items()]
        parts = zip(tokens.split(lengths), self.sizes, strict=True)
        return [part.unflatten(0, (-1, height * width)) for part, (height, width) in parts]

    def one_by_one(self, of_sizes: Sequence[Tensor]) -> list[Tensor]:
        """[number, N, ...] for each size to a view [B, R, S, h, w, ...] for each of ``windows``."""
        views = []
        groups = groupby(self.windows, key=lambda windows: windows.size)
        for of_size, (_, members) in zip(of_sizes, groups, strict=True):
            shapes = [windows.shape(self.shape[0]) for windows in members]
            parts = of_size.split([b * r * s for b, r, s, _, _ in shapes])
            for part, shape in zip(parts, shapes, strict=True):
                views.append(part.view(*shape, *part.shape[2:]))
        return views

    def cut(self, x: Tensor, padding: Tensor | None = None) -> list[Tensor]:
        """Tokens of the grids to tokens of the windows, both in row-major order.

        Args:
            x: [B, H, W, ...].
            padding: [...], what padding tokens have; None is zeros.

        Returns:
            [number, N, ...] for each size.
        """
        if padding is None:
            padding = x.new_zeros(x.shape[3:])
        found = {size: [] for size in self.sizes}
        for windows in self.windows:
            part = windows.of_grid(x)
            for dim, span in zip((3, 4), windows, strict=True):
                if span.inside < span.size:
                    shape = (*part.shape[:dim], span.size - span.inside, *part.shape[dim + 1 :])
                    part = torch.cat([part, padding.expand(shape)], dim)
            found[windows.size].append(part.flatten(3, 4).flatten(0, 2))
        return [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in found.values()]

    def merge(self, of_sizes: Sequence[Tensor]) -> Tensor:
        """The inverse of ``cut``, [number, N, ...] for each size to [B, H, W, ...]."""
        return MergeWindows.apply(self, *of_sizes)


class MergeWindows(torch.autograd.Function):
    """``Partition.merge``, which copies each token once, forward and backward."""

    @staticmethod
    def forward(ctx: FunctionCtx, partition: Partition, *of_sizes: Tensor) -> Tensor:
        ctx.partition = partition
        x = of_sizes[0].new_empty(*partition.shape, *of_sizes[0].shape[2:])
        views = partition.one_by_one(of_sizes)
        for windows, view in zip(partition.windows, views, strict=True):
            windows.of_grid(x).copy_(windows.inside(view))
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        partition = ctx.partition
        of_sizes = partition.by_size(grad.new_empty(partition.num_tokens, *grad.shape[3:]))
        for windows, whole in zip(partition.windows, partition.one_by_one(of_sizes), strict=True):
            windows.fill(whole, grad)
        return None, *of_sizes


def cut_windows(
    shape: tuple[int, int, int],
    window_size: Size,
    *,
    shift: Size = (0, 0),
    padding: Size = (0, 0),
) -> Partition:
    """Cut grids into windows.

    Published implementations shift the grid cyclically and mask pairs of tokens that are not
    neighbours in the image. Here the border windows are cut to what is left of them instead:
    smaller windows, which attend on their own. Rotation and bias depend on offsets only, so a
    smaller window takes those of its own size. The result is the same, without a mask. Incomplete
    windows are cut in the same way, unless ``padding`` makes them whole.

    Args:
        shape: (B, H, W) of the grids.
        shift: tokens by which the windows are moved up and left.
        padding: rows and columns of padding below and right of the grid, see ``window_padding``.
    """
    rows, columns = map(spans, shape[1:], window_size, shift, padding)
    windows = sorted((Windows(*pair) for pair in product(rows, columns)), key=lambda w: w.size)
    sizes = {}
    for each in windows:
        number = shape[0] * each.rows.number * each.columns.number
        sizes[each.size] = sizes.get(each.size, 0) + number
    return Partition(tuple(shape), tuple(windows), sizes)


def spans(total: int, window: int, shift: int, padding: int) -> list[Span]:
    """``cut_windows`` along one axis."""
    # Numbers under the compiler, too: it takes each size of images by itself.
    total, window, shift, padding = [index(x) for x in (total, window, shift, padding)]
    first = min(shift, total + padding)
    whole, rest = divmod(total + padding - first, window)
    found = []
    for start, number, size in (
        (0, 1, first),
        (first, whole, window),
        (total + padding - rest, 1, rest),
    ):
        complete, left = divmod(max(0, min(total - start, number * size)), max(1, size))
        if complete:
            found.append(Span(start, complete, size, size))
        if left:
            found.append(Span(start + complete * size, 1, size, left))
    return found


def window_padding(grid: Size, window_size: Size) -> Size:
    """Rows and columns that ``grid`` lacks to whole windows."""
    return -grid[0] % window_size[0], -grid[1] % window_size[1]
