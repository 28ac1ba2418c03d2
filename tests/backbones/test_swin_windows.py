"""Swin's blocks against slow references: values and all gradients in float64."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from helpers.pairwise import pairwise
from helpers.reference_swin import (
    axial_frequencies,
    masked_attention,
    separate_attention,
    stage_output,
)
from rope_dense.backbones import RoPESwin

MIXED = dict(type='MixedRoPE', theta=10.0)
AXIAL = dict(type='AxialRoPE', theta=50.0)
COLUMNS = {
    'rpb': dict(rope=None, attention=dict(type='TableBias')),
    'axial': dict(rope=AXIAL),
    'mixed': dict(rope=MIXED),
    'axial+rpb': dict(rope=AXIAL, attention=dict(type='TableBias')),
    'mixed+rpb': dict(rope=MIXED, attention=dict(type='TableBias')),
}


def randomise(model: nn.Module) -> None:
    """Draw all parameters far from their initial values, norms included."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


def one_stage(
    rope: dict | None,
    attention: dict | None = None,
    window_size: tuple[int, int] = (4, 4),
    mask_padding: bool = False,
) -> RoPESwin:
    """A stage of two blocks, the second shifted, with 2 heads of 8 channels, in float64."""
    model = RoPESwin(
        dict(embed_dims=16, depths=(2,), num_heads=(2,)),
        rope=rope,
        attention=attention,
        window_size=window_size,
        pretrain_window_size=window_size,
        mask_padding=mask_padding,
        mlp_ratio=2.0,
        drop_path_rate=0.0,
        out_indices=(0,),
    )
    randomise(model)
    return model.double()


def run_blocks(model: RoPESwin, x: Tensor) -> Tensor:
    """The blocks of a model of one stage, [B, H, W, C] to the same."""
    grid = x.shape[1], x.shape[2]
    tokens = x.flatten(1, 2)
    plans = model.block_plans(0, tokens, grid, model.window_size)
    for block, plan in zip(model.ordered_blocks, plans, strict=True):
        tokens = block(tokens, grid, plan)
    return tokens.unflatten(1, grid)


# Properties.


def test_zero_frequencies_change_nothing() -> None:
    model = one_stage(MIXED)
    x = torch.randn(1, 6, 9, 16, dtype=torch.float64)
    rotated = run_blocks(model, x)
    for block in model.ordered_blocks:
        block.attn.rope.freqs.data.zero_()
    still = run_blocks(model, x)
    for block in model.ordered_blocks:
        block.attn.rope = None
    torch.testing.assert_close(still, run_blocks(model, x))
    assert relative_error(rotated, still) > 1e-3


def test_transposed_grid_swaps_the_axes() -> None:
    model = one_stage(MIXED, window_size=(3, 4))
    other = one_stage(MIXED, window_size=(4, 3))
    other.load_state_dict(model.state_dict())
    for block in other.ordered_blocks:
        block.attn.rope.freqs.data = block.attn.rope.freqs.data.flip(0)
    x = torch.randn(1, 7, 10, 16, dtype=torch.float64)
    transposed = run_blocks(other, x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(transposed, run_blocks(model, x))


# Windows against two slow forms: a mask over all pairs of tokens, and groups one at a time.


@pairwise(
    sizes=[  # of the grid and of a window
        ((8, 8), (4, 4)),  # whole windows
        ((9, 5), (4, 4)),  # padding; the last part holds nothing else
        ((4, 8), (4, 4)),  # one row of windows: no complete one after the shift
        ((5, 13), (3, 5)),  # odd and not square
        ((2, 3), (7, 7)),  # smaller than a window
        ((6, 7), (1, 4)),  # a side of one token is not shifted
        ((3, 15), (1, 7)),
    ],
    settings={
        'none': dict(rope=None),
        'axial learned': dict(rope=dict(AXIAL, learned=True)),
    }
    | COLUMNS,
    mask_padding=[False, True],
)
def test_windows_equal_masked_and_separate_attention(
    sizes: tuple[tuple[int, int], tuple[int, int]], settings: dict, mask_padding: bool
) -> None:
    size, window_size = sizes
    model = one_stage(**settings, window_size=window_size, mask_padding=mask_padding)
    blocks = model.ordered_blocks
    x = torch.randn(2, *size, 16, dtype=torch.float64, requires_grad=True)
    parameters = dict(model.layers.named_parameters(), x=x)
    weights = torch.randn_like(x)

    def out_and_gradients(function: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        out = function(x)
        gradients = torch.autograd.grad(out, list(parameters.values()), weights)
        return dict(zip(parameters, gradients, strict=True), out=out)

    found = out_and_gradients(lambda x: run_blocks(model, x))
    for attention in (masked_attention, separate_attention):
        expected = out_and_gradients(
            lambda x, attention=attention: stage_output(
                blocks, x, window_size, attention, mask_padding
            )
        )
        errors = {
            name: relative_error(found[name], expected[name]) for name in expected
        }
        assert max(errors.values()) < 1e-12, errors


def test_axial_frequencies_are_those_of_the_formula() -> None:
    for block in one_stage(AXIAL).ordered_blocks:
        freqs = block.attn.rope.frequencies(torch.device('cpu')).double()
        torch.testing.assert_close(freqs, axial_frequencies(8, 50.0), atol=1e-7, rtol=0)
