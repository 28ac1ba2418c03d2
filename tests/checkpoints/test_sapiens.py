"""Sapiens2 against transformers' ``Sapiens2Model``, with the same random weights.

``python tests/checkpoints/test_sapiens.py`` compares four blocks of a real width (minutes).
"""

import tempfile
from pathlib import Path
from types import ModuleType

import pytest
import torch

from helpers.published_meta import Weights, sapiens2
from helpers.reference import relative_error
from helpers.small_checkpoints import load, randomize, refusal, saved
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.windows import window_plan
from rope_dense.rope import AxialRoPE

SHARED = range(1, 3)  # blocks with half as many heads of keys and values
SMALL = dict(RoPEViT.ARCHS['sapiens2_01b'], embed_dims=96, depth=4, num_heads=4)
SIZES = {  # channels, blocks, heads
    '01b': (768, 12, 12),
    '04b': (1024, 24, 16),
    '08b': (1280, 32, 16),
    '1b': (1536, 40, 24),
    '5b': (2432, 56, 32),
}


def theirs(transformers: ModuleType, channels: int, depth: int, heads: int, **settings):
    """transformers' model; by default without heads of keys and values that are shared."""
    if not hasattr(transformers, 'Sapiens2Model'):
        pytest.skip('this transformers has no Sapiens2Model')
    config = transformers.Sapiens2Config(
        hidden_size=channels,
        intermediate_size=4 * channels,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_attention_heads=heads // 2,
        image_size=(1024, 768),
        **settings,
    )
    return transformers.Sapiens2Model(config).eval()


@torch.no_grad()
def largest_error(
    transformers: ModuleType, arch: dict, grid: tuple[int, int], folder: Path
) -> float:
    """Relative, of all tokens after each of four blocks, with the same weights in a file."""
    channels, heads = arch['embed_dims'], arch['num_heads']
    of_keys = [heads // 2 if index in SHARED else heads for index in range(4)]
    model = theirs(
        transformers, channels, 4, heads, num_key_value_heads_per_layer=of_keys
    )
    randomize(model)
    path = saved(model.state_dict(), folder)
    ours = load(
        RoPEViT, path, arch=arch, out_indices=range(4), output_prefix='all'
    ).eval()
    image, maps = torch.randn(1, 3, *(16 * side for side in grid)), []
    for layer in model.model.layer:
        layer.register_forward_hook(lambda _, inputs, out: maps.append(model.norm(out)))
    model(image)
    tokens = [torch.cat([p, x.flatten(2).transpose(1, 2)], 1) for x, p in ours(image)]
    return max(relative_error(*pair) for pair in zip(tokens, maps, strict=True))


@pytest.mark.parametrize('grid', [(4, 3), (2, 7), (1, 6)])
def test_same_maps_as_transformers(
    transformers: ModuleType, grid: tuple[int, int], tmp_path: Path
):
    assert largest_error(transformers, SMALL, grid, tmp_path) < 2e-6


def in_hf_layout(weights: Weights) -> Weights:
    """Meta's weights under transformers' names, by hand."""
    hf: Weights = {}
    names = {
        'cls_token': 'embeddings.cls_token',
        'storage_tokens': 'embeddings.register_tokens',
        'patch_embed.projection.weight': 'embeddings.patch_embeddings.weight',
        'patch_embed.projection.bias': 'embeddings.patch_embeddings.bias',
        'ln1.weight': 'norm.weight',
    }
    for key, x in weights.items():
        name = names.get(key, key).replace('blocks', 'model.layer')
        for old, new in (
            *(('.ln', '.norm'), ('attn.gamma.weight', 'layer_scale1.lambda1')),
            *(
                ('attn.w', 'attention.'),
                ('attn.', 'attention.'),
                ('attention.proj', 'attention.o'),
            ),
            ('ffn.w3', 'mlp.down_proj'),
        ):
            name = name.replace(old, new)
        for letter in 'qkvo':
            name = name.replace(f'attention.{letter}.', f'attention.{letter}_proj.')
        if '.ffn.w12.' in name:
            gate, up = x.chunk(2)
            hf[name.replace('ffn.w12', 'mlp.gate_proj')] = gate
            hf[name.replace('ffn.w12', 'mlp.up_proj')] = up
        elif key != 'rope_embed.periods':
            hf[name] = x
    return hf


@torch.no_grad()
def test_meta_s_file_is_the_same_model(transformers: ModuleType, tmp_path: Path):
    weights = sapiens2(96, 4, heads=4, shared=SHARED)
    heads = [2 if index in SHARED else 4 for index in range(4)]
    model = theirs(transformers, 96, 4, 4, num_key_value_heads_per_layer=heads)
    model.load_state_dict(in_hf_layout(weights))
    ours = load(
        RoPEViT, saved(weights, tmp_path), arch=SMALL, output_prefix='cls'
    ).eval()
    image = torch.randn(1, 3, 64, 80)
    ((feature_map, cls_token),) = ours(image)
    tokens = model(image).last_hidden_state
    assert relative_error(cls_token, tokens[:, 0]) < 2e-6
    assert relative_error(feature_map.flatten(2).transpose(1, 2), tokens[:, 9:]) < 2e-6


def test_shared_heads_are_repeated_whole(tmp_path: Path):
    weights = sapiens2(96, 4, heads=4, shared=SHARED)
    model = load(RoPEViT, saved(weights, tmp_path), arch=SMALL)
    _, k, v = model.blocks[1].attn.qkv.weight.chunk(3)
    for name, rows in (('wk', k), ('wv', v)):
        heads = weights[f'blocks.1.attn.{name}.weight'].chunk(2)
        for head, expected in zip(rows.chunk(4), (0, 0, 1, 1), strict=True):
            assert torch.equal(head, heads[expected])
    assert torch.equal(
        model.blocks[0].attn.qkv.weight[96:192], weights['blocks.0.attn.wk.weight']
    )


@pytest.mark.parametrize(
    'key, shape, message',
    [
        (
            'blocks.1.attn.q_norm.weight',
            None,
            'is there without blocks.1.attn.q_norm.weight',
        ),
        ('blocks.1.attn.wq.bias', None, 'is there without blocks.1.attn.wq.bias'),
        ('blocks.1.attn.wk.weight', (40, 96), 'does not have the shape of this layout'),
        ('blocks.1.attn.wv.bias', (), 'does not have the shape of this layout'),
        (
            'blocks.1.attn.wv.bias',
            (0,),
            'blocks.1.attn.qkv.bias [192] instead of [288]',
        ),
        (
            'blocks.1.attn.wk.weight',
            (72, 96),
            'blocks.1.attn.qkv.weight [264, 96] instead of',
        ),
    ],
)
def test_other_heads_are_refused(
    key: str, shape: tuple | None, message: str, tmp_path: Path
):
    weights = sapiens2(96, 4, heads=4, shared=SHARED)
    if shape is None:
        del weights[key]
    else:
        weights[key] = torch.zeros(shape)
    assert message in refusal(RoPEViT, saved(weights, tmp_path), arch=SMALL)


LARGE = [pytest.param(size, marks=pytest.mark.slow) for size in SIZES if size != '01b']


@pytest.mark.parametrize('size', ['01b', *LARGE])
def test_every_size_loads_strictly(transformers: ModuleType, size: str, tmp_path: Path):
    channels, depth, heads = SIZES[size]
    shared = range(8, depth - 8)
    with torch.device('meta'):
        weights = sapiens2(channels, depth, heads=heads, shared=shared)
        model = load(RoPEViT, saved(weights, tmp_path), arch=f'sapiens2_{size}')
        expected = {
            k: x.shape
            for k, x in theirs(transformers, *SIZES[size]).state_dict().items()
        }
    assert {key: x.shape for key, x in in_hf_layout(weights).items()} == expected
    repeated = len(shared) * (channels + 1) * channels  # rows of keys and values
    total = sum(x.numel() for key, x in weights.items() if key != 'rope_embed.periods')
    assert sum(p.numel() for p in model.parameters()) == total + repeated


# ---------------------------------------------------------------- windows, training


def small(**settings: object) -> RoPEViT:
    model = RoPEViT(dict(SMALL, depth=2), **settings)
    randomize(model)
    return model.eval()


@pytest.mark.parametrize('window_prefix', ['copy', 'global'])
@torch.no_grad()
def test_one_window_is_the_whole_image(window_prefix: str):
    windows = dict(
        window_size=4, window_block_indexes=(0, 1), window_prefix=window_prefix
    )
    model, windowed = small(), small(**windows)
    windowed.load_state_dict(model.state_dict())
    image = torch.randn(2, 3, 64, 64)
    assert relative_error(windowed(image)[0], model(image)[0]) < 2e-6


@pytest.mark.parametrize('norm', ['LN', 'RMSNorm'])
@pytest.mark.parametrize('bias', [True, 'qv', False])
@torch.no_grad()
def test_the_padding_of_windows_is_normalised_too(norm: str, bias: bool | str):
    """A window over the edge is a window of tokens and zeros, whose projection is the bias."""
    attn = Attention(
        32, 2, qkv_bias=bias, rope=AxialRoPE(16, 2), qk_norm=dict(type=norm)
    )
    randomize(attn)
    tokens = torch.randn(1, 3 * 6, 32)
    plan = window_plan(1, (3, 6), (4, 6), device=tokens.device)
    padded = torch.cat([tokens, torch.zeros(1, 6, 32)], 1)
    expected = attn(padded, (4, 6))[:, :18]
    assert relative_error(attn(tokens, (3, 6), plan), expected) < 2e-6


def test_norms_of_heads_keep_half_precision():
    """Else attention under autocast would be of float32."""
    attn = Attention(32, 2, qk_norm=dict(type='RMSNorm'))
    assert (
        attn.normalized(torch.randn(2, 5, 3, 2, 16, dtype=torch.bfloat16)).dtype
        == torch.bfloat16
    )


def test_every_parameter_has_a_gradient():
    model = small().train()
    model(torch.randn(2, 3, 48, 32))[0].square().sum().backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert not without
    assert not any('gamma_2' in name for name, _ in model.named_parameters())


if __name__ == '__main__':
    import transformers

    four_blocks = dict(RoPEViT.ARCHS['sapiens2_04b'], depth=4)
    for grid in ((64, 48), (20, 30), (1, 48)):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            print(
                grid,
                f'{largest_error(transformers, four_blocks, grid, Path(folder)):.1e}',
            )
