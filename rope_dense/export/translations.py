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
