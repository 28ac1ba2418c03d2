"""The in-place path against the definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.rope import (
    AxialRoPE,
    MixedRoPE,
    Partition,
    RotaryEmbedding,
    cut_windows,
    rotate,
    rotate_qkv,
    rotate_windows,
)
from rope_dense.rope.kernels import packed
from rope_dense.rope.kernels.autograd import cannot_overwrite

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


SHAPE = 2, 7, 9
PARTITIONS = {
    'one size': cut_windows((2, 6, 10), (3, 5)),
    'padded': cut_windows(SHAPE, (3, 5), padding=(2, 1)),
    'shifted': cut_windows(SHAPE, (3, 5), shift=(1, 2)),
    'shifted and padded': cut_windows(SHAPE, (3, 5), shift=(1, 2), padding=(2, 1)),
}


def windows_one_by_one(
    qkv: Tensor, partition: Partition, rotation, padding: Tensor | None
) -> list[tuple[Tensor, ...]]:
    """By the definition, out of place."""
    return [
        plain(part, rotation.crop(height=height, width=width))
        for part, (height, width) in zip(partition.cut(qkv, padding), partition.sizes, strict=True)
    ]


@pytest.mark.parametrize('index', range(6))
@pytest.mark.parametrize('partition', PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize('extra_channels', [0, 2])
def test_windows_turn_as_each_would(index: int, partition: Partition, extra_channels: int):
    """Values and gradients: of the projection, what padding projects to, and frequencies."""
    rope, channels = embeddings(8, 3)[index].double(), 8 + extra_channels
    x = torch.randn(*partition.shape, 3, 3, channels, dtype=torch.float64, requires_grad=True)
    padding = torch.randn(3, 3, channels, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(partition.num_tokens * 9 * channels, dtype=torch.float64)

    def results(path) -> list[Tensor]:
        rotation = rope([0], height=3, width=5, device=CPU)[0]
        of_sizes = path(x, partition, rotation, padding)
        outs = [part.flatten() for of_size in of_sizes for part in of_size]
        loss = (torch.cat(outs) * weight).sum()
        inputs = [x, padding, *rope.parameters()]
        return [*outs, *torch.autograd.grad(loss, inputs, materialize_grads=True)]

    for a, b in zip(results(rotate_windows), results(windows_one_by_one), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize('index', range(6))
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
def test_windows_of_every_dtype(index: int, dtype: torch.dtype):
    partition = PARTITIONS['shifted and padded']
    rotation = embeddings(8, 3)[index]([0], height=3, width=5, device=CPU)[0]
    qkv, padding = torch.randn(*SHAPE, 3, 3, 8).to(dtype), torch.randn(3, 3, 8).to(dtype)
    before = qkv.clone()
    actual = rotate_windows(qkv, partition, rotation, padding)
    expected = windows_one_by_one(qkv, partition, rotation, padding)
    assert torch.equal(qkv, before)
    for of_size, of_expected in zip(actual, expected, strict=True):
        for a, b in zip(of_size, of_expected, strict=True):
            assert a.dtype == dtype
            torch.testing.assert_close(a, b, atol=4 * torch.finfo(dtype).eps + 2e-6, rtol=0)


@pytest.mark.parametrize('partition', PARTITIONS.values(), ids=PARTITIONS)
def test_windows_without_rotation_are_unpacked(partition: Partition):
    x = torch.randn(*partition.shape, 3, 2, 4, requires_grad=True)
    outs = [part for of_size in rotate_windows(x, partition, None) for part in of_size]
    expected = [part for of_size in partition.cut(x) for part in of_size.permute(2, 0, 3, 1, 4)]
    assert all(map(torch.equal, outs, expected))
    weights = [torch.randn_like(out) for out in outs]
    grads = [torch.autograd.grad(parts, x, weights)[0] for parts in (outs, expected)]
    assert torch.equal(*grads)


def test_a_projection_that_is_no_complex_view_is_copied():
    """Channels two apart, and rows of an odd number of values."""
    partition = PARTITIONS['shifted and padded']
    rotation = embeddings(8, 3)[0]([0], height=3, width=5, device=CPU)[0]
    for qkv in (torch.randn(*SHAPE, 3, 3, 16)[..., ::2], torch.randn(*SHAPE, 3, 3, 9)[..., 1:]):
        actual = rotate_windows(qkv, partition, rotation, None)
        expected = windows_one_by_one(qkv, partition, rotation, None)
        for of_size, of_expected in zip(actual, expected, strict=True):
            for a, b in zip(of_size, of_expected, strict=True):
                torch.testing.assert_close(a, b, atol=2e-6, rtol=0)


def test_a_rotation_that_does_not_fit_windows_is_an_error():
    rope, qkv = embeddings(8, 3)[0], torch.randn(1, 4, 5, 3, 3, 8)
    rotation = rope([0], height=3, width=5, device=CPU)[0]
    with pytest.raises(ValueError, match='for a grid of 3 x 5, a window has 4 x 5 tokens'):
        rotate_windows(qkv, cut_windows((1, 4, 5), (4, 5)), rotation)
    rotation = rope([0], height=3, width=5, device=CPU, num_prefix_tokens=1)[0]
    with pytest.raises(ValueError, match='windows have no prefix tokens, the rotation is for 1'):
        rotate_windows(qkv, cut_windows((1, 4, 5), (3, 5)), rotation)


def test_a_partition_of_another_grid_is_an_error():
    partition = cut_windows((1, 4, 5), (2, 5))
    with pytest.raises(ValueError, match=r'is of \(1, 4, 5\) .*, the input has \(1, 5, 4\)'):
        rotate_windows(torch.randn(1, 5, 4, 3, 3, 8), partition, None)


def test_parts_of_the_gradient_change_nothing(monkeypatch: pytest.MonkeyPatch):
    """The gradient of the frequencies, summed over parts of windows and of rows."""
    rope = MixedRoPE(8, 3, 1)

    def gradient() -> Tensor:
        torch.manual_seed(0)
        rotation = rope([0], height=6, width=5, device=CPU)[0]
        x = torch.randn(4, 30, 3, 3, 8)
        parts = [*rotate_qkv(x, rotation)]
        partition = cut_windows((2, 20, 25), (3, 5), shift=(1, 2))
        for of_size in rotate_windows(torch.randn(2, 20, 25, 3, 3, 8), partition, rotation):
            parts += of_size
        loss = sum((part * torch.randn_like(part)).sum() for part in parts)
        return torch.autograd.grad(loss, rope.freqs)[0]

    whole = gradient()
    for number in (1000, 100, 1):
        monkeypatch.setattr(packed, 'PART', number)
        torch.testing.assert_close(gradient(), whole, atol=1e-4, rtol=1e-5)


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
    assert 'leaf' in cannot_overwrite(leaf)
    before = leaf.detach().clone()
    rotate_qkv(leaf, rotation)
    assert 'leaf' in cannot_overwrite(leaf.flatten(0, 1))  # a view of it shares its memory
    assert torch.equal(leaf, before)
    strided = torch.randn(1, 4, 3, 1, 8)[..., ::2]
    assert 'not contiguous' in cannot_overwrite(strided)
    for a, b in zip(rotate_qkv(strided, rotation), plain(strided, rotation), strict=True):
        assert torch.equal(a, b)
