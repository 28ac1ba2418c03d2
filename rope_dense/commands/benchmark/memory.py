"""Memory of a training step, measured on small images and extrapolated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mmcv.ops.multi_scale_deform_attn as deformable_attention
import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper, build_optim_wrapper
from scipy.optimize import nnls
from torch import Tensor
from torch.autograd import Function

from ..backbones.base import Backbone
from ..utils.sizes import ImageSize
from .speed import count_operations, noise, profiled

# Pixels; the images that are measured first have this, or whole windows, to 2.5 times it.
SIDE = 256
LARGEST_WINDOW = 512  # pixels; images of several larger ones are not small
LARGEST_MEASURED = 2000  # pixels
TOLERANCE = 0.03  # of what is fitted, at a point that it was not fitted to
DIVISOR = 32  # of the sides of images
LARGEST_SIDE = 2**15  # pixels; what is looked for ends there

Point = tuple[int, int, int]  # batch, height, width


@dataclass(frozen=True)
class Growth:
    """A quantity of a training step as a sum of ``terms``, fitted to measured ones.

    Attributes:
        coefficients: [terms], none of them negative.
        window: height and width in pixels that windows pad images to, (1, 1) without windows.
    """

    coefficients: np.ndarray
    window: ImageSize

    @classmethod
    def from_measurements(
        cls, points: Sequence[Point], measured: Sequence[float], window: ImageSize
    ) -> Growth:
        """Least squares, each point relative to what was measured there."""
        values = np.array(measured, dtype=float)
        rows = np.array([terms(point, window) for point in points]) / values[:, None]
        scale = rows.max(0)
        return cls(nnls(rows / scale, np.ones(len(values)))[0] / scale, window)

    def at(self, batch: int, height: int, width: int) -> float:
        return float(self.coefficients @ terms((batch, height, width), self.window))


def terms(point: Point, window: ImageSize) -> list[float]:
    """The quantities that the sizes of tensors are proportional to.

    1 (gradients), images, pixels, pixels with the padding of windows, pairs of pixels (global
    attention with a bias).
    """
    batch, height, width = point
    padded = [-(-side // unit) * unit for side, unit in zip((height, width), window, strict=True)]
    pixels = height * width
    return [1, batch, batch * pixels, batch * padded[0] * padded[1], batch * pixels**2]


@dataclass(frozen=True)
class StepCost:
    """Memory and operations of training steps of one model with one optimizer.

    Attributes:
        stored: bytes of weights, buffers and the state of the optimizer.
        tensors: bytes of the tensors that a step makes, at its peak.
        operations: floating-point operations of a step, as torch's ``FlopCounterMode`` counts them:
            products of matrices alone, recomputed ones too.
    """

    stored: int
    tensors: Growth
    operations: Growth

    def memory(self, batch: int, height: int, width: int) -> float:
        """In bytes."""
        return self.stored + self.tensors.at(batch, height, width)

    def largest_batch(self, limit: float, height: int, width: int) -> int:
        """The most images that fit ``limit`` bytes, 0 if not one does."""
        one, two = (self.memory(batch, height, width) for batch in (1, 2))
        return 0 if one > limit else 1 + int((limit - one) / (two - one))

    def largest_size(self, limit: float, batch: int, height: int, width: int) -> ImageSize | None:
        """Height and width of the largest image that fits ``limit`` bytes, None if none does.

        It has about these proportions, and its sides are multiples of 32.
        """
        best = None
        for side in range(DIVISOR, LARGEST_SIDE, DIVISOR):
            size = side, max(1, round(side * width / height / DIVISOR)) * DIVISOR
            if self.memory(batch, *size) > limit:
                break
            best = size
        return best


def measure_step(config: Config, model: BaseModel, side: int = SIDE) -> StepCost:
    """Run training steps on small images of noise, on the device of the model.

    The config's optimizer wrapper updates the weights in its precision; images have the boxes or
    labels of ``speed.noise``. On a CPU, mmcv's deformable attention needs far more tensors than its
    CUDA kernel, so a stand-in makes the tensors of the kernel, without results. The workspaces of
    convolutions on a GPU, and the memory of a device's libraries, are not counted. Compared with
    larger steps in tests/profiling/test_memory_planner.py.

    Args:
        config: with ``default_scope`` and ``optim_wrapper``.
        model: of the config, with any window up to 512 pixels.
        side: of the smallest images, in pixels.

    Raises:
        ValueError: see ``measure_growth``.
    """
    window = window_in_pixels(model)
    wrapper = build_optim_wrapper(model.train(), copy.deepcopy(config.optim_wrapper))

    def measure(point: Point) -> tuple[int, int]:
        step = training_step(model, wrapper, config.default_scope, point)
        with tensors_of_cuda_kernel():
            step()  # makes the state of the optimizer and fills caches
            on_gpu = next(model.parameters()).is_cuda
            return profiled(step, on_gpu)[1], count_operations(step)

    gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    tensors, operations = measure_growth(measure, window, (gradients, 0), side)
    lasting = [*model.parameters(), *model.buffers()]
    for state in wrapper.optimizer.state.values():
        lasting += [value for value in state.values() if isinstance(value, Tensor)]
    return StepCost(sum(tensor.nbytes for tensor in lasting), tensors, operations)


def measure_growth(
    measure: Callable[[Point], tuple[int, int]],
    window: ImageSize,
    known: tuple[int, int],
    side: int = SIDE,
) -> tuple[Growth, Growth]:
    """The growth of two quantities, measured on larger images until it predicts another point.

    The peak of a step is in its largest phase. On small images this phase may not depend on their
    size, such as a decoder of queries or the update of the weights, and then the peak says nothing
    about larger images. So the constant part, beyond ``known``, has to be less than half.

    Args:
        measure: both quantities at a point.
        known: their constant parts, as far as they are known.
        side: of the smallest images, in pixels.

    Raises:
        ValueError: images of ``LARGEST_MEASURED`` pixels a side are not enough, or windows are too
            large.
    """
    *points, check = points_to_measure(window, side)
    if max(check) > LARGEST_MEASURED:
        raise ValueError(f'images of {check[1]} x {check[2]} pixels do not show how a step grows')
    measured = np.array([measure(point) for point in points]).T  # [2, points]
    first, second = (Growth.from_measurements(points, values, window) for values in measured)
    growths = first, second
    expected = np.array([growth.at(*check) for growth in growths])
    fixed = np.array([growth.at(check[0], 0, 0) for growth in growths])
    if (fixed < known + expected / 2).all() and np.allclose(expected, measure(check), TOLERANCE):
        return growths
    return measure_growth(measure, window, known, 2 * side)


def window_in_pixels(model: BaseModel) -> ImageSize:
    """See ``Growth``."""
    backbone = model.backbone
    if not isinstance(backbone, Backbone) or not backbone.has_windows:
        return 1, 1
    window, patch = backbone.window_size, backbone.patch_embed.patch_size
    if window is None or window == 'auto':
        return 1, 1
    return window[0] * patch, window[1] * patch


def points_to_measure(window: ImageSize, side: int) -> list[Point]:
    """A point for each of the terms, and one to check.

    Batches have two images at least, for batch norm. Some sizes are whole windows and some are not,
    which separates padding from pixels. ValueError for windows above ``LARGEST_WINDOW``.
    """
    unit = max(window)
    if unit > LARGEST_WINDOW:
        raise ValueError(
            f'windows of {unit} pixels are too large to be measured on small images; '
            f"{LARGEST_WINDOW} at most, or window_size 'auto' or None"
        )
    small = unit * max(1, round(side / unit))
    middle = 3 * small // 2
    if unit > 1 and middle % unit == 0:
        middle += unit // 2
    small, middle, large, check = (
        -(-length // DIVISOR) * DIVISOR for length in (small, middle, 2 * small, 5 * small // 2)
    )
    sides = [(small, small), (middle, middle), (small, large), (large, large), (large, check)]
    return [(3, small, small), *((2, height, width) for height, width in sides)]


def training_step(
    model: BaseModel, wrapper: OptimWrapper, scope: str, point: Point
) -> Callable[[], None]:
    """Return a function that trains on one batch of noise."""
    images, samples = noise(model, scope, *point)

    def step() -> None:
        with wrapper.optim_context(model):
            losses = model(images, copy.deepcopy(samples), mode='loss')
        wrapper.update_params(model.parse_losses(losses)[0])

    return step


@contextmanager
def tensors_of_cuda_kernel() -> Iterator[None]:
    """Within this context, deformable attention on a CPU makes the tensors of mmcv's CUDA kernel.

    Its results are zero.
    """
    name = 'multi_scale_deformable_attn_pytorch'
    definition = getattr(deformable_attention, name)

    def stand_in(value: Tensor, shapes: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
        return KernelTensors.apply(value, locations, weights)

    setattr(deformable_attention, name, stand_in)
    try:
        yield
    finally:
        setattr(deformable_attention, name, definition)


class KernelTensors(Function):
    """The tensors that mmcv's ``MultiScaleDeformableAttnFunction`` saves and returns.

    value [B, N, h, D], locations [B, Q, h, levels, points, 2], weights [B, Q, h, levels, points].
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(value, locations, weights)
        batch, _, heads, dims = value.shape
        return value.new_zeros(batch, locations.shape[1], heads * dims)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.zeros_like(tensor) for tensor in ctx.saved_tensors)
