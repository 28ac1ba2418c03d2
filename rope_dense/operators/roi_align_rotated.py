"""RoIAlign of rotated regions: ``roi_align_rotated_*`` and ``riroi_align_rotated_*`` of mmcv.

Each place of a region is the mean of bilinear samples on a turned grid: one weighted sum over cells
of the map, and backward is its transpose. The second operator, of ReDet (Han et al., CVPR 2021),
also rotates channels by the angle of the region. Computed in float32, or in float64 for float64.

Letters: B images, C channels, H x W cells of a map, R regions of S x S' places, N = R S S' places,
M samples of all places, O orientations. Regions [R, 6] are (image, x, y, width, height, angle).
Checked against the compiled operators and loops in tests/operators/test_roi_align_rotated.py.
"""

from ctypes import c_float
from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from .bags import Bags, as_cells, at_least_float32, bag_items
from .roi_align import cells_around

# Of all places at once: bounds the memory, but a region is never divided.
SAMPLES = 2**18


def roi_align_rotated_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> None:
    """Write the pooled regions of maps [B, C, H, W] to ``output`` [R, C, S, S'].

    Args:
        input: the maps.
        rois: [R, 6], in pixels and radians.
        output: see above.
        pooled_height: S.
        pooled_width: S'.
        spatial_scale: cells to a pixel.
        sampling_ratio: samples of a place along each side; 0 for as many as a place has cells.
        aligned: the centre of a pixel is at 0.5, and regions without an area give 0 (mmcv raises
            an error for negative sides); else at 0, and regions have sides of at least one cell.
        clockwise: direction of the angle in the image.
    """
    pooling = Pooling(
        (pooled_height, pooled_width),
        input.shape[2:],
        spatial_scale,
        sampling_ratio,
        aligned,
        clockwise,
    )
    output.copy_(pooling.forward(input, rois))


def roi_align_rotated_backward(
    rois: Tensor,
    grad_input: Tensor,
    grad_output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> None:
    """Add the gradient of the maps; the settings are as in forward.

    The names are mmcv's, which passes the tensors by position and in another order: ``rois`` is
    the gradient of the output, ``grad_input`` regions [R, 6]; ``grad_output`` [B, C, H, W] changes.
    """
    gradient = rois
    regions = grad_input
    out = grad_output
    pooling = Pooling(
        (pooled_height, pooled_width),
        out.shape[2:],
        spatial_scale,
        sampling_ratio,
        aligned,
        clockwise,
    )
    out += pooling.transposed(gradient, regions, len(out))


def riroi_align_rotated_forward(
    features: Tensor,
    rois: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    num_samples: int,
    num_orientations: int,
    clockwise: bool,
) -> None:
    """``roi_align_rotated_forward`` without ``aligned``, then channels rotated by the angle.

    Channels are (C / O, O). Compiled operators run on a GPU only; not compared with these.
    """
    pooling = Pooling(
        (pooled_height, pooled_width),
        features.shape[2:],
        spatial_scale,
        num_samples,
        False,
        clockwise,
    )
    pooled = pooling.forward(features, rois).unflatten(1, (-1, num_orientations))
    whole, part = orientations(rois, num_orientations)
    before = roll_orientations(pooled, -whole)
    after = roll_orientations(pooled, 1 - whole)
    output.copy_((before * (1 - part) + after * part).flatten(1, 2))


def riroi_align_rotated_backward(
    top_grad: Tensor,
    rois: Tensor,
    bottom_grad: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    num_samples: int,
    num_orientations: int,
    clockwise: bool,
) -> None:
    """Add the gradient of the maps to ``bottom_grad``; other arguments as in forward."""
    pooling = Pooling(
        (pooled_height, pooled_width),
        bottom_grad.shape[2:],
        spatial_scale,
        num_samples,
        False,
        clockwise,
    )
    whole, part = orientations(rois, num_orientations)
    grad = top_grad.to(part.dtype).unflatten(1, (-1, num_orientations))
    before = roll_orientations(grad * (1 - part), whole)
    after = roll_orientations(grad * part, whole - 1)
    grad = (before + after).flatten(1, 2)
    bottom_grad += pooling.transposed(grad, rois, len(bottom_grad))


def orientations(rois: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The angle of regions in orientations: whole [R] and the part behind [R, 1, 1, 1, 1]."""
    angle = at_least_float32(rois[:, 5]) * number / (2 * pi)
    whole = angle.floor()
    return whole.long(), (angle - whole).view(-1, 1, 1, 1, 1)


def roll_orientations(x: Tensor, steps: Tensor) -> Tensor:
    """[R, C / O, O, S, S'] with orientation o + steps [R] in the place o."""
    number = x.shape[2]
    index = torch.arange(number, device=x.device) + steps[:, None]
    index = index.remainder(number)[:, None, :, None, None]
    return x.gather(2, index.expand_as(x))


@dataclass(frozen=True)
class Pooling:
    """Arguments of ``roi_align_rotated_forward``, and the size of the maps."""

    places: tuple[int, int]
    size: torch.Size
    scale: float
    sampling_ratio: int
    aligned: bool
    clockwise: bool

    def forward(self, maps: Tensor, rois: Tensor) -> Tensor:
        """Pooled regions [R, C, S, S'] of maps [B, C, H, W], in the type to compute in."""
        cells = as_cells(maps)
        sums = [self.bags(part).sums(cells) for part in self.parts(rois)]
        pooled = torch.cat([cells[:0], *sums])
        pooled = pooled.unflatten(0, (len(rois), *self.places))
        return pooled.permute(0, 3, 1, 2)

    def transposed(
        self,
        pooled: Tensor,
        rois: Tensor,
        number: int,
    ) -> Tensor:
        """The transpose of ``forward``: maps [B, C, H, W] of a number of images."""
        num_cells = number * self.size[0] * self.size[1]
        cells = as_cells(pooled[:0]).new_zeros(num_cells, pooled.shape[1])
        parts = self.parts(rois)
        lengths = [len(part) for part in parts]
        for part, values in zip(parts, pooled.split(lengths), strict=True):
            cells += self.bags(part).spread(as_cells(values), num_cells)
        return cells.unflatten(0, (number, *self.size)).permute(0, 3, 1, 2)

    def parts(self, rois: Tensor) -> tuple[Tensor, ...]:
        """Regions [R, 6] in parts of about ``SAMPLES`` samples."""
        samples = self.samples(self.sides(rois)).prod(1)
        count = samples * self.places[0] * self.places[1]
        part = (count.cumsum(0) - count) // SAMPLES
        _, lengths = part.unique_consecutive(return_counts=True)
        return rois.split(lengths.tolist())

    def sides(self, rois: Tensor) -> Tensor:
        """Height and width [R, 2] in cells."""
        sides = at_least_float32(rois[:, [4, 3]]) * c_float(self.scale).value
        return sides if self.aligned else sides.clamp(min=1)

    def samples(self, sides: Tensor) -> Tensor:
        """Samples [R, 2] of a place along the height and the width of its region."""
        if self.sampling_ratio > 0:
            return torch.full_like(sides, self.sampling_ratio, dtype=torch.long)
        cells = sides / sides.new_tensor(self.places)
        return cells.float().nan_to_num(0, 0, 0).ceil().clamp(min=0).long()

    def bags(self, rois: Tensor) -> Bags:
        """The cells of each place of regions [R, 6], as their mean weighs them."""
        sides = self.sides(rois)
        samples = self.samples(sides)  # [R, 2]
        steps = sides / sides.new_tensor(self.places)
        number = samples.prod(1)  # [R]
        rows, columns = self.places
        count = number.repeat_interleave(rows * columns)  # [N]
        bag, sample = bag_items(count)  # [M]
        place = bag % (rows * columns)
        region = bag // (rows * columns)
        places = torch.stack([place // columns, place % columns], 1)  # [M, 2]
        along_width = samples[region, 1]
        sample = torch.stack([sample // along_width, sample % along_width], 1)  # [M, 2]
        step = steps[region]
        within = (sample + 0.5) * step / samples[region]
        from_centre = within + (places * step - sides[region] / 2)
        y, x = self.turned(rois, region, *from_centre.unbind(1))
        cell, weight = four_cells(y, x, self.size)
        cell += rois[region, :1].long() * self.size[0] * self.size[1]
        weight = weight / number[region, None]
        return Bags(cell.flatten(), weight.flatten(), 4 * count)

    def turned(
        self,
        rois: Tensor,
        region: Tensor,
        down: Tensor,
        right: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Rows and columns [M] of the map from positions relative to the centres of regions."""
        direction = -1 if self.clockwise else 1
        angle = rois[:, 5].to(down.dtype) * direction
        cosine = angle.cos()[region]
        sine = angle.sin()[region]
        offset = 0.5 if self.aligned else 0.0
        centre = rois[:, 1:3].to(down.dtype) * c_float(self.scale).value - offset
        x, y = centre[region].unbind(1)
        rows = down * cosine - right * sine + y
        columns = down * sine + right * cosine + x
        return rows, columns


def four_cells(
    y: Tensor,
    x: Tensor,
    size: torch.Size,
) -> tuple[Tensor, Tensor]:
    """Indices and weights [M, 4] of the cells around positions [M]; positions below 0 are at 0.

    Weights are 0 where a position is further than a cell outside of the map.
    """
    in_rows = (y >= -1) & (y <= size[0])
    inside = in_rows & (x >= -1) & (x <= size[1])
    top, bottom, down = cells_around(y, size[0])
    left, right, across = cells_around(x, size[1])
    rows = torch.stack([top, top, bottom, bottom], 1)
    columns = torch.stack([left, right, left, right], 1)
    up = 1 - down
    back = 1 - across
    weight = torch.stack([up * back, up * across, down * back, down * across], 1)
    return rows * size[1] + columns, weight * inside[:, None]
