"""The in-place path against the definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.rope import (
    AxialRoPE,
    MixedRoPE,
    RotaryEmbedding,
    Windows,
    rotate,
    rotate_qkv,
    rotate_windows,
    split_windows,
)
from rope_dense.rope.kernels import packed

CPU = torch.device('cpu')


def plain(qkv: Tensor, rotation) -> tuple[Tensor, ...]:
    q, k, v = qkv.unbind(2)
    return tuple(x.transpose(1, 2) for x in (rotate(q, rotation), rotate(k, rotation), v))


def embeddings(head_dim: int, heads: int) -> list[RotaryEmbedding]:
    return [
        cls(head_dim, heads, 1, pair_layout=layout, **arguments)
        for layout in ('adjacent', 'split')
        for cls, arguments in ((MixedRoPE, {}), (AxialRoPE, {}), (AxialRoPE, dict(learned=True)))
    ]


@pytest.mark.parametrize('index', range(6))
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('prefix, extra_channels', [(0, 0), (1, 4), (5, 0)])
def test_equals_the_definition(index: int, dtype: torch.dtype, prefix: int, extra_channels: int):
    rotation = embeddings(8, 3)[index](
        [0], height=3, width=5, device=CPU, num_prefix_tokens=prefix
    )[0]
    qkv = torch.randn(2, 15 + prefix, 3, 3, 8 + extra_channels).to(dtype)
    expected = plain(qkv, rotation)
    actual = rotate_qkv(qkv.clone(), rotation)
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b, atol=4 * torch.finfo(dtype).eps + 2e-6, rtol=0)


@pytest.mark.parametrize('index', range(6))
def test_gradients_equal_those_of_autograd(index: int):
    rope = embeddings(8, 3)[index].double()
    weights = [p for p in rope.parameters()]
    x = torch.randn(2, 16, 3, 3, 8, dtype=torch.float64, requires_grad=True)

    def loss(path) -> Tensor:
        rotation = rope([0], height=3, width=5, device=CPU, num_prefix_tokens=1)[0]
        q, k, v = path(x * 1.0, rotation)
        return (F.scaled_dot_product_attention(q, k, v) ** 2).sum()

    actual = torch.autograd.grad(loss(rotate_qkv), [x, *weights])
    expected = torch.autograd.grad(loss(plain), [x, *weights])
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize('layout', ['adjacent', 'split'])
def test_gradcheck(layout: str):
    rope = MixedRoPE(4, 2, 1, pair_layout=layout).double()

    def function(x: Tensor, freqs: Tensor) -> tuple[Tensor, ...]:
        rotation = rope([0], height=2, width=3, device=CPU, num_prefix_tokens=1)[0]
        return rotate_qkv(x * 1.0, rotation)

    x = torch.randn(2, 7, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x, rope.freqs))


WINDOWS = [Windows(4, 3, 5), Windows(2, 2, 5), Windows(3, 3, 2), Windows(1, 1, 1)]


@pytest.mark.parametrize('index', range(6))
@pytest.mark.parametrize('prefix', [0, 2])
def test_windows_of_several_sizes_turn_as_each_would(index: int, prefix: int):
    """Values and gradients, against windows of one size after the other, out of place."""
    rope = embeddings(8, 3)[index].double()
    num_tokens = sum(n * (prefix + height * width) for n, height, width in WINDOWS)
    x = torch.randn(num_tokens, 3, 3, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(num_tokens * 3 * 3 * 8, dtype=torch.float64)

    def results(path) -> list[Tensor]:
        rotation = rope([0], height=3, width=5, device=CPU, num_prefix_tokens=prefix)[0]
        outs = [part.flatten() for of_size in path(x * 1.0, rotation) for part in of_size]
        loss = (torch.cat(outs) * weight).sum()
        return [*outs, *torch.autograd.grad(loss, [x, *rope.parameters()])]

    def one_by_one(qkv: Tensor, rotation) -> list[tuple[Tensor, ...]]:
        return [
            plain(part, rotation.crop(height=height, width=width))
            for part, (_, height, width) in zip(
                split_windows(qkv, WINDOWS, prefix), WINDOWS, strict=True
            )
        ]

    together = results(lambda qkv, rotation: rotate_windows(qkv, WINDOWS, rotation))
    for a, b in zip(together, results(one_by_one), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_windows_without_rotation_are_unpacked():
    x = torch.randn(4 * 15 + 2 * 10, 3, 2, 4, requires_grad=True)
    outs = rotate_windows(x * 1.0, WINDOWS[:2], None)
    for (q, k, v), part in zip(outs, split_windows(x, WINDOWS[:2]), strict=True):
        assert torch.equal(torch.stack([q, k, v]), part.permute(2, 0, 3, 1, 4))
    weights = [torch.randn_like(part) for of_size in outs for part in of_size]
    parts = [part for of_size in outs for part in of_size]
    loss = sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True))
    (grad,) = torch.autograd.grad(loss, x)
    expected = [torch.stack(weights[i : i + 3]).permute(1, 3, 0, 2, 4) for i in (0, 3)]
    assert torch.equal(grad, torch.cat([part.flatten(0, 1) for part in expected]))


def test_a_window_larger_than_the_rotation_is_an_error():
    rotation = embeddings(8, 3)[0]([0], height=3, width=5, device=CPU)[0]
    with pytest.raises(ValueError, match='for a grid of 3 x 5, a window has 4 x 5 tokens'):
        rotate_windows(torch.randn(20, 3, 3, 8), [Windows(1, 4, 5)], rotation)


def test_a_view_of_a_larger_projection_is_rotated_in_place():
    wide = torch.randn(2, 6, 3, 4, 8)
    others = wide[:, :, :, 2:].clone()
    rotation = MixedRoPE(8, 2, 1)([0], height=2, width=3, device=CPU)[0]
    expected = plain(wide[:, :, :, :2], rotation)
    q, k, v = rotate_qkv(wide[:, :, :, :2], rotation)
    assert q.untyped_storage().data_ptr() == wide.untyped_storage().data_ptr()
    for a, b in zip((q, k, v), expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=0)
    assert torch.equal(wide[:, :, :, 2:], others)


def test_bfloat16_gradient_of_the_frequencies_is_summed_in_float32():
    linear = nn.Linear(32, 96).bfloat16()
    rope = MixedRoPE(16, 2, 1)
    x = torch.randn(4, 64, 32).bfloat16()

    def gradient(path) -> Tensor:
        rotation = rope([0], height=8, width=8, device=CPU)[0]
        q, k, v = path(linear(x).unflatten(-1, (3, 2, 16)), rotation)
        loss = (F.scaled_dot_product_attention(q, k, v).float() ** 2).sum()
        return torch.autograd.grad(loss, rope.freqs)[0]

    actual, expected = gradient(rotate_qkv), gradient(plain)
    assert actual.dtype == torch.float32
    assert (actual - expected).norm() < 0.02 * expected.norm()


def test_backward_inside_autocast_keeps_positions_in_float32():
    rope = MixedRoPE(8, 1, 1)
    x = torch.randn(1, 400, 3, 1, 8)

    def gradient() -> Tensor:
        q, k, v = rotate_qkv(x.clone(), rope([0], height=1, width=400, device=CPU)[0])
        return torch.autograd.grad((q * k.detach().flip(2)).sum() + k.sum(), rope.freqs)[0]

    expected = gradient()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        torch.testing.assert_close(gradient(), expected)


def test_rotation_saves_no_activation_of_its_own():
    linear, rope = nn.Linear(64, 192), MixedRoPE(32, 2, 1)
    x = torch.randn(1, 16, 64)

    def saved_storages(rotated: bool) -> set[int]:
        storages = {}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.numel() >= x.numel():  # activations, not tables of H + W entries
                storages[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        rotation = rope([0], height=4, width=4, device=CPU)[0] if rotated else None
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            q, k, v = rotate_qkv(linear(x).unflatten(-1, (3, 2, 32)), rotation)
            F.scaled_dot_product_attention(q, k, v).sum()
        return len(storages)

    assert saved_storages(rotated=True) == saved_storages(rotated=False)


def test_a_projection_that_somebody_saved_is_an_error_not_a_wrong_gradient():
    x = torch.randn(1, 4, 3, 1, 4, requires_grad=True)
    qkv = (x * 1.0).exp()  # exp keeps its result for backward
    rotation = AxialRoPE(4, 1, 1)([0], height=2, width=2, device=CPU)[0]
    q, k, v = rotate_qkv(qkv, rotation)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        (q + k + v).sum().backward()


def test_what_cannot_be_overwritten_takes_the_plain_path():
    rotation = AxialRoPE(4, 1, 1)([0], height=2, width=2, device=CPU)[0]
    leaf = torch.randn(1, 4, 3, 1, 4, requires_grad=True)
    assert 'leaf' in packed.can_use(leaf)
    before = leaf.detach().clone()
    rotate_qkv(leaf, rotation)
    assert 'leaf' in packed.can_use(leaf.flatten(0, 1))  # a view of it shares its memory
    assert torch.equal(leaf, before)
    strided = torch.randn(1, 4, 3, 1, 8)[..., ::2]
    assert 'not contiguous' in packed.can_use(strided)
    for a, b in zip(rotate_qkv(strided, rotation), plain(strided, rotation), strict=True):
        assert torch.equal(a, b)
