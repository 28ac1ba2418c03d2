"""Options of RoPEViT beyond the paper's models, against formulas written out in float64: tables of
relative position bias, sinusoidal embeddings, ResFormer."""

import ast
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.pairwise import pairwise
from helpers.published import block, linear, norm
from research.classifier import RoPEClassifier, classifier_config
from research.named_classifiers import CLASSIFIERS, NamedClassifier
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.layers import SineConvEmbed, SineEmbed, pad_grid
from rope_dense.backbones.position_bias import LocalPositionAttention
from rope_dense.checkpoints import CheckpointError, load_pretrained
from rope_dense.measure.benchmark import count_products
from rope_dense.rope import rotate_definition

Weights = dict[str, Tensor]
CPU = torch.device('cpu')
TINY = dict(embed_dims=16, depth=2, num_heads=2, layer_scale_init_value=None)
LOG_AXIAL = dict(type='LogAxialRoPE')


def randomize(model: nn.Module) -> nn.Module:
    """Weights with which every part matters."""
    for name, parameter in model.named_parameters():
        if 'freqs' not in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def vit(**settings: object) -> RoPEViT:
    return randomize(RoPEViT(TINY, patch_size=8, **dict(img_size=32) | settings))


def offsets(height: int, width: int) -> Tensor:
    """[N, N, 2]: (rows, columns) from a key to a query."""
    y, x = torch.cartesian_prod(torch.arange(height), torch.arange(width)).unbind(-1)
    return torch.stack([y[:, None] - y, x[:, None] - x], -1)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float) -> Tensor:
    """[N, h, D] each and [h, N, N] to [N, C]."""
    scores = torch.einsum('ihd,jhd->hij', q, k) / math.sqrt(q.shape[-1]) + bias
    return torch.einsum('hij,jhd->ihd', scores.softmax(-1), v).flatten(1)


def project(attn: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[N, C] to queries, keys and values, [N, h, D]."""
    qkv = F.linear(x, attn.qkv.weight, attn.qkv.bias)
    return qkv.unflatten(-1, (3, attn.num_heads, -1)).unbind(1)


# ---------------------------------------------------------------- the plain ViT


@pytest.mark.parametrize(
    'name, parameters, operations', [('small', 22, 4.6), ('base', 86, 17.5)]
)
def test_published_sizes(name: str, parameters: float, operations: float):
    """Millions of parameters, rounded down, and billions of multiply-adds, as published."""
    backbone = dict(type='RoPEViT', arch=f'isotropic_{name}', final_norm=True)
    with torch.device('meta'):
        model = RoPEClassifier(backbone, num_classes=1000)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count // 10**6 == parameters
    products = count_products(model, height=224, width=224)
    assert products.multiply_adds / 1e9 == pytest.approx(operations, abs=0.06)


def test_variants_of_the_guide():
    guide = Path(__file__).parents[2] / 'docs' / 'research' / 'fused_attention.md'
    (block,) = re.findall(
        r"```python\n(dict\(type='RoPEViT'.+?)```", guide.read_text(), re.DOTALL
    )
    kinds = []
    for statement in ast.parse(block).body:
        variant = ast.unparse(statement)
        with torch.device('meta'):
            attn = MODELS.build(eval(variant)).blocks[0].attn
        kinds.append((type(attn).__name__, type(attn.rope).__name__))
    assert kinds == [
        ('TableBiasAttention', 'NoneType'),
        ('Attention', 'NoneType'),
        ('Attention', 'LogAxialRoPE'),
        ('TableBiasAttention', 'LogAxialRoPE'),
    ]


@pytest.mark.parametrize('rope', [None, dict(type='MixedRoPE')], ids=['none', 'mixed'])
def test_the_bias_is_inside_the_softmax(rope: dict | None):
    model = vit(
        rope=rope, attention=dict(type='TableBias'), with_cls_token=False
    ).double()
    attn, x = model.blocks[0].attn, torch.randn(1, 16, 16, dtype=torch.float64)
    q, k, v = project(attn, x[0])
    if rope is not None:
        rotary = attn.rope(x, (4, 4))
        q, k = rotate_definition(torch.stack([q, k], 1)[None], rotary)[0].unbind(1)
    rows = offsets(4, 4) + 3
    bias = attn.relative_position_bias_table[rows[..., 0] * 7 + rows[..., 1]].permute(
        2, 0, 1
    )
    expected = F.linear(
        softmax_attention(q, k, v, bias), attn.proj.weight, attn.proj.bias
    )
    torch.testing.assert_close(attn(x, (4, 4))[0], expected)


@pytest.mark.parametrize('size', [(4, 4), (6, 5), (2, 3), (1, 7)])
def test_zeros_are_the_bias_of_what_is_too_far(size: tuple[int, int]):
    """Offsets beyond the table of 4 x 4 tokens have no bias, others that of the table."""
    model = vit(
        rope=None,
        attention=dict(type='TableBias', resize='zeros'),
        with_cls_token=False,
    )
    attn = model.blocks[0].attn
    bias = attn.bias(torch.empty(0), size)
    for query, key in itertools.product(range(size[0] * size[1]), repeat=2):
        rows, columns = (
            (query // size[1] - key // size[1]),
            (query % size[1] - key % size[1]),
        )
        expected = torch.zeros(2)
        if max(abs(rows), abs(columns)) < 4:
            expected = attn.relative_position_bias_table[7 * (rows + 3) + columns + 3]
        assert torch.equal(bias[:, query, key], expected)


def test_a_padded_grid_keeps_its_centre():
    table = torch.arange(15.0).view(1, 15, 1)
    padded = pad_grid(table, (3, 5), (5, 3)).view(5, 3)
    assert padded.tolist() == [[0, 0, 0], [1, 2, 3], [6, 7, 8], [11, 12, 13], [0, 0, 0]]


def test_zeros_in_the_windows_of_a_swin():
    """The bias of a window of 4 x 4 is within that of 8 x 8."""
    arch = dict(embed_dims=8, depths=(2,), num_heads=(2,))
    settings = dict(rope=None, out_indices=(0,), pretrain_window_size=4)
    zeros, table = dict(type='TableBias', resize='zeros'), dict(type='TableBias')
    model = randomize(RoPESwin(arch, attention=zeros, **settings))
    attn = model.layers[0].blocks[0].attn
    small, large = (attn.bias(torch.empty(0), (side, side)) for side in (4, 8))
    inside = [row * 8 + column for row in range(2, 6) for column in range(2, 6)]
    assert torch.equal(large[:, inside][:, :, inside], small)
    assert not torch.equal(small, torch.zeros_like(small))
    image = torch.randn(1, 3, 40, 24)
    bicubic = RoPESwin(arch, attention=table, **settings)
    bicubic.load_state_dict(model.state_dict())
    for window, same in ((4, True), (8, False)):
        for swin in (model, bicubic):
            swin.eval().set_window_size(window)
        assert torch.allclose(model(image)[0], bicubic(image)[0]) == same


# ---------------------------------------------------------------- published layouts


def isotropic_weights(channels: int, depth: int, heads: int, side: int) -> Weights:
    """As SHI-Labs' files have them."""
    weights = {
        'patch_embed.proj.weight': torch.randn(channels, 3, 16, 16) / 28,
        'patch_embed.proj.bias': torch.randn(channels),
        **norm('patch_embed.norm', channels),
        **norm('norm', channels),
        **linear('head', 5, channels),
    }
    for index in range(depth):
        name = f'layers.{index}'
        of_block = block(name, channels)
        weights |= {key: x * 0.2 if x.ndim == 2 else x for key, x in of_block.items()}
        weights[f'{name}.attn.rpb'] = torch.randn(heads, 2 * side - 1, 2 * side - 1)
        weights[f'{name}.attn.relative_position_index'] = torch.zeros(
            side**2, side**2
        ).long()
    return weights


def layer_norm(weights: Weights, name: str, x: Tensor, eps: float) -> Tensor:
    return F.layer_norm(
        x, x.shape[-1:], weights[f'{name}.weight'], weights[f'{name}.bias'], eps
    )


def linear_of(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[f'{name}.weight'], weights[f'{name}.bias'])


def transform(
    weights: Weights, name: str, x: Tensor, eps: float, attend: Callable[..., Tensor]
) -> Tensor:
    """A block of one image, [N, C] to the same."""
    normed = layer_norm(weights, f'{name}.norm1', x, eps)
    x = x + linear_of(
        weights,
        f'{name}.attn.proj',
        attend(linear_of(weights, f'{name}.attn.qkv', normed)),
    )
    hidden = linear_of(
        weights, f'{name}.mlp.fc1', layer_norm(weights, f'{name}.norm2', x, eps)
    )
    return x + linear_of(weights, f'{name}.mlp.fc2', F.gelu(hidden))


def isotropic_scores(weights: Weights, image: Tensor, heads: int, side: int) -> Tensor:
    """The published computation for one image [3, H, W]. The index of their table is that of the
    offsets with the order of queries and of keys reversed."""
    weights = {key: x.double() for key, x in weights.items()}
    kernel, bias = (weights[f'patch_embed.proj.{name}'] for name in ('weight', 'bias'))
    x = F.conv2d(image[None].double(), kernel, bias, stride=16)[0].flatten(1).T
    x = layer_norm(weights, 'patch_embed.norm', x, 1e-5)
    reversed_offsets = offsets(side, side).flip(0).flip(1) + side - 1
    for index in range(2):
        table = weights[f'layers.{index}.attn.rpb']
        of_pairs = table[:, reversed_offsets[..., 0], reversed_offsets[..., 1]]

        def attend(qkv: Tensor, bias: Tensor = of_pairs) -> Tensor:
            return softmax_attention(*qkv.unflatten(-1, (3, heads, -1)).unbind(1), bias)

        x = transform(weights, f'layers.{index}', x, 1e-5, attend)
    return linear_of(weights, 'head', layer_norm(weights, 'norm', x, 1e-5).mean(0))


@pytest.fixture
def classify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Weights, Tensor], Tensor]:
    """Scores by the only classifier with a name whose weights these can be."""
    for name, sizes in (
        ('isotropic_small', dict(embed_dims=32, depth=2, num_heads=4)),
        ('resformer_small', dict(embed_dims=128, depth=2, num_heads=2)),
    ):
        arch = dict(RoPEViT.ARCHS[name], **sizes)
        backbone = dict(type='RoPEViT', arch=arch, final_norm=True)
        monkeypatch.setitem(CLASSIFIERS, f'small_{name}', NamedClassifier(backbone))

    def run(weights: Weights, image: Tensor) -> Tensor:
        path = str(tmp_path / 'published.pth')
        torch.save(weights, path)
        settings = classifier_config(path)['model']
        del settings['type']
        model = RoPEClassifier(**settings)
        model.load_checkpoint(path)
        with torch.no_grad():
            return model.eval()(image)

    return run


def test_scores_of_the_published_vit(classify: Callable):
    weights = isotropic_weights(32, 2, 4, side=3)
    image = torch.randn(2, 3, 48, 48)
    expected = torch.stack([isotropic_scores(weights, one, 4, 3) for one in image])
    torch.testing.assert_close(
        classify(weights, image).double(), expected, rtol=1e-4, atol=1e-4
    )


def test_every_published_key_counts(tmp_path: Path):
    sizes = dict(embed_dims=32, depth=2, num_heads=4, img_size=48)
    model = RoPEViT(dict(RoPEViT.ARCHS['isotropic_small'], **sizes), final_norm=True)
    weights = isotropic_weights(32, 2, 4, side=3)
    torch.save(weights, path := str(tmp_path / 'vit.pth'))
    load_pretrained(model, path)
    for changed, message in (
        (dict(weights, **{'layers.0.attn.gamma': torch.ones(3)}), 'left over: .*gamma'),
        (
            {k: x for k, x in weights.items() if k != 'layers.1.attn.rpb'},
            'missing: .*bias_table',
        ),
        (
            dict(weights, **{'layers.0.attn.rpb': torch.ones(4, 25)}),
            'shape of this layout',
        ),
        (
            {k: x for k, x in weights.items() if 'index' not in k},
            'the layout .* is not known',
        ),
    ):
        torch.save(changed, path)
        with pytest.raises(CheckpointError, match=message):
            load_pretrained(model, path)


# ---------------------------------------------------------------- sinusoidal embeddings, ResFormer


@pytest.mark.parametrize('grid', [(3, 5), (1, 1), (4, 2)])
def test_sine_embedding(grid: tuple[int, int]):
    actual = SineEmbed(16)(grid, CPU)
    for row, column in itertools.product(*map(range, grid)):
        for t in range(4):
            x, y = column / 10 ** (4 * t / 4), row / 10 ** (4 * t / 4)
            expected = [math.sin(x), math.cos(x), math.sin(y), math.cos(y)]
            four = actual[row * grid[1] + column, 4 * t : 4 * t + 4]
            assert four.tolist() == pytest.approx(expected, abs=1e-6)


def resformer_weights(channels: int, depth: int, heads: int) -> Weights:
    weights = {
        'cls_token': torch.randn(1, 1, channels),
        'patch_embed.proj.weight': torch.randn(channels, 3, 16, 16) / 28,
        'patch_embed.proj.bias': torch.randn(channels),
        'pos_embed.embed_layer.weight': torch.randn(channels, 1, 3, 3),
        'pos_embed.embed_layer.bias': torch.randn(channels),
        **norm('norm', channels),
        **linear('head', 5, channels),
    }
    for index in range(depth):
        of_block = block(f'blocks.{index}', channels)
        weights |= {key: x * 0.2 if x.ndim == 2 else x for key, x in of_block.items()}
        local = f'blocks.{index}.attn.get_v'
        weights[f'{local}.weight'] = torch.randn(channels // heads, 1, 3, 3)
        weights[f'{local}.bias'] = torch.randn(channels // heads)
    return weights


def depthwise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[C, H, W] to the same, one tap of the 3 x 3 filters at a time."""
    height, width = x.shape[1:]
    padded = F.pad(x, (1, 1, 1, 1))
    taps = itertools.product(range(3), range(3))
    out = bias[:, None, None].expand_as(x)
    for i, j in taps:
        out = (
            out
            + weight[:, 0, i, j, None, None] * padded[:, i : i + height, j : j + width]
        )
    return out


def global_position(channels: int, height: int, width: int) -> Tensor:
    """[C, H, W]: 2 pi (n + 1) / N of rows, then of columns, each with sine and cosine by turns."""
    half = channels // 2
    out = torch.zeros(channels, height, width, dtype=torch.float64)
    for row, column in itertools.product(range(height), range(width)):
        positions = 2 * math.pi * (row + 1) / height, 2 * math.pi * (column + 1) / width
        for axis, index in itertools.product(range(2), range(half)):
            angle = positions[axis] / 10000 ** (2 * (index // 2) / half)
            function = math.cos if index % 2 else math.sin
            out[axis * half + index, row, column] = function(angle)
    return out


def resformer_scores(weights: Weights, image: Tensor, heads: int) -> Tensor:
    """The published computation for one image [3, H, W], of any size."""
    weights = {key: x.double() for key, x in weights.items()}
    kernel, bias = (weights[f'patch_embed.proj.{name}'] for name in ('weight', 'bias'))
    maps = F.conv2d(image[None].double(), kernel, bias, stride=16)[0]
    channels, height, width = maps.shape
    filters = (weights[f'pos_embed.embed_layer.{name}'] for name in ('weight', 'bias'))
    maps = maps + depthwise(global_position(channels, height, width), *filters)
    x = torch.cat([weights['cls_token'][0], maps.flatten(1).T])
    for index in range(2):
        name = f'blocks.{index}'
        filters = [weights[f'{name}.attn.get_v.{part}'] for part in ('weight', 'bias')]

        def attend(qkv: Tensor, filters: list[Tensor] = filters) -> Tensor:
            q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(1)  # [N, h, D]
            out = softmax_attention(q, k, v, 0.0).unflatten(1, (heads, -1))
            for head in range(heads):
                as_map = v[1:, head].T.unflatten(1, (height, width))
                out[1:, head] += depthwise(as_map, *filters).flatten(1).T
            return out.flatten(1)

        x = transform(weights, name, x, 1e-6, attend)
    return linear_of(weights, 'head', layer_norm(weights, 'norm', x, 1e-6)[0])


@pytest.mark.parametrize('size', [(48, 48), (16, 64), (80, 32)])
def test_scores_of_resformer(size: tuple[int, int], classify: Callable):
    weights, image = resformer_weights(128, 2, 2), torch.randn(1, 3, *size)
    expected = resformer_scores(weights, image[0], 2)
    torch.testing.assert_close(
        classify(weights, image)[0].double(), expected, rtol=1e-3, atol=1e-3
    )


def test_resformer_small():
    with torch.device('meta'):
        model = RoPEViT('resformer_small', final_norm=True)
    assert all(type(b.attn) is LocalPositionAttention for b in model.blocks)
    # A DeiT-S without its position embedding, and 640 of each local and 3840 of the global filters.
    count = sum(parameter.numel() for parameter in model.parameters())
    deit = 384 * 768 + 384 + 384 + 12 * (12 * 384**2 + 13 * 384) + 2 * 384
    assert count == deit + 12 * 640 + 3840


def test_local_position_starts_at_nothing_and_works_in_windows():
    settings = dict(window_size=3, window_block_indexes=(0,), rope=None)
    kinds = dict(type='LocalPosition'), None
    model, plain = (
        RoPEViT(TINY, patch_size=8, attention=kind, **settings) for kind in kinds
    )
    plain.load_state_dict(
        {k: x for k, x in model.state_dict().items() if '.local.' not in k}
    )
    image = torch.randn(2, 3, 40, 32)
    torch.testing.assert_close(model(image)[0], plain(image)[0])
    attn = randomize(model).blocks[0].attn
    x, grid = torch.randn(2, 1 + 20, 16), (5, 4)
    plan = model.plan_windows(
        2, grid, CPU
    )  # 4 windows with a copy of the class token each
    with_copies = plan.copy_prefix(x)
    filters = [parameter.detach().clone() for parameter in attn.local.parameters()]
    actual = attn(with_copies, grid, plan)
    for parameter in attn.local.parameters():
        nn.init.zeros_(parameter)
    expected = attn(with_copies, grid, plan)
    for image in range(2):
        values = project(attn, x[image])[2][1:]  # [H W, h, D]
        maps = (depthwise(y.T.unflatten(1, grid), *filters) for y in values.unbind(1))
        added = torch.cat(list(maps)).flatten(1).T @ attn.proj.weight.T
        expected[image, 4:] += added
    torch.testing.assert_close(actual, expected)


def test_a_classifier_names_its_modes():
    model = RoPEClassifier(
        dict(type='RoPEViT', arch=TINY, final_norm=True), num_classes=3
    )
    image = torch.ones(1, 3, 32, 48)
    with pytest.raises(
        ValueError, match="mode must be 'tensor' or 'predict', got 'loss'"
    ):
        model(image, mode='loss')
    with pytest.raises(ValueError, match="data_samples: mode 'predict' adds scores"):
        model(image, mode='predict')


# ---------------------------------------------------------------- all options together

ROPES = {
    'none': None,
    'log-axial': dict(LOG_AXIAL, k_rope=1),
    '2D': dict(type='AxialRoPE', axes='yx', pair_layout='half', k_rope=2, shared=False),
    'learned': dict(type='AxialRoPE', learned=True),
    'mixed': dict(type='MixedRoPE'),
}
ATTENTIONS = {
    'softmax': {},
    'bias': dict(attention=dict(type='TableBias')),
    'bias, zeros': dict(
        attention=dict(type='TableBias', resize='zeros'), with_cls_token=False
    ),
    'local': dict(attention=dict(type='LocalPosition')),
    'relative': dict(attention=dict(type='RelativePrefix')),
}
APES = (False, True, 'bilinear', 'tile', 'sine', 'sine_conv')
WINDOWS = dict(window_size=3, window_block_indexes=(0,))


@pairwise(
    attention=ATTENTIONS,
    rope=ROPES,
    ape=APES,
    windows={'global': {}, 'windows': WINDOWS},
)
def test_any_two_options_have_a_gradient_for_every_parameter(
    attention: dict, rope: dict | None, ape: bool | str, windows: dict
):
    """At odd sizes, and at one patch everything is finite."""
    model = vit(rope=rope, use_ape=ape, **attention, **windows, patch_norm=ape is True)
    model(torch.randn(2, 3, 45, 61))[0].square().sum().backward()
    assert not [
        n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()
    ]
    (smallest,) = model(torch.randn(1, 3, 8, 9))
    smallest.sum().backward()
    assert smallest.shape == (1, 16, 1, 1)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize('rope', ROPES)
def test_every_combination_of_a_swin_has_a_gradient_for_every_parameter(rope: str):
    arch = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
    settings = dict(
        window_size=4, pretrain_window_size=3, out_indices=(0, 1), drop_path_rate=0.0
    )
    for attention in (
        None,
        dict(type='TableBias'),
        dict(type='TableBias', resize='zeros'),
    ):
        options = dict(rope=ROPES[rope], attention=attention)
        model = randomize(RoPESwin(arch, **options, **settings))
        sum(out.square().sum() for out in model(torch.randn(2, 3, 45, 61))).backward()
        assert all(parameter.grad.any() for parameter in model.parameters()), options
        model(torch.randn(1, 3, 3, 4))[
            1
        ].sum().backward()  # less than one patch, padded
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    'settings',
    [
        dict(
            rope=LOG_AXIAL,
            attention=dict(type='TableBias', resize='zeros'),
            with_cls_token=False,
            **WINDOWS,
        ),
        dict(
            rope=None,
            attention=dict(type='LocalPosition'),
            use_ape='sine_conv',
            **WINDOWS,
        ),
        dict(attention=dict(type='RelativePrefix'), **WINDOWS),
    ],
    ids=['bias', 'resformer', 'relative'],
)
@torch.no_grad()
def test_compiles_for_all_sizes(settings: dict):
    model = vit(**settings).eval()
    compiled = torch.compile(model, backend='eager', fullgraph=True, dynamic=True)
    for size in ((40, 56), (61, 45)):
        image = torch.randn(1, 3, *size)
        torch.testing.assert_close(
            compiled(image)[0], model(image)[0], rtol=1e-4, atol=1e-4
        )


def test_convolutions_of_positions_do_not_decay():
    model = nn.Module()
    model.backbone = vit(
        rope=None, attention=dict(type='LocalPosition'), use_ape='sine_conv'
    )
    constructor = dict(
        constructor='NamedGroupsConstructor', paramwise_cfg=dict(no_decay=['position'])
    )
    optimizer = dict(type='AdamW', lr=1.0, weight_decay=0.5)
    wrapper = build_optim_wrapper(
        model, dict(type='OptimWrapper', optimizer=optimizer, **constructor)
    )
    free = {
        id(p)
        for group in wrapper.param_groups
        for p in group['params']
        if not group['weight_decay']
    }
    names = {name for name, p in model.backbone.named_parameters() if id(p) in free}
    convolutions = ('sine_embed.conv', 'blocks.0.attn.local', 'blocks.1.attn.local')
    assert names == {
        f'{name}.{part}' for name in convolutions for part in ('weight', 'bias')
    }


@pytest.mark.parametrize(
    'settings, message',
    [
        (
            dict(attention='TableBias'),
            "attention must be None or a dict .* got 'TableBias'",
        ),
        (
            dict(attention=dict(type='Bias')),
            "attention: type must be registered.* got 'Bias'",
        ),
        (dict(attention=dict(type='MixedRoPE')), 'a subclass of Attention'),
        (
            dict(attention=dict(type='TableBias', resize='cubic')),
            "resize must .* got 'cubic'",
        ),
        (dict(patch_norm='LN'), r"patch_norm must be one of \(True, False\), got 'LN'"),
        (
            dict(
                arch=dict(embed_dims=18, depth=1, num_heads=3),
                rope=None,
                use_ape='sine',
            ),
            "embed_dims must be a multiple of 4 .* for use_ape='sine', got 18",
        ),
        (
            dict(
                attention=dict(type='TableBias'),
                window_prefix='global',
                window_block_indexes=(0,),
            ),
            "TableBias in window blocks needs window_prefix='copy', got 'global'",
        ),
    ],
)
def test_options_that_do_not_fit(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        RoPEViT(**dict(arch=TINY) | settings)


def test_the_global_position_embedding_has_learned_filters_only():
    assert SineConvEmbed(16).state_dict().keys() == {'conv.weight', 'conv.bias'}
    assert not SineEmbed(16).state_dict()
