"""ONNX for operators of PyTorch that torch.onnx would decompose first, or write with sequences.

To decompose a program is to trace it twice more, which takes most of the time of an export. With
``TABLE``, which goes to torch.onnx.export, nothing is decomposed in the models of this package.
Checked in tests/export/test_translations.py against PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops import core

from . import rois  # noqa: F401  # registers its operators

INT64 = 7  # in ONNX
op: Any = opset18  # whose types do not know that constants become tensors
aten = torch.ops.aten


def arange(start: Any, end: Any, step: Any = 1, dtype: int = -1, **settings: Any) -> Any:
    """Floats as integers that are cast: not every program has a Range of computed floats."""
    if not all(map(is_integer, (start, end, step))):
        return core.aten_arange_start_step(start, end, step, dtype)
    numbers = op.Range(*(op.Cast(x, to=INT64) for x in (start, end, step)))
    return numbers if dtype in (-1, INT64) else op.Cast(numbers, to=dtype)


def is_integer(x: Any) -> bool:
    """Whether a number, or a value of the graph, is an integer."""
    return isinstance(x, int) or (not isinstance(x, float) and x.dtype.is_integer())


def flatten(x: Any, start: int = 0, end: int = -1) -> Any:
    """One axis in place of several."""
    rank = len(x.shape)
    start, end = start % rank, end % rank
    merged = x.shape[start : end + 1]
    size = math.prod(merged) if all(isinstance(side, int) for side in merged) else -1
    return replace_axes(x, start, [size], end + 1)


def unflatten(x: Any, axis: int, sizes: Sequence[Any]) -> Any:
    """Several axes in place of one."""
    axis %= len(x.shape)
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
        shape.append(side if isinstance(side, int) else op.Shape(x, start=axis, end=axis + 1))
    parts = [
        op.Constant(value_ints=[part]) if isinstance(part, int) else op.Reshape(part, [1])
        for part in shape
    ]
    return op.Reshape(x, parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0))


def broadcast_tensors(tensors: Sequence[Any]) -> list:
    """Each of the shape that all have in common."""
    shapes, expanded = [op.Shape(x) for x in tensors], []
    for x in tensors:
        for shape in shapes:
            x = op.Expand(x, shape)  # to the shape that both broadcast to
        expanded.append(x)
    return expanded


def split_with_sizes(x: Any, sizes: Sequence[Any], dim: int = 0) -> list:
    """Slices one after the other."""
    start, parts = op.Constant(value_ints=[0]), []
    for size in sizes:
        end = op.Add(start, op.Reshape(size, [1]))
        parts.append(op.Slice(x, start, end, [dim]))
        start = end
    return parts


def rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """x / sqrt(mean of squares + eps)."""
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    mean = op.ReduceMean(op.Mul(x, x), list(range(-len(shape), 0)))
    x = op.Div(x, op.Sqrt(op.Add(mean, op.CastLike(eps, x))))
    return x if weight is None else op.Mul(x, weight)


def roi_align(maps: Any, regions: Any, size: int, scale: float, samples: int) -> Any:
    """See rois.py."""
    image = op.Cast(op.Squeeze(op.Slice(regions, [0], [1], [1]), [1]), to=INT64)
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


def suppress(boxes: Any, scores: Any, threshold: float, labels: Any, classes: int) -> Any:
    """See rois.py."""
    by_class = op.Unsqueeze(scores, [1])  # [G, classes, N]
    if classes > 1:
        every = op.Reshape(op.Constant(value_ints=list(range(classes))), [1, -1, 1])
        of_class = op.Equal(op.Unsqueeze(labels, [1]), every)
        by_class = op.Where(of_class, by_class, op.Constant(value_float=0.0))
    chosen = op.NonMaxSuppression(
        boxes,
        by_class,
        op.Slice(op.Shape(scores), [1], [2]),
        op.Constant(value_floats=[threshold]),
        op.Constant(value_floats=[0.0]),
    )  # [kept, 3]: group, class, box
    index = op.Gather(chosen, [0, 2], axis=1)
    none = op.Expand(op.Constant(value_float=0.0), op.Shape(scores))
    return op.ScatterND(none, index, op.GatherND(scores, index))


TABLE: dict[Callable, Callable] = {
    aten.to.dtype: lambda x, dtype, *_, **settings: op.Cast(x, to=dtype),
    aten.to.device: lambda x, device, dtype, *_, **settings: op.Cast(x, to=dtype),
    aten.arange.default: lambda end, dtype=-1, **settings: arange(0, end, 1, dtype),
    aten.arange.start: lambda start, end, dtype=-1, **settings: arange(start, end, 1, dtype),
    aten.arange.start_step: arange,
    aten.rsub.Scalar: lambda x, other: op.Sub(op.CastLike(other, x), x),
    aten.square.default: lambda x: op.Mul(x, x),
    aten.argsort.default: lambda x, dim=-1: core.aten_sort(x, dim)[1],
    aten.clip.default: core.aten_clamp,
    aten.__and__.Tensor: core.aten_bitwise_and,
    aten.__or__.Tensor: core.aten_bitwise_or,
    aten.numpy_T.default: lambda x: op.Transpose(x),
    aten.swapaxes.default: core.aten_transpose,
    aten.flatten.using_ints: flatten,
    aten.unflatten.int: unflatten,
    aten.broadcast_tensors.default: broadcast_tensors,
    aten.split_with_sizes.default: split_with_sizes,
    aten.rms_norm.default: rms_norm,
    aten.batch_norm.default: lambda *given: core.aten_native_batch_norm(*given[:8])[0],
    aten.conv_transpose2d.input: lambda x, w, b=None, s=(1, 1), p=(0, 0), o=(0, 0), n=1, d=(1, 1): (
        core.aten_convolution(x, w, b, s, p, d, True, o, n)
    ),
    torch.ops.rope_dense.roi_align.default: roi_align,
    torch.ops.rope_dense.suppress.default: suppress,
}
