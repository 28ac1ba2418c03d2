"""ONNX for operators of PyTorch that torch.onnx would decompose first, or write with sequences.

To decompose a program is to trace it twice more, which takes half of the time of an export. With
``TABLE``, which goes to torch.onnx.export, nothing is decomposed in the models of this package.
Checked in tests/export/test_translations.py against PyTorch.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops import core

from . import anchors  # noqa: F401  # registers its operators

op: Any = opset18  # whose types do not know that constants become tensors
aten = torch.ops.aten
END = torch.iinfo(torch.int64).max  # of an axis, in slices


def flatten(x: Any, start: int = 0, end: int = -1) -> Any:
    """One axis in place of several."""
    start %= len(x.shape)
    end %= len(x.shape)
    merged = x.shape[start : end + 1]
    size = math.prod(merged) if all(isinstance(side, int) for side in merged) else -1
    return replace_axes(x, start, [size], end + 1)


def unflatten(x: Any, axis: int, sizes: Sequence[Any]) -> Any:
    """Several axes in place of one."""
    axis %= len(x.shape)
    side = x.shape[axis]
    if -1 in sizes and all(isinstance(size, int) for size in (side, *sizes)):
        rest = math.prod(size for size in sizes if size != -1)
        sizes = [side // rest if size == -1 else size for size in sizes]
    return replace_axes(x, axis, sizes, axis + 1)


def replace_axes(x: Any, start: int, sizes: Sequence[Any], end: int) -> Any:
    """Axes of ``sizes`` in place of the axes from ``start`` to before ``end``.

    Known sides are constants, and those in front are copied: programs infer few sizes from
    operations on shapes.
    """
    shape = [side if isinstance(side, int) else 0 for side in x.shape[:start]]
    shape += sizes
    for axis in range(end, len(x.shape)):
        side = x.shape[axis]
        if not isinstance(side, int):
            side = op.Shape(x, start=axis, end=axis + 1)
        shape.append(side)
    # To be read without the shape before: onnxoptimizer joins operations in a row.
    if shape.count(0) == 1 and -1 not in shape:
        shape[shape.index(0)] = -1
    return op.Reshape(x, shape)


def broadcast_tensors(tensors: Sequence[Any]) -> list:
    """Each of the shape that all have in common."""
    shape = op.Shape(reduce(op.Add, tensors))
    return [op.Expand(x, shape) for x in tensors]


def split_with_sizes(x: Any, sizes: Sequence[Any], dim: int = 0) -> list:
    """Slices one after the other."""
    ends = [op.Constant(value_ints=[0])]
    for size in sizes:
        ends.append(op.Add(ends[-1], size))
    return [op.Slice(x, start, end, [dim]) for start, end in pairwise(ends)]


def rms_norm(
    x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    """x / sqrt(mean of squares + eps)."""
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    mean = op.ReduceMean(op.Mul(x, x), list(range(-len(shape), 0)))
    x = op.Div(x, op.Sqrt(op.Add(mean, op.CastLike(eps, x))))
    return x if weight is None else op.Mul(x, weight)


def roi_align(maps: Any, regions: Any, size: int, scale: float, samples: int) -> Any:
    """See anchors.py."""
    image = op.Squeeze(op.Slice(regions, [0], [1], [1]), [1])
    image = op.Cast(image, to=7)  # int64
    return op.RoiAlign(
        maps,
        op.Slice(regions, [1], [5], [1]),
        image,
        coordinate_transformation_mode='half_pixel',
        mode='avg',
        output_height=size,
        output_width=size,
        sampling_ratio=samples,
        spatial_scale=scale,
    )


def suppress(boxes: Any, scores: Any, threshold: float) -> Any:
    """See anchors.py."""
    chosen = op.NonMaxSuppression(
        boxes,
        op.Unsqueeze(scores, [1]),  # one class for each group
        op.Slice(op.Shape(scores), [1], [2]),
        op.Constant(value_floats=[threshold]),
        op.Constant(value_floats=[0.0]),
    )  # [kept, 3]: group, class, box
    index = op.Gather(chosen, [0, 2], axis=1)
    none = op.Expand(op.Constant(value_float=0.0), op.Shape(scores))
    return op.ScatterND(none, index, op.GatherND(scores, index))


def grid_sampler(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    """Samples [N, C, h, w] of maps [N, C, H, W] at (x, y) [N, h, w, 2], by one Gather.

    Bilinear, 0 outside. Not ``GridSample``, with which TensorRT errs: see docs/export.md.
    """
    if (mode, padding) != (0, 0):
        raise ValueError('grid_sample must be bilinear, with zeros outside')
    shape = op.Shape(x)
    whole = op.Gather(shape, [3, 2])  # W, H
    sides = op.Cast(whole, to=1)
    span = op.Sub(sides, [1.0]) if corners else sides
    shifted = op.Mul(op.Add(op.Cast(grid, to=1), [1.0]), op.Mul(span, [0.5]))
    places = shifted if corners else op.Sub(shifted, [0.5])  # [N, h, w, 2]
    corner = op.Constant(value_floats=[0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    corner = op.Reshape(corner, [4, 1, 1, 1, 2])
    cells = op.Add(op.Floor(places), corner)  # [4, N, h, w, 2]
    share = op.Sub([1.0], op.Abs(op.Sub(places, cells)))
    # Integers, for tools that turn floats to half precision.
    cells = op.Cast(cells, to=7)
    zero = op.Constant(value_ints=[0])
    inside = op.Min(op.Max(cells, zero), op.Sub(whole, [1]))
    share = op.Where(op.Equal(inside, cells), share, [0.0])
    share = op.CastLike(op.ReduceProd(share, [-1]), x)  # [4, N, h, w, 1]
    one = op.Constant(value_ints=[1])
    steps = op.Concat(one, op.Gather(whole, [0]), axis=0)
    cell = op.ReduceSum(op.Mul(inside, steps), [-1], keepdims=0)  # [4, N, h, w]
    number = op.Squeeze(op.Slice(shape, [0], [1]))
    images = op.Unsqueeze(op.Range(0, number, 1), [1, 2])
    area = op.ReduceProd(op.Slice(shape, [2], [4]))
    index = op.Add(cell, op.Mul(images, area))
    table = op.Reshape(op.Transpose(x, perm=[0, 2, 3, 1]), [-1, x.shape[1]])
    values = op.Mul(op.Gather(table, index), share)  # [4, N, h, w, C]
    return op.Transpose(op.ReduceSum(values, [0], keepdims=0), perm=[0, 3, 1, 2])


def bicubic(x: Any, size: Any, corners: bool, scales: Any = None) -> Any:
    """Maps [N, C, H, W] at another size, as a product with weights for each axis.

    Not ``Resize``, which has no cubic mode in TensorRT.
    """
    if size is None or corners:
        raise ValueError('bicubic maps must have a size, and align_corners=False')
    rows, columns = (cubic_weights(x, axis, size[axis - 2]) for axis in (2, 3))
    return op.MatMul(op.MatMul(rows, x), op.Transpose(columns, perm=[1, 0]))


def cubic_weights(x: Any, axis: int, new: Any) -> Any:
    """The share [new, old] of each place of an axis in the places of a new one.

    Keys' kernel with a = -0.75, as in torch. What is outside is the place at the border.
    """
    old = op.Shape(x, start=axis, end=axis + 1)
    new = op.Reshape(new, [1])
    step = op.Div(op.Cast(old, to=1), op.Cast(new, to=1))
    centres = op.Mul(op.Add(places(new), [0.5]), step)
    around = op.Sub(places(op.Add(old, [4])), [2.0])  # two more at either end
    far = op.Abs(op.Sub(op.Unsqueeze(op.Sub(centres, [0.5]), [1]), around))
    far = op.Min(far, op.Constant(value_floats=[2.0]))
    near = polynomial(far, 1.25, -2.25, 0.0, 1.0)
    rest = polynomial(far, -0.75, 3.75, -6.0, 3.0)
    weights = op.Where(op.LessOrEqual(far, [1.0]), near, rest)  # [new, old + 4]
    last = op.Cast(op.Sub(old, [1]), to=1)
    nearest = op.Unsqueeze(op.Min(op.Relu(around), last), [1])
    return op.MatMul(weights, op.Cast(op.Equal(nearest, places(old)), to=1))


def floor_divide(x: Any, y: Any) -> Any:
    """Rounded down, also of negative numbers, without a comparison of truths."""
    if x.dtype.is_floating_point():
        return op.Floor(op.Div(x, y))
    return op.Div(op.Sub(x, op.Mod(x, y)), y)


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """Within limits; of integers without Clip, which TensorRT has for floats alone."""
    if x.dtype.is_floating_point():
        return core.aten_clamp(x, low, high)
    x = x if low is None else op.Max(x, op.CastLike(low, x))
    return x if high is None else op.Min(x, op.CastLike(high, x))


def clamp_tensor(x: Any, low: Any = None, high: Any = None) -> Any:
    """Within limits, of which torch makes tensors where it may have to convert numbers."""
    ranks = [len(limit.shape) for limit in (low, high) if limit is not None]
    if any(ranks):
        return core.aten_clamp_tensor(x, low, high)
    return clamp(x, low, high)


def slice_axis(
    x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """A part of an axis; no operator for a whole one, on which tools have stopped."""
    starts = start is None or (isinstance(start, int) and start == 0)
    ends = end is None or (isinstance(end, int) and end == END)
    if starts and ends and step == 1:
        return op.Identity(x)
    return core.aten_slice(x, dim, start, end, step)


def places(number: Any) -> Any:
    """0, 1, ... as float32, [number]."""
    return op.Cast(op.Range(0, op.Squeeze(number), 1), to=1)


def polynomial(x: Any, *factors: float) -> Any:
    """The sum of powers of x, the highest first."""
    total = op.Mul(x, [factors[0]])
    for factor in factors[1:-1]:
        total = op.Mul(op.Add(total, [factor]), x)
    return op.Add(total, [factors[-1]])


def same(x: Any, *_: Any) -> Any:
    """The input."""
    return op.Identity(x)


TABLE: dict[Callable, Callable] = {
    aten.to.dtype: lambda x, dtype, *_, **settings: op.Cast(x, to=dtype),
    aten.to.device: lambda x, device, dtype, *_, **settings: op.Cast(x, to=dtype),
    aten.dropout.default: same,
    aten.feature_dropout.default: same,
    aten.detach_.default: same,
    aten.rsub.Scalar: lambda x, other: op.Sub(op.CastLike(other, x), x),
    aten.square.default: lambda x: op.Mul(x, x),
    aten.argsort.default: lambda x, dim=-1: core.aten_sort(x, dim)[1],
    aten.clamp.default: clamp,
    aten.clip.default: clamp,
    aten.clamp.Tensor: clamp_tensor,
    aten.slice.Tensor: slice_axis,
    aten.__and__.Tensor: core.aten_bitwise_and,
    aten.__or__.Tensor: core.aten_bitwise_or,
    aten.numpy_T.default: lambda x: op.Transpose(x),
    aten.swapaxes.default: core.aten_transpose,
    aten.flatten.using_ints: flatten,
    aten.unflatten.int: unflatten,
    aten.broadcast_tensors.default: broadcast_tensors,
    aten.floor_divide.default: floor_divide,
    aten.grid_sampler.default: grid_sampler,
    aten.grid_sampler_2d.default: grid_sampler,
    aten.upsample_bicubic2d.vec: bicubic,
    aten.split_with_sizes.default: split_with_sizes,
    aten.rms_norm.default: rms_norm,
    aten.batch_norm.default: lambda *given: core.aten_native_batch_norm(*given[:8])[0],
    aten.conv_transpose2d.input: lambda x, w, b=None, s=(1, 1), p=(0, 0), o=(0, 0), n=1, d=(1, 1): (
        core.aten_convolution(x, w, b, s, p, d, True, o, n)
    ),
    torch.ops.rope_dense.roi_align.default: roi_align,
    torch.ops.rope_dense.suppress.default: suppress,
}
