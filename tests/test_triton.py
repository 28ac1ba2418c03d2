"""The Triton kernel against the definition: compiled on a GPU, else in Triton's interpreter."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rope_dense.backbones.swin import RoPESwin
from rope_dense.backbones.vit import RoPEViT
from rope_dense.rope import (
    AxialRoPE,
    MixedRoPE,
    RotaryEmbedding,
    Rotation,
    cut_windows,
    rotate,
    rotate_qkv,
    rotate_windows,
)
from rope_dense.rope.kernels import triton_rotary
from rope_dense.rope.kernels.autograd import rotate_in_place
from rope_dense.rope.rotate import log_once

pytest.importorskip('triton', reason='no triton; pip install -r requirements/triton.txt')
rotate_module = importlib.import_module('rope_dense.rope.rotate')  # the name is its function's
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
HEIGHT, WIDTH, HEADS = 3, 5, 3
BACKBONES = {
    'vit': lambda: RoPEViT(
        dict(embed_dims=16, depth=2, num_heads=2),
        patch_size=8,
        with_cls_token=False,
        window_size=3,
        window_block_indexes=(0,),
    ),
    'swin': lambda: RoPESwin(
        dict(embed_dims=8, depths=(2,), num_heads=(1,)),
        window_size=4,
        out_indices=(0,),
        drop_path_rate=0.0,
    ),
}


def embedding(kind: str, layout: str, head_dim: int = 8) -> RotaryEmbedding:
    cls = MixedRoPE if kind == 'mixed' else AxialRoPE
    learned = dict(learned=True) if kind == 'learned axial' else {}
    return cls(head_dim, HEADS, 1, pair_layout=layout, **learned).to(DEVICE)


def make(rope: RotaryEmbedding, height: int = HEIGHT, width: int = WIDTH, prefix: int = 0):
    return rope([0], height=height, width=width, device=DEVICE, num_prefix_tokens=prefix)[0]


def turn(qkv: Tensor, rotation: Rotation) -> tuple[Tensor, ...]:
    """``rotate_qkv`` by the kernel."""
    return rotate_in_place(qkv, rotation, triton_rotary)


def plain(qkv: Tensor, rotation: Rotation) -> tuple[Tensor, ...]:
    q, k, v = qkv.unbind(2)
    return tuple(x.transpose(1, 2) for x in (rotate(q, rotation), rotate(k, rotation), v))


def assert_equal_but_for_rounding(actual: Tensor, expected: Tensor) -> None:
    """Equal in float32; in half precision the last digit may differ (the interpreter truncates)."""
    digit = 0 if actual.dtype == torch.float32 else 1.01 * torch.finfo(actual.dtype).eps
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, atol=3e-6, rtol=digit)


@pytest.mark.parametrize('layout', ['adjacent', 'split'])
@pytest.mark.parametrize('kind', ['mixed', 'axial', 'learned axial'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('prefix, extra_channels', [(0, 0), (5, 4)])
def test_values_equal_the_definition(
    layout: str, kind: str, dtype: torch.dtype, prefix: int, extra_channels: int
):
    rotation = make(embedding(kind, layout), prefix=prefix)
    num_tokens = HEIGHT * WIDTH + prefix
    qkv = torch.randn(2, num_tokens, 3, HEADS, 8 + extra_channels, device=DEVICE).to(dtype)
    expected = plain(qkv, rotation)
    for a, b in zip(turn(qkv.clone(), rotation), expected, strict=True):
        assert_equal_but_for_rounding(a, b)


def gradients(
    path, rope: RotaryEmbedding, x: Tensor, weights: Tensor, prefix: int, height=HEIGHT, width=WIDTH
) -> list[Tensor]:
    """Of x and of the parameters, for random gradients of queries, keys and values."""
    outs = path(x * 1.0, make(rope, height, width, prefix))
    loss = sum((out.float() * weight).sum() for out, weight in zip(outs, weights, strict=True))
    return list(torch.autograd.grad(loss, [x, *rope.parameters()]))


@pytest.mark.parametrize('layout', ['adjacent', 'split'])
@pytest.mark.parametrize('kind', ['mixed', 'axial', 'learned axial'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_equal_those_of_autograd(layout: str, kind: str, dtype: torch.dtype):
    rope, prefix, channels = embedding(kind, layout), 2, 12
    shape = (3, HEIGHT * WIDTH + prefix, 3, HEADS, channels)
    x = torch.randn(shape, device=DEVICE).to(dtype).requires_grad_()
    weights = torch.randn(3, 3, HEADS, HEIGHT * WIDTH + prefix, channels, device=DEVICE)
    weights = weights.to(dtype).float()  # or the paths would round them differently
    actual = gradients(turn, rope, x, weights, prefix)
    expected = gradients(plain, rope, x, weights, prefix)
    assert_equal_but_for_rounding(actual[0], expected[0])
    # The rotated values that enter this are rounded to dtype.
    bound = 4e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for a, b in zip(actual[1:], expected[1:], strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() <= bound * b.norm()


def some_gradients(rope: RotaryEmbedding, height: int, width: int, batch: int) -> list[Tensor]:
    """With the kernel, then with the definition."""
    torch.manual_seed(1)
    channels = 2 * make(rope).freqs.shape[-1]
    x = torch.randn(batch, height * width, 3, HEADS, channels, device=DEVICE, requires_grad=True)
    weights = torch.randn(3, batch, HEADS, height * width, channels, device=DEVICE)
    return [
        *gradients(turn, rope, x, weights, 0, height, width),
        *gradients(plain, rope, x, weights, 0, height, width),
    ]


@pytest.mark.parametrize('height, width, batch', [(1, 1, 1), (7, 1, 3), (1, 9, 2), (5, 11, 3)])
@pytest.mark.parametrize('programs, threads', [(4096, 32), (3, 128), (1, 16)])
def test_any_size_and_any_cut_into_programs(
    monkeypatch: pytest.MonkeyPatch,
    height: int,
    width: int,
    batch: int,
    programs: int,
    threads: int,
):
    """Rows, images, columns and pairs that the parts do not divide."""
    monkeypatch.setattr(triton_rotary, 'PROGRAMS', programs)
    monkeypatch.setattr(triton_rotary, 'PROGRAMS_WITH_SUMS', programs)
    monkeypatch.setattr(triton_rotary, 'THREADS', threads)
    rope = embedding('mixed', 'adjacent', head_dim=12)  # 3 heads of 6 pairs
    x_grad, freqs_grad, expected_x_grad, expected_freqs_grad = some_gradients(
        rope, height, width, batch
    )
    torch.testing.assert_close(x_grad, expected_x_grad, atol=4e-6, rtol=0)
    error = (freqs_grad - expected_freqs_grad).norm()
    assert error <= 1e-5 * expected_freqs_grad.norm()


def test_parts_cover_the_work():
    for num_pairs in (16, 18, 48, 96, 144, 384, 512, 576):
        for height, width, batch in ((1, 1, 1), (7, 7, 4000), (64, 64, 1), (37, 50, 3)):
            block_j, block_x, grid, rows_each, images_each = triton_rotary.tiles(
                num_pairs, height=height, width=width, batch=batch, size=512, programs=2048
            )
            assert block_j * block_x <= 512
            assert grid[0] % -(-num_pairs // block_j) == 0
            assert grid[0] // -(-num_pairs // block_j) == -(-width // block_x)
            assert rows_each * (grid[1] - 1) < height <= rows_each * grid[1]
            assert images_each * (grid[2] - 1) < batch <= images_each * grid[2]
            assert grid[0] * grid[1] * grid[2] <= max(2 * 2048, grid[0])
            assert max(grid[1:]) <= 65535  # what CUDA allows


def test_gradients_are_the_same_in_every_run():
    rope = embedding('mixed', 'adjacent')
    first, second = (some_gradients(rope, 4, 6, 5)[:2] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize('layout', ['adjacent', 'split'])
def test_a_view_of_a_larger_projection_is_rotated_in_place(layout: str):
    wide = torch.randn(2, HEIGHT * WIDTH, 3, HEADS + 2, 8, device=DEVICE)
    others = wide[:, :, :, HEADS:].clone()
    rotation = make(embedding('mixed', layout))
    expected = plain(wide[:, :, :, :HEADS].clone(), rotation)
    q, k, v = turn(wide[:, :, :, :HEADS], rotation)
    assert q.untyped_storage().data_ptr() == wide.untyped_storage().data_ptr()
    for a, b in zip((q, k, v), expected, strict=True):
        torch.testing.assert_close(a, b, atol=3e-6, rtol=0)
    assert torch.equal(wide[:, :, :, HEADS:], others)


def test_gradients_of_strides_that_the_kernel_does_not_read():
    """A sum hands on an expanded number; queries and keys may come in different layouts."""
    rope = embedding('mixed', 'adjacent')
    x = torch.randn(2, HEIGHT * WIDTH, 3, HEADS, 8, device=DEVICE, requires_grad=True)

    def gradient(path) -> list[Tensor]:
        q, k, v = path(x * 1.0, make(rope))
        loss = q.sum() + k.transpose(2, 3).contiguous().square().sum() + v.exp().sum()
        return list(torch.autograd.grad(loss, [x, *rope.parameters()]))

    for a, b in zip(gradient(turn), gradient(plain), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-5)


def test_windows_take_the_rotation_of_a_larger_window():
    whole = make(embedding('mixed', 'adjacent'), 4, 4)
    part = whole.crop(height=2, width=3)
    qkv = torch.randn(6, 6, 3, HEADS, 8, device=DEVICE)
    expected = plain(qkv, part)
    for a, b in zip(turn(qkv.clone(), part), expected, strict=True):
        torch.testing.assert_close(a, b, atol=3e-6, rtol=0)


@pytest.mark.parametrize('layout', ['adjacent', 'split'])
@pytest.mark.parametrize('kind', ['mixed', 'axial'])
@pytest.mark.parametrize('extra_channels', [0, 4])
def test_windows_of_several_sizes_turn_as_by_the_definition(
    kind: str, layout: str, extra_channels: int
):
    """Values and gradients of a shifted and padded grid; without a fast path each size is turned by
    the definition."""
    rope, partition = (
        embedding(kind, layout),
        cut_windows((2, 5, 8), (3, 4), shift=(1, 2), padding=(1, 0)),
    )
    channels = 8 + extra_channels
    x = torch.randn(2, 5, 8, 3, HEADS, channels, device=DEVICE, requires_grad=True)
    padding = torch.randn(3, HEADS, channels, device=DEVICE, requires_grad=True)
    weight = torch.randn(partition.num_tokens * 3 * HEADS * channels, device=DEVICE)

    def results(path: object) -> list[Tensor]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rotate_module, 'fast_path', lambda qkv: path)
            of_sizes = rotate_windows(x, partition, make(rope, 3, 4), padding)
        outs = [part.flatten() for of_size in of_sizes for part in of_size]
        loss = (torch.cat(outs) * weight).sum()
        return [*outs, *torch.autograd.grad(loss, [x, padding, *rope.parameters()])]

    for a, b in zip(results(triton_rotary), results(None), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-5)


def test_double_frequencies_are_rounded():
    rotation = make(embedding('mixed', 'split').double())
    qkv = torch.randn(1, HEIGHT * WIDTH, 3, HEADS, 8, device=DEVICE)
    for a, b in zip(turn(qkv.clone(), rotation), plain(qkv, rotation), strict=True):
        torch.testing.assert_close(a, b, atol=3e-6, rtol=0)


def test_a_projection_that_somebody_saved_is_an_error_not_a_wrong_gradient():
    x = torch.randn(1, HEIGHT * WIDTH, 3, HEADS, 8, device=DEVICE, requires_grad=True)
    qkv = (x * 1.0).exp()  # exp keeps its result for backward
    q, k, v = turn(qkv, make(embedding('axial', 'adjacent')))
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        (q + k + v).sum().backward()


def test_rotation_saves_only_the_memory_of_qkv():
    linear, rope = nn.Linear(24, 72, device=DEVICE), embedding('mixed', 'adjacent')
    projection = linear(torch.randn(1, HEIGHT * WIDTH, 24, device=DEVICE))
    rotation, saved = make(rope), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        turn(projection.unflatten(-1, (3, HEADS, 8)), rotation)
    assert {t.untyped_storage().data_ptr() for t in saved} == {
        projection.untyped_storage().data_ptr()
    }


@pytest.mark.parametrize('backbone', BACKBONES)
def test_backbones_train_alike(monkeypatch: pytest.MonkeyPatch, backbone: str):
    model = BACKBONES[backbone]().to(DEVICE)
    image = torch.randn(1, 3, 24, 40, device=DEVICE)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        sum(out.square().mean() for out in model(image)).backward()
        return [parameter.grad for parameter in model.parameters()]

    monkeypatch.setattr(triton_rotary, 'can_use', lambda qkv: 'to compare')
    expected = gradients()
    monkeypatch.setattr(triton_rotary, 'can_use', lambda qkv: None)
    for a, b in zip(gradients(), expected, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm() + 1e-7


def test_reasons_against_it():
    with FakeTensorMode():
        qkv = torch.randn(1, 4, 3, 1, 4, device='cuda')
        assert triton_rotary.can_use(qkv) is None
        assert 'float64' in triton_rotary.can_use(qkv.double())
    assert "on 'cpu'" in triton_rotary.can_use(torch.randn(1, 4, 3, 1, 4))


def test_the_kernel_can_be_switched_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv('ROPE_DENSE_TRITON', '0')
    assert triton_rotary.can_use(torch.randn(1, 4, 3, 1, 4)) == 'ROPE_DENSE_TRITON=0 is set'


def test_a_reason_is_logged_once(caplog: pytest.LogCaptureFixture):
    rotation = MixedRoPE(8, HEADS, 1)([0], height=2, width=3, device=torch.device('cpu'))[0]
    log_once.cache_clear()
    caplog.set_level('INFO')
    for _ in range(2):
        rotate_qkv(torch.randn(1, 6, 3, HEADS, 8), rotation)
    (message,) = caplog.messages
    assert 'triton_rotary' in message and "on 'cpu'" in message


def test_the_package_does_not_import_triton():
    code = """
import sys, torch, rope_dense
from rope_dense.rope import AxialRoPE, rotate_qkv
rotation = AxialRoPE(8, 1, 1)([0], height=2, width=2, device=torch.device('cpu'))[0]
rotate_qkv(torch.randn(1, 4, 3, 1, 8), rotation)
assert 'triton' not in sys.modules"""
    subprocess.run([sys.executable, '-c', code], check=True)


def test_compiles_to_wide_loads_without_exchange_between_threads():
    """What can be said of speed without a GPU: the instructions for one."""
    script = Path(__file__).with_name('triton_instructions.py')
    environment = {**os.environ, 'TRITON_INTERPRET': '0'}
    out = subprocess.run([sys.executable, script], env=environment, capture_output=True, check=True)
    for kernel in json.loads(out.stdout):
        counts = kernel['instructions']
        assert counts['ld global v4'] >= 8 and counts['st global v4'] >= 4
        assert 'ld local' not in counts  # no registers spilled
        if not kernel['learned']:  # sums need their threads to meet, once, at the end
            assert set(counts) == {'ld global v4', 'st global v4'}
