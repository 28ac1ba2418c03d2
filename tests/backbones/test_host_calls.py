"""Calls of Python and C functions in a forward: on a GPU, eager models wait for them."""

import sys
from copy import deepcopy
from types import FrameType

import numpy as np
import pytest
import torch
from mmdet.models import SwinTransformer
from torch import nn

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.rope import AxialRoPE


def count_calls(model: nn.Module) -> np.ndarray:
    """Python and C calls of an evaluation, after one that remembers what it can."""
    counts = dict(call=0, c_call=0)

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event in counts:
            counts[event] += 1

    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        model.eval()  # of which mmdet's returns nothing
        model(image)
        sys.setprofile(profile)
        try:
            model(image)
        finally:
            sys.setprofile(None)
    return np.array([*counts.values()])


@pytest.mark.parametrize('kind', [RoPEViT, RoPESwin])
def test_fixed_angles_and_their_rotation_take_15_and_15_calls_a_block(
    kind: type[nn.Module],
):
    depth = 12
    arch = dict(embed_dims=32, depth=depth, num_heads=2)
    if kind is RoPESwin:
        arch = dict(embed_dims=16, depths=(2, 2, 6, 2), num_heads=(1, 2, 4, 8))
    without, axial = kind(arch, rope=None), kind(arch, rope=dict(type='AxialRoPE'))
    calls = count_calls(axial) - count_calls(without)
    assert (calls <= 15 * depth + 1).all() and (calls > 0).all(), calls / depth


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
