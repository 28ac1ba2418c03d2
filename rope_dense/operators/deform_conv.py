"""Deformable convolution: ``deform_conv_*`` and ``modulated_deform_conv_*`` of mmcv.

Dai et al., "Deformable Convolutional Networks" (ICCV 2017); Zhu et al., "Deformable ConvNets v2"
(CVPR 2019). Each of K cells of a kernel reads the map at its own place plus an offset, bilinearly,
which is a weighted sum over four cells of the map, of which those outside are zero; v2 multiplies
by a mask. One product with the kernel follows. Computed in float32, or in float64 for float64; with
masks by torchvision on a GPU that has it.

Letters: B images, C channels in G offset groups, H x W cells of a map, P = H' x W' of the output,
K = kh x kw cells of the kernel, D output channels. Offsets [B, G K 2, H', W'] are (y, x) of each
cell, masks [B, G K, H', W']. Checked against the compiled operators, loops over cells and by
gradcheck in tests/operators/test_deform_conv.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .bags import Bags, as_cells, at_least_float32
from .compiled import torchvision_operators

VALUES = 2**24  # read at once: bounds the memory, but an image is never divided
FAR = 1e9  # cells, an offset to nowhere


@dataclass(frozen=True)
class Convolution:
    """Settings of a deformable convolution, (height, width) each, and both numbers of groups."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    offset_groups: int

    def forward(
        self,
        maps: Tensor,
        weight: Tensor,
        offset: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        """Output [B, D, H', W'] of maps [B, C, H, W] and a kernel [D, C / groups, kh, kw]."""
        if mask is not None:
            torchvision = torchvision_operators(maps.device)
            if torchvision:
                arguments = self.for_torchvision(maps, weight, offset, mask)
                return torchvision.deform_conv2d(*arguments)
        kernel = self.grouped(weight)
        output = kernel.new_empty(len(maps), len(weight), *offset.shape[2:])
        for image in self.images(maps, offset):
            reads = self.reads(maps, *take_images(image, offset, mask))
            values = self.values(maps[image], reads)
            product = torch.einsum('bpkgc,gdkc->bgdp', values, kernel)
            output[image] = product.reshape(-1, *output.shape[1:])
        return output

    def gradients(
        self,
        grad: Tensor,
        maps: Tensor,
        weight: Tensor,
        offset: Tensor,
        mask: Tensor,
    ) -> tuple[Tensor, ...]:
        """Gradients of maps, kernel, offset and mask, from the gradient of the output."""
        torchvision = torchvision_operators(maps.device)
        if torchvision:
            arguments = self.for_torchvision(maps, weight, offset, mask)
            grad = grad.to(arguments[0].dtype)
            found = torchvision._deform_conv2d_backward(grad, *arguments)
            grad_maps, grad_weight, grad_offset, grad_mask, _ = found
            return grad_maps, grad_weight, self.moving(grad_offset, offset), grad_mask
        arguments = grad, maps, weight, offset, mask
        grad_maps, grad_offset, grad_mask = self.input_gradients(*arguments)
        return grad_maps, self.weight_gradient(*arguments), grad_offset, grad_mask

    def input_gradients(
        self,
        grad: Tensor,
        maps: Tensor,
        weight: Tensor,
        offset: Tensor,
        mask: Tensor | None,
    ) -> list[Tensor]:
        """Gradients of maps, offset and, if there is one, mask, from the gradient of the output."""
        kernel = self.grouped(weight)
        outs = [torch.empty_like(x) for x in (maps, offset, mask) if x is not None]
        for image in self.images(maps, offset):
            grad_outs = self.grouped_map(grad[image])
            grad_values = torch.einsum('bgdp,gdkc->bpkgc', grad_outs, kernel)
            some = take_images(image, offset, mask)
            with torch.enable_grad():
                leaves = [x.detach().to(kernel).requires_grad_() for x in some]
                reads = self.reads(maps, *leaves)
                values = self.values(maps[image], reads)
            gradients = torch.autograd.grad(values, leaves, grad_values)
            grad_maps = self.spread(grad_values, reads, maps[image])
            for out, gradient in zip(outs, (grad_maps, *gradients), strict=True):
                out[image] = gradient
        return outs

    def weight_gradient(
        self,
        grad: Tensor,
        maps: Tensor,
        weight: Tensor,
        offset: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        """Gradient like the kernel."""
        total = torch.zeros_like(self.grouped(weight))
        for image in self.images(maps, offset):
            reads = self.reads(maps, *take_images(image, offset, mask))
            values = self.values(maps[image], reads)
            grad_outs = self.grouped_map(grad[image])
            total += torch.einsum('bgdp,bpkgc->gdkc', grad_outs, values)
        total = total.flatten(0, 1).transpose(1, 2)
        return total.reshape(weight.shape).to(weight.dtype)

    def grouped(self, weight: Tensor) -> Tensor:
        """The kernel as [groups, D / groups, K, C / groups]."""
        kernel = at_least_float32(weight).flatten(2).transpose(1, 2)
        return kernel.unflatten(0, (self.groups, -1)).contiguous()

    def grouped_map(self, grad: Tensor) -> Tensor:
        """A map like the output as [B, groups, D / groups, P]."""
        return at_least_float32(grad).flatten(2).unflatten(1, (self.groups, -1))

    def images(self, maps: Tensor, offset: Tensor) -> Iterator[slice]:
        """Images that are processed at once."""
        per_image = prod((maps.shape[1], *offset.shape[2:], *self.kernel))
        size = max(1, VALUES // max(per_image, 1))
        return (slice(start, start + size) for start in range(0, len(maps), size))

    def reads(self, maps: Tensor, offset: Tensor, mask: Tensor | None = None) -> Reads:
        """The cells of maps of this size that each cell of the kernel reads."""
        y, x = self.positions(offset)
        row, row_weight = two_cells(y, maps.shape[2])
        column, column_weight = two_cells(x, maps.shape[3])
        # [B, H', W', kh, kw, G, 2, 2]
        weight = row_weight[..., None] * column_weight[..., None, :]
        if mask is not None:
            mask = mask.to(weight.dtype)
            mask = mask.unflatten(1, (self.offset_groups, *self.kernel))
            mask = mask.permute(0, 4, 5, 2, 3, 1)
            weight = weight * mask[..., None, None]
        image = torch.arange(len(offset), device=offset.device)
        image = image.view(-1, 1, 1, 1, 1, 1, 1, 1)
        line = image * maps.shape[2] + row[..., None]
        cell = line * maps.shape[3] + column[..., None, :]
        group = torch.arange(self.offset_groups, device=offset.device)
        cell = cell * self.offset_groups + group[:, None, None]
        return Reads(cell.view(-1, 4), weight.reshape(-1, 4))

    def positions(self, offset: Tensor) -> Tensor:
        """Rows and columns [2, B, H', W', kh, kw, G] of all reads."""
        offset = self.split(at_least_float32(offset))
        y = offset[0] + self.places(0, offset[0])[:, None, :, None, None]
        x = offset[1] + self.places(1, offset[1])[:, None, :, None]
        return torch.stack([y, x])

    def split(self, offset: Tensor) -> Tensor:
        """Offsets as [2, B, H', W', kh, kw, G], a view."""
        offset = offset.unflatten(1, (self.offset_groups, *self.kernel, 2))
        return offset.permute(4, 0, 5, 6, 2, 3, 1)

    def moving(self, grad_offset: Tensor, offset: Tensor) -> Tensor:
        """torchvision's gradient of offsets, and 0 for reads at -1, as in mmcv."""
        grad_offset = grad_offset.clone()
        self.split(grad_offset).mul_((self.positions(offset) > -1).all(0))
        return grad_offset

    def places(self, axis: int, like: Tensor) -> Tensor:
        """Positions [H', kh] or [W', kw] along an axis without offsets."""
        output = torch.arange(like.shape[1 + axis], device=like.device)
        kernel = torch.arange(like.shape[3 + axis], device=like.device)
        start = output * self.stride[axis] - self.padding[axis]
        return start[:, None] + kernel * self.dilation[axis]

    def values(self, maps: Tensor, reads: Reads) -> Tensor:
        """Values that each cell of the kernel reads: [B, P, K, groups, C / groups]."""
        channels = maps.shape[1]
        # [B H W G, C / G]
        rows = as_cells(maps).view(-1, channels // self.offset_groups)
        weight = reads.weight
        sums = F.embedding_bag(reads.row, rows, mode='sum', per_sample_weights=weight)
        number = self.kernel[0] * self.kernel[1]
        return sums.view(len(maps), -1, number, self.groups, channels // self.groups)

    def spread(self, grad_values: Tensor, reads: Reads, maps: Tensor) -> Tensor:
        """Gradient like maps, from the gradient of ``values``."""
        rows = grad_values.reshape(len(reads.row), -1)  # [B P K G, C / G]
        count = torch.full_like(reads.row[:, 0], 4)
        bags = Bags(reads.row.flatten(), reads.weight.detach().flatten(), count)
        cells = bags.spread(rows, maps[:, 0].numel() * self.offset_groups)
        return cells.view(len(maps), *maps.shape[2:], -1).permute(0, 3, 1, 2)

    def for_torchvision(
        self,
        maps: Tensor,
        weight: Tensor,
        offset: Tensor,
        mask: Tensor,
    ) -> tuple[Any, ...]:
        """Arguments of both operators of torchvision, after the gradient."""
        weight = at_least_float32(weight)
        offset = at_least_float32(offset)
        offset = offset.nan_to_num(-FAR).clamp(-FAR, FAR)  # it may crash at NaN
        return (
            at_least_float32(maps),
            weight,
            offset,
            at_least_float32(mask),
            weight.new_zeros(len(weight)),
            *self.stride,
            *self.padding,
            *self.dilation,
            self.groups,
            self.offset_groups,
            True,
        )


@dataclass(frozen=True, eq=False)
class Reads:
    """Weighted cells that are read, for B P K G values.

    Attributes:
        row: [B P K G, 4], indices of cells of all maps, times G, plus the group.
        weight: [B P K G, 4].
    """

    row: Tensor
    weight: Tensor


def take_images(image: slice, *tensors: Tensor | None) -> list[Tensor]:
    """Images of tensors that are not None."""
    return [x[image] for x in tensors if x is not None]


def two_cells(position: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Indices and weights [..., 2] of the cells below and above positions on an axis.

    Cells outside of the map have a weight of 0, as have both where a position is a cell or more
    outside, or NaN.
    """
    inside = (position > -1) & (position < size)
    position = torch.where(inside, position, 0)
    low = position.detach().floor()
    share = position - low
    index = torch.stack([low, low + 1], -1)
    valid = inside[..., None] & (index >= 0) & (index < size)
    weight = torch.where(valid, torch.stack([1 - share, share], -1), 0)
    return index.clamp(0, size - 1).long(), weight


def deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    im2col_step: int,
) -> None:
    """Write the convolution of maps [B, C, H, W] with offsets to ``output`` [B, D, H', W'].

    Args:
        input: the maps.
        weight: [D, C / group, kH, kW].
        offset: [B, G K 2, H', W'].
        output: see above.
        columns: a buffer that is not used, as ``ones``.
        kW: width of the kernel; d, pad and dilation are strides, zeros at each border, and steps
            between cells of the kernel, along width (W) and height (H).
        group: groups of channels with kernels of their own.
        deformable_group: G.
        im2col_step: not used.
    """
    convolution = Convolution(
        (kH, kW),
        (dH, dW),
        (padH, padW),
        (dilationH, dilationW),
        group,
        deformable_group,
    )
    output.copy_(convolution.forward(input, weight, offset, None))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    gradOutput: Tensor,
    gradInput: Tensor,
    gradOffset: Tensor,
    weight: Tensor,
    columns: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    im2col_step: int,
) -> None:
    """Write the gradients of maps and offsets; other arguments as in ``deform_conv_forward``."""
    convolution = Convolution(
        (kH, kW),
        (dH, dW),
        (padH, padW),
        (dilationH, dilationW),
        group,
        deformable_group,
    )
    gradients = convolution.input_gradients(gradOutput, input, weight, offset, None)
    gradInput.copy_(gradients[0])
    gradOffset.copy_(gradients[1])


def deform_conv_backward_parameters(
    input: Tensor, offset: Tensor, gradOutput: Tensor, gradWeight: Tensor, columns: Tensor,
    ones: Tensor,
    kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, scale: float, im2col_step: int,
) -> None:  # fmt: skip
    """Add ``scale`` times the gradient of the kernel; others as in ``deform_conv_forward``."""
    convolution = Convolution(
        (kH, kW),
        (dH, dW),
        (padH, padW),
        (dilationH, dilationW),
        group,
        deformable_group,
    )
    gradient = convolution.weight_gradient(gradOutput, input, gradWeight, offset, None)
    gradWeight.add_(gradient, alpha=scale)


def modulated_deform_conv_forward(
    input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor, mask: Tensor,
    output: Tensor, columns: Tensor,
    kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, group: int, deformable_group: int, with_bias: bool,
) -> None:  # fmt: skip
    """``deform_conv_forward`` with a mask [B, G K, H', W'] and, if ``with_bias``, a bias [D]."""
    convolution = Convolution(
        (kernel_h, kernel_w),
        (stride_h, stride_w),
        (pad_h, pad_w),
        (dilation_h, dilation_w),
        group,
        deformable_group,
    )
    offset = of_output(offset, output)
    mask = of_output(mask, output)
    result = convolution.forward(input, weight, offset, mask)
    output.copy_(result + bias.view(-1, 1, 1) if with_bias else result)


def modulated_deform_conv_backward(
    input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor, mask: Tensor,
    columns: Tensor, grad_input: Tensor, grad_weight: Tensor, grad_bias: Tensor,
    grad_offset: Tensor, grad_mask: Tensor, grad_output: Tensor,
    kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, group: int, deformable_group: int, with_bias: bool,
) -> None:  # fmt: skip
    """Write all gradients; other arguments as in ``modulated_deform_conv_forward``."""
    convolution = Convolution(
        (kernel_h, kernel_w),
        (stride_h, stride_w),
        (pad_h, pad_w),
        (dilation_h, dilation_w),
        group,
        deformable_group,
    )
    offset = of_output(offset, grad_output)
    mask = of_output(mask, grad_output)
    gradients = convolution.gradients(grad_output, input, weight, offset, mask)
    outs = grad_input, grad_weight, grad_offset, grad_mask
    for out, gradient in zip(outs, gradients, strict=True):
        rest = out[:1].numel() - gradient[:1].numel()  # not read, of a larger grid
        padded = F.pad(gradient.flatten(1), (0, rest))
        out.copy_(padded.view(out.shape))
    if with_bias:
        grad_bias.copy_(grad_output.sum((0, 2, 3)))


def of_output(x: Tensor, output: Tensor) -> Tensor:
    """Offsets or masks [B, N, H', W'] of an output [B, D, H', W'].

    Of a larger grid (mmdet's DyHead has one) the first N H' W' values of each image are read with
    the shape of the output, as the compiled operator does: published weights were trained so.
    RuntimeError for a smaller grid.
    """
    size = x.shape[1], *output.shape[2:]
    return x.flatten(1)[:, : prod(size)].unflatten(1, size)
