"""The operator apply_rotary, out of place and in place, against a loop in float64."""

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.pairwise import pairwise
from rope_dense.rope import apply_rotary, apply_rotary_
from rope_dense.rope.kernels import packed

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BATCH, HEADS, TOKENS, CHANNELS = 2, 3, 5, 8
SHAPE = BATCH, HEADS, TOKENS, CHANNELS
every_form = pytest.mark.parametrize('form', [apply_rotary, apply_rotary_])


def by_loop(x: Tensor, theta: Tensor) -> Tensor:
    """In float64, from the values as they are stored."""
    out = x.double().clone()
    pairs = theta.shape[-1]
    for image, head, token, pair in itertools.product(*map(range, (*x.shape[:3], pairs))):
        angle = float(theta.detach()[head if len(theta) > 1 else 0, token, pair])
        a, b = (float(x.detach()[image, head, token, channel]) for channel in (pair, pair + pairs))
        out[image, head, token, pair] = a * math.cos(angle) - b * math.sin(angle)
        out[image, head, token, pair + pairs] = a * math.sin(angle) + b * math.cos(angle)
    return out


def assert_rounded(actual: Tensor, expected: Tensor) -> None:
    """Rounded once to its type, but for the rounding of the arithmetic."""
    eps = torch.finfo(actual.dtype).eps
    arithmetic = 3e-15 if actual.dtype == torch.float64 else 3e-6
    torch.testing.assert_close(actual.double(), expected, atol=arithmetic, rtol=0.51 * eps)


def features(kind: str, dtype: torch.dtype) -> Tensor:
    """[B, h, N, C] in memory as it may come."""
    if kind == 'projection':  # queries, keys and values side by side
        qkv = torch.randn(BATCH, TOKENS, 3, HEADS, CHANNELS).to(dtype)
        return qkv[:, :, 1].transpose(1, 2)
    if kind == 'part':
        return torch.randn(BATCH, HEADS + 1, TOKENS + 2, CHANNELS + 3).to(dtype)[:, 1:, 2:, 3:]
    if kind == 'channels first':
        return torch.randn(BATCH, HEADS, CHANNELS, TOKENS).to(dtype).transpose(2, 3)
    return torch.randn(SHAPE).to(dtype)


@pairwise(
    form=[apply_rotary, apply_rotary_],
    dtype=DTYPES,
    theta_dtype=DTYPES,
    size=[(1, 4), (HEADS, 4), (HEADS, 3), (HEADS, 0)],
)
def test_values(
    form: Callable, dtype: torch.dtype, theta_dtype: torch.dtype, size: tuple[int, int]
):
    heads, pairs = size
    x, theta = features('contiguous', dtype), 3 * torch.randn(heads, TOKENS, pairs)
    theta = theta.to(theta_dtype)
    before, expected = x.clone(), by_loop(x, theta)
    out = form(x, theta)
    assert out.dtype == dtype and out.shape == x.shape
    assert_rounded(out, expected)
    assert torch.equal(out[..., 2 * pairs :], before[..., 2 * pairs :])
    assert (out is x) == (form is apply_rotary_)
    assert form is apply_rotary_ or torch.equal(x, before)


def test_the_example_of_the_guide():
    guide = Path(__file__).parents[2] / 'docs' / 'fused_attention.md'
    (example,) = re.findall(r'```python\n(import .+?)```', guide.read_text(), re.DOTALL)
    assert 'apply_rotary_(queries, theta)' in example
    exec(example, {})


@every_form
@pytest.mark.parametrize('kind', ['projection', 'part', 'channels first'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16], ids=str)
def test_any_strides(form: Callable, kind: str, dtype: torch.dtype):
    x, theta = features(kind, dtype), torch.randn(TOKENS, HEADS, 3).transpose(0, 1)
    base = x._base if x._base is not None else x
    others = base.clone()
    expected = by_loop(x, theta)
    if kind == 'channels first' and form is apply_rotary_:
        with pytest.raises(
            ValueError, match=r'the last stride of x must be 1 and none 0, got \(120, '
        ):
            form(x, theta)
        return
    assert_rounded(form(x, theta), expected)
    if form is apply_rotary_:  # what is around it in memory stays
        x.zero_()
        rest = others.clone()
        rest.as_strided(x.shape, x.stride(), x.storage_offset()).zero_()
        assert torch.equal(base, rest)


@every_form
@pytest.mark.parametrize('heads', [1, HEADS])
def test_gradients(form: Callable, heads: int):
    x = torch.randn(1, HEADS, 2, 5, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(heads, 2, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, theta: Tensor) -> Tensor:
        return form(x * 1, theta)

    assert torch.autograd.gradcheck(run, (x, theta))
    assert torch.autograd.gradcheck(run, (x, theta.detach()))
    assert torch.autograd.gradgradcheck(run, (x, theta))
    assert torch.autograd.gradgradcheck(run, (x, theta.detach()))


@every_form
def test_gradients_have_the_type_of_their_input(form: Callable):
    weight = torch.randn(SHAPE, dtype=torch.float64)

    def gradients(x: Tensor, theta: Tensor) -> tuple[Tensor, ...]:
        x, theta = x.detach().requires_grad_(), theta.detach().requires_grad_()
        return torch.autograd.grad((form(x * 1, theta) * weight).sum(), (x, theta))

    for dtype, theta_dtype in itertools.product(DTYPES, repeat=2):
        x, theta = torch.randn(SHAPE).to(dtype), torch.randn(HEADS, TOKENS, 2).to(theta_dtype)
        exact = gradients(x.double(), theta.double())
        eps = max(torch.finfo(each).eps for each in (dtype, theta_dtype))
        for actual, expected, of in zip(gradients(x, theta), exact, (x, theta), strict=True):
            assert actual.dtype == of.dtype and actual.shape == of.shape
            assert (actual - expected).norm() <= 2 * eps * expected.norm()


# ---------------------------------------------------------------- in place


def test_autograd_knows_of_the_change():
    theta = torch.randn(HEADS, TOKENS, 2)
    x = torch.randn(SHAPE, requires_grad=True)
    with pytest.raises(RuntimeError, match='leaf'):
        apply_rotary_(x, theta)
    hidden = x * 1
    version = hidden._version
    squared = hidden.square()  # saves what is changed next
    assert apply_rotary_(hidden, theta) is hidden and hidden._version > version
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        squared.sum().backward()


def test_an_expanded_tensor_is_refused():
    expanded = torch.randn(1, HEADS, TOKENS, CHANNELS).expand(SHAPE)
    theta = torch.randn(1, TOKENS, 2)
    with pytest.raises(ValueError, match=r'none 0, got \(0, 40, 8, 1\)'):
        apply_rotary_(expanded, theta)
    assert_rounded(apply_rotary(expanded, theta), by_loop(expanded, theta))


def test_what_was_rotated_in_place_may_change_again():
    x, theta = torch.randn(SHAPE), torch.randn(HEADS, TOKENS, 2, requires_grad=True)
    outs = apply_rotary_(x.clone(), theta).mul_(2), 2 * apply_rotary(x, theta)
    torch.testing.assert_close(*(torch.autograd.grad((y**3).sum(), theta)[0] for y in outs))


def test_a_part_of_a_projection():
    """Queries and keys are views of what the gradient goes to."""
    qkv = torch.randn(BATCH, TOKENS, 3, HEADS, CHANNELS, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(HEADS, TOKENS, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, BATCH, HEADS, TOKENS, CHANNELS, dtype=torch.float64)

    def gradients(form: Callable) -> tuple[Tensor, ...]:
        copy = qkv * 1
        q, k, v = (copy[:, :, part].transpose(1, 2) for part in range(3))
        loss = sum(
            (x * w).sum() for x, w in zip((form(q, theta), form(k, theta), v), weight, strict=True)
        )
        return torch.autograd.grad(loss, (qkv, theta))

    for actual, expected in zip(gradients(apply_rotary_), gradients(apply_rotary), strict=True):
        torch.testing.assert_close(actual, expected)


# ---------------------------------------------------------------- other ways to run it


@every_form
def test_without_an_implementation(form: Callable, monkeypatch: pytest.MonkeyPatch):
    """The definition, with the same gradients."""
    x = torch.randn(SHAPE, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(HEADS, TOKENS, 3, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(packed, 'IS_ENABLED', False)
    assert_rounded(form(x * 1, theta), by_loop(x, theta))
    assert torch.autograd.gradcheck(lambda x, theta: form(x * 1, theta), (x, theta))


@every_form
def test_compiled(form: Callable):
    compiled = torch.compile(
        lambda x, theta: form(x + 0, theta), backend='aot_eager', fullgraph=True
    )
    x = torch.randn(SHAPE, requires_grad=True)
    theta = torch.randn(HEADS, TOKENS, 3, requires_grad=True)
    out = compiled(x, theta)
    assert_rounded(out, by_loop(x, theta))
    grads = torch.autograd.grad(out.sin().sum(), (x, theta))
    expected = torch.autograd.grad(form(x + 0, theta).sin().sum(), (x, theta))
    for actual, of_eager in zip(grads, expected, strict=True):
        torch.testing.assert_close(actual, of_eager, atol=1e-5, rtol=0)


def test_transformed():
    x, theta = torch.randn(4, *SHAPE), torch.randn(4, HEADS, TOKENS, 2)
    expected = torch.stack([apply_rotary(a, b) for a, b in zip(x, theta, strict=True)])
    torch.testing.assert_close(torch.vmap(apply_rotary)(x, theta), expected)
    _, derivative = torch.func.jvp(lambda t: apply_rotary(x[0], t), (theta[0],), (theta[1],))
    step = (
        apply_rotary(x[0].double(), theta[0].double() + 1e-5 * theta[1])
        - apply_rotary(x[0].double(), theta[0].double())
    ) / 1e-5
    torch.testing.assert_close(derivative.double(), step, atol=1e-3, rtol=0)


@every_form
@pytest.mark.parametrize('shape', [(0, HEADS, TOKENS, 8), (BATCH, HEADS, 0, 8)])
def test_nothing_to_rotate(form: Callable, shape: tuple[int, ...]):
    x = torch.randn(shape)
    assert form(x, torch.randn(HEADS, shape[2], 2)).shape == shape


@every_form
@pytest.mark.parametrize(
    'x, theta, error, message',
    [
        (SHAPE[1:], (1, TOKENS, 2), ValueError, r'x must be \[B, h, N, C\] .* got \[3, 5, 8\]'),
        (SHAPE, (TOKENS, 2), ValueError, r'theta \[h or 1, N, P\] .* and \[5, 2\]'),
        (SHAPE, (2, TOKENS, 2), ValueError, r'and \[2, 5, 2\]'),
        (SHAPE, (1, 4, 2), ValueError, r'and \[1, 4, 2\]'),
        (SHAPE, (1, TOKENS, 5), ValueError, r'with 2 P <= C, .* and \[1, 5, 5\]'),
        (SHAPE, None, TypeError, r'theta must be one of .* got torch.int64'),
        (None, (1, TOKENS, 2), TypeError, r'x must be one of .* got torch.int64'),
    ],
)
def test_what_does_not_fit(form: Callable, x, theta, error: type, message: str):
    tensors = [
        torch.ones(SHAPE).long() if shape is None else torch.ones(shape) for shape in (x, theta)
    ]
    with pytest.raises(error, match=message):
        form(*tensors)
