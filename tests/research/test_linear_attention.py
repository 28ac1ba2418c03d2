"""Linear attention, a plug-in of the study of kinds, against sums over all keys; and a raster."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from kinds import LinearAttention, RasterRoPE
from torch import Tensor, nn

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.rope import MixedRoPE, Rotary, rotate, rotate_definition

TINY = dict(embed_dims=16, depth=2, num_heads=2, layer_scale_init_value=None)


def randomize(model: nn.Module) -> nn.Module:
    """Weights with which every part matters."""
    for name, parameter in model.named_parameters():
        if 'freqs' not in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def vit(**settings: object) -> RoPEViT:
    return randomize(RoPEViT(TINY, patch_size=8, **dict(img_size=32) | settings))


@pytest.mark.parametrize('kernel', ['elu', 'cosine'])
@pytest.mark.parametrize('rope', [None, MixedRoPE(8, 2), RasterRoPE(8, 2)])
def test_linear_attention_is_the_sum_over_all_keys(kernel: str, rope: nn.Module | None):
    attn = randomize(
        LinearAttention(16, 2, rope=rope, num_prefix_tokens=1, kernel=kernel)
    ).double()
    x = torch.randn(1, 1 + 6, 16, dtype=torch.float64)
    q, k, v = attn.qkv(x[0]).unflatten(-1, (3, 2, 8)).unbind(1)  # [N, h, D]

    def rotated(y: Tensor) -> Tensor:
        if rope is None:
            return y
        angles = Rotary(rope(x, (2, 3)).angles.double())
        return rotate_definition(y[None, :, None], angles, 1)[0, :, 0]

    out = torch.zeros(7, 2, 8, dtype=torch.float64)
    if kernel == 'elu':
        features = [torch.where(y > 0, y + 1, y.exp()) for y in (q, k)]
    else:
        features = [y / y.pow(2).sum(-1, keepdim=True).sqrt() for y in (q, k)]
    turned = [rotated(y) for y in features]
    for query, head in itertools.product(range(7), range(2)):
        total = 0.0
        for key in range(7):
            score = turned[0][query, head] @ turned[1][key, head]
            plain = features[0][query, head] @ features[1][key, head]
            weight, share = (
                (score, plain) if kernel == 'elu' else (1 + score, 1 + score)
            )
            out[query, head] += weight * v[key, head]
            total += share
        out[query, head] /= total
    expected = F.linear(out.flatten(1), attn.proj.weight, attn.proj.bias)
    torch.testing.assert_close(attn(x, (2, 3))[0], expected)


def test_a_wrong_kernel_and_a_mask_are_refused():
    with pytest.raises(ValueError, match=r"kernel must .* got 'relu'"):
        LinearAttention(16, 2, kernel='relu')
    attn, tokens = LinearAttention(16, 2, kernel='elu'), torch.ones(1, 6, 16)
    with pytest.raises(ValueError, match='mask must be None: linear attention'):
        attn(tokens, (2, 3), mask=torch.ones(6, 6, dtype=torch.bool))


def test_windows_keep_the_softmax():
    kind = dict(type='LinearAttention', kernel='elu')
    windows = dict(window_size=2, window_block_indexes=(0,))
    model, softmax = vit(attention=kind, **windows), vit(**windows)
    softmax.load_state_dict(model.state_dict())
    image = torch.randn(1, 3, 40, 48)
    plan = model.plan_windows(1, (5, 6), image.device)
    x = plan.copy_prefix(model.embed(image)[0])
    found, expected = (one.blocks[0].attn(x, (5, 6), plan) for one in (model, softmax))
    assert torch.equal(found, expected)
    assert not torch.allclose(model(image)[0], softmax(image)[0])


@pytest.mark.parametrize('kernel', ['elu', 'cosine'])
@pytest.mark.parametrize('rope', [None, dict(type='RasterRoPE', learned=True)])
def test_every_parameter_has_a_gradient(kernel: str, rope: dict | None):
    """At odd sizes, and at one patch everything is finite."""
    model = vit(rope=rope, attention=dict(type='LinearAttention', kernel=kernel))
    model(torch.randn(2, 3, 45, 61))[0].square().sum().backward()
    assert not [
        n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()
    ]
    (smallest,) = model(torch.randn(1, 3, 8, 9))
    smallest.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize('learned', [False, True])
def test_a_raster(learned: bool):
    rope = RasterRoPE(8, 2, learned=learned)
    x = torch.empty(1, 20, 16, dtype=torch.float64)
    angles = rope(x, (4, 5)).angles
    assert angles.shape == (20, 2 if learned else 1, 4)
    expected = torch.tensor(
        [[n * 10000 ** (-t / 4) for t in range(4)] for n in range(20)]
    )
    torch.testing.assert_close(angles[:, 0], expected.double())
    window = rope(x, (4, 5), (2, 3)).angles
    torch.testing.assert_close(
        window, angles.unflatten(0, (4, 5))[:2, :3].flatten(0, 1)
    )
    if learned:
        angles.square().sum().backward()
        assert (rope.freqs.grad != 0).all()
        assert rope.half().freqs.dtype == torch.float32
    with pytest.raises(ValueError, match='head_dim must be a multiple of 2, got 7'):
        RasterRoPE(7, 2)


@torch.no_grad()
def test_scores_of_a_raster_depend_on_the_offset_in_row_major_order():
    rope, grid = RasterRoPE(16, 2, learned=True), (3, 5)
    rotary = rope(torch.empty(1, 15, 1, dtype=torch.float64), grid)
    content = torch.randn(1, 1, 3, 2, 16, dtype=torch.float64).expand(1, 15, -1, -1, -1)
    q, k, _ = rotate(content, rotary)
    scores = (q @ k.transpose(-2, -1))[0]  # [h, n, n]
    for offset in range(-14, 15):
        values = scores.diagonal(offset, 1, 2)
        torch.testing.assert_close(
            values, values[:, :1].expand_as(values), atol=1e-12, rtol=0
        )


@torch.no_grad()
def test_export_with_any_size():
    settings = dict(rope=dict(type='RasterRoPE'), use_ape='sine')
    model = vit(
        attention=dict(type='LinearAttention', kernel='cosine'), **settings
    ).eval()
    size = torch.export.Dim.DYNAMIC
    image = torch.randn(2, 3, 64, 112)
    graph = torch.export.export(
        model, (image,), dynamic_shapes=({0: size, 2: size, 3: size},)
    )
    image = torch.randn(3, 3, 128, 80)
    torch.testing.assert_close(
        graph.module()(image), model(image), atol=1e-5, rtol=1e-5
    )


def test_a_swin_trains_with_a_raster():
    stages = dict(embed_dims=8, depths=(2,), num_heads=(1,))
    model = randomize(
        RoPESwin(stages, rope=dict(type='RasterRoPE', learned=True), out_indices=(0,))
    )
    model(torch.randn(2, 3, 45, 61))[0].square().sum().backward()
    assert all(parameter.grad.any() for parameter in model.parameters())
