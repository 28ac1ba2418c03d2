"""The operator apply_rotary, against a loop in float64."""

import itertools
import math
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.pairwise import pairwise
from rope_dense.rope import apply_rotary, rotation

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BATCH, HEADS, TOKENS, CHANNELS = 2, 3, 5, 8
SHAPE = BATCH, HEADS, TOKENS, CHANNELS


def by_loop(x: Tensor, theta: Tensor) -> Tensor:
    """In float64, from the values as they are stored."""
    out = x.double().clone()
    pairs = theta.shape[-1]
    for image, head, token, pair in itertools.product(
        *map(range, (*x.shape[:3], pairs))
    ):
        angle = float(theta.detach()[head if len(theta) > 1 else 0, token, pair])
        a, b = (
            float(x.detach()[image, head, token, channel])
            for channel in (pair, pair + pairs)
        )
        out[image, head, token, pair] = a * math.cos(angle) - b * math.sin(angle)
        out[image, head, token, pair + pairs] = a * math.sin(angle) + b * math.cos(
            angle
        )
    return out


def assert_rounded(actual: Tensor, expected: Tensor) -> None:
    """Rounded once to its type, but for the rounding of the arithmetic."""
    eps = torch.finfo(actual.dtype).eps
    arithmetic = 3e-15 if actual.dtype == torch.float64 else 3e-6
    torch.testing.assert_close(
        actual.double(), expected, atol=arithmetic, rtol=0.51 * eps
    )


def features(kind: str, dtype: torch.dtype) -> Tensor:
    """[B, h, N, C] in memory as it may come."""
    if kind == 'projection':  # queries, keys and values side by side
        qkv = torch.randn(BATCH, TOKENS, 3, HEADS, CHANNELS).to(dtype)
        return qkv[:, :, 1].transpose(1, 2)
    if kind == 'part':
        return torch.randn(BATCH, HEADS + 1, TOKENS + 2, CHANNELS + 3).to(dtype)[
            :, 1:, 2:, 3:
        ]
    if kind == 'channels first':
        return torch.randn(BATCH, HEADS, CHANNELS, TOKENS).to(dtype).transpose(2, 3)
    return torch.randn(SHAPE).to(dtype)


@pairwise(
    dtype=DTYPES,
    theta_dtype=DTYPES,
    size=[(1, 4), (HEADS, 4), (HEADS, 3), (HEADS, 0)],
)
def test_values(dtype: torch.dtype, theta_dtype: torch.dtype, size: tuple[int, int]):
    heads, pairs = size
    x, theta = features('contiguous', dtype), 3 * torch.randn(heads, TOKENS, pairs)
    theta = theta.to(theta_dtype)
    before, expected = x.clone(), by_loop(x, theta)
    out = apply_rotary(x, theta)
    assert out.dtype == dtype and out.shape == x.shape
    assert_rounded(out, expected)
    assert torch.equal(out[..., 2 * pairs :], before[..., 2 * pairs :])
    assert torch.equal(x, before)


def test_the_example_of_the_guide():
    guide = Path(__file__).parents[2] / 'docs' / 'research' / 'fused_attention.md'
    (example,) = re.findall(r'```python\n(import .+?)```', guide.read_text(), re.DOTALL)
    assert 'apply_rotary(queries, theta)' in example
    exec(example, {})


@pytest.mark.parametrize('kind', ['projection', 'part', 'channels first'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16], ids=str)
def test_any_strides(kind: str, dtype: torch.dtype):
    x, theta = features(kind, dtype), torch.randn(TOKENS, HEADS, 3).transpose(0, 1)
    assert_rounded(apply_rotary(x, theta), by_loop(x, theta))


@pytest.mark.parametrize('heads', [1, HEADS])
def test_gradients(heads: int):
    x = torch.randn(1, HEADS, 2, 5, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(heads, 2, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, theta: Tensor) -> Tensor:
        return apply_rotary(x * 1, theta)

    assert torch.autograd.gradcheck(run, (x, theta))
    assert torch.autograd.gradcheck(run, (x, theta.detach()))
    assert torch.autograd.gradgradcheck(run, (x, theta))
    assert torch.autograd.gradgradcheck(run, (x, theta.detach()))


def test_gradients_have_the_type_of_their_input():
    weight = torch.randn(SHAPE, dtype=torch.float64)

    def gradients(x: Tensor, theta: Tensor) -> tuple[Tensor, ...]:
        x, theta = x.detach().requires_grad_(), theta.detach().requires_grad_()
        return torch.autograd.grad(
            (apply_rotary(x * 1, theta) * weight).sum(), (x, theta)
        )

    for dtype, theta_dtype in itertools.product(DTYPES, repeat=2):
        x, theta = (
            torch.randn(SHAPE).to(dtype),
            torch.randn(HEADS, TOKENS, 2).to(theta_dtype),
        )
        exact = gradients(x.double(), theta.double())
        eps = max(torch.finfo(each).eps for each in (dtype, theta_dtype))
        for actual, expected, of in zip(
            gradients(x, theta), exact, (x, theta), strict=True
        ):
            assert actual.dtype == of.dtype and actual.shape == of.shape
            assert (actual - expected).norm() <= 2 * eps * expected.norm()


# ---------------------------------------------------------------- other ways to run it


def test_by_the_triton_kernel(monkeypatch: pytest.MonkeyPatch):
    """In Triton's interpreter: one part of a projection, and channels that are not rotated."""
    pytest.importorskip(
        'triton', reason='no triton; pip install -r requirements/triton.txt'
    )
    kernel = import_module('rope_dense.rope.rotation_triton')
    how = rotation.Implementation(kernel.rotate_triton, kernel.triton_backward)
    monkeypatch.setattr(rotation, 'implementation', lambda device, dtype: how)
    x, theta = (
        torch.randn(SHAPE, requires_grad=True),
        torch.randn(1, TOKENS, 3, requires_grad=True),
    )
    out = apply_rotary(x, theta)
    assert_rounded(out, by_loop(x, theta))
    grads = torch.autograd.grad(out.sin().sum(), (x, theta))
    monkeypatch.undo()
    expected = torch.autograd.grad(apply_rotary(x, theta).sin().sum(), (x, theta))
    for actual, by_torch in zip(grads, expected, strict=True):
        torch.testing.assert_close(actual, by_torch, atol=2e-6, rtol=0)


def test_compiled():
    compiled = torch.compile(
        lambda x, theta: apply_rotary(x + 0, theta), backend='aot_eager', fullgraph=True
    )
    x = torch.randn(SHAPE, requires_grad=True)
    theta = torch.randn(HEADS, TOKENS, 3, requires_grad=True)
    out = compiled(x, theta)
    assert_rounded(out, by_loop(x, theta))
    grads = torch.autograd.grad(out.sin().sum(), (x, theta))
    expected = torch.autograd.grad(apply_rotary(x + 0, theta).sin().sum(), (x, theta))
    for actual, of_eager in zip(grads, expected, strict=True):
        torch.testing.assert_close(actual, of_eager, atol=1e-5, rtol=0)


def test_transformed():
    x, theta = torch.randn(4, *SHAPE), torch.randn(4, HEADS, TOKENS, 2)
    expected = torch.stack([apply_rotary(a, b) for a, b in zip(x, theta, strict=True)])
    torch.testing.assert_close(torch.vmap(apply_rotary)(x, theta), expected)
    _, derivative = torch.func.jvp(
        lambda t: apply_rotary(x[0], t), (theta[0],), (theta[1],)
    )
    step = (
        apply_rotary(x[0].double(), theta[0].double() + 1e-5 * theta[1])
        - apply_rotary(x[0].double(), theta[0].double())
    ) / 1e-5
    torch.testing.assert_close(derivative.double(), step, atol=1e-3, rtol=0)


@pytest.mark.parametrize('shape', [(0, HEADS, TOKENS, 8), (BATCH, HEADS, 0, 8)])
def test_nothing_to_rotate(shape: tuple[int, ...]):
    x = torch.randn(shape)
    assert apply_rotary(x, torch.randn(HEADS, shape[2], 2)).shape == shape


@pytest.mark.parametrize(
    'x, theta',
    [
        (SHAPE[1:], (1, TOKENS, 2)),
        (SHAPE, (TOKENS, 2)),
        (SHAPE, (2, TOKENS, 2)),
        (SHAPE, (1, 4, 2)),
        (SHAPE, (1, TOKENS, 5)),
    ],
)
def test_what_does_not_fit(x: tuple[int, ...], theta: tuple[int, ...]):
    with pytest.raises(ValueError, match=r'x must be|the angles are for'):
        apply_rotary(torch.ones(x), torch.ones(theta))


def test_integers_are_refused():
    """Or a rotation would be rounded to them."""
    with pytest.raises(TypeError, match='floating point'):
        apply_rotary(torch.ones(SHAPE).long(), torch.ones(1, TOKENS, 2))
