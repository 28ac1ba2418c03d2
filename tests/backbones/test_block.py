"""The block: two residual branches, which may be scaled, and dropped in training."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from rope_dense.backbones.attention import Attention
from rope_dense.backbones.block import Block, Mlp, add_branch
from rope_dense.backbones.windows import shifted_plan

GRID = (4, 5)


def make_block(
    layer_scale: float | None = None, eps: float = 1e-6, **options: float
) -> Block:
    """Of 2 heads of 4 channels, far from its initial values, in float64."""
    norm_cfg = dict(type='LN', eps=eps)
    block = Block(
        Attention(8, 2),
        Mlp(8, 16),
        norm_cfg,
        layer_scale_init_value=layer_scale,
        **options,
    )
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    return block.double()


def tokens(batch: int = 2) -> Tensor:
    return torch.randn(batch, GRID[0] * GRID[1], 8, dtype=torch.float64)


@pytest.mark.parametrize('layer_scale', [None, 1e-4])
def test_a_block_is_two_residual_branches(layer_scale: float | None):
    block, x = make_block(layer_scale), tokens()
    gamma_1, gamma_2 = (1, 1) if layer_scale is None else (block.gamma_1, block.gamma_2)
    expected = x + gamma_1 * block.attn(block.norm1(x), GRID)
    expected = expected + gamma_2 * block.mlp(block.norm2(expected))
    torch.testing.assert_close(block(x, GRID), expected)


def test_layer_scale_starts_at_its_value():
    block = Block(
        Attention(8, 2), Mlp(8, 16), dict(type='LN'), layer_scale_init_value=1e-4
    )
    assert bool((block.gamma_1 == 1e-4).all()) and bool((block.gamma_2 == 1e-4).all())
    assert block.gamma_1 is not block.gamma_2
    assert make_block().gamma_1 is make_block().gamma_2 is None


def test_blocks_take_any_norm():
    block = make_block(eps=0.5)
    assert block.norm1.eps == block.norm2.eps == 0.5


def test_add_branch():
    x, branch = tokens(), tokens()
    scale = torch.randn(8, dtype=torch.float64)
    torch.testing.assert_close(add_branch(x, branch, scale), x + scale * branch)
    assert torch.equal(add_branch(x, branch, None), x + branch)


def test_drop_path_drops_branches_of_whole_images():
    """At rate 0.5 a branch of an image is gone or doubled; in windows as well."""
    block, x = make_block(drop_path_rate=0.5), tokens(64)
    plan = shifted_plan(64, GRID, (3, 3), shift=(1, 1), device=x.device)
    assert block.drop_path.drop_prob == 0.5
    out = block.train()(x, GRID, plan)
    as_out = []
    for scales in itertools.product((0.0, 2.0), repeat=2):  # of attention, of the MLP
        block.drop_path = Scale(iter(scales))
        as_out.append((block(x, GRID, plan) - out).abs().amax((1, 2)) < 1e-12)
    assert all(images.any() for images in as_out)
    assert torch.stack(as_out).sum(0).tolist() == [1] * 64
    block.drop_path = DropPath(0.5)
    expected = block.eval()(x, GRID, plan)
    block.drop_path = nn.Identity()
    assert torch.equal(block(x, GRID, plan), expected)


class Scale(nn.Module):
    """The next of some factors in each call."""

    def __init__(self, factors: Iterator[float]) -> None:
        super().__init__()
        self.factors = factors

    def forward(self, x: Tensor) -> Tensor:
        return next(self.factors) * x
