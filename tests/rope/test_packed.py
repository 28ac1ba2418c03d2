"""The implementation by PyTorch's operations against the definition, values and gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.pairwise import pairwise
from rope_dense.rope import MixedRoPE, Rotary, rotate, rotate_definition
from rope_dense.rope.rotation import rotate_complex

HEADS, PAIRS, BATCH, POSITIONS = 3, 4, 2, 15
LAYOUTS = ['interleaved', 'half']
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = {
    'shared': (POSITIONS, 1, PAIRS),
    'of each head': (POSITIONS, HEADS, PAIRS),
    'of each image': (BATCH, POSITIONS, HEADS, PAIRS),
    'of each image, shared': (BATCH, POSITIONS, 1, PAIRS),
}
MORE = [
    (0, 0),
    (1, 4),
    (5, 0),
    (0, 1),
    (2, 3),
]  # prefix tokens, channels that are not rotated
every_layout = pytest.mark.parametrize('layout', LAYOUTS)


def projection(prefix: int = 0, more_channels: int = 0) -> Tensor:
    """[B, N, 3, h, D], float32."""
    return torch.randn(BATCH, prefix + POSITIONS, 3, HEADS, 2 * PAIRS + more_channels)


def by_definition(qkv: Tensor, rotary: Rotary, prefix: int = 0) -> tuple[Tensor, ...]:
    return rotate_definition(qkv, rotary, prefix).permute(2, 0, 3, 1, 4).unbind()


def exact(qkv: Tensor, rotary: Rotary, prefix: int = 0) -> tuple[Tensor, ...]:
    """In float64, whatever the inputs are in."""
    rotary = Rotary(rotary.angles.double(), rotary.pair_layout)
    return by_definition(qkv.double(), rotary, prefix)


def check_rounded(actual: Tensor, expected: Tensor) -> None:
    """``actual`` is ``expected`` rounded once to its type, but for the rounding of float32."""
    half_a_unit = 0.51 * torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual.double(), expected, atol=3e-6, rtol=half_a_unit)


@pairwise(layout=LAYOUTS, dtype=DTYPES, shape=SHAPES, more=MORE)
def test_values(
    layout: str, dtype: torch.dtype, shape: tuple[int, ...], more: tuple[int, int]
):
    prefix, more_channels = more
    qkv, rotary = (
        projection(prefix, more_channels).to(dtype),
        Rotary(torch.randn(shape), layout),
    )
    before = qkv.clone()
    actual, expected = rotate(qkv, rotary, prefix), exact(qkv, rotary, prefix)
    assert torch.equal(qkv, before)
    for part, right in zip(actual, expected, strict=True):
        assert part.dtype == dtype and part.shape == right.shape
        check_rounded(part, right)


@every_layout
@pytest.mark.parametrize('prefix, more_channels', MORE)
def test_float64_stays_float64_with_angles_in_float32(
    layout: str, prefix: int, more_channels: int
):
    qkv = projection(prefix, more_channels).double().requires_grad_()
    rotary = Rotary(torch.randn(POSITIONS, HEADS, PAIRS), layout)
    results = []
    for function in (rotate, by_definition):
        outs = function(qkv, rotary, prefix)
        results.append(
            [*outs, *torch.autograd.grad(sum(out.pow(3).sum() for out in outs), qkv)]
        )
    for found, right in zip(*results, strict=True):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, right, atol=1e-12, rtol=1e-12)


@pairwise(layout=LAYOUTS, shape=SHAPES, more=MORE)
def test_gradients(layout: str, shape: tuple[int, ...], more: tuple[int, int]):
    prefix, more_channels = more
    qkv = projection(prefix, more_channels).double().requires_grad_()
    angles = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def gradients(function: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        q, k, v = function(qkv, Rotary(angles, layout), prefix)
        loss = (F.scaled_dot_product_attention(q, k, v) ** 2).sum()
        return torch.autograd.grad(loss, [qkv, angles])

    for found, right in zip(gradients(rotate), gradients(by_definition), strict=True):
        torch.testing.assert_close(found, right, atol=1e-12, rtol=1e-12)


@pairwise(layout=LAYOUTS, shape=SHAPES, dtype=[torch.bfloat16, torch.float16])
def test_gradients_in_half_precision(
    layout: str, shape: tuple[int, ...], dtype: torch.dtype
):
    qkv = projection(1, 4).to(dtype).requires_grad_()
    angles = torch.randn(shape, requires_grad=True)
    grads = [
        torch.randn(BATCH, HEADS, 1 + POSITIONS, 2 * PAIRS + 4).to(dtype)
        for _ in range(3)
    ]
    outs = rotate(qkv, Rotary(angles, layout), 1)
    found = torch.autograd.grad(outs, [qkv, angles], grads)
    assert [grad.dtype for grad in found] == [dtype, torch.float32]
    outs = exact(qkv, Rotary(angles, layout), 1)
    right = torch.autograd.grad(outs, [qkv, angles], [grad.double() for grad in grads])
    torch.testing.assert_close(
        found[0], right[0], atol=1e-5, rtol=1.01 * torch.finfo(dtype).eps
    )
    # Sums in float32 of products of rounded values: the error is theirs.
    assert (found[1] - right[1]).norm() <= torch.finfo(dtype).eps * right[1].norm()


def views() -> dict[str, Tensor]:
    """[B, N, 3, h, D] that is not contiguous."""
    return {
        'channels two apart': torch.randn(BATCH, POSITIONS, 3, HEADS, 4 * PAIRS)[
            ..., ::2
        ],
        'odd offset': torch.randn(BATCH, POSITIONS, 3, HEADS, 2 * PAIRS + 1)[..., 1:],
        'some heads of many': torch.randn(BATCH, POSITIONS, 3, 2 * HEADS, 2 * PAIRS)[
            ..., 1::2, :
        ],
        'heads first': torch.randn(3, HEADS, BATCH, POSITIONS, 2 * PAIRS).permute(
            2, 3, 0, 1, 4
        ),
        'expanded images': torch.randn(1, POSITIONS, 3, HEADS, 2 * PAIRS).expand(
            BATCH, *[-1] * 4
        ),
        'expanded channels': torch.randn(BATCH, POSITIONS, 3, HEADS, 1).expand(
            *[-1] * 4, 8
        ),
    }


@pairwise(layout=LAYOUTS, name=views().keys(), requires_grad=[False, True])
def test_projections_and_gradients_that_are_not_contiguous(
    layout: str, name: str, requires_grad: bool
):
    qkv, grads = views()[name], views()[name].permute(2, 0, 3, 1, 4).unbind()
    qkv = qkv.requires_grad_() if qkv.is_leaf else qkv
    rotary = Rotary(
        torch.randn(POSITIONS, HEADS, PAIRS).requires_grad_(requires_grad), layout
    )
    inputs = [qkv, rotary.angles] if requires_grad else [qkv]
    actual, expected = (function(qkv, rotary) for function in (rotate, by_definition))
    for part, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(part, right, atol=2e-6, rtol=0)
    found, wanted = (
        torch.autograd.grad(outs, inputs, grads) for outs in (actual, expected)
    )
    for part, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(part, right, atol=2e-5, rtol=0)


@every_layout
def test_an_expanded_gradient(layout: str):
    qkv = projection().requires_grad_()
    angles = torch.randn(POSITIONS, HEADS, PAIRS, requires_grad=True)
    grads = []
    for function in (rotate, by_definition):
        loss = sum(part.sum() for part in function(qkv, Rotary(angles, layout)))
        grads.append(torch.autograd.grad(loss, [qkv, angles]))
    for found, right in zip(*grads, strict=True):
        torch.testing.assert_close(found, right, atol=2e-5, rtol=0)


@every_layout
@pytest.mark.parametrize(
    'shape', [(POSITIONS, HEADS, PAIRS), (0, POSITIONS, HEADS, PAIRS)]
)
def test_no_images(layout: str, shape: tuple[int, ...]):
    qkv = torch.randn(0, POSITIONS + 1, 3, HEADS, 2 * PAIRS, requires_grad=True)
    angles = torch.randn(shape, requires_grad=True)
    q, k, v = rotate(qkv, Rotary(angles, layout), 1)
    assert q.shape == k.shape == v.shape == (0, HEADS, POSITIONS + 1, 2 * PAIRS)
    (q * k + v).sum().backward()
    assert qkv.grad.shape == qkv.shape
    assert angles.grad.shape == angles.shape and not angles.grad.any()


def test_the_result_is_new_and_contiguous():
    for qkv in (projection(), *views().values()):
        out = rotate_complex(
            qkv, Rotary(torch.randn(POSITIONS, 1, PAIRS)).cos_sin, 'half', 0
        )
        assert out.is_contiguous() and out.shape == qkv.shape
        assert out.untyped_storage().data_ptr() != qkv.untyped_storage().data_ptr()


def test_a_projection_that_somebody_saved_has_the_right_gradient():
    x = projection().double().requires_grad_()
    rotary = Rotary(torch.randn(POSITIONS, 1, PAIRS, dtype=torch.float64))
    found, right = (
        torch.autograd.grad(
            sum(part.square().sum() for part in function(x.exp(), rotary)), x
        )[0]
        for function in (rotate, by_definition)  # exp keeps its result for backward
    )
    torch.testing.assert_close(found, right)


def test_an_output_that_somebody_changes_is_an_error_not_a_wrong_gradient():
    qkv, angles = (
        projection().requires_grad_(),
        torch.randn(POSITIONS, 1, PAIRS).requires_grad_(),
    )
    out = rotate(qkv, Rotary(angles))[0]
    with pytest.raises(RuntimeError, match='is a view and is being modified inplace'):
        out.mul_(2)


def test_bfloat16_gradient_of_the_frequencies_is_summed_in_float32():
    linear = nn.Linear(32, 96).bfloat16()
    rope = MixedRoPE(16, 2)
    x = torch.randn(4, 64, 32).bfloat16()

    def gradient(function: Callable[..., tuple[Tensor, ...]]) -> Tensor:
        q, k, v = function(linear(x).unflatten(-1, (3, 2, 16)), rope(x, (8, 8)))
        loss = (F.scaled_dot_product_attention(q, k, v).float() ** 2).sum()
        return torch.autograd.grad(loss, rope.freqs)[0]

    actual, expected = gradient(rotate), gradient(by_definition)
    assert actual.dtype == torch.float32
    assert (actual - expected).norm() < 0.02 * expected.norm()


def test_backward_inside_autocast_keeps_positions_in_float32():
    rope = MixedRoPE(8, 1)
    x = torch.randn(1, 400, 3, 1, 8)

    def gradient() -> Tensor:
        q, k, _ = rotate(x, rope(x, (1, 400)))
        return torch.autograd.grad(
            (q * k.detach().flip(2)).sum() + k.sum(), rope.freqs
        )[0]

    expected = gradient()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        torch.testing.assert_close(gradient(), expected)


@pytest.mark.parametrize('learned', [False, True])
def test_no_activation_is_saved_beside_what_attention_saves(learned: bool):
    linear = nn.Linear(64, 192)
    x = torch.randn(4, 16, 64)

    def saved(rotary: Rotary | None) -> int:
        """Storages of the size of an activation."""
        storages = {}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.numel() >= x.numel():
                storages[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            q, k, v = rotate(linear(x).unflatten(-1, (3, 2, 32)), rotary)
            F.scaled_dot_product_attention(q, k, v).sum()
        return len(storages)

    angles = torch.randn(16, 2, 16, requires_grad=learned)
    assert saved(Rotary(angles)) == saved(None)
