"""RoPENAT: SHI-Labs' models written out, sizes, gradients, and what a backbone declares."""

import itertools
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers.published import shi_nat
from helpers.reference import relative_error
from helpers.reference_nat import published_model
from helpers.small_checkpoints import load, refusal, saved
from rope_dense.backbones import RoPENAT, RoPESwin
from rope_dense.backbones.neighbours import neighbour_plan
from rope_dense.backbones.swin import PatchMerging
from rope_dense.measure.evaluator import Evaluator
from rope_dense.measure.settings import Setting
from rope_dense.project.checks.recipe import windows_text

AXIAL, MIXED, LOG_AXIAL = (
    dict(type=f'{name}RoPE') for name in ('Axial', 'Mixed', 'LogAxial')
)
RPB = dict(rope=None, attention=dict(type='TableBias'))
SMALL = dict(
    embed_dims=16,
    depths=(2, 3),
    num_heads=(2, 4),
    mlp_ratio=2.0,
    dilations=((1, 2), (1,)),
)
# Millions of parameters and 10**9 multiply-adds at 224 px with head and bias, of SHI-Labs' tables
# (NAT.md, DiNAT.md); those of NAT-s are DiNAT-s's.
PUBLISHED = {
    'mini': (20, 2.7),
    'tiny': (28, 4.3),
    'small': (51, 7.8),
    'base': (90, 13.7),
    's_tiny': (28, 4.5),
    's_small': (50, 8.7),
    's_base': (88, 15.4),
}


def small(**arguments: object) -> RoPENAT:
    settings = dict(
        kernel_size=3, pretrain_kernel_size=3, out_indices=(0, 1), drop_path_rate=0.0
    )
    return strong(RoPENAT(SMALL, **settings | arguments))


def strong(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and 'freqs' not in name:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    return model


# ------------------------------------------------------------------------ sizes


@pytest.mark.parametrize(
    'size',
    [
        pytest.param(size, marks=() if size in ('mini', 's_tiny') else pytest.mark.slow)
        for size in PUBLISHED
    ],
)
def test_sizes_are_the_published_ones(size: str) -> None:
    with torch.device('meta'):
        model = RoPENAT(f'dinat_{size}', **RPB, out_indices=(3,)).eval()
    head = 1001 * model.out_channels[0] - 1
    parameters = sum(p.numel() for p in model.parameters()) + head
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, 224, 224, device='meta'))
    counts = {
        str(name): number
        for name, number in counter.get_flop_counts()['Global'].items()
    }
    layers = sum(number for name, number in counts.items() if 'bmm' not in name) / 2
    arch = model.arch
    attention = sum(  # by the definition: a tile has more keys than a neighbourhood
        depth * 2 * (56 // 2**stage) ** 2 * 7**2 * arch.embed_dims * 2**stage
        for stage, depth in enumerate(arch.depths)
    )
    millions, billions = PUBLISHED[size]
    assert abs(parameters / 1e6 - millions) <= 0.5
    assert abs((layers + attention + head) / 1e9 - billions) <= 0.05 + 0.01 * billions


def test_architectures_are_those_of_the_paper() -> None:
    names = [f'{family}_{size}' for family in ('nat', 'dinat') for size in PUBLISHED]
    assert sorted(names) == sorted(RoPENAT.ARCHS)
    with torch.device('meta'):
        for name in names:
            model = RoPENAT(name, **RPB)
            scaled = name in ('nat_small', 'nat_base', 'dinat_base')
            assert (model.layers[0].blocks[0].gamma_1 is not None) == scaled
            assert isinstance(model.layers[0].downsample, PatchMerging) == (
                '_s_' in name
            )
            dilations = model.block_dilations
            if name.startswith('nat'):
                assert {d for of in dilations for d in of} == {1}
            else:
                depths, long = model.arch.depths, (8, 4, 2, 1)
                assert dilations == [
                    [long[stage] if block % 2 else 1 for block in range(depths[stage])]
                    for stage in range(4)
                ]


# -------------------------------------------------------------- published models


@pytest.mark.parametrize(
    'overlapping, layer_scale', [(True, False), (True, True), (False, False)]
)
def test_published_weights_give_the_published_maps(
    overlapping: bool, layer_scale: bool, tmp_path: Path
) -> None:
    """At a size where maps are odd, some smaller than K d, and d does not divide others."""
    sizes = 16, (2, 2), (2, 4)
    weights = shi_nat(
        *sizes,
        mlp_ratio=2.0,
        overlapping=overlapping,
        layer_scale=layer_scale,
        kernel=3,
    )
    weights = {  # so that outputs stay of the size of 1
        key: w * (w[0].numel() ** -0.5 if w.ndim > 1 and 'rpb' not in key else 1)
        for key, w in weights.items()
    }
    arch = dict(
        SMALL, depths=(2, 2), dilations=((1, 3), (1, 2)), overlapping=overlapping
    )
    model = load(
        RoPENAT,
        saved(weights, tmp_path),
        arch=arch,
        layer_scale_init_value=1e-5 if layer_scale else None,
        kernel_size=3,
        pretrain_kernel_size=3,
        out_indices=(0, 1),
        **RPB,
    )
    model.norm0, model.norm1 = nn.Identity(), nn.Identity()
    model, image = model.eval().double(), torch.randn(3, 43, 30, dtype=torch.float64)
    double = {key: w.double() for key, w in weights.items()}
    expected = published_model(double, image, sizes[2], ((1, 3), (1, 2)), 3)
    with torch.no_grad():
        for actual, of in zip(model(image[None]), expected, strict=True):
            assert relative_error(actual[0], of) < 1e-9


@pytest.mark.parametrize('name', ['nat_mini', 'nat_base', 'dinat_base', 'dinat_s_tiny'])
def test_every_published_layout_loads_strictly(name: str, tmp_path: Path) -> None:
    with torch.device('meta'):
        arch = RoPENAT(name, rope=None).arch
        weights = shi_nat(
            arch.embed_dims,
            arch.depths,
            arch.num_heads,
            mlp_ratio=arch.mlp_ratio,
            overlapping=arch.overlapping,
            layer_scale=arch.layer_scale_init_value is not None,
            device='meta',
        )
        path = saved(weights, tmp_path)
        model = load(RoPENAT, path, arch=name, **RPB)
        norms = {
            f'norm{i}.{kind}': torch.zeros(channels)
            for i, channels in enumerate(model.out_channels)
            for kind in ('weight', 'bias')
        }
        detector = {f'backbone.{key}': w for key, w in {**weights, **norms}.items()}
        del detector['backbone.norm.weight'], detector['backbone.norm.bias']
        load(RoPENAT, saved({'state_dict': detector}, tmp_path), arch=name, **RPB)
        load(
            RoPENAT,
            saved({'state_dict': model.state_dict()}, tmp_path),
            arch=name,
            **RPB,
        )


def test_bias_tables_are_resized_to_another_kernel(tmp_path: Path) -> None:
    weights = shi_nat(16, (2, 3), (2, 4), mlp_ratio=2.0, kernel=3)
    options = dict(arch=SMALL, out_indices=(0, 1), **RPB)
    model = load(
        RoPENAT,
        saved(weights, tmp_path),
        kernel_size=5,
        pretrain_kernel_size=5,
        **options,
    )
    assert {
        len(table) for name, table in model.state_dict().items() if 'bias_table' in name
    } == {81}


def test_refusals_name_what_would_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nat = shi_nat(16, (2, 3), (2, 4), mlp_ratio=2.0, layer_scale=True, kernel=3)
    options = dict(
        arch=SMALL, kernel_size=3, pretrain_kernel_size=3, out_indices=(0, 1)
    )
    path = saved(nat, tmp_path)
    assert 'relative_position_bias_table' in refusal(
        RoPENAT, path, rope=None, **options
    )
    assert 'gamma_1' in refusal(RoPENAT, path, **RPB, **options)
    assert 'does not fit RoPESwin' in refusal(RoPESwin, path, arch='tiny')
    broken = dict(nat) | {'levels.0.blocks.0.attn.rpb': torch.zeros(25, 2)}
    assert 'shape of this layout' in refusal(
        RoPENAT, saved(broken, tmp_path), **RPB, **options
    )


# ---------------------------------------------------------------------- options


OPTIONS = {
    'none': dict(rope=None),
    'bias': RPB,
    'log-axial': dict(rope=LOG_AXIAL),
    'log-axial and bias': dict(rope=LOG_AXIAL, attention=dict(type='TableBias')),
    'mixed': dict(rope=MIXED),
    'learned axial and bias': dict(
        rope=dict(AXIAL, learned=True), attention=dict(type='TableBias')
    ),
}


@pytest.mark.parametrize('layer_scale', [None, 1e-5])
@pytest.mark.parametrize('overlapping', [True, False])
@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_every_parameter_has_a_gradient(
    options: dict, overlapping: bool, layer_scale: float | None
) -> None:
    arch = dict(SMALL, overlapping=overlapping, layer_scale_init_value=layer_scale)
    settings = dict(
        kernel_size=3, pretrain_kernel_size=5, drop_path_rate=0.0, out_indices=(0, 1)
    )
    model = strong(RoPENAT(arch, **settings, **options))
    outs = model.train()(torch.randn(2, 3, 45, 38))
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


SIDES = (1, 4, 5, 31, 32, 75)


@pytest.mark.parametrize('overlapping', [True, False])
@torch.no_grad()
def test_any_image_from_one_pixel_up(overlapping: bool) -> None:
    arch = dict(
        embed_dims=8,
        depths=(1, 1, 1, 1),
        num_heads=(1, 1, 2, 2),
        overlapping=overlapping,
    )
    model = RoPENAT(arch, rope=LOG_AXIAL, attention=dict(type='TableBias')).eval()
    assert model.out_strides == [4, 8, 16, 32] and model.out_channels == [8, 16, 32, 64]
    for height, width in itertools.product(SIDES, (1, 9, 64)):
        maps = model(torch.randn(1, 3, height, width))
        sizes = [
            (-(-height // stride), -(-width // stride)) for stride in model.out_strides
        ]
        assert (
            [tuple(out.shape[2:]) for out in maps]
            == sizes
            == model.map_sizes(height, width)
        )
        assert all(torch.isfinite(out).all() for out in maps)


@torch.no_grad()
def test_the_kernel_is_a_property_of_the_run() -> None:
    model, image = (
        small(**OPTIONS['log-axial and bias']).eval(),
        torch.randn(1, 3, 44, 60),
    )
    before = model(image)
    model.set_window_size((5, 7))
    other = small(**OPTIONS['log-axial and bias'], kernel_size=(5, 7)).eval()
    other.load_state_dict(model.state_dict())
    for actual, expected, old in zip(model(image), other(image), before, strict=True):
        assert torch.equal(actual, expected) and not torch.allclose(
            actual, old, atol=1e-3
        )


def test_a_sweep_over_kernels() -> None:
    """With the tools that know windows of a ``Backbone`` only."""
    model = nn.Module()
    model.backbone = small()
    loader = dict(
        dataset=dict(type='Any', pipeline=[dict(type='Resize', scale=(64, 64))])
    )
    config = Config(
        dict(model=dict(backbone=dict(type='RoPENAT')), test_dataloader=loader)
    )
    sweep = Evaluator(model, config)
    for window, expected in (('5', (5, 5)), ('3x7', (3, 7)), ('config', (3, 3))):
        sweep.apply(Setting('64', window=window))
        assert model.backbone.window_size == expected
    assert windows_text(model) == '3 x 3 tokens in all blocks'
    for window, message in (
        ('4', 'kernel_size must be odd'),
        ('17', 'larger than the map'),
    ):
        with pytest.raises(ValueError, match=message):
            sweep.apply(Setting('64', window=window))


@pytest.mark.parametrize('grid', [(9, 12), (3, 4)])  # the latter is padded to 6 x 6
@torch.no_grad()
def test_log_axial_positions_have_the_step_of_the_map(grid: tuple[int, int]) -> None:
    attn = small(rope=LOG_AXIAL).layers[0].blocks[1].attn
    plan = neighbour_plan(grid, (3, 3), 2, device=torch.device('cpu'))
    angles = attn.rope(torch.zeros(1, grid[0] * grid[1], 16), grid, plan.padded).angles
    steps = angles.unflatten(0, plan.padded).diff(dim=0)  # from row to row
    expected = attn.rope.frequencies(torch.device('cpu'))[1] * 2 / max(grid)
    torch.testing.assert_close(steps, expected.expand_as(steps), rtol=1e-4, atol=1e-4)


def test_scaling_follows_the_kernel() -> None:
    model = small(rope=MIXED, rope_scaling=dict(type='linear'))
    assert {block.attn.rope.scaling.factor for block in model.ordered_blocks} == {
        (1.0, 1.0)
    }
    model.set_window_size((3, 9))
    assert {block.attn.rope.scaling.factor for block in model.ordered_blocks} == {
        (1.0, 3.0)
    }
    model.set_rope_scaling(dict(type='linear', factor=2.0))
    assert {block.attn.rope.scaling.factor for block in model.ordered_blocks} == {
        (2.0, 2.0)
    }
    with pytest.raises(ValueError, match='rope_scaling'):
        small(rope=LOG_AXIAL, rope_scaling=dict(type='linear'))


def test_frozen_stages_have_no_gradient() -> None:
    model = small(frozen_stages=1).train()
    sum(out.sum() for out in model(torch.randn(1, 3, 32, 32))).backward()
    frozen = {
        name.split('.')[0] for name, p in model.named_parameters() if p.grad is None
    }
    assert frozen == {'patch_embed', 'layers', 'norm0'} and model.layers[1].training
    assert not model.layers[0].training and not model.patch_embed.training
    assert [
        model.layer_of(name) for name in ('patch_embed.norm.bias', 'norm1.bias')
    ] == [0, 6]
    assert [
        model.layer_of(f'layers.{name}') for name in ('0.blocks.1.x', '1.blocks.0.x')
    ] == [2, 3]


WRONG = [
    ('kernel_size', 4),
    ('kernel_size', 'auto'),
    ('kernel_size', None),
    ('pretrain_kernel_size', 0),
    ('dilations', ((1,),)),
    ('dilations', ((1,), ())),
    ('dilations', ((1,), (0,))),
    ('dilations', 2),
    ('backend', 'flash'),
    ('attention', dict(type='LocalPosition')),
    ('qkv_bias', 'qv'),
    ('in_channels', 0),
    ('drop_path_rate', 1.0),
    ('layer_scale_init_value', float('nan')),
    ('out_indices', (2,)),
    ('frozen_stages', 3),
    ('rope', True),
]


@pytest.mark.parametrize('name, value', WRONG)
def test_wrong_arguments(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf'{name} must be .+, got '):
        RoPENAT(SMALL, **dict(out_indices=(0, 1)) | {name: value})


@pytest.mark.parametrize(
    'arch, message',
    [
        ('nat', 'arch must be one of nat_mini, .+'),
        (dict(SMALL, depth=3), r"missing or unknown: \['depth'\]"),
        (dict(embed_dims=16), r"missing or unknown: \['depths', 'num_heads'\]"),
        (
            dict(SMALL, num_heads=(3, 4)),
            'stage 0 has 16 channels .+ not a multiple of its 3 heads',
        ),
        (dict(SMALL, mlp_ratio=0), 'mlp_ratio must be .+, got 0'),
        (dict(SMALL, overlapping=2), 'overlapping must be .+, got 2'),
    ],
)
def test_wrong_architectures(arch: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RoPENAT(arch)


def test_images_are_checked() -> None:
    with pytest.raises(ValueError, match=r'images must be \[batch, 3, height, width\]'):
        small()(torch.zeros(1, 4, 32, 32))


def test_a_checkpointed_block_has_the_same_gradients() -> None:
    model, image = (
        small(rope=MIXED, attention=dict(type='TableBias')),
        torch.randn(2, 3, 32, 44),
    )

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            sum(o.square().mean() for o in model(image)), model.parameters()
        )

    expected, model.with_cp = gradients(), True
    for actual, of in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(actual, of)
