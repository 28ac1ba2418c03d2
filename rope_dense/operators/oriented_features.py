"""Features of R3Det and S2A-Net: mmcv's ``rotated_feature_align`` and ``active_rotated_filter``.

Letters: B images, C channels, H x W cells of a map; D x E planes of filters with L = O h w cells in
O orientations, and R rotations. Checked against the compiled operators and as transposes in
tests/operators/test_oriented_features.py.
"""

from ctypes import c_float

import torch
from torch import Tensor

from .bags import Bags, as_cells, at_least_float32
from .roi_align_rotated import four_cells


def rotated_feature_align_forward(
    features: Tensor,
    best_bboxes: Tensor,
    output: Tensor,
    spatial_scale: float,
    points: int,
) -> None:
    """Write maps [B, C, H, W] plus their values at the box of each cell to ``output``.

    Yang et al., "R3Det" (AAAI 2021).

    Args:
        features: the maps.
        best_bboxes: boxes (y, x, width, height, angle) of all cells [B H W, 5], as mmcv reads them.
        output: like the maps.
        spatial_scale: cells to a pixel.
        points: 1 for the value at the centre, 5 for the sum with those at the corners.
    """
    bags = cells_of_boxes(features, best_bboxes, spatial_scale, points)
    sums = bags.sums(as_cells(features))
    sums = sums.unflatten(0, (-1, *features.shape[2:]))
    output.copy_(features + sums.permute(0, 3, 1, 2))


def rotated_feature_align_backward(
    top_grad: Tensor,
    best_bboxes: Tensor,
    bottom_grad: Tensor,
    spatial_scale: float,
    points: int,
) -> None:
    """Add the gradient of the maps to ``bottom_grad``; other arguments as in forward."""
    bags = cells_of_boxes(top_grad, best_bboxes, spatial_scale, points)
    cells = bags.spread(as_cells(top_grad), len(bags.count))
    cells = cells.unflatten(0, (-1, *top_grad.shape[2:]))
    bottom_grad += top_grad + cells.permute(0, 3, 1, 2)


def cells_of_boxes(
    maps: Tensor,
    boxes: Tensor,
    spatial_scale: float,
    points: int,
) -> Bags:
    """The cells that a box of each cell reads, a bag each."""
    boxes = at_least_float32(boxes.reshape(-1, 5))
    sizes = boxes[:, :4] * c_float(spatial_scale).value
    y, x, width, height = sizes.unbind(1)
    right = torch.tensor([0, 1, -1, -1, 1], device=boxes.device)[:points] / 2
    down = torch.tensor([0, 1, 1, -1, -1], device=boxes.device)[:points] / 2
    cosine = boxes[:, 4:].cos()
    sine = boxes[:, 4:].sin()
    right = width[:, None] * right  # [B H W, points]
    down = height[:, None] * down
    rows = y[:, None] + right * sine + down * cosine
    columns = x[:, None] + right * cosine - down * sine
    size = maps.shape[2:]
    cell, weight = four_cells(rows.flatten(), columns.flatten(), size)
    number = size.numel()
    image = torch.arange(len(maps), device=boxes.device)
    image = image.repeat_interleave(number * points)
    count = torch.full_like(image[::points], 4 * points)
    cell = cell + image[:, None] * number
    return Bags(cell.flatten(), weight.flatten(), count)


def active_rotated_filter_forward(
    input: Tensor,
    indices: Tensor,
    output: Tensor,
) -> None:
    """Write filters in all rotations to ``output``.

    Zhou et al., "Oriented Response Networks" (CVPR 2017).

    Args:
        input: [D, E, O, h, w].
        indices: [O, h, w, R], the place from 1 to L to which a rotation moves a cell.
        output: [D R, E O, h, w].
    """
    place = places(input, indices)
    filters = input.flatten(2)[:, None].expand(place.shape)
    output.view(place.shape).scatter_(3, place, filters)


def active_rotated_filter_backward(
    grad_out: Tensor,
    indices: Tensor,
    grad_in: Tensor,
) -> None:
    """Write the gradient of ``input``; other arguments as in forward."""
    place = places(grad_in, indices)
    rotated = grad_out.reshape(place.shape).gather(3, place)
    grad_in.copy_(rotated.sum(1).view_as(grad_in))


def places(filters: Tensor, indices: Tensor) -> Tensor:
    """Place [D, R, E, L], from 0, of each cell of filters."""
    place = indices.flatten(0, 2).t().long() - 1  # [R, L]
    return place[None, :, None].expand(len(filters), -1, filters.shape[1], -1)
