"""``RelativePrefix``: no score depends on the origin of the positions, nor any map."""

import pytest
import torch
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.position_bias import RelativePrefixAttention
from rope_dense.backbones.windows import window_plan
from rope_dense.rope import AxialRoPE, MixedRoPE, Rotary, RotaryEmbedding
from rope_dense.rope.embeddings import linear_angles
from rope_dense.utils.sizes import Size

CPU = torch.device('cpu')
C, HEADS, PREFIX, GRID, WINDOW = 16, 2, 3, (4, 6), (2, 3)
BOTH = pytest.mark.parametrize(
    'type, is_relative', [(None, False), ('RelativePrefix', True)]
)


class OfEachImage(RotaryEmbedding):
    """Angles that differ between images."""

    def forward(self, x: Tensor, grid: Size, window_size: Size | None = None) -> Rotary:
        row, column = (torch.arange(side, dtype=x.dtype) for side in grid)
        positions = torch.cartesian_prod(row, column).flip(-1)
        images = 1 + torch.arange(x.shape[0], dtype=x.dtype)[:, None, None]
        freqs = torch.tensor(
            [[[0.3, 0.0, 0.7, 0.1]], [[0.0, 0.4, 0.2, 0.9]]], dtype=x.dtype
        )
        return Rotary(linear_angles(images * positions, freqs), self.pair_layout)


def formula(
    module: Attention, x: Tensor, angles: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Output [m, C] for the tokens [m, C] of an image or window, score by score in float64.

    Args:
        module: relative, of interleaved pairs.
        angles: [m - PREFIX, h or 1, P], of the tokens after the prefix.
        mask: [m, m], false where a token (row) does not attend to another.
    """
    q, k, v = module.qkv(x).unflatten(-1, (3, HEADS, -1)).unbind(1)  # [m, h, D]
    q, k = (
        torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous()) for y in (q, k)
    )
    turn = torch.polar(torch.ones_like(angles), angles).expand(-1, HEADS, -1)
    scores = torch.einsum('ihp,jhp->hij', q, k.conj()).real
    rotated_q, rotated_k = (y[PREFIX:] * turn for y in (q, k))
    between = torch.einsum('ihp,jhp->hij', rotated_q, rotated_k.conj()).real
    scores = torch.cat(
        [scores[:, :PREFIX], torch.cat([scores[:, PREFIX:, :PREFIX], between], 2)], 1
    )
    scores = scores * (C // HEADS) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return module.proj(torch.einsum('hij,jhd->ihd', scores.softmax(-1), v).flatten(1))


def random(rope: RotaryEmbedding) -> RelativePrefixAttention:
    torch.manual_seed(0)
    module = RelativePrefixAttention(C, HEADS, rope=rope, num_prefix_tokens=PREFIX)
    nn.init.normal_(module.qkv.weight, std=0.4)
    nn.init.normal_(module.qkv.bias)
    return module.double()


ROPES = {
    'axial': lambda: AxialRoPE(C // HEADS, HEADS),
    'mixed': lambda: MixedRoPE(C // HEADS, HEADS),
    'of each image': lambda: OfEachImage(C // HEADS, HEADS),
}


@pytest.mark.parametrize('is_masked', [False, True])
@pytest.mark.parametrize('rope', ROPES.values(), ids=ROPES)
def test_global_scores_equal_the_formula(rope, is_masked: bool) -> None:
    module, x = random(rope()), torch.randn(2, PREFIX + 24, C, dtype=torch.float64)
    x.requires_grad_()
    masks = torch.rand(2, PREFIX + 24, PREFIX + 24) < (0.7 if is_masked else 1)
    angles = module.rope(x, GRID).angles.double()
    angles = angles if angles.ndim == 4 else angles.expand(2, -1, -1, -1)
    found = module(x, GRID, mask=masks[:, None] if is_masked else None)
    expected = torch.stack(
        [formula(module, *image) for image in zip(x, angles, masks, strict=True)]
    )
    same_with_gradients(found, expected, [x, module.qkv.weight])


@pytest.mark.parametrize('grid', [(4, 6), (5, 4)], ids=['whole', 'padded'])
@pytest.mark.parametrize(
    'rope', [ROPES['axial'], ROPES['of each image']], ids=['axial', 'images']
)
def test_scores_of_windows_equal_the_formula(rope, grid: Size) -> None:
    """Padding is masked, whose positions embeddings of each image do not say."""
    plan = window_plan(
        2, grid, WINDOW, num_copies=PREFIX, mask_padding=True, device=CPU
    )
    module, x = (
        random(rope()),
        torch.randn(2, PREFIX + grid[0] * grid[1], C, dtype=torch.float64),
    )
    x = plan.copy_prefix(x).requires_grad_()
    angles = module.rope(x, grid, WINDOW).angles.double()
    windows = plan.partition(x)
    if angles.ndim == 4:
        copies = plan.shape[1] - angles.shape[1]
        angles = plan.partition(nn.functional.pad(angles, (0, 0, 0, 0, copies, 0)))[
            :, PREFIX:
        ]
    else:
        angles = angles.expand(len(windows), -1, -1, -1)
    is_token = plan.partition(torch.ones(*plan.shape, 1)).bool().squeeze(-1)
    masks = is_token[:, None].expand(-1, PREFIX + 6, -1)
    outs = [formula(module, *of) for of in zip(windows, angles, masks, strict=True)]
    expected = plan.unpartition(torch.stack(outs))
    same_with_gradients(module(x, grid, plan), expected, [x, module.qkv.weight])


def same_with_gradients(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    weights = torch.randn_like(expected)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    gradients = [
        torch.autograd.grad(out, inputs, weights, retain_graph=True)
        for out in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)


def model(type: str | None, rope: dict, **settings: object) -> RoPEViT:
    """Of random weights so large that positions matter, with four registers."""
    torch.manual_seed(0)
    attention = None if type is None else dict(type=type)
    arch = dict(embed_dims=32, depth=3, num_heads=2, patch_size=4, num_registers=4)
    arch |= dict(layer_scale_init_value=None, rope=rope, attention=attention)
    vit = RoPEViT(arch, img_size=32, **settings)
    for name, weights in vit.named_parameters():
        if 'freqs' not in name:
            nn.init.normal_(weights, std=0.2)
    return vit.double().eval()


@BOTH
@pytest.mark.parametrize(
    'windows', [{}, dict(window_size=3, window_block_indexes=(0, 1))]
)
def test_maps_do_not_depend_on_the_origin(
    type: str | None, is_relative: bool, windows
) -> None:
    """Positions from 0 and from 7, with no condition on borders."""
    image = torch.randn(1, 3, 32, 24, dtype=torch.float64)
    ropes = (
        dict(type='AxialRoPE', coordinates=dict(offset=offset)) for offset in (0.0, 7.0)
    )
    first, second = (model(type, rope, **windows)(image)[0] for rope in ropes)
    change = (second - first).norm() / first.norm()
    assert change < 1e-6 if is_relative else change > 1e-3  # angles are float32


@BOTH
def test_maps_move_with_the_content(type: str | None, is_relative: bool) -> None:
    """By whole patches, on the torus: all frequencies have whole periods in the grid of 8 x 6, so
    that content which leaves the image at one side comes back at the other."""
    vit = model(type, dict(type='MixedRoPE'))
    for block in vit.blocks:
        periods = torch.randint(-3, 4, block.attn.rope.freqs.shape).double()
        sides = torch.tensor([6.0, 8.0], dtype=torch.float64)[:, None, None]
        block.attn.rope.freqs.data = 2 * torch.pi * periods / sides
    image = torch.randn(1, 3, 32, 24, dtype=torch.float64)
    for rows, columns in ((1, 0), (0, 1), (5, 2)):
        (still,), (moved,) = (
            vit(image),
            vit(image.roll((4 * rows, 4 * columns), (2, 3))),
        )
        error = (moved - still.roll((rows, columns), (2, 3))).norm() / still.norm()
        assert error < 1e-12 if is_relative else error > 1e-3


def test_without_prefix_tokens_it_is_plain_attention() -> None:
    settings = dict(with_cls_token=False, num_registers=0)
    torch.manual_seed(0)
    image, arch = (
        torch.randn(1, 3, 32, 24),
        dict(embed_dims=32, depth=2, num_heads=2, patch_size=4),
    )
    plain = RoPEViT(arch, **settings)
    relative = RoPEViT(arch, attention=dict(type='RelativePrefix'), **settings)
    relative.load_state_dict(plain.state_dict())
    assert torch.equal(relative(image)[0], plain(image)[0])


def test_it_is_refused_where_the_prefix_attends_globally() -> None:
    with pytest.raises(
        ValueError, match=r"RelativePrefix in window blocks needs .*'copy'"
    ):
        windows = dict(window_prefix='global', window_size=3, window_block_indexes=(0,))
        model('RelativePrefix', dict(type='AxialRoPE'), **windows)


def test_it_is_exported_with_any_size() -> None:
    vit, size = (
        model('RelativePrefix', dict(type='AxialRoPE')).float(),
        torch.export.Dim.DYNAMIC,
    )
    sizes = ({0: size, 2: size, 3: size},)
    graph = torch.export.export(vit, (torch.randn(2, 3, 32, 24),), dynamic_shapes=sizes)
    image = torch.randn(3, 3, 24, 40)
    torch.testing.assert_close(graph.module()(image), vit(image))
