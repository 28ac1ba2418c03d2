"""RoIAlign of rotated regions: mmcv's compiled operators, a loop over samples, transposes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from helpers.operators import compiled_operators
from rope_dense.operators import roi_align_rotated

DTYPES = (torch.float32, torch.float64)
SHAPE = (2, 3, 12, 17)  # of maps
PLACES = (3, 2)


def maps(dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SHAPE, generator=generator, dtype=torch.float64).to(dtype)


def regions(dtype: torch.dtype = torch.float64, number: int = 40) -> Tensor:
    """Regions inside of maps of 24 x 34 pixels, across their borders and outside of them."""
    generator = torch.Generator().manual_seed(1)
    values = torch.rand(number, 6, generator=generator, dtype=torch.float64)
    scale = torch.tensor([2, 54, 44, 30, 20, 2 * math.pi], dtype=torch.float64)
    values = values * scale - torch.tensor([0, 10, 10, 0, 0, math.pi])
    values[:, 0] = values[:, 0].floor()
    values[:6, 3:5] = torch.tensor(
        [[0, 5], [5, 0], [0, 0], [0.5, 0.5], [60, 3], [200, 200]]
    )
    values[6:9, 5] = torch.tensor([0, math.pi / 2, -math.pi])
    return values.to(dtype)


def forward(module: object, maps: Tensor, rois: Tensor, *settings: float) -> Tensor:
    output = maps.new_zeros(len(rois), maps.shape[1], *PLACES)
    module.roi_align_rotated_forward(maps, rois, output, *PLACES, 0.5, *settings)
    return output


def backward(module: object, grad: Tensor, rois: Tensor, *settings: float) -> Tensor:
    out = grad.new_zeros(SHAPE)
    module.roi_align_rotated_backward(grad, rois, out, *PLACES, 0.5, *settings)
    return out


every_setting = pytest.mark.parametrize(
    'settings',
    [
        (ratio, *flags)
        for ratio in (0, 2)
        for flags in ((True, True), (True, False), (False, True))
    ],
    ids=str,
)


@every_setting
@pytest.mark.parametrize('dtype', DTYPES)
def test_the_compiled_operators_give_the_same(
    dtype: torch.dtype, settings: tuple[int, bool, bool]
) -> None:
    compiled, bound = compiled_operators(), 1e-5 if dtype == torch.float32 else 1e-12
    rois = regions(dtype)
    expected = forward(compiled, maps(dtype), rois, *settings)
    actual = forward(roi_align_rotated, maps(dtype), rois, *settings)
    assert (actual - expected).abs().max() < bound
    expected, actual = (
        backward(module, expected, rois, *settings)
        for module in (compiled, roi_align_rotated)
    )
    assert (actual - expected).abs().max() < bound


def loop(
    maps: Tensor, roi: list[float], ratio: int, aligned: bool, clockwise: bool
) -> Tensor:
    """One region [C, S, S'], sample by sample."""
    index, x, y, width, height, angle = roi
    x, y, width, height = (0.5 * value for value in (x, y, width, height))
    x, y = (x - 0.5, y - 0.5) if aligned else (x, y)
    if not aligned:
        width, height = max(width, 1), max(height, 1)
    angle = -angle if clockwise else angle
    step, side = (height / PLACES[0], width / PLACES[1]), (height, width)
    number = [ratio or math.ceil(s) for s in step]
    output = maps.new_zeros(maps.shape[1], *PLACES)
    for i, j, u, v in torch.cartesian_prod(
        *(torch.arange(n) for n in (*PLACES, *number))
    ).tolist():
        down = i * step[0] + (u + 0.5) * step[0] / number[0] - side[0] / 2
        right = j * step[1] + (v + 0.5) * step[1] / number[1] - side[1] / 2
        row = down * math.cos(angle) - right * math.sin(angle) + y
        column = down * math.sin(angle) + right * math.cos(angle) + x
        output[:, i, j] += read(maps[int(index)], row, column) / math.prod(number)
    return output


def read(image: Tensor, y: float, x: float) -> Tensor:
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(len(image), dtype=image.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    rows = torch.tensor(
        [max(0, 1 - abs(y - row)) for row in range(height)], dtype=image.dtype
    )
    columns = torch.tensor(
        [max(0, 1 - abs(x - c)) for c in range(width)], dtype=image.dtype
    )
    return torch.einsum('chw,h,w->c', image, rows, columns)


@every_setting
def test_a_loop_over_samples_gives_the_same(settings: tuple[int, bool, bool]) -> None:
    rois = regions()[6:12]
    actual = forward(roi_align_rotated, maps(), rois, *settings)
    expected = torch.stack([loop(maps(), roi, *settings) for roi in rois.tolist()])
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize('operator', ['roi_align_rotated', 'riroi_align_rotated'])
def test_backward_is_the_transpose_of_forward(operator: str) -> None:
    function: dict[str, Callable] = vars(roi_align_rotated)
    last = (True, False) if operator == 'roi_align_rotated' else (4, False)
    generator = torch.Generator().manual_seed(2)
    shape = (2, 8, 12, 17)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    rois = regions()
    output, grad_input = x.new_zeros(len(rois), 8, *PLACES), torch.zeros_like(x)
    grad = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    function[f'{operator}_forward'](x, rois, output, *PLACES, 0.5, 0, *last)
    function[f'{operator}_backward'](grad, rois, grad_input, *PLACES, 0.5, 0, *last)
    torch.testing.assert_close((output * grad).sum(), (x * grad_input).sum())


@pytest.mark.parametrize('steps', [0.0, 1.0, 2.25, -0.5, -3.0, 9.0])
def test_riroi_align_rotates_the_channels_of_orientations(steps: float) -> None:
    """A region turned by s of 4 orientations reads the orientation o - s, in between a mean."""
    x = maps().repeat(1, 4, 1, 1)[:, :8]
    rois = regions()[6:12]
    rois[:, 5] = steps * 2 * math.pi / 4
    output = x.new_zeros(len(rois), 8, *PLACES)
    roi_align_rotated.riroi_align_rotated_forward(
        x, rois, output, *PLACES, 0.5, 2, 4, True
    )
    pooled = forward(roi_align_rotated, x, rois, 2, False, True).unflatten(1, (2, 4))
    whole, part = math.floor(steps), steps - math.floor(steps)
    expected = (1 - part) * pooled.roll(whole, 2) + part * pooled.roll(whole - 1, 2)
    torch.testing.assert_close(output.unflatten(1, (2, 4)), expected)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x, rois = maps(dtype), regions(dtype)
    actual = forward(roi_align_rotated, x, rois, 0, True, True)
    assert actual.dtype == dtype
    assert torch.equal(
        actual,
        forward(roi_align_rotated, x.float(), rois.float(), 0, True, True).to(dtype),
    )


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = 0, True, True
    whole = forward(roi_align_rotated, maps(), regions(), *settings)
    spread = backward(roi_align_rotated, whole, regions(), *settings)
    monkeypatch.setattr(roi_align_rotated, 'SAMPLES', 50)
    torch.testing.assert_close(
        forward(roi_align_rotated, maps(), regions(), *settings), whole
    )
    torch.testing.assert_close(
        backward(roi_align_rotated, whole, regions(), *settings), spread
    )


def test_no_regions() -> None:
    settings = 0, True, True
    output = forward(roi_align_rotated, maps(), regions()[:0], *settings)
    assert output.shape == (0, 3, *PLACES)
    assert not backward(roi_align_rotated, output, regions()[:0], *settings).any()


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_regions_at_no_place_give_nothing(value: float) -> None:
    """Compiled operators read outside of the map for some of these."""
    rois = regions()[6:8]
    for column in (1, 2, 5):
        changed = rois.clone()
        changed[0, column] = value
        output = forward(roi_align_rotated, maps(), changed, 2, True, True)
        assert not output[0].any()
        assert torch.equal(
            output[1:], forward(roi_align_rotated, maps(), rois[1:], 2, True, True)
        )
