"""Deformable convolution: mmcv's compiled operators, torch's convolution, a loop, gradcheck."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.operators import compiled_operators
from rope_dense.operators import deform_conv
from rope_dense.operators import deform_conv as deformable

pytest.importorskip('mmcv')
from mmcv.ops import deform_conv as mmcv_v1
from mmcv.ops import modulated_deform_conv as mmcv_v2


class Case(NamedTuple):
    """Sizes of a small convolution."""

    images: int = 2
    channels: int = 4
    outputs: int = 6
    size: tuple[int, int] = (7, 9)
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    offset_groups: int = 1


CASES = {
    'plain': Case(),
    'uneven': Case(1, 4, 6, (7, 9), (3, 2), (2, 1), (2, 1), (1, 2), groups=2),
    'groups': Case(
        3, 8, 4, (6, 5), (3, 3), (1, 2), (1, 0), (2, 1), groups=2, offset_groups=4
    ),
    'one cell': Case(
        2, 6, 6, (5, 5), (1, 1), padding=(0, 0), groups=3, offset_groups=2
    ),
}
every_case = pytest.mark.parametrize('case', CASES.values(), ids=CASES)
both = pytest.mark.parametrize('modulated', [False, True], ids=['v1', 'v2'])


def inputs(
    case: Case, dtype: torch.dtype = torch.float64, spread: float = 2.0
) -> dict[str, Tensor]:
    """Maps, offsets, masks, kernel and bias; offsets of the first image are whole numbers."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    maps = random(case.images, case.channels, *case.size)
    weight = random(case.outputs, case.channels // case.groups, *case.kernel)
    settings = case.stride, case.padding, case.dilation
    output = F.conv2d(maps[:, : weight.shape[1]], weight, None, *settings)
    number = case.offset_groups * math.prod(case.kernel)
    offset = spread * random(case.images, 2 * number, *output.shape[2:])
    offset[:1] = offset[:1].round()
    mask = random(case.images, number, *output.shape[2:]).sigmoid()
    tensors = dict(
        maps=maps, offset=offset, mask=mask, weight=weight, bias=random(case.outputs)
    )
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def convolve(case: Case, maps: Tensor, offset: Tensor, *others: Tensor) -> Tensor:
    """mmcv's function, with a mask and a bias (v2) or without (v1)."""
    operator = (
        mmcv_v2.modulated_deform_conv2d if len(others) == 3 else mmcv_v1.deform_conv2d
    )
    settings = case.stride, case.padding, case.dilation, case.groups, case.offset_groups
    return operator(maps, offset, *others, *settings)


def arguments(tensors: dict[str, Tensor], modulated: bool) -> list[Tensor]:
    return [
        tensors[name] for name in ('maps', 'offset', *(['mask'] if modulated else []))
    ] + [tensors[name] for name in ('weight', *(['bias'] if modulated else []))]


def use(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let mmcv's functions call a module instead of its operators."""
    monkeypatch.setattr(mmcv_v1, 'ext_module', module)
    monkeypatch.setattr(mmcv_v2, 'ext_module', module)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    use(deform_conv, monkeypatch)


def with_gradients(case: Case, tensors: list[Tensor]) -> list[Tensor]:
    """Output, and the gradients of all arguments."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = convolve(case, *leaves)
    direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(
        output
    )
    return [output.detach(), *torch.autograd.grad(output, leaves, direction)]


@both
@every_case
@pytest.mark.parametrize('spread', [0.0, 0.5, 20.0])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_the_compiled_operators_give_the_same_values_and_gradients(
    dtype: torch.dtype,
    spread: float,
    case: Case,
    modulated: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = arguments(inputs(case, dtype, spread), modulated)
    results = []
    for module in (compiled_operators(), deform_conv):
        use(module, monkeypatch)
        results.append(with_gradients(case, tensors))
    for expected, actual in zip(*results, strict=True):
        assert actual.dtype == dtype
        assert (actual - expected).abs().max() < (
            1e-5 if dtype == torch.float32 else 1e-12
        )


@both
@every_case
def test_without_offsets_it_is_a_convolution(
    ours: None, case: Case, modulated: bool
) -> None:
    tensors = inputs(case, spread=0.0)
    tensors['mask'] = torch.ones_like(tensors['mask'])
    settings = case.stride, case.padding, case.dilation, case.groups
    bias = tensors['bias'] if modulated else None
    expected = F.conv2d(tensors['maps'], tensors['weight'], bias, *settings)
    actual = convolve(case, *arguments(tensors, modulated))
    torch.testing.assert_close(actual, expected)


def loop(
    case: Case, maps: Tensor, offset: Tensor, mask: Tensor, weight: Tensor
) -> Tensor:
    """Output without groups, one read at a time."""

    def read(image: Tensor, y: float, x: float) -> Tensor:
        total = torch.zeros(len(image), dtype=image.dtype)
        for row in range(image.shape[1]):
            for column in range(image.shape[2]):
                share = max(0, 1 - abs(y - row)) * max(0, 1 - abs(x - column))
                total += share * image[:, row, column]
        return total

    output = torch.zeros(len(maps), len(weight), *offset.shape[2:], dtype=maps.dtype)
    for b, _, i, j in torch.cartesian_prod(
        *(torch.arange(n) for n in output[:, :1].shape)
    ).tolist():
        for cell in range(math.prod(case.kernel)):
            row, column = divmod(cell, case.kernel[1])
            y, x = offset[b, 2 * cell : 2 * cell + 2, i, j].tolist()
            y += i * case.stride[0] - case.padding[0] + row * case.dilation[0]
            x += j * case.stride[1] - case.padding[1] + column * case.dilation[1]
            values = read(maps[b], y, x) * mask[b, cell, i, j]
            output[b, :, i, j] += weight[:, :, row, column] @ values
    return output


def test_a_loop_gives_the_same(ours: None) -> None:
    case = Case(1, 2, 3, (4, 5), (3, 2), (2, 1), (1, 1), (1, 2))
    tensors = inputs(case)
    tensors['offset'] = tensors['offset'] + 0.3
    expected = loop(
        case, *(tensors[name] for name in ('maps', 'offset', 'mask', 'weight'))
    )
    actual = convolve(case, *arguments(tensors, True)) - tensors['bias'].view(-1, 1, 1)
    torch.testing.assert_close(actual, expected)


@both
def test_gradients_are_finite_differences(ours: None, modulated: bool) -> None:
    case = Case(1, 4, 2, (4, 3), (2, 2), groups=2, offset_groups=2)
    tensors = inputs(case)
    tensors['offset'] = (
        tensors['offset'] + 0.3
    )  # not where a read moves to the next cell
    leaves = [tensor.requires_grad_() for tensor in arguments(tensors, modulated)]
    assert torch.autograd.gradcheck(partial(convolve, case), leaves, fast_mode=True)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(ours: None, dtype: torch.dtype) -> None:
    tensors = arguments(inputs(CASES['groups'], dtype), modulated=False)
    actual = with_gradients(CASES['groups'], tensors)
    expected = with_gradients(CASES['groups'], [tensor.float() for tensor in tensors])
    assert actual[0].dtype == dtype
    assert torch.equal(actual[0], expected[0].to(dtype))
    for a, b in zip(actual[1:], expected[1:], strict=True):
        assert (a - b).abs().max() < 0.02 * b.abs().max()


def test_images_in_parts_change_nothing(
    ours: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = arguments(inputs(CASES['groups']), modulated=True)
    whole = with_gradients(CASES['groups'], tensors)
    monkeypatch.setattr(deformable, 'VALUES', 1)
    for a, b in zip(with_gradients(CASES['groups'], tensors), whole, strict=True):
        torch.testing.assert_close(a, b)


def with_larger_grid(
    module: object, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Tensors, results and gradients with offsets and masks of two rows and a column too many."""
    tensors = inputs(CASES['groups'])
    for name in ('offset', 'mask'):
        height, width = tensors[name].shape[2:]
        tensors[name] = torch.randn(
            *tensors[name].shape[:2], height + 2, width + 1
        ).double()
    use(module, monkeypatch)
    return tensors, with_gradients(CASES['groups'], arguments(tensors, modulated=True))


def test_a_larger_grid_of_offsets_is_read_as_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As mmdet's DyHead passes them: the first values of each image, and no gradient after."""
    tensors, larger = with_larger_grid(deform_conv, monkeypatch)
    fitting = inputs(CASES['groups'])
    for name in ('offset', 'mask'):
        size = fitting[name].shape[1:]
        fitting[name] = (
            tensors[name].flatten(1)[:, : math.prod(size)].unflatten(1, size)
        )
    expected = with_gradients(CASES['groups'], arguments(fitting, modulated=True))
    for a, b in zip(larger, expected, strict=True):
        a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
        assert torch.equal(a[:, : b.shape[1]], b) and not a[:, b.shape[1] :].any()


def test_a_larger_grid_of_offsets_is_read_as_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.random.get_rng_state()
    _, expected = with_larger_grid(compiled_operators(), monkeypatch)
    torch.random.set_rng_state(generator)
    _, actual = with_larger_grid(deform_conv, monkeypatch)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_smaller_grid_of_offsets_is_refused(ours: None) -> None:
    tensors = inputs(CASES['plain'])
    tensors['offset'] = tensors['offset'][..., :-1]
    with pytest.raises(RuntimeError):
        convolve(CASES['plain'], *arguments(tensors, modulated=True))


@pytest.mark.parametrize('value', [math.nan, math.inf, -1e30])
def test_offsets_to_nowhere_read_nothing(ours: None, value: float) -> None:
    tensors = inputs(CASES['plain'])
    tensors['offset'][:, ::2] = value
    output, *gradients = with_gradients(
        CASES['plain'], arguments(tensors, modulated=True)
    )
    torch.testing.assert_close(output, tensors['bias'].view(-1, 1, 1).expand_as(output))
    assert not any(gradient.any() for gradient in gradients[:-1])
