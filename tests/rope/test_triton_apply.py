"""The Triton kernel of apply_rotary: compiled on a GPU, else in Triton's interpreter."""

import itertools

import pytest
import torch
from test_apply_rotary import by_loop
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rope_dense.rope import apply_rotary, apply_rotary_
from rope_dense.rope.kernels import triton_rotary

pytest.importorskip('triton', reason='no triton; pip install -r requirements/triton.txt')
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BATCH, HEADS, TOKENS, CHANNELS = 2, 3, 5, 9
SHAPE = BATCH, HEADS, TOKENS, CHANNELS
every_theta = pytest.mark.parametrize('heads, pairs', [(1, 4), (HEADS, 4), (HEADS, 2), (1, 3)])


@pytest.fixture(autouse=True)
def by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_rotary, 'can_apply', lambda x, theta: None)


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Equal but for the arithmetic, and the last digit of half precision, which the interpreter
    truncates."""
    digit = torch.finfo(actual.dtype).eps if actual.dtype.itemsize == 2 else 0.0
    bound = 1e-14 if actual.dtype == torch.float64 else 4e-6
    torch.testing.assert_close(actual.double(), expected, atol=bound, rtol=1.01 * digit)


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
@pytest.mark.parametrize('theta_dtype', DTYPES, ids=str)
@every_theta
def test_values(dtype: torch.dtype, theta_dtype: torch.dtype, heads: int, pairs: int):
    """Cosines and sines are of the angles as they are stored; rounded once."""
    x = torch.randn(SHAPE, device=DEVICE).to(dtype)
    theta = (3 * torch.randn(heads, TOKENS, pairs, device=DEVICE)).to(theta_dtype)
    before, expected = x.clone(), by_loop(x, theta)
    out = apply_rotary(x, theta)
    assert out.dtype == dtype and torch.equal(x, before) and out.is_contiguous()
    assert_near(out, expected)
    assert torch.equal(out[..., 2 * pairs :], x[..., 2 * pairs :])
    assert apply_rotary_(x, theta) is x and torch.equal(x, out)


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
@every_theta
def test_gradients(dtype: torch.dtype, heads: int, pairs: int):
    """Of features and angles, against autograd through the definition in float64."""
    x, weight = (torch.randn(SHAPE, device=DEVICE).to(dtype) for _ in range(2))
    theta = torch.randn(heads, TOKENS, pairs, device=DEVICE)
    for theta_dtype in {dtype, torch.float32}:
        leaves = x.clone().requires_grad_(), theta.to(theta_dtype).requires_grad_()
        out = apply_rotary(*leaves)
        of_x, of_theta = torch.autograd.grad(out, leaves, weight)
        doubles = x.double().requires_grad_(), theta.to(theta_dtype).double().requires_grad_()
        exact = torch.autograd.grad(by_pairs(*doubles), doubles, weight.double())
        assert of_x.dtype == dtype and of_theta.dtype == theta_dtype
        assert_near(of_x, exact[0])
        eps = max(torch.finfo(each).eps for each in (dtype, theta_dtype))
        assert (of_theta - exact[1]).norm() <= 4 * eps * exact[1].norm()


def by_pairs(x: Tensor, theta: Tensor) -> Tensor:
    pairs = theta.shape[-1]
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    cos, sin = theta.cos(), theta.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


@pytest.mark.slow
def test_derivatives_in_double_precision():
    x = torch.randn(1, HEADS, 2, 5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    for heads in (1, HEADS):
        theta = torch.randn(heads, 2, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
        assert torch.autograd.gradcheck(apply_rotary, (x, theta))
        assert torch.autograd.gradgradcheck(apply_rotary, (x, theta))
        fixed = theta.detach()
        assert torch.autograd.gradcheck(lambda x, fixed=fixed: apply_rotary_(x * 1, fixed), (x,))


@pytest.mark.parametrize('kind', ['projection', 'channels first', 'expanded', 'slice'])
def test_any_strides(kind: str):
    if kind == 'projection':
        x = torch.randn(BATCH, TOKENS, 3, HEADS, CHANNELS, device=DEVICE)[:, :, 1].transpose(1, 2)
    elif kind == 'channels first':
        x = torch.randn(BATCH, HEADS, CHANNELS, TOKENS, device=DEVICE).transpose(2, 3)
    elif kind == 'expanded':
        x = torch.randn(1, HEADS, TOKENS, CHANNELS, device=DEVICE).expand(SHAPE)
    else:
        x = torch.randn(BATCH, HEADS + 1, TOKENS + 2, CHANNELS + 3, device=DEVICE)[:, 1:, 2:, 3:]
    theta = torch.randn(TOKENS, HEADS, 3, device=DEVICE).transpose(0, 1)
    expected = by_loop(x, theta)
    assert_near(apply_rotary(x, theta), expected)
    if kind in ('projection', 'slice'):
        memory = x._base.clone()
        apply_rotary_(x, theta)
        assert_near(x, expected)
        memory.as_strided(x.shape, x.stride(), x.storage_offset()).copy_(x)
        assert torch.equal(x._base, memory)  # nothing else was written


@pytest.mark.parametrize('heads', [1, HEADS])
@pytest.mark.parametrize('batch, tokens', [(1, 1), (3, 7), (5, 33)])
def test_any_split_into_programs(
    monkeypatch: pytest.MonkeyPatch, heads: int, batch: int, tokens: int
):
    monkeypatch.setattr(triton_rotary, 'LANES_EACH', 32)
    x = torch.randn(batch, HEADS, tokens, CHANNELS, device=DEVICE)
    theta = torch.randn(heads, tokens, 3, device=DEVICE)
    expected = by_loop(x, theta)
    for programs in (1, 8, 4096):
        monkeypatch.setattr(triton_rotary, 'PROGRAMS', programs)
        assert_near(apply_rotary(x, theta), expected)


@pytest.mark.parametrize('shape, pairs', [((0, 3, 5, 8), 2), ((2, 3, 0, 8), 2), ((2, 3, 5, 8), 0)])
def test_nothing_to_rotate(shape: tuple[int, ...], pairs: int):
    x = torch.randn(shape, device=DEVICE, requires_grad=True)
    theta = torch.randn(3, shape[2], pairs, device=DEVICE, requires_grad=True)
    out = apply_rotary(x, theta)
    assert torch.equal(out, x) and torch.equal(apply_rotary_(x.detach().clone(), theta), x)
    of_x, of_theta = torch.autograd.grad(out.sum(), (x, theta))
    assert torch.equal(of_x, torch.ones_like(x)) and not of_theta.any()


class Launches(TorchDispatchMode):
    """Counts kernels, and operations of torch that are neither views nor allocations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        from rope_dense.rope.kernels import triton_jit

        self.kernels, self.operations = 0, []
        monkeypatch.setattr(triton_jit, 'apply_kernel', self)

    def __getitem__(self, grid: tuple[int]) -> 'Launches':
        return self

    def __call__(self, *args: object, **kwargs: object) -> None:
        self.kernels += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not (func.is_view or 'empty' in func.name()):
            self.operations.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize('theta_dtype', DTYPES, ids=str)
@pytest.mark.parametrize('learned', [False, True])
def test_one_launch(monkeypatch: pytest.MonkeyPatch, theta_dtype: torch.dtype, learned: bool):
    """No casts and no tables, forward and backward."""
    for dtype, heads in itertools.product(DTYPES, (1, HEADS)):
        x = torch.zeros(SHAPE, dtype=dtype, device=DEVICE, requires_grad=True)
        theta = torch.zeros(heads, TOKENS, 3, dtype=theta_dtype, device=DEVICE)
        theta.requires_grad_(learned)
        grad = torch.zeros_like(x)
        with Launches(monkeypatch) as forward:
            out = apply_rotary(x, theta)
        with Launches(monkeypatch) as backward:
            torch.autograd.grad(out, [x, theta] if learned else [x], grad)
        with Launches(monkeypatch) as in_place:
            apply_rotary_(grad, theta.detach())
        for launches in (forward, backward, in_place):
            assert (launches.kernels, launches.operations) == (1, [])
