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
    size: torch.Size

    def samples(self, rois: Tensor) -> tuple[Samples, Samples]:
        """The rows and columns of the samples of regions [R, 5]."""
        offset = 0.5 if self.aligned else 0.0
        corners = at_least_float32(rois[:, 1:]) * self.scale - offset
        low, high = corners.split(2, 1)  # [R, 2]
        length = high - low
        if not self.aligned:
            length = length.clamp(min=1)
        elif rois.device.type == 'cpu' and not (length >= 0).all():
            raise RuntimeError('roi_align: regions must not have a negative size')
        height, width = self.places
        ratio = self.sampling_ratio
        columns = Samples.of(low[:, 0], length[:, 0], width, ratio)
        rows = Samples.of(low[:, 1], length[:, 1], height, ratio)
        return rows, columns

    def bags(self, rois: Tensor) -> Bags:
        """The cells of each place of regions [R, 5], as their mean weighs them."""
        height, width = self.size
        is_adjacent = not self.sampling_ratio
        rows, columns = self.samples(rois)
        row_taps = rows.mean_taps(height, is_adjacent)
        column_taps = columns.mean_taps(width, is_adjacent)
        return rectangles(self.first_cell(rois), row_taps, column_taps, width)

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
    def of(
        cls,
        start: Tensor,
        length: Tensor,
        places: int,
        ratio: int,
    ) -> Samples:
        """Samples of regions that begin at ``start`` [R] and have a length [R], in cells."""
        step = length / places  # [R], of a place
        if ratio > 0:
            count = torch.full_like(start, ratio, dtype=torch.long)
        else:
            count = step.float().nan_to_num(0, 0, 0).ceil().clamp(min=0).long()
        start, step, number = [x[:, None, None] for x in (start, step, count)]
        place = torch.arange(places, device=start.device)[:, None]
        most = ratio if ratio > 0 else int(count.max())
        sample = torch.arange(most, device=start.device)
        at = sample.minimum((number - 1).clamp(min=0))
        within = (at + 0.5) * step / number.clamp(min=1)
        position = start + place * step + within
        return cls(position, count, sample < number)

    def corners(self, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cells below and above each sample, and their weights in it, [R, S, G] each.

        Weights are 0 for samples that are not used, or further than a cell outside of the map.
        """
        low, high, share = cells_around(self.position, size)
        is_near = (self.position >= -1) & (self.position <= size)
        used = self.used & is_near
        return low, high, (1 - share) * used, share * used

    def mean_taps(self, size: int, adjacent: bool) -> Taps:
        """The means over the samples of each place, as sums over cells of an axis of ``size``.

        Adjacent samples are at most one cell apart and share cells.
        """
        low, high, low_weight, high_weight = self.corners(size)
        number = self.position.shape[-1]
        if adjacent:
            slot = low - low[..., :1]
            slots = number + 2
            count = slot[..., -1] + 2 if number else slot.sum(-1)
        else:
            slot = 2 * torch.arange(number, device=low.device).expand_as(low)
            slots = 2 * number
            count = (2 * self.count)[:, None].expand(low.shape[:2])
        index = low.new_zeros(*low.shape[:2], slots)
        index.scatter_(-1, slot, low)
        index.scatter_(-1, slot + 1, high)
        weight = low_weight.new_zeros(index.shape)
        weight.scatter_add_(-1, slot, low_weight)
        weight.scatter_add_(-1, slot + 1, high_weight)
        samples = self.count.clamp(min=1)
        return Taps(index, weight / samples[:, None, None], count)

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
    torchvision = torchvision_operators(input.device) if pool_mode == 1 else None
    if torchvision:
        maps = at_least_float32(input)
        settings = (scale, *places, sampling_ratio, aligned)
        output.copy_(torchvision.roi_align(maps, rois.to(maps.dtype), *settings))
        return
    pooling = Pooling(places, scale, sampling_ratio, aligned, input.shape[2:])
    cells = as_cells(input)
    for part in row_slices(rois, CHUNK):
        if pool_mode == 1:
            means = pooling.bags(rois[part]).sums(cells)
            means = means.unflatten(0, (-1, *places))
            output[part] = means.permute(0, 3, 1, 2)
        else:
            outs = output[part], argmax_y[part], argmax_x[part]
            write_maxima(pooling, cells, rois[part], *outs)


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
    if pool_mode == 0:
        add_at_samples(grad_output, rois, argmax_y, argmax_x, grad_input)
        return
    places = (aligned_height, aligned_width)
    scale = c_float(spatial_scale).value
    torchvision = torchvision_operators(grad_output.device)
    if torchvision:
        rois = at_least_float32(rois)
        settings = (scale, *places, *grad_input.shape, sampling_ratio, aligned)
        grad_output = grad_output.to(rois.dtype)
        grad_input += torchvision._roi_align_backward(grad_output, rois, *settings)
        return
    size = grad_input.shape[2:]
    pooling = Pooling(places, scale, sampling_ratio, aligned, size)
    num_cells = len(grad_input) * size.numel()
    for part in row_slices(rois, CHUNK):
        values = as_cells(grad_output[part])
        cells = pooling.bags(rois[part]).spread(values, num_cells)
        maps = cells.unflatten(0, (-1, *size))
        grad_input += maps.permute(0, 3, 1, 2)


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
    height, width = pooling.size
    rows, columns = pooling.samples(rois)
    shape = [*rows.position.shape[1:], *columns.position.shape[1:]]  # S G S' G'
    per_region = cells.shape[1] * torch.Size(shape).numel()
    if len(rois) > 1 and per_region * len(rois) > VALUES:
        for part in row_slices(rois, max(1, VALUES // per_region)):
            outs = output[part], row[part], column[part]
            write_maxima(pooling, cells, rois[part], *outs)
        return
    row_taps = rows.single_taps(height)
    column_taps = columns.single_taps(width)
    bags = rectangles(pooling.first_cell(rois), row_taps, column_taps, width)
    values = bags.sums(cells).view(len(rois), *shape, cells.shape[1])
    used = rows.used[..., None, None, None] & columns.used[:, None, None, :, :, None]
    values = values.masked_fill(values.isnan() | ~used, -torch.inf)
    values = values.permute(0, 5, 1, 3, 2, 4).flatten(-2)  # [R, C, S, S', G G']
    maximum, index = prepend(values, -10000.0).max(-1)  # the first of equal ones
    output.copy_(maximum)
    of_rows = rows.position[:, :, None, :, None]
    of_columns = columns.position[:, None, :, None]
    for out, position in ((row, of_rows), (column, of_columns)):
        position = position.expand(-1, *shape[::2], *shape[1::2])
        position = prepend(position.flatten(-2), -1.0)  # [R, S, S', 1 + G G']
        position = position[:, None].expand(*index.shape, -1)
        out.copy_(position.gather(-1, index[..., None])[..., 0])


def prepend(x: Tensor, first: float) -> Tensor:
    """[..., N] with a number before the others."""
    return torch.cat([x.new_full((*x.shape[:-1], 1), first), x], -1)


def add_at_samples(
    grad_output: Tensor,
    rois: Tensor,
    row: Tensor,
    column: Tensor,
    grad_input: Tensor,
) -> None:
    """Add gradients [R, C, S, S'] to the cells around one sample each; see ``write_maxima``."""
    channels, height, width = grad_input.shape[1:]
    image = rois[:, 0].long()
    channel = image[:, None] * channels + torch.arange(channels, device=rois.device)
    first = (channel * height * width)[..., None, None]  # [R, C, 1, 1]
    in_rows = (row != -1) & (row >= -1) & (row <= height)
    inside = in_rows & (column >= -1) & (column <= width)
    grad = at_least_float32(grad_output) * inside
    total = torch.zeros(grad_input.numel(), device=grad.device, dtype=grad.dtype)
    top, bottom, down = cells_around(row.to(grad.dtype), height)
    left, right, across = cells_around(column.to(grad.dtype), width)
    for y, y_weight in ((top, 1 - down), (bottom, down)):
        for x, x_weight in ((left, 1 - across), (right, across)):
            cell = first + y * width + x
            value = grad * y_weight * x_weight
            total.index_add_(0, cell.flatten(), value.flatten())
    grad_input += total.view_as(grad_input)
