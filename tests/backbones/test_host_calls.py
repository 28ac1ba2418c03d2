"""Calls of Python and C functions in a forward: on a GPU, eager models wait for them."""

import sys
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from mmdet.models import SwinTransformer
from torch import nn

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.rope import AxialRoPE, rotation
from rope_dense.rope.rotation import Implementation
from rope_dense.utils import memo

DEPTH = 12


def counted(function: Callable[[], Any]) -> tuple[Any, np.ndarray]:
    """What a function returns, and its calls of Python and C."""
    counts = dict(call=0, c_call=0)

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event in counts:
            counts[event] += 1

    sys.setprofile(profile)
    try:
        out = function()
    finally:
        sys.setprofile(None)
    return out, np.array([*counts.values()])


@torch.no_grad()
def count_calls(model: nn.Module) -> np.ndarray:
    """Calls of an evaluation, after one that remembers what it can."""
    image = torch.rand(1, 3, 64, 64)
    model.eval()  # of which mmdet's returns nothing
    model(image)
    _, calls = counted(lambda: model(image))
    return calls


def extra_calls(kind: type[nn.Module]) -> np.ndarray:
    """Calls a block of angles that are the same in every call, and of their rotation."""
    arch = dict(embed_dims=32, depth=DEPTH, num_heads=2)
    if kind is RoPESwin:
        arch = dict(embed_dims=16, depths=(2, 2, 6, 2), num_heads=(1, 2, 4, 8))
    without, axial = kind(arch, rope=None), kind(arch, rope=dict(type='AxialRoPE'))
    calls = (count_calls(axial) - count_calls(without)) / DEPTH
    assert (calls > 1).all()
    return calls


@pytest.mark.parametrize('kind', [RoPEViT, RoPESwin])
def test_fixed_angles_and_their_rotation_take_15_and_15_calls_a_block(
    kind: type[nn.Module],
):
    assert (extra_calls(kind) <= 15.1).all()


@pytest.mark.parametrize('kind', [RoPEViT, RoPESwin])
def test_the_kernel_takes_15_and_11_calls_a_block(
    monkeypatch: pytest.MonkeyPatch, kind: type[nn.Module]
):
    """And two to ask for the stream; without Triton's own of a launch, here one."""
    triton_rotary = pytest.importorskip('rope_dense.rope.rotation_triton')
    how = Implementation(triton_rotary.rotate_triton, triton_rotary.triton_backward)
    programs: list[int] = []
    kernel = defaultdict(lambda: lambda *args, **constants: programs.append(1))
    monkeypatch.setattr(triton_rotary, 'rotate_kernel', kernel)
    monkeypatch.setattr(triton_rotary, 'has_several_gpus', cache(lambda: False))
    monkeypatch.setattr(rotation, 'implementation', cache(lambda *device_and_type: how))
    calls = extra_calls(kind) - [1, 1]
    assert len(programs) == 2 * DEPTH and (calls <= [15.1, 11.1]).all(), calls


def test_the_stream_of_a_gpu_takes_two_calls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: True)
    monkeypatch.setattr(memo, 'raw_stream', int)
    stream, calls = counted(lambda: memo.stream_of(torch.device('cuda', 3)))
    assert stream == 3 and calls[0] <= 3  # with the lambda of this test


def test_swin_calls_less_than_the_one_with_a_table_of_biases():
    """mmdet's, which has 2,144 and 1,607 calls; the first of many frequencies."""
    ours, theirs = count_calls(RoPESwin('tiny')), count_calls(SwinTransformer())
    assert (ours < 0.85 * theirs).all(), (ours, theirs)


def test_a_copy_of_a_model_begins_anew():
    rope = AxialRoPE(8, 2)
    x = torch.rand(1, 12, 16)
    first = rope(x, (3, 4))
    assert rope(x, (3, 4)) is first
    copy = deepcopy(rope)
    assert copy.last_result.entry == (None, None)
    copy.theta = 5.0
    assert not torch.equal(copy(x, (3, 4)).angles, first.angles)
    assert rope(x, (4, 3)) is not first and rope(x, (3, 4)) is first
