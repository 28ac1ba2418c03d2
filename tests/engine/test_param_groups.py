"""Named parameter groups, on a model full of names that mislead substring rules."""

import logging

import pytest
import torch
from mmengine.logging import MMLogger
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import nn

import rope_dense  # noqa: F401
from rope_dense.engine.optimizer import group_table_text
from rope_dense.rope import MixedRoPE

ALL_ROLES = ['norm', 'embedding', 'position', 'frequency', 'one_dim']


class MisleadingBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, 4, 8))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.rope = MixedRoPE(head_dim=4, num_heads=2)
        self.blocks = nn.ModuleList(nn.MultiheadAttention(8, 2) for _ in range(2))
        self.norm_proj = nn.Linear(8, 8)  # no norm, in spite of its name
        self.out = nn.LayerNorm(8)  # a norm, in spite of its name


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = MisleadingBackbone()
        self.backbone2 = nn.Linear(2, 2)
        self.neck = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(11))
        self.freqs = nn.Parameter(torch.zeros(2, 2))  # not of a rotary embedding
        self.query = nn.Embedding(3, 2)
        self.bn = nn.BatchNorm2d(2)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(9, 2))
        self.frozen = nn.Linear(2, 2)
        self.frozen.requires_grad_(False)


def wrap(model: nn.Module, **paramwise_cfg: object) -> OptimWrapper:
    cfg = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=0.1, weight_decay=0.5),
        constructor='NamedGroupsConstructor',
        paramwise_cfg=paramwise_cfg,
    )
    return build_optim_wrapper(model, cfg)


def assignment(
    model: nn.Module, **paramwise_cfg: object
) -> dict[str, tuple[str, float, float]]:
    """Parameter name -> (group name, lr, weight decay); fails if a parameter is in two groups."""
    groups = wrap(model, **paramwise_cfg).optimizer.param_groups
    names = {id(param): name for name, param in model.named_parameters()}
    actual = [
        (names[id(param)], (group['name'], group['lr'], group['weight_decay']))
        for group in groups
        for param in group['params']
    ]
    assert len(actual) == len(dict(actual))
    assert len({group['name'] for group in groups}) == len(groups)
    return dict(actual)


def test_every_trained_parameter_is_in_exactly_one_group() -> None:
    model = Model()
    actual = assignment(model, lr_mult={'backbone': 0.1}, no_decay=ALL_ROLES)
    trained = {name for name, param in model.named_parameters() if param.requires_grad}
    assert set(actual) == trained
    assert not any(name.startswith('frozen') for name in actual)


def test_roles_come_from_modules_not_from_names() -> None:
    actual = assignment(Model(), lr_mult={'backbone': 0.1}, no_decay=ALL_ROLES)
    groups = {name: group for name, (group, _, _) in actual.items()}
    assert {
        'backbone.pos_embed': 'backbone/position',
        'backbone.cls_token': 'backbone/decay',
        'backbone.rope.freqs': 'backbone/frequency',
        'backbone.blocks.0.in_proj_weight': 'backbone/decay',
        'backbone.blocks.0.in_proj_bias': 'backbone/one_dim',
        'backbone.norm_proj.weight': 'backbone/decay',
        'backbone.norm_proj.bias': 'backbone/one_dim',
        'backbone.out.weight': 'backbone/norm',
        'backbone2.weight': '(rest)/decay',
        'freqs': '(rest)/decay',
        'query.weight': '(rest)/embedding',
        'bn.bias': '(rest)/norm',
        'relative_position_bias_table': '(rest)/position',
    }.items() <= groups.items()
    for group, lr, decay in actual.values():
        assert lr == pytest.approx(0.01 if group.startswith('backbone/') else 0.1)
        assert decay == (0.5 if group.endswith('/decay') else 0.0)


def test_only_the_listed_roles_are_exempt() -> None:
    actual = assignment(Model(), no_decay=['norm'])
    exempt = {name for name, (_, _, decay) in actual.items() if decay == 0}
    assert exempt == {
        'backbone.out.weight',
        'backbone.out.bias',
        'bn.weight',
        'bn.bias',
    }


def test_paths_match_whole_components_and_the_longest_counts() -> None:
    factors = {
        'backbone': 0.1,
        'backbone.out': 0.5,
        'neck.1': 0.2,
        'backbone.pos_embed': 0.0,
    }
    actual = {
        name: lr for name, (_, lr, _) in assignment(Model(), lr_mult=factors).items()
    }
    assert actual['backbone.norm_proj.weight'] == pytest.approx(0.01)
    assert actual['backbone.out.weight'] == pytest.approx(0.05)
    assert actual['backbone.pos_embed'] == 0
    assert actual['backbone2.weight'] == pytest.approx(0.1)
    assert actual['neck.1.weight'] == pytest.approx(0.02)
    assert actual['neck.10.weight'] == pytest.approx(0.1)


def test_the_optimizer_trains_with_the_groups() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    before = [param.detach().clone() for param in model.parameters()]
    optimizer = wrap(model, no_decay=['norm']).optimizer
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    optimizer.step()
    after = list(model.parameters())
    torch.testing.assert_close(after[0], before[0] * (1 - 0.1 * 0.5))  # decayed
    torch.testing.assert_close(after[2], before[2])  # exempt


VIT = dict(type='RoPEViT', arch='tiny', use_ape=True, num_registers=1, final_norm=True)
VIT_LAYERS = {
    'cls_token': 0,
    'pos_embed': 0,
    'patch_embed.proj.weight': 0,
    'reg_token': 0,
    'norm_pre.weight': 0,
    'blocks.0.norm1.weight': 1,
    'blocks.0.attn.rope.freqs': 1,
    'blocks.0.attn.qkv.q_bias': 1,
    'blocks.3.attn.norm.weight': 4,
    'blocks.11.attn.rope.freqs': 12,
    'blocks.11.mlp.fc1_g.weight': 12,
    'blocks.11.gamma_2': 12,
    'norm.weight': 13,
}
FAMILY = dict(mlp='swiglu', qkv_bias='qv', pre_norm=True, attn_norm=True)
SWIN = dict(type='RoPESwin', arch='tiny', attention=dict(type='TableBias'))
SWIN_LAYERS = {
    'patch_embed.norm.weight': 0,
    'layers.0.blocks.0.attn.qkv.weight': 1,
    'layers.0.blocks.0.attn.rope.freqs': 1,
    'layers.0.blocks.1.attn.relative_position_bias_table': 2,
    'layers.0.downsample.reduction.weight': 2,
    'layers.1.blocks.0.mlp.fc1.bias': 3,
    'layers.1.blocks.1.attn.rope.freqs': 4,
    'layers.2.blocks.5.norm2.weight': 10,
    'layers.3.blocks.1.norm2.weight': 12,
    'norm3.weight': 13,
}


def with_head(backbone: dict) -> nn.Module:
    init_default_scope('mmengine')
    with torch.device('meta'):
        return nn.ModuleDict(
            dict(backbone=MODELS.build(backbone), head=nn.Linear(2, 2))
        )


@pytest.mark.parametrize(
    'backbone, layers',
    [
        (
            VIT | dict(arch=dict(embed_dims=192, depth=12, num_heads=3, **FAMILY)),
            VIT_LAYERS,
        ),
        (SWIN, SWIN_LAYERS),
    ],
)
def test_layer_decay_goes_block_by_block(
    backbone: dict, layers: dict[str, int]
) -> None:
    actual = assignment(with_head(backbone), layer_decay=0.5)
    for name, layer in layers.items():
        group, lr, _ = actual[f'backbone.{name}']
        assert group == f'backbone/layer_{layer:02d}/decay', name
        assert lr == pytest.approx(0.1 * 0.5 ** (13 - layer)), name


@pytest.mark.parametrize('backbone', [VIT, SWIN])
def test_layer_decay_goes_along_with_factors_and_roles(backbone: dict) -> None:
    model = with_head(backbone)
    actual = assignment(
        model,
        layer_decay=0.5,
        lr_mult={'head': 2.0},
        no_decay=['position', 'frequency'],
    )
    assert actual.keys() == {name for name, _ in model.named_parameters()}
    layers = {
        group.split('/')[1]
        for group, *_ in actual.values()
        if group.startswith('backbone')
    }
    assert layers == {f'layer_{layer:02d}' for layer in range(14)}
    assert actual['head.weight'] == ('head/decay', 0.2, 0.5)
    for role, end in (
        ('position', ('pos_embed', 'bias_table')),
        ('frequency', 'rope.freqs'),
    ):
        names = {
            name for name, (group, *_) in actual.items() if group.endswith(f'/{role}')
        }
        assert names == {name for name in actual if name.endswith(end)} and names
        assert all(actual[name][2] == 0 for name in names)


def test_table_counts_what_is_in_the_groups(caplog: pytest.LogCaptureFixture) -> None:
    logger = MMLogger.get_instance('test_param_groups')
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO):
        groups = wrap(
            Model(), lr_mult={'backbone': 0.1}, no_decay=ALL_ROLES
        ).optimizer.param_groups
    table = group_table_text(groups, 0.1)
    assert caplog.text.count('Parameter groups of lr 0.1, weight decay 0.5:') == 1
    assert table in caplog.text
    lines = table.splitlines()
    assert len(lines) == 1 + len(groups)
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows['backbone/frequency'] == ['x', '0.1', '0', '8']
    assert rows['(rest)/embedding'] == ['x', '1', '0', '6']
    assert rows['(rest)/decay'] == ['x', '1', '0.5', '52']


def test_layers_share_a_row() -> None:
    groups = [
        dict(
            name=f'backbone/layer_{i:02d}/decay',
            lr=0.1 * 0.5**i,
            weight_decay=0.1,
            params=[p],
        )
        for i, p in enumerate(nn.Linear(2, 3).parameters())
    ]
    (row,) = group_table_text(groups, 0.1).splitlines()[1:]
    assert row.split() == ['backbone/layer_*/decay', *'x 0.5 to x 1 0.1 9'.split()]


@pytest.mark.parametrize(
    'options, message',
    [
        (
            dict(lr_mult={'bakbone': 0.1}),
            r"'bakbone' contains no parameter.*'backbone', 'backbone2'",
        ),
        (
            dict(lr_mult={'neck.11': 0.1}),
            r"'neck.11' contains no parameter.*'neck.0', 'neck.1', ",
        ),
        (
            dict(lr_mult={'backbone.out.w': 1}),
            r"'backbone.out.bias', 'backbone.out.weight'\]",
        ),
        (
            dict(no_decay=['norms']),
            r"no_decay role must be one of \('freq.*got 'norms'",
        ),
        (
            dict(custom_keys={}),
            r"paramwise_cfg has \['custom_keys'\], allowed are .*'layer_decay'",
        ),
        (dict(layer_decay=1.5), r'layer_decay must be in \(0, 1\], got 1.5'),
        (dict(), 'paramwise_cfg is empty'),
    ],
)
def test_mistakes_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(Model(), **options)


def test_layer_decay_needs_a_backbone_that_says_its_layers() -> None:
    for model, kind in ((nn.Linear(2, 2), 'NoneType'), (Model(), 'MisleadingBackbone')):
        with pytest.raises(ValueError, match=f'one of rope_dense, it is {kind}'):
            wrap(model, layer_decay=0.5)


def test_optimizer_must_state_its_base_values() -> None:
    cfg = dict(
        optimizer=dict(type='SGD', lr=0.1),
        constructor='NamedGroupsConstructor',
        paramwise_cfg=dict(no_decay=['norm']),
    )
    with pytest.raises(ValueError, match='must state `lr` and `weight_decay`'):
        build_optim_wrapper(Model(), cfg)
