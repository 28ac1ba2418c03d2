"""torchvision's operators, as a GPU without compiled operators uses them.

They need an installed torchvision and are compared on a CPU, where the package leaves them out.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rope_dense.operators import (
    compiled,
    deform_conv,
    nms,
    roi_align,
)
from rope_dense.operators import (
    deform_conv as deformable,
)
from rope_dense.operators.compiled import torchvision_operators

GPU = torch.device('meta')  # stands for one: any device but a CPU


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A torchvision without operators."""
    vision = ModuleType('torchvision')
    monkeypatch.setitem(sys.modules, 'torchvision', vision)
    monkeypatch.setitem(sys.modules, 'torchvision.ops', vision)
    monkeypatch.setattr(compiled.torch, 'ops', SimpleNamespace(torchvision=vision))
    torchvision_operators.cache_clear()
    yield vision
    torchvision_operators.cache_clear()


def test_a_gpu_uses_it_where_it_works(
    stand_in: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, compiled.__name__)
    assert torchvision_operators(GPU) is None
    assert 'nms' in caplog.text and 'without torchvision' in caplog.text
    stand_in.nms = lambda *args: torch.zeros(1)  # type: ignore[attr-defined]
    torchvision_operators.cache_clear()
    assert torchvision_operators(GPU) is stand_in
    assert torchvision_operators(torch.device('cpu')) is None


def test_an_absent_one_is_left_out(
    stand_in: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'torchvision.ops', None)  # type: ignore[arg-type]
    assert torchvision_operators(GPU) is None


@pytest.fixture
def vision() -> Any:
    """The operators of the installed torchvision."""
    try:
        import_module('torchvision.ops')
        return torch.ops.torchvision
    except Exception as error:  # of another torch, its import fails in any way
        pytest.skip(f'no torchvision: {error}')


def both(call: Any, vision: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Results in PyTorch and of torchvision."""
    expected = call()
    for module in (deformable, nms, roi_align):
        monkeypatch.setattr(module, 'torchvision_operators', lambda device: vision)
    return call(), expected


def test_nms_keeps_the_same(vision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    corner = 100 * torch.rand(300, 2)
    boxes = torch.cat([corner, corner + 5 + 30 * torch.rand(300, 2)], 1)
    scores = (20 * torch.rand(300)).round() / 20
    actual, expected = both(lambda: nms.nms(boxes, scores, 0.5, 0), vision, monkeypatch)
    assert torch.equal(actual, expected) and 20 < len(actual) < 300


types = pytest.mark.parametrize(
    'dtype, tolerance',
    [(torch.float32, 1e-5), (torch.float64, 1e-10), (torch.float16, 2e-3)],
)


@types
@pytest.mark.parametrize('ratio', [0, 2])
def test_roi_align_is_the_same(
    dtype: torch.dtype,
    tolerance: float,
    ratio: int,
    vision: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps = torch.randn(2, 3, 13, 17, dtype=torch.float64).to(dtype)
    corner = 50 * torch.rand(20, 2)
    image = torch.arange(20)[:, None] % 2
    rois = torch.cat([image, corner, corner + 40 * torch.rand(20, 2)], 1).to(dtype)
    settings = 7, 5, 0.25, ratio, 1, True

    def call() -> list[Tensor]:
        output = maps.new_zeros(20, 3, 7, 5)
        roi_align.roi_align_forward(maps, rois, output, output, output, *settings)
        grad_maps = torch.zeros_like(
            maps, dtype=torch.promote_types(dtype, torch.float32)
        )
        grad = torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output)
        roi_align.roi_align_backward(grad, rois, output, output, grad_maps, *settings)
        return [output, grad_maps]

    (output, grad), (expected, expected_grad) = both(call, vision, monkeypatch)
    # Half precision is computed in float32 and rounded once: to this number or its neighbour.
    torch.testing.assert_close(
        output, expected, rtol=tolerance, atol=min(tolerance, 1e-5)
    )
    torch.testing.assert_close(
        grad, expected_grad, rtol=tolerance, atol=min(tolerance, 1e-5)
    )


@types
@pytest.mark.parametrize('value', [None, math.nan, math.inf, -1e30])
def test_deformable_convolution_is_the_same(
    value: float | None,
    dtype: torch.dtype,
    tolerance: float,
    vision: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also at offsets to nowhere, and of whole numbers, with one backward of torchvision."""
    shapes = (2, 4, 7, 9), (6, 2, 3, 3), (6,), (2, 36, 7, 9), (2, 18, 7, 9)
    maps, weight, bias, offset, mask = (
        torch.randn(s, dtype=torch.float64) for s in shapes
    )
    offset[:1] = (2 * offset[:1]).round()
    if value is not None:
        offset[:, ::5] = value
    tensors = [x.to(dtype) for x in (maps, weight, bias, maps, offset, mask)]
    settings = 3, 3, 1, 1, 1, 1, 1, 1, 2, 2, True
    calls = []

    def backward(*args: Any) -> Any:
        calls.append(args)
        return vision._deform_conv2d_backward(*args)

    counted = SimpleNamespace(
        deform_conv2d=vision.deform_conv2d, _deform_conv2d_backward=backward
    )

    def call() -> list[Tensor]:
        output = torch.empty(2, 6, 7, 9, dtype=dtype)
        deform_conv.modulated_deform_conv_forward(*tensors, output, maps, *settings)
        x, weight, bias, ones, offset, mask = tensors
        grads = [torch.zeros_like(t) for t in (x, weight, bias, offset, mask)]
        deform_conv.modulated_deform_conv_backward(
            *tensors, ones, *grads, output, *settings
        )
        return [output, *grads]

    actual, expected = both(call, counted, monkeypatch)
    assert len(calls) == 1
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance * float(b.abs().max())
        )
