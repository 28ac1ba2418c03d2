"""RoI pooling: ``roi_pool_forward`` and ``roi_pool_backward`` of mmcv, which has them for GPUs.

The maximum of the cells in each place of a region (Girshick, "Fast R-CNN", ICCV 2015). Letters: B
images, C channels, H x W cells of a map, R regions, S x S' places of a region, N places of all
regions. Checked against a loop over cells in tests/operators/test_roi_pool.py.
"""

from ctypes import c_float

import torch
from torch import Tensor

from .bags import Bags, Taps, as_cells, at_least_float32, rectangles, row_slices

VALUES = 2**24  # of the cells of regions at once: bounds the memory
LOWEST = torch.finfo(torch.float32).min


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Write the maxima of regions of maps [B, C, H, W] to ``output``.

    Args:
        input: the maps.
        rois: [R, 5]: index of the image, left, top, right, bottom in pixels.
        output: [R, C, S, S'], 0 for places without cells.
        argmax: [R, C, S, S'], index of the cell in its map, -1 for places without cells. (mmcv has
            0 for regions without area, and adds their gradients to the first cell.)
        pooled_height: S.
        pooled_width: S'.
        spatial_scale: cells to a pixel.
    """
    _, channels, height, width = input.shape
    places = (pooled_height, pooled_width)
    scale = c_float(spatial_scale).value
    cells = as_cells(input)
    regions = max(1, VALUES // (2 * height * width * channels))  # at once
    for part in row_slices(rois, regions):
        corners = at_least_float32(rois[part, 1:])
        low = corners[:, :2] * scale  # [R, 2], x and y
        length = (corners[:, 2:] + 1) * scale - low
        length = length * (length > 0).all(1, keepdim=True)
        rows = touched_cells(low[:, 1], length[:, 1], pooled_height, height)
        columns = touched_cells(low[:, 0], length[:, 0], pooled_width, width)
        first = rois[part, 0].long() * height * width
        bags = rectangles(torch.zeros_like(first), rows, columns, width)
        first = first.repeat_interleave(pooled_height * pooled_width)  # [N]
        found = bag_maxima(cells, bags, first)
        for out, values in zip((output, argmax), found, strict=True):
            values = values.unflatten(0, (-1, *places))
            out[part] = values.permute(0, 3, 1, 2).to(out.dtype)


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Add the gradient of the maps to ``grad_input``; other arguments as in forward."""
    channels, height, width = grad_input.shape[1:]
    image = rois[:, 0].long()
    channel = image[:, None] * channels + torch.arange(channels, device=rois.device)
    cell = (channel * height * width)[..., None, None] + argmax.clamp(min=0)
    grad = at_least_float32(grad_output) * (argmax >= 0)
    total = torch.zeros(grad_input.numel(), device=grad.device, dtype=grad.dtype)
    total.index_add_(0, cell.flatten(), grad.flatten())
    grad_input += total.view_as(grad_input)


def touched_cells(
    start: Tensor,
    length: Tensor,
    places: int,
    size: int,
) -> Taps:
    """Cells that S places of regions touch, along one axis of ``size`` cells.

    ``start`` and ``length`` [R] are in cells; regions of length 0 have no cells.
    """
    place = torch.arange(places, device=start.device)
    step = (length / places)[:, None]
    first = place * step + start[:, None]  # [R, S]
    last = (place + 1) * step + start[:, None]
    low = first.nan_to_num(0).floor().clamp(0, size).long()
    high = last.nan_to_num(0).ceil().clamp(0, size).long()
    count = (high - low).clamp(min=0) * (length > 0)[:, None]
    index = low[..., None] + torch.arange(size, device=low.device)
    return Taps(index, torch.ones_like(index), count)


def bag_maxima(
    cells: Tensor,
    bags: Bags,
    first: Tensor,
) -> tuple[Tensor, Tensor]:
    """Maxima [N, C] of cells [B H W, C] in bags, and the first cell with each, as bags number it.

    A bag without cells has 0 and -1. NaN is no maximum. ``first`` [N] is the index of the first
    cell of the map of a bag.
    """
    bag = torch.repeat_interleave(bags.count)
    cell = bags.cell + first[bag]  # [M], among the cells of all maps
    values = cells[cell].nan_to_num(LOWEST, torch.inf, LOWEST)
    bag = bag[:, None].expand(-1, cells.shape[1])  # [M, C]
    maximum = values.new_full((len(first), cells.shape[1]), LOWEST)
    maximum.scatter_reduce_(0, bag, values, 'amax')
    is_first = (values == maximum.gather(0, bag)) & (values > LOWEST)
    none = len(cells)
    place = torch.where(is_first, bags.cell[:, None], none)
    cell = torch.full_like(maximum, none, dtype=torch.long)
    cell.scatter_reduce_(0, bag, place, 'amin')
    maximum = maximum.masked_fill(bags.count[:, None] == 0, 0)
    return maximum, cell.masked_fill(cell == none, -1)
