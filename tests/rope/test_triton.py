"""The Triton kernel against the definition: compiled on a GPU, else in Triton's interpreter."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.pairwise import pairwise
from rope_dense.rope import rotation
from rope_dense.rope.rotation import (
    Implementation,
    Rotary,
    Rotate,
    complex_backward,
    implementation,
    rotate_complex,
    rotate_definition,
)

triton = pytest.importorskip(
    'triton', reason='no triton; pip install -r requirements/triton.txt'
)
triton_rotary = importlib.import_module('rope_dense.rope.rotation_triton')
KERNEL = Implementation(triton_rotary.rotate_triton, triton_rotary.triton_backward)
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
LAYOUTS, DTYPES = (
    ('interleaved', 'half'),
    (torch.float32, torch.bfloat16, torch.float16),
)
BATCH, HEADS, POSITIONS, PAIRS, PREFIX = 2, 3, 11, 4, 5
TABLES = {
    'all heads': (POSITIONS, 1, PAIRS),
    'each head': (POSITIONS, HEADS, PAIRS),
    'each image': (BATCH, POSITIONS, 1, PAIRS),
    'each image and head': (BATCH, POSITIONS, HEADS, PAIRS),
}
Rotation = Callable[[Tensor, Rotary, int], Tensor]


@pytest.fixture(autouse=True)
def no_plans() -> None:
    """Plans of the settings that a test changes."""
    triton_rotary.plan_launch.cache_clear()


def by_kernel(qkv: Tensor, rotary: Rotary, num_prefix_tokens: int = 0) -> Tensor:
    table = rotary.cos_sin.float()
    settings = rotary.pair_layout, num_prefix_tokens, KERNEL
    return Rotate.apply(qkv, rotary.angles, table, *settings)


def make_rotary(shape: tuple[int, ...], layout: str) -> Rotary:
    return Rotary(3 * torch.randn(shape, device=DEVICE), layout)


def make_qkv(
    positions: int = POSITIONS,
    batch: int = BATCH,
    head_dim: int = 2 * PAIRS,
    prefix: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    return torch.randn(batch, prefix + positions, 3, HEADS, head_dim, device=DEVICE).to(
        dtype
    )


def assert_equal_but_for_rounding(actual: Tensor, expected: Tensor) -> None:
    """Equal in float32; in half precision the last digit may differ (the interpreter truncates)."""
    digit = 0 if actual.dtype == torch.float32 else 1.01 * torch.finfo(actual.dtype).eps
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, atol=3e-6, rtol=digit)


def gradients(
    rotation: Rotation, qkv: Tensor, rotary: Rotary, weight: Tensor, prefix: int = 0
) -> list[Tensor]:
    """Of qkv and of the angles, where ``weight`` is the gradient of the result."""
    qkv, angles = qkv.detach().requires_grad_(), rotary.angles.detach().requires_grad_()
    out = rotation(qkv, Rotary(angles, rotary.pair_layout), prefix)
    return list(torch.autograd.grad(out, [qkv, angles], weight))


def assert_same_gradients(
    qkv: Tensor, rotary: Rotary, weight: Tensor, prefix: int = 0
) -> None:
    actual = gradients(by_kernel, qkv, rotary, weight, prefix)
    expected = gradients(rotate_definition, qkv, rotary, weight, prefix)
    assert_equal_but_for_rounding(actual[0], expected[0])
    assert actual[1].dtype == torch.float32 and actual[1].shape == rotary.angles.shape
    # The rotated values that enter this are rounded to the dtype of qkv.
    bound = 4e-6 if qkv.dtype == torch.float32 else 2 * torch.finfo(qkv.dtype).eps
    assert (actual[1] - expected[1]).norm() <= bound * expected[1].norm()


@pairwise(layout=LAYOUTS, table=TABLES.keys(), dtype=DTYPES, more=[(0, 0), (PREFIX, 6)])
def test_values_and_gradients_equal_the_definition(
    layout: str, table: str, dtype: torch.dtype, more: tuple[int, int]
):
    prefix, copied_channels = more
    rotary = make_rotary(TABLES[table], layout)
    qkv = make_qkv(head_dim=2 * PAIRS + copied_channels, prefix=prefix, dtype=dtype)
    before = qkv.clone()
    actual = by_kernel(qkv, rotary, prefix)
    assert torch.equal(qkv, before) and actual.is_contiguous()
    assert_equal_but_for_rounding(actual, rotate_definition(qkv, rotary, prefix))
    assert_same_gradients(qkv, rotary, torch.randn_like(qkv), prefix)


@pytest.mark.filterwarnings('ignore:invalid value:RuntimeWarning')  # of the interpreter
@pytest.mark.parametrize('layout', LAYOUTS)
def test_what_is_not_rotated_is_copied(layout: str):
    """Also infinity, and without a trace of it in its pair."""
    qkv = make_qkv(head_dim=2 * PAIRS + 4, prefix=PREFIX, dtype=torch.float16)
    qkv[0, 1, 1, 2, 3] = qkv[1, 8, 2, 0, 1] = qkv[1, 9, 0, 1, -1] = torch.inf
    out = by_kernel(qkv, make_rotary(TABLES['each head'], layout), PREFIX)
    assert torch.equal(out[:, :PREFIX], qkv[:, :PREFIX])
    assert torch.equal(out[:, :, 2], qkv[:, :, 2])
    assert torch.equal(out[..., 2 * PAIRS :], qkv[..., 2 * PAIRS :])
    assert out.isfinite().sum() == qkv.isfinite().sum()


@pairwise(
    layout=LAYOUTS, size=[(1, 1), (7, 3), (33, 5)], split=[(4096, 32), (3, 8), (1, 128)]
)
def test_any_size_and_any_split_into_programs(
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    size: tuple[int, int],
    split: tuple[int, int],
):
    """Images and pairs that the programs do not divide; 3 heads of 6 pairs and 2 channels more."""
    (positions, batch), (programs, threads) = size, split
    monkeypatch.setattr(triton_rotary, 'PROGRAMS', programs)
    monkeypatch.setattr(triton_rotary, 'THREADS', threads)
    qkv, rotary = (
        make_qkv(positions, batch, 14),
        make_rotary((positions, HEADS, 6), layout),
    )
    assert_equal_but_for_rounding(
        by_kernel(qkv, rotary), rotate_definition(qkv, rotary)
    )
    assert_same_gradients(qkv, rotary, torch.randn_like(qkv))


def span(x: Tensor) -> tuple[int, int]:
    """Address of the first byte of its values, and that behind the last one."""
    last = sum(
        (size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True)
    )
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


@pytest.mark.skipif(
    DEVICE.type == 'cuda', reason='reads the addresses of the interpreter'
)
@pairwise(layout=LAYOUTS, table=TABLES.keys(), dtype=DTYPES, programs=[2, 4096])
def test_every_address_is_within_a_tensor(
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    table: str,
    dtype: torch.dtype,
    programs: int,
):
    """Of forward and both backwards, of a source with gaps; a GPU may not notice others."""
    from triton.runtime.interpreter import InterpreterBuilder

    def watched(method: Callable, mask: int, spans: list[tuple[int, int]]) -> Callable:
        def access(self: object, ptrs: Any, *args: Any) -> object:
            first = ptrs.data[np.asarray(args[mask].data, bool)].astype(np.int64)
            last = first + ptrs.get_element_ty().primitive_bitwidth // 8 - 1
            inside = [(first >= start) & (last < end) for start, end in spans]
            assert np.logical_or.reduce(inside).all()
            return method(self, ptrs, *args)

        return access

    kernel = triton_rotary.rotate_kernel

    class Watched:
        def __getitem__(self, grid: tuple[int]) -> Callable:
            def run(*args: object, **constants: object) -> None:
                spans = [span(x) for x in args if isinstance(x, Tensor)]
                with pytest.MonkeyPatch.context() as patch:
                    for mask, name in enumerate(
                        ('create_masked_load', 'create_masked_store')
                    ):
                        method = watched(getattr(InterpreterBuilder, name), mask, spans)
                        patch.setattr(InterpreterBuilder, name, method)
                    kernel[grid](*args, **constants)

            return run

    monkeypatch.setattr(triton_rotary, 'rotate_kernel', Watched())
    monkeypatch.setattr(triton_rotary, 'PROGRAMS', programs)
    rotary = make_rotary(TABLES[table], layout)
    tokens = torch.randn(
        BATCH, PREFIX + POSITIONS, 3 * HEADS * 12 + 1, device=DEVICE
    ).to(dtype)
    qkv = tokens[..., 1:].unflatten(-1, (3, HEADS, 12))
    rotated = by_kernel(qkv, rotary, PREFIX)
    for kept in (None, rotated):
        triton_rotary.triton_backward(qkv, rotary.cos_sin, layout, PREFIX, kept)


def test_many_windows_share_a_table():
    qkv, rotary = make_qkv(4, batch=60), make_rotary((4, HEADS, PAIRS), 'interleaved')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_rotary, 'PROGRAMS', 8)
        assert_equal_but_for_rounding(
            by_kernel(qkv, rotary), rotate_definition(qkv, rotary)
        )
        assert_same_gradients(qkv, rotary, torch.randn_like(qkv))


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('parts', [1, 2, 3])
def test_parts_of_a_larger_tensor(layout: str, parts: int):
    shape = BATCH, 1 + PREFIX + POSITIONS, 1 + parts, HEADS, 2 * PAIRS + 4
    memory, rotary = (
        torch.randn(shape, device=DEVICE),
        make_rotary(TABLES['each head'], layout),
    )
    part = memory[:, 1:, 1:]
    assert_equal_but_for_rounding(
        by_kernel(part, rotary, PREFIX), rotate_definition(part, rotary, PREFIX)
    )
    assert_same_gradients(part, rotary, torch.randn_like(part), PREFIX)


@pytest.mark.parametrize('table', TABLES)
def test_gradients_are_the_same_in_every_run(
    monkeypatch: pytest.MonkeyPatch, table: str
):
    monkeypatch.setattr(triton_rotary, 'PROGRAMS', 2)
    qkv, rotary = make_qkv(), make_rotary(TABLES[table], 'interleaved')
    first, second = (
        gradients(by_kernel, qkv, rotary, torch.sin(qkv)) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize('layout', LAYOUTS)
def test_strides(layout: str):
    """A projection that is part of a larger one, or is stored in another order, and gradients that
    are expanded or come from attention, by queries, keys and values."""
    rotary = make_rotary(TABLES['each head'], layout)
    part = torch.randn(BATCH, POSITIONS, 3, HEADS + 2, 2 * PAIRS, device=DEVICE)[
        :, :, :, 1:-1
    ]
    for dims in ((0, 1, 2, 3, 4), (1, 0, 3, 2, 4), (2, 0, 3, 1, 4), (4, 3, 2, 1, 0)):
        order = [dims.index(dim) for dim in range(5)]
        stored = part.permute(dims).contiguous().permute(order)
        assert_equal_but_for_rounding(
            by_kernel(stored, rotary), rotate_definition(part, rotary)
        )
        assert_same_gradients(part, rotary, stored)
    for shape in ((1,), (BATCH, 1, 3, HEADS, 1), (1, POSITIONS, 1, 1, 2 * PAIRS)):
        assert_same_gradients(
            part, rotary, torch.randn(shape, device=DEVICE).expand(part.shape)
        )


def test_each_direction_is_one_launch(monkeypatch: pytest.MonkeyPatch):
    kernel, grids = triton_rotary.rotate_kernel, []

    class Counted:
        def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
            grids.append(grid)
            return kernel[grid]

    monkeypatch.setattr(triton_rotary, 'rotate_kernel', Counted())
    rotary, qkv = make_rotary(TABLES['each head'], 'half'), make_qkv()
    gradients(by_kernel, qkv, rotary, qkv)
    assert len(grids) == 2
    for batch, positions in ((0, POSITIONS), (BATCH, 0)):  # nothing to rotate
        for shape in ((positions, HEADS, PAIRS), (batch, positions, 1, PAIRS)):
            rotary, qkv = (
                make_rotary(shape, 'half'),
                make_qkv(positions, batch, prefix=PREFIX),
            )
            assert torch.equal(by_kernel(qkv, rotary, PREFIX), qkv)
            of_qkv, of_angles = gradients(by_kernel, qkv, rotary, qkv, PREFIX)
            assert torch.equal(of_qkv, qkv)
            assert of_angles.shape == shape and not of_angles.any()
    assert len(grids) == 2


def test_double_angles_are_rounded():
    rotary, qkv = make_rotary(TABLES['each head'], 'half'), make_qkv()
    double = Rotary(rotary.angles.double(), 'half')
    assert_equal_but_for_rounding(
        by_kernel(qkv, double), rotate_definition(qkv, rotary)
    )


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The guards that let a GPU pass let DEVICE pass, and no device is checked yet."""
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: False)
    monkeypatch.setenv('CC', 'cc')
    monkeypatch.setattr(triton_rotary, 'IS_ENABLED', True)
    triton_rotary.why_not_on.cache_clear()
    yield
    triton_rotary.why_not_on.cache_clear()


def reason(dtype: torch.dtype = torch.float32) -> str | None:
    return triton_rotary.why_not(DEVICE, dtype)


def test_a_device_is_checked_once(monkeypatch: pytest.MonkeyPatch, usable: None):
    """Without a warning and without random numbers, and in no mode of the caller."""
    checked, check = [], triton_rotary.self_check
    monkeypatch.setattr(
        triton_rotary,
        'self_check',
        lambda device: checked.append(device) or check(device),
    )
    state = torch.get_rng_state()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter('error')
        assert [reason(dtype) for dtype in DTYPES] == [None] * 3
    assert checked == [DEVICE] and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    'breakage, words',
    [
        (lambda out, sums: (out + 0.125, sums), 'Greatest absolute difference: 0.125'),
        (
            lambda out, sums: (out, None if sums is None else -sums),
            'Greatest absolute difference',
        ),
        (lambda out, sums: 1 / 0, 'ZeroDivisionError'),
    ],
)
def test_a_kernel_that_fails_its_check_is_not_used(
    monkeypatch: pytest.MonkeyPatch, usable: None, breakage: Callable, words: str
):
    launch = triton_rotary.launch
    monkeypatch.setattr(triton_rotary, 'launch', lambda *args: breakage(*launch(*args)))
    with pytest.warns(UserWarning) as warned:
        assert words in reason() and words in reason()
    (message,) = (str(warning.message) for warning in warned)
    assert words in message and 'ROPE_DENSE_TRITON=0' in message


def test_a_graph_is_captured_after_the_first_rotation(
    monkeypatch: pytest.MonkeyPatch, usable: None
):
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: True)
    with pytest.raises(RuntimeError, match='CUDA graph'):
        reason()


@pytest.mark.parametrize(
    'target, name, value, words',
    [
        (torch.cuda, 'get_device_capability', lambda device: (7, 5), '(8, 0)'),
        (triton, '__version__', '3.1.0', '3.1.0 is too old'),
        (triton_rotary, 'IS_ENABLED', False, 'ROPE_DENSE_TRITON=0 is set'),
        (os, 'environ', {'PATH': ''}, 'C compiler'),
    ],
)
def test_what_a_device_lacks(
    monkeypatch: pytest.MonkeyPatch,
    usable: None,
    target: object,
    name: str,
    value: object,
    words: str,
):
    monkeypatch.setattr(target, name, value)
    with warnings.catch_warnings(record=True):
        assert words in reason()


def test_a_device_chooses_once(monkeypatch: pytest.MonkeyPatch, usable: None):
    """A kernel on a GPU, torch's own elsewhere and for float64, the definition on others."""
    implementation.cache_clear()
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(triton_rotary, 'self_check', lambda device: None)
    gpu = torch.device('cuda')
    assert implementation(gpu, torch.bfloat16) == KERNEL
    assert implementation(gpu, torch.float64).rotate is rotate_complex
    assert implementation(torch.device('cpu'), torch.float32).rotate is rotate_complex
    assert implementation(torch.device('mps'), torch.float32) is None
    implementation.cache_clear()


def test_what_the_kernel_cannot_take(monkeypatch: pytest.MonkeyPatch):
    """Is rotated by torch's own operations."""
    monkeypatch.setattr(triton_rotary, 'plan_launch', pytest.fail)
    odd, rotary = make_qkv(head_dim=7), make_rotary((POSITIONS, 1, 3), 'half')
    assert torch.equal(
        by_kernel(odd, rotary), rotate_complex(odd, rotary.cos_sin, 'half', 0)
    )
    huge = make_qkv(1, batch=1)[:, :, :, :1].expand(1, 2**26, 3, HEADS, 8)
    assert not triton_rotary.fits(huge.shape)
    with FakeTensorMode():
        fake, rotary = torch.randn(1, 4, 3, 1, 4), Rotary(torch.randn(4, 1, 2), 'half')
        by_kernel(fake, rotary)


@pytest.mark.slow
def test_the_package_does_not_import_triton():
    code = """
import sys
sys.modules['transformers'] = None  # mmdet imports it if it is there, and it imports Triton
import torch, rope_dense
from rope_dense.rope import Rotary, rotate
rotate(torch.randn(1, 4, 3, 1, 8), Rotary(torch.randn(4, 1, 4)))
assert 'triton' not in sys.modules"""
    subprocess.run([sys.executable, '-c', code], check=True)


def make_backbone(name: str) -> nn.Module:
    from rope_dense.backbones.swin import RoPESwin
    from rope_dense.backbones.vit import RoPEViT

    if name == 'vit':
        small = dict(embed_dims=16, depth=2, num_heads=2)
        windows = dict(window_size=3, window_block_indexes=(0,))
        return RoPEViT(small, patch_size=8, with_cls_token=False, **windows)
    small = dict(embed_dims=8, depths=(2,), num_heads=(1,))
    return RoPESwin(small, window_size=4, out_indices=(0,), drop_path_rate=0.0)


@pytest.mark.parametrize('name', ['vit', 'swin'])
def test_backbones_train_alike(monkeypatch: pytest.MonkeyPatch, name: str):
    model, launches = make_backbone(name).to(DEVICE), []
    image = torch.randn(1, 3, 24, 40, device=DEVICE)
    launch = triton_rotary.launch
    monkeypatch.setattr(
        triton_rotary, 'launch', lambda *args: launches.append(0) or launch(*args)
    )

    def train(how: Implementation) -> list[Tensor]:
        monkeypatch.setattr(rotation, 'implementation', lambda device, dtype: how)
        model.zero_grad()
        sum(out.square().mean() for out in model(image)).backward()
        return [parameter.grad for parameter in model.parameters()]

    expected = train(Implementation(rotate_complex, complex_backward))
    assert not launches
    for a, b in zip(train(KERNEL), expected, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm() + 1e-7
    assert launches


@pytest.mark.parametrize('images', [1, 3000, 2**20])
@pytest.mark.parametrize('has_own_angles', [False, True])
def test_the_grid_is_within_the_limits_of_cuda(
    monkeypatch: pytest.MonkeyPatch, images: int, has_own_angles: bool
):
    """For the largest image that the kernel takes, and more values than 32 bits count."""
    grids: list[int] = []

    class Kernel:
        def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
            return lambda *args, **kwargs: grids.extend(grid)

    monkeypatch.setattr(triton_rotary, 'rotate_kernel', Kernel())
    tokens = 2**31 // (3 * 16 * 64) - 1 if images < 2**20 else 1024
    qkv = torch.empty(images, tokens, 3, 16, 64, dtype=torch.bfloat16, device='meta')
    assert triton_rotary.fits(qkv.shape)
    angles = (images,) * has_own_angles + (tokens, 16, 32, 2)
    triton_rotary.launch(qkv, torch.empty(angles, device='meta'), 'half', 0)
    assert 0 < grids[0] < 2**31


@pytest.mark.slow
def test_compiles_to_wide_loads_without_spilled_registers():
    """The instructions for a GPU, which say something of speed without one."""
    script = Path(__file__).with_name('triton_instructions.py')
    environment = {**os.environ, 'TRITON_INTERPRET': '0'}
    out = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, check=True
    )
    report = json.loads(out.stdout)
    assert report['kernels_for_other_sizes'] == 0
    assert len(report['kernels']) == 3 * 2 * 3 * 2  # targets, layouts, kinds, parts
    for kernel in report['kernels']:
        counts, parts = kernel['instructions'], kernel['parts']
        assert kernel['spilled'] == 0 and kernel['registers'] <= 96, kernel
        assert kernel['sines'] == 0 and not kernel['narrow'], kernel
        if kernel['backend'] == 'hip':
            words = {name.split()[-1] for name in counts}
            assert words <= {'dwordx4', 'dwordx2'} and 'scratch' not in str(counts), (
                kernel
            )
            continue
        assert counts['ld global v4'] >= 2 + 2 * parts, kernel
        assert counts['st global v4'] >= 2 * parts, kernel
        assert not {'ld global', 'st global', 'ld local', 'st local'} & set(counts), (
            kernel
        )
        if kernel['layout'] == 'interleaved' and kernel['kind'] != 'learned':
            assert set(counts) == {
                'ld global v4',
                'st global v4',
            }  # no exchange between threads
