"""RoIAlign: ``roi_align_forward`` and ``roi_align_backward`` of mmcv.

He et al., "Mask R-CNN" (ICCV 2017).

Mean or maximum of bilinear samples in each place of a region. The mean is a product of two
one-dimensional means, so the samples of a place become one weighted sum over a rectangle of cells;
backward is its transpose. Computed in float32, or in float64 for float64.

Letters: B images, C channels, H x W cells of a map, R regions, S x S' places of a region, G samples
of a place in a column or row (at most). Checked against the compiled operators and loops over
samples in tests/operators/test_roi_align.py.
"""

from __future__ import annotations

from ctypes import c_float
from dataclasses import dataclass

import torch
from torch import Tensor

from .bags import Bags, Taps, as_cells, at_least_float32, rectangles, row_slices
from .compiled import torchvision_operators

CHUNK = 1024  # regions at once: bounds the memory of indices
VALUES = 2**24  # samples of regions at once, for the maximum


@dataclass(frozen=True)
class Pooling:
    """Arguments of mmcv's ``RoIAlign`` (see ``roi_align_forward``), and the size of the maps."""

    places: tuple[int, int]
    scale: float
    sampling_ratio: int
    aligned: bool
    size: tuple[int, int]

    def samples(self, rois: Tensor) -> tuple[Samples, Samples]:
        """The rows and columns of the samples of regions [R, 5]."""
        offset = 0.5 if self.aligned else 0.0
        low, high = (at_least_float32(rois[:, 1:]) * self.scale - offset).split(
            2, 1
        )  # [R, 2]
        length = high - low
        if not self.aligned:
            length = length.clamp(min=1)
        elif rois.device.type == 'cpu' and not (length >= 0).all():
            raise RuntimeError('roi_align: regions must not have a negative size')
        columns, rows = (
            Samples.of(
                low[:, axis],
                length[:, axis],
                self.places[1 - axis],
                self.sampling_ratio,
            )
            for axis in range(2)
        )
        return rows, columns

    def bags(self, rois: Tensor) -> Bags:
        """The cells of each place of regions [R, 5], as their mean weighs them."""
        axes = zip(self.samples(rois), self.size, strict=True)
        rows, columns = (
            samples.mean_taps(size, not self.sampling_ratio) for samples, size in axes
        )
        return rectangles(self.first_cell(rois), rows, columns, self.size[1])

    def first_cell(self, rois: Tensor) -> Tensor:
        """Index [R] of the first cell of the map that a region lies in, in all maps."""
        return rois[:, 0].long() * self.size[0] * self.size[1]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of S places of regions along one axis.

    Attributes:
        position: [R, S, G], in cells; from ``count`` on the last one is repeated.
        count: [R] samples in each place.
        used: [R, 1, G], whether a sample is one of ``count``.
    """

    position: Tensor
    count: Tensor
    used: Tensor

    @classmethod
    def of(cls, start: Tensor, length: Tensor, places: int, ratio: int) -> Samples:
        """Samples of regions that begin at ``start`` [R] and have a length [R], in cells."""
        step = length / places  # [R], of a place
        if ratio > 0:
            count = torch.full_like(start, ratio, dtype=torch.long)
        else:
            count = step.float().nan_to_num(0, 0, 0).ceil().clamp(min=0).long()
        start, step, number = (x[:, None, None] for x in (start, step, count))
        place = torch.arange(places, device=start.device)[:, None]
        sample = torch.arange(
            ratio if ratio > 0 else int(count.max()), device=start.device
        )
        at = sample.minimum((number - 1).clamp(min=0))
        position = start + place * step + (at + 0.5) * step / number.clamp(min=1)
        return cls(position, count, sample < number)

    def corners(self, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cells below and above each sample, and their weights in it, [R, S, G] each.

        Weights are 0 for samples that are not used, or further than a cell outside of the map.
        """
        low, high, share = cells_around(self.position, size)
        used = self.used & (self.position >= -1) & (self.position <= size)
        return low, high, (1 - share) * used, share * used

    def mean_taps(self, size: int, adjacent: bool) -> Taps:
        """The means over the samples of each place, as sums over cells of an axis of ``size``.

        Adjacent samples are at most one cell apart and share cells.
        """
        low, high, low_weight, high_weight = self.corners(size)
        number = self.position.shape[-1]
        if adjacent:
            slot, slots = low - low[..., :1], number + 2
            count = slot[..., -1] + 2 if number else slot.sum(-1)
        else:
            slot, slots = (
                2 * torch.arange(number, device=low.device).expand_as(low),
                2 * number,
            )
            count = (2 * self.count)[:, None].expand(low.shape[:2])
        index = low.new_zeros(*low.shape[:2], slots)
        index.scatter_(-1, slot, low).scatter_(-1, slot + 1, high)
        weight = low_weight.new_zeros(index.shape)
        weight.scatter_add_(-1, slot, low_weight).scatter_add_(
            -1, slot + 1, high_weight
        )
        return Taps(index, weight / self.count.clamp(min=1)[:, None, None], count)

    def single_taps(self, size: int) -> Taps:
        """Each sample [R, S G] as a sum over two cells."""
        low, high, *weights = self.corners(size)
        index = torch.stack([low, high], -1).flatten(1, 2)
        weight = torch.stack(weights, -1).flatten(1, 2)
        return Taps(index, weight, torch.full_like(index[..., 0], 2))


def cells_around(position: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of the cells below and above positions, and the share of the upper one.

    Positions outside of the map are moved to its border.
    """
    position = position.nan_to_num(0).clamp(0, size - 1)
    low = position.long()
    return low, (low + 1).clamp(max=size - 1), position - low


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the pooled regions of maps [B, C, H, W] to ``output``.

    Args:
        input: the maps.
        rois: [R, 5]: index of the image, left, top, right, bottom in pixels.
        output: [R, C, S, S'].
        argmax_y: [R, C, S, S'], rows of the samples that are the maximum, -1 for none.
        argmax_x: their columns.
        aligned_height: S.
        aligned_width: S'.
        spatial_scale: cells to a pixel.
        sampling_ratio: G; 0 for as many samples as a place has cells.
        pool_mode: 0 for the maximum (-10000 at least, as in mmcv), 1 for the mean.
        aligned: the centre of a pixel is at 0.5; else at 0, and regions have at least one cell.

    Raises:
        RuntimeError: aligned regions of negative size, on a CPU; GPUs pool them, as mmcv's do.
    """
    places = aligned_height, aligned_width
    scale = c_float(spatial_scale).value
    if pool_mode == 1 and (torchvision := torchvision_operators(input.device)):
        maps = at_least_float32(input)
        rois = rois.to(maps.dtype)
        output.copy_(
            torchvision.roi_align(maps, rois, scale, *places, sampling_ratio, aligned)
        )
        return
    pooling = Pooling(
        places, scale, sampling_ratio, aligned, (input.shape[2], input.shape[3])
    )
    cells = as_cells(input)
    for part in row_slices(rois, CHUNK):
        if pool_mode == 1:
            means = pooling.bags(rois[part]).sums(cells).unflatten(0, (-1, *places))
            output[part] = means.permute(0, 3, 1, 2)
        else:
            write_maxima(
                pooling, cells, rois[part], output[part], argmax_y[part], argmax_x[part]
            )


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Add the gradient of the maps to ``grad_input``; other arguments as in forward."""
    places, size = (aligned_height, aligned_width), grad_input.shape
    if pool_mode == 0:
        add_at_samples(grad_output, rois, argmax_y, argmax_x, grad_input)
        return
    scale = c_float(spatial_scale).value
    if torchvision := torchvision_operators(grad_output.device):
        rois = at_least_float32(rois)
        grad_input += torchvision._roi_align_backward(
            grad_output.to(rois.dtype),
            rois,
            scale,
            *places,
            *size,
            sampling_ratio,
            aligned,
        )
        return
    pooling = Pooling(places, scale, sampling_ratio, aligned, (size[2], size[3]))
    num_cells = size[0] * size[2] * size[3]
    for part in row_slices(rois, CHUNK):
        cells = pooling.bags(rois[part]).spread(as_cells(grad_output[part]), num_cells)
        grad_input += cells.unflatten(0, (size[0], *size[2:])).permute(0, 3, 1, 2)


def write_maxima(
    pooling: Pooling,
    cells: Tensor,
    rois: Tensor,
    output: Tensor,
    row: Tensor,
    column: Tensor,
) -> None:
    """Write the maxima over the samples of each place, and where they are.

    From cells [B H W, C] and regions [R, 5]; output, row and column are [R, C, S, S'].
    """
    samples = pooling.samples(rois)
    shape = [
        number for axis in samples for number in axis.position.shape[1:]
    ]  # S G S' G'
    per_region = cells.shape[1] * torch.Size(shape).numel()
    if len(rois) > 1 and per_region * len(rois) > VALUES:
        for part in row_slices(rois, max(1, VALUES // per_region)):
            write_maxima(
                pooling, cells, rois[part], output[part], row[part], column[part]
            )
        return
    rows, columns = (
        axis.single_taps(size) for axis, size in zip(samples, pooling.size, strict=True)
    )
    bags = rectangles(pooling.first_cell(rois), rows, columns, pooling.size[1])
    values = bags.sums(cells).view(len(rois), *shape, cells.shape[1])
    used = (
        samples[0].used[..., None, None, None]
        & samples[1].used[:, None, None, :, :, None]
    )
    values = values.masked_fill(values.isnan() | ~used, -torch.inf)
    values = values.permute(0, 5, 1, 3, 2, 4).flatten(-2)  # [R, C, S, S', G G']
    maximum, index = prepend(values, -10000.0).max(-1)  # the first of equal ones
    output.copy_(maximum)
    for out, position in (
        (row, samples[0].position[:, :, None, :, None]),
        (column, samples[1].position[:, None, :, None]),
    ):
        position = position.expand(-1, *shape[::2], *shape[1::2]).flatten(
            -2
        )  # [R, S, S', G G']
        position = prepend(position, -1.0)[:, None].expand(*index.shape, -1)
        out.copy_(position.gather(-1, index[..., None])[..., 0])


def prepend(x: Tensor, first: float) -> Tensor:
    """[..., N] with a number before the others."""
    return torch.cat([x.new_full((*x.shape[:-1], 1), first), x], -1)


def add_at_samples(
    grad_output: Tensor, rois: Tensor, row: Tensor, column: Tensor, grad_input: Tensor
) -> None:
    """Add gradients [R, C, S, S'] to the cells around one sample each; see ``write_maxima``."""
    channels, height, width = grad_input.shape[1:]
    channel = rois[:, 0].long()[:, None] * channels + torch.arange(
        channels, device=rois.device
    )
    first = (channel * height * width)[..., None, None]  # [R, C, 1, 1]
    inside = (
        (row != -1) & (row >= -1) & (row <= height) & (column >= -1) & (column <= width)
    )
    grad = at_least_float32(grad_output) * inside
    total = torch.zeros(grad_input.numel(), device=grad.device, dtype=grad.dtype)
    axes = [
        cells_around(x.to(grad.dtype), size)
        for x, size in ((row, height), (column, width))
    ]
    for y, y_weight in ((axes[0][0], 1 - axes[0][2]), (axes[0][1], axes[0][2])):
        for x, x_weight in ((axes[1][0], 1 - axes[1][2]), (axes[1][1], axes[1][2])):
            cell = first + y * width + x
            total.index_add_(0, cell.flatten(), (grad * y_weight * x_weight).flatten())
    grad_input += total.view_as(grad_input)
