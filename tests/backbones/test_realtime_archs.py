"""The ViTs of real-time detectors: DEIMv2's and EdgeCrafter's."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.edgecrafter import edgecrafter
from helpers.reference import relative_error
from helpers.small_checkpoints import load, randomize, saved
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.layers import ConvPatchEmbed

# name -> C, heads, channels inside an MLP
SIZES = {
    'deimv2_tiny': (192, 3, 768),
    'deimv2_tiny_plus': (256, 4, 1024),
    'ecvit_tiny': (192, 3, 768),
    'ecvit_tiny_plus': (256, 4, 1024),
    'ecvit_small': (384, 6, 1536),
    'ecvit_small_plus': (384, 6, 2304),
}
IMAGES = [(64, 64), (48, 96), (32, 80)]


def shortened(name: str) -> dict:
    return dict(RoPEViT.ARCHS[name], depth=2)


def randomized(model: nn.Module) -> nn.Module:
    """Random weights; statistics of batch norms too."""
    randomize(model)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return model.eval()


def hf_backbone(transformers: ModuleType, name: str, **settings: object) -> nn.Module:
    """The backbone that transformers' conversion of DEIMv2 builds for a size."""
    channels, heads, hidden = SIZES[name]
    config = transformers.DINOv3ViTConfig(
        hidden_size=channels,
        num_attention_heads=heads,
        intermediate_size=hidden,
        **dict(num_hidden_layers=2, num_register_tokens=0, layerscale_value=1.0),
        **dict(pos_embed_rescale=None, rope_theta=100.0, layer_norm_eps=1e-6),
        **dict(out_features=['stage1', 'stage2'], apply_layernorm=False),
        **settings,
    )
    return transformers.DINOv3ViTBackbone(config).eval()


@pytest.mark.parametrize('name', SIZES)
def test_sizes(name: str) -> None:
    with torch.device('meta'):
        model = RoPEViT(name)
    channels, heads, hidden = SIZES[name]
    block = model.blocks[0]
    assert (model.out_channels[-1], block.attn.num_heads) == (channels, heads)
    assert block.mlp.fc1.out_features == hidden and len(model.blocks) == 12
    assert model.num_prefix_tokens == 1 and model.norm is None and block.gamma_1 is None
    assert block.norm1.eps == 1e-6 and block.attn.qkv.bias is not None
    assert (model.cls_token is None) == name.startswith('ecvit')


@pytest.mark.parametrize('key_bias', [True, False])
@pytest.mark.parametrize('name', ['deimv2_tiny', 'deimv2_tiny_plus'])
@torch.no_grad()
def test_same_maps_as_transformers(
    transformers: ModuleType, name: str, key_bias: bool, tmp_path: Path
) -> None:
    """It has a LayerScale of ones, which the architecture has not, and norms the last map."""
    theirs = hf_backbone(transformers, name, key_bias=key_bias)
    randomize(theirs)
    for key, param in theirs.named_parameters():
        if 'layer_scale' in key:
            nn.init.ones_(param)
    path = saved(theirs.state_dict(), tmp_path)
    ours = load(
        RoPEViT, path, arch=shortened(name), final_norm=True, out_indices=(0, 1)
    ).eval()
    for size in IMAGES:
        image = torch.randn(2, 3, *size)
        for found, expected in zip(
            ours(image), theirs(image).feature_maps, strict=True
        ):
            assert relative_error(found, expected) < 1e-5


def ecvit(source: ModuleType, name: str) -> nn.Module:
    channels, heads, hidden = SIZES[name]
    return source.VisionTransformer(
        embed_dim=channels,
        num_heads=heads,
        ffn_ratio=hidden / channels,
        depth=2,
        return_layers=[0, 1],
    )


@pytest.mark.parametrize('name', [name for name in SIZES if name.startswith('ecvit')])
@torch.no_grad()
def test_same_tokens_as_edgecrafter(name: str, tmp_path: Path) -> None:
    theirs = randomized(ecvit(edgecrafter('ecvit'), name))
    theirs.rope_embed._init_weights()
    path = saved(theirs.state_dict(), tmp_path)
    ours = load(RoPEViT, path, arch=shortened(name), out_indices=(0, 1)).eval()
    for size in IMAGES:
        image = torch.randn(2, 3, *size)
        for found, expected in zip(ours(image), theirs(image), strict=True):
            assert relative_error(found.flatten(2).mT, expected) < 1e-5


def stem(weights: dict[str, Tensor], image: Tensor) -> Tensor:
    """The stem from its formula, in evaluation mode."""
    x = image
    for index in range(3):
        name = f'convs.{index}.'
        x = F.conv2d(x, weights[f'{name}conv.weight'], stride=2, padding=1)
        mean, var, scale, shift = (
            weights[f'{name}bn.{key}'][:, None, None]
            for key in ('running_mean', 'running_var', 'weight', 'bias')
        )
        x = F.relu((x - mean) / (var + 1e-5).sqrt() * scale + shift)
    return F.conv2d(
        x, weights['proj.weight'], weights['proj.bias'], stride=2, padding=1
    )


@pytest.mark.parametrize('size', [(64, 64), (37, 81), (1, 17)])
@torch.no_grad()
def test_stem_is_its_formula_at_any_size(size: tuple[int, int]) -> None:
    embed = randomized(ConvPatchEmbed(3, 64))
    image = torch.randn(2, 3, *size)
    tokens, grid = embed(image)
    expected = stem(embed.state_dict(), image)
    assert grid == embed.grid(*size) == tuple(expected.shape[2:])
    assert relative_error(tokens, expected.flatten(2).mT) < 1e-5


def test_training_with_a_stem() -> None:
    """Gradients of all parameters; a frozen stem keeps its statistics."""
    arch = dict(RoPEViT.ARCHS['ecvit_tiny'], embed_dims=32, num_heads=2, depth=2)
    model = RoPEViT(arch).train()
    model(torch.randn(2, 3, 48, 80))[0].square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    model = RoPEViT(arch, frozen_stages=0).train()
    before = model.patch_embed.convs[0].bn.running_mean.clone()
    model(torch.randn(2, 3, 48, 80))
    assert torch.equal(model.patch_embed.convs[0].bn.running_mean, before)


@pytest.mark.slow
@torch.no_grad()
def test_export_of_a_stem_with_dynamic_sizes() -> None:
    arch = dict(RoPEViT.ARCHS['ecvit_tiny'], embed_dims=32, num_heads=2, depth=1)
    model = randomized(RoPEViT(arch))
    height, width = (
        16 * torch.export.Dim(name, min=2, max=64) for name in ('rows', 'columns')
    )
    image = torch.randn(1, 3, 64, 80)
    exported = torch.export.export(
        model, (image,), dynamic_shapes=({2: height, 3: width},)
    )
    for size in ((32, 48), (80, 64)):
        image = torch.randn(1, 3, *size)
        assert relative_error(exported.module()(image)[0], model(image)[0]) < 1e-5


@pytest.mark.parametrize(
    'change, says',
    [
        (dict(patch_size=14), 'conv_stem needs patch_size=16'),
        (dict(embed_dims=36, num_heads=3), 'multiple of 8'),
        (dict(pre_norm=True), 'has its own norms'),
    ],
)
def test_what_a_stem_does_not_go_with(change: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RoPEViT(dict(RoPEViT.ARCHS['ecvit_tiny'], **change))
