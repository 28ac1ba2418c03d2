"""Random settings of the backbones against the same models token by token in float64.

A few settings of a fixed seed always; with the slow tests those of a seed that changes every week
(``helpers/seeds.py``). A failure prints seed and settings.
"""

from random import Random

import pytest
import torch
from torch import Tensor

from helpers import reference_models
from helpers.seeds import seeds_of_the_week
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.base import Backbone

TABLE_BIAS = dict(type='TableBias', resize='zeros')


def vit_settings(random: Random) -> tuple[dict, int]:
    """Settings of a ``RoPEViT``, and its patch size."""
    choice = random.choice
    heads, depth, patch = choice((1, 2, 3)), choice((2, 3, 4)), choice((2, 3))
    arch = dict(embed_dims=8 * heads, depth=depth, num_heads=heads)
    prefix_tokens = choice((0, 1, 2))
    rope = rope_settings(random)
    blocks = sorted(random.sample(range(depth), random.randrange(depth + 1)))
    mlp = choice(('gelu', 'swiglu', 'swiglu_norm'))
    settings = dict(
        arch=arch | dict(mlp=mlp),
        patch_size=patch,
        img_size=patch * choice((2, 3, 4)),
        rope=rope,
        rope_scaling=scaling_settings(random, rope),
        use_ape=choice((False, 'tile')),
        attention=None if prefix_tokens else choice((None, TABLE_BIAS)),
        with_cls_token=prefix_tokens > 0,
        num_registers=max(prefix_tokens - 1, 0),
        window_size=choice((None, *[(choice((1, 2, 3)), choice((2, 3, 4)))] * 3)),
        window_block_indexes=blocks,
        window_prefix=choice(('copy', 'global')),
        mask_padding=choice((True, False)),
        qkv_bias=choice((True, False)),
        layer_scale_init_value=choice((None, 0.5)),
        layer_scale_mlp=choice((True, False)),
        qk_norm=choice((True, False)),
        final_norm=choice((False, True, 'all', 'separate')),
        out_indices=sorted({random.randrange(depth), depth - 1}),
        with_cp=choice((True, False)),
    )
    return settings, patch


def swin_settings(random: Random) -> tuple[dict, int]:
    """Settings of a ``RoPESwin``, and pixels of a token of the first stage."""
    choice = random.choice
    rope = rope_settings(random)
    settings = dict(
        arch=dict(
            embed_dims=8, depths=choice(((2, 2), (3, 1))), num_heads=(1, choice((1, 2)))
        ),
        rope=rope,
        rope_scaling=scaling_settings(random, rope),
        attention=TABLE_BIAS if rope is None else choice((TABLE_BIAS, None)),
        window_size=choice(
            (None, 'auto', *[(choice((2, 3, 4)), choice((1, 2, 3)))] * 4)
        ),
        pretrain_window_size=choice((2, 3)),
        shift_single_window=choice((True, False)),
        mask_padding=choice((True, False)),
        qkv_bias=choice((True, False)),
        drop_path_rate=0.0,
        out_indices=(0, 1),
        with_cp=choice((True, False)),
    )
    return settings, 4


def nat_settings(random: Random) -> tuple[dict, int]:
    """Settings of a ``RoPENAT``, and pixels of a token of the first stage."""
    choice = random.choice
    rope = rope_settings(random)
    kernel = choice((3, 5)), choice((1, 3))
    attention = choice((dict(type='TableBias'), None))
    if attention is not None:
        kernel = 3, 3  # for others the table is resized
    settings = dict(
        arch=dict(
            embed_dims=8,
            depths=(2, 1),
            num_heads=(1, choice((1, 2))),
            overlapping=choice((True, False)),
        ),
        dilations=((1, choice((1, 2))), (choice((1, 2)),)),
        rope=rope,
        rope_scaling=scaling_settings(random, rope),
        attention=attention,
        kernel_size=kernel,
        pretrain_kernel_size=3,
        layer_scale_init_value=choice((None, 0.5)),
        drop_path_rate=0.0,
        out_indices=(0, 1),
        with_cp=choice((True, False)),
    )
    return settings, 4


def rope_settings(random: Random) -> dict | None:
    """A rotary embedding of heads of 8 channels."""
    choice = random.choice
    coordinates = choice(
        (
            None,
            None,
            dict(type='index', offset=1.0),
            dict(
                type='index',
                reference=choice((3, 5)),
                windows=choice(('window', 'map')),
            ),
            dict(
                type=choice(('centres', 'corners')),
                normalize=choice(('separate', 'min', 'max')),
                windows=choice(('window', 'map')),
            ),
        )
    )
    layout = choice(('interleaved', 'half'))
    common = dict(pair_layout=layout, coordinates=coordinates)
    axial = dict(
        type='AxialRoPE',
        theta=choice((10.0, 100.0)),
        learned=choice((True, False)),
        series=choice(('radians', 'periods')),
        axes=choice(('xy', 'yx')),
        k_rope=choice((1, 2)),
        shared=choice((True, False)),
    )
    log_axial = dict(
        type='LogAxialRoPE', low=choice((1.0, 3.0)), axes=choice(('xy', 'yx'))
    )
    mixed = dict(type='MixedRoPE', theta=choice((10.0, 100.0)))
    video = dict(type='VideoRoPE', factor=choice((1.0, 7.5)))
    others = log_axial, video | common
    return choice((None, axial | common, axial | common, mixed | common, *others))


def scaling_settings(random: Random, rope: dict | None) -> dict | None:
    """A scaling that an embedding takes."""
    choice = random.choice
    if rope is None or rope['type'] == 'LogAxialRoPE':
        return None
    coordinates = rope['coordinates'] or {}
    types = ['none']
    if coordinates.get('type', 'index') == 'index' and 'reference' not in coordinates:
        types += ['linear', 'by_parts']
        if rope['type'] == 'AxialRoPE' and not rope['learned'] and rope['shared']:
            types += ['ntk']
    return choice(
        (
            None,
            dict(
                type=choice(types),
                factor=choice((None, 1.5)),
                temperature=choice((None, 'log', 'yarn')),
            ),
        )
    )


MODELS = {
    'vit': (vit_settings, RoPEViT, reference_models.vit),
    'swin': (swin_settings, RoPESwin, reference_models.swin),
    'nat': (nat_settings, RoPENAT, reference_models.nat),
}


def compare(name: str, seed: int) -> None:
    """Maps and all gradients of one drawing of settings, for a batch of images.

    The model has run with another scaling before.
    """
    draw, build, reference = MODELS[name]
    random = Random(seed)
    settings, patch = draw(random)
    sides = [patch * random.randint(2, 6) + random.randrange(patch) for _ in range(2)]
    what = f'{name}, seed {seed}, image {sides}: {settings}'
    torch.manual_seed(seed)
    other_scaling = scaling_settings(random, settings['rope'])
    model = (
        lively(build(**settings | dict(rope_scaling=other_scaling))).double().train()
    )
    image = torch.randn(random.choice((1, 2)), 3, *sides, dtype=torch.float64)
    with torch.no_grad():
        model(image)  # of whose angles none may be left
    model.set_rope_scaling(settings['rope_scaling'])
    outs = model(image)
    weights = dict(model.named_parameters())
    per_image = [reference(settings, weights, one) for one in image]
    expected = [torch.stack(maps) for maps in zip(*per_image, strict=True)]
    cotangents = [torch.randn_like(out) for out in outs]
    found, wanted = (
        torch.autograd.grad(
            sum((out * g).sum() for out, g in zip(maps, cotangents, strict=True)),
            list(weights.values()),
            allow_unused=True,
        )
        for maps in (outs, expected)
    )
    for index, (out, other) in enumerate(zip(outs, expected, strict=True)):
        assert out.shape == other.shape, what
        assert distance(out, other) < 1e-5, f'map {index} of {what}'
    largest = max(g.abs().max().item() for g in wanted if g is not None)
    for key, grad, other in zip(weights, found, wanted, strict=True):
        assert (grad is None) == (other is None), f'{key} of {what}'
        if grad is not None:
            assert (grad - other).abs().max() < 1e-5 * largest, f'{key} of {what}'


def lively(model: Backbone) -> Backbone:
    """Weights for which attention, and so the rotation, matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim != 3 or parameter.shape[0] == 1:  # not frequencies
                parameter.normal_(std=0.4)
    return model


def distance(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('name', MODELS)
def test_a_few_settings(name: str, seed: int) -> None:
    compare(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_many_settings(name: str) -> None:
    for seed in seeds_of_the_week():
        compare(name, seed)
