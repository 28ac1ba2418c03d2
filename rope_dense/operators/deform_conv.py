"""Deformable convolution: ``deform_conv_*`` and ``modulated_deform_conv_*`` of mmcv.

Dai et al., "Deformable Convolutional Networks" (ICCV 2017); Zhu et al., "Deformable ConvNets v2"
(CVPR 2019). Each of K cells of a kernel reads the map at its own place plus an offset, bilinearly
and with zeros outside; v2 multiplies by a mask.

Letters: B images, C channels in G offset groups, H x W cells of a map, P = H' x W' of the output,
K = kh x kw cells of the kernel, D output channels. Offsets [B, G K 2, H', W'] are (y, x) of each
cell, masks [B, G K, H', W']. Checked against the compiled operators, loops over cells and by
gradcheck in tests/operators/test_deform_conv.py.
"""

from math import prod

import torch.nn.functional as F
from torch import Tensor

from .deformable import Convolution


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor, ones: Tensor,
    kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, im2col_step: int,
) -> None:  # fmt: skip
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
    settings = (kH, kW), (dH, dW), (padH, padW), (dilationH, dilationW), group, deformable_group
    output.copy_(Convolution(*settings).forward(input, weight, offset, None))


def deform_conv_backward_input(
    input: Tensor, offset: Tensor, gradOutput: Tensor, gradInput: Tensor, gradOffset: Tensor,
    weight: Tensor, columns: Tensor,
    kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, im2col_step: int,
) -> None:  # fmt: skip
    """Write the gradients of maps and offsets; other arguments as in ``deform_conv_forward``."""
    settings = (kH, kW), (dH, dW), (padH, padW), (dilationH, dilationW), group, deformable_group
    gradients = Convolution(*settings).input_gradients(gradOutput, input, weight, offset, None)
    gradInput.copy_(gradients[0])
    gradOffset.copy_(gradients[1])


def deform_conv_backward_parameters(
    input: Tensor, offset: Tensor, gradOutput: Tensor, gradWeight: Tensor, columns: Tensor,
    ones: Tensor,
    kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, scale: float, im2col_step: int,
) -> None:  # fmt: skip
    """Add ``scale`` times the gradient of the kernel; others as in ``deform_conv_forward``."""
    settings = (kH, kW), (dH, dW), (padH, padW), (dilationH, dilationW), group, deformable_group
    convolution = Convolution(*settings)
    gradient = convolution.weight_gradient(gradOutput, input, gradWeight, offset, None)
    gradWeight.add_(gradient, alpha=scale)


def modulated_deform_conv_forward(
    input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor, mask: Tensor,
    output: Tensor, columns: Tensor,
    kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, group: int, deformable_group: int, with_bias: bool,
) -> None:  # fmt: skip
    """``deform_conv_forward`` with a mask [B, G K, H', W'] and, if ``with_bias``, a bias [D]."""
    axes = (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    convolution = Convolution(*axes, group, deformable_group)
    offset, mask = (of_output(x, output) for x in (offset, mask))
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
    axes = (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    convolution = Convolution(*axes, group, deformable_group)
    at = [of_output(x, grad_output) for x in (offset, mask)]
    gradients = convolution.gradients(grad_output, input, weight, *at)
    outs = grad_input, grad_weight, grad_offset, grad_mask
    for out, gradient in zip(outs, gradients, strict=True):
        rest = out[:1].numel() - gradient[:1].numel()  # not read, of a larger grid
        out.copy_(F.pad(gradient.flatten(1), (0, rest)).view(out.shape))
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
