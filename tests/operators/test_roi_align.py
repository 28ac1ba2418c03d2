"""RoIAlign: a loop over samples in float64, mmcv's compiled operators, gradcheck."""

from __future__ import annotations

import math

import mmcv.ops
import pytest
import torch
from torch import Tensor

from helpers.operators import compiled_operators, use_pytorch
from rope_dense.operators import roi_align

NAN = float('nan')
SIZE, PLACES, SCALE = (13, 17), (7, 5), 0.25
types = pytest.mark.parametrize(
    'dtype, tolerance', [(torch.float32, 1e-5), (torch.float64, 1e-10)]
)
modes = pytest.mark.parametrize('mode', [0, 1], ids=['max', 'mean'])
kinds = pytest.mark.parametrize('aligned', [True, False])


def maps(dtype: torch.dtype = torch.float64, channels: int = 3) -> Tensor:
    return torch.randn(2, channels, *SIZE, dtype=torch.float64).to(dtype)


def regions(number: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Regions [R, 5] of maps of 52 x 68 pixels: also beyond them, elsewhere, and without area."""
    centre = torch.rand(number, 2, dtype=torch.float64) * 70 - 4
    side = torch.rand(number, 2, dtype=torch.float64) * 60
    image = torch.randint(0, 2, (number, 1))
    rois = torch.cat([image, centre - side / 2, centre + side / 2], 1)
    if number > 5:
        rois[2] = torch.tensor([1, 0, 0, 68, 52])  # the whole image
        rois[3, 3:] = rois[3, 1:3]
        rois[4, 1:] += 500
        rois[5, 1:] -= 300
    return rois.to(dtype)


def settings(mode: int, aligned: bool, ratio: int) -> dict:
    return dict(
        aligned_height=PLACES[0],
        aligned_width=PLACES[1],
        spatial_scale=SCALE,
        sampling_ratio=ratio,
        pool_mode=mode,
        aligned=aligned,
    )


def run(module: object, x: Tensor, rois: Tensor, **options: object) -> list[Tensor]:
    """Output, rows and columns of maxima, and the gradient of the maps."""
    shape = (len(rois), x.shape[1], *PLACES)
    output = x.new_zeros(shape)
    argmax = [x.new_zeros(shape if options['pool_mode'] == 0 else 0) for _ in range(2)]
    module.roi_align_forward(x, rois, output, *argmax, **options)  # type: ignore[attr-defined]
    grad = (
        torch.linspace(-1, 1, output.numel(), dtype=torch.float64)
        .view(shape)
        .to(x.dtype)
    )
    grad_input = torch.zeros_like(x)
    module.roi_align_backward(grad, rois, *argmax, grad_input, **options)  # type: ignore[attr-defined]
    return [output, *argmax, grad_input]


def bilinear(x: Tensor, row: float, column: float) -> Tensor:
    """Value [C] of a map [C, H, W] at a position; 0 further than a cell outside."""
    height, width = x.shape[1:]
    if not (-1 <= row <= height and -1 <= column <= width):
        return x.new_zeros(len(x))
    value = x.new_zeros(len(x))
    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    for i in {math.floor(row), min(math.floor(row) + 1, height - 1)}:
        for j in {math.floor(column), min(math.floor(column) + 1, width - 1)}:
            value = value + (1 - abs(row - i)) * (1 - abs(column - j)) * x[:, i, j]
    return value


def pool(x: Tensor, roi: list[float], mode: int, aligned: bool, ratio: int) -> Tensor:
    """One region of maps, sample by sample: [C, S, S']."""
    image, *corners = roi
    left, top, right, bottom = (SCALE * value - 0.5 * aligned for value in corners)
    width, height = right - left, bottom - top
    if not aligned:
        width, height = max(width, 1), max(height, 1)
    step = height / PLACES[0], width / PLACES[1]
    number = [ratio or math.ceil(length) for length in step]
    out = x.new_zeros(x.shape[1], *PLACES)
    for place in torch.cartesian_prod(*map(torch.arange, PLACES)).tolist():
        samples = [
            bilinear(
                x[int(image)],
                top + (place[0] + (i + 0.5) / number[0]) * step[0],
                left + (place[1] + (j + 0.5) / number[1]) * step[1],
            )
            for i in range(number[0])
            for j in range(number[1])
        ]
        if samples:
            values = torch.stack(samples)
            out[:, place[0], place[1]] = values.mean(0) if mode else values.amax(0)
        elif mode == 0:
            out[:, place[0], place[1]] = -10000
    return out


@modes
@kinds
@pytest.mark.parametrize('ratio', [0, 2])
def test_regions_are_pooled_sample_by_sample(
    mode: int, aligned: bool, ratio: int
) -> None:
    x, rois = maps(channels=2).requires_grad_(), regions(7)
    output, *_, grad = run(
        roi_align, x.detach(), rois, **settings(mode, aligned, ratio)
    )
    expected = torch.stack(
        [pool(x, roi, mode, aligned, ratio) for roi in rois.tolist()]
    )
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
    weight = torch.linspace(-1, 1, output.numel(), dtype=x.dtype).view_as(output)
    (expected_grad,) = torch.autograd.grad(expected, x, weight)
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=1e-10)


@types
@modes
@kinds
@pytest.mark.parametrize('ratio', [0, 1, 3])
@pytest.mark.parametrize('number', [0, 1, 40])
def test_as_mmcv(
    dtype: torch.dtype,
    tolerance: float,
    mode: int,
    aligned: bool,
    ratio: int,
    number: int,
) -> None:
    x, rois = maps(dtype), regions(number, dtype)
    options = settings(mode, aligned, ratio)
    for actual, expected in zip(
        run(roi_align, x, rois, **options),
        run(compiled_operators(), x, rois, **options),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    'wrong', [[0, 9, 9, 5, 20], [0, 9, 9, 20, 5], [0, 9, NAN, 20, 20]]
)
def test_sizes_below_zero_are_refused_as_by_mmcv(wrong: list[float]) -> None:
    x, rois = maps(torch.float32), torch.tensor([[0.0, 1, 1, 9, 9], wrong])
    for module in (roi_align, compiled_operators()):
        with pytest.raises(RuntimeError):
            run(module, x, rois, **settings(1, True, 0))
        run(module, x, rois[:1], **settings(1, True, 0))


@modes
def test_many_regions_in_parts(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, rois = maps(), regions(30)
    expected = run(roi_align, x, rois, **settings(mode, True, 0))
    monkeypatch.setattr(roi_align, 'CHUNK', 7)
    monkeypatch.setattr(roi_align, 'VALUES', 999)
    for actual, whole in zip(
        run(roi_align, x, rois, **settings(mode, True, 0)), expected, strict=True
    ):
        torch.testing.assert_close(actual, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@modes
def test_half_precision_is_float32_rounded_once(dtype: torch.dtype, mode: int) -> None:
    x, rois, options = maps(dtype), regions(12, dtype), settings(mode, True, 0)
    output = run(roi_align, x, rois, **options)[0]
    expected = run(roi_align, x.float(), rois.float(), **options)[0]
    assert output.dtype == dtype and torch.equal(output, expected.to(dtype))


@pytest.mark.parametrize('mode', ['max', 'avg'])
def test_gradcheck_through_mmcv(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)
    x, rois = maps(channels=1)[:, :, :4, :5].clone().requires_grad_(), regions(4) / 3
    assert torch.autograd.gradcheck(
        lambda x: mmcv.ops.roi_align(x, rois, (3, 2), SCALE, 0, mode, True), (x,)
    )
