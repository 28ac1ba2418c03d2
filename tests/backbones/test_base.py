"""Declarations of a backbone agree with its behaviour."""

from collections.abc import Callable

import pytest
import torch

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.base import Backbone

WINDOWS = dict(with_cls_token=False, window_size=3, window_block_indexes=(0, 2))


def vit(**arguments: object) -> RoPEViT:
    return RoPEViT(dict(embed_dims=32, depth=4, num_heads=2), **arguments)


def swin(**arguments: object) -> RoPESwin:
    """Of three stages and five blocks."""
    arch = dict(embed_dims=16, depths=(2, 2, 1), num_heads=(1, 2, 4))
    return RoPESwin(arch, **{'window_size': 4, 'out_indices': (0, 1, 2), **arguments})


@pytest.mark.parametrize('build', [vit, swin])
def test_ordered_blocks_are_those_that_tokens_pass(build: Callable[[], Backbone]):
    model, seen = build(), []
    for block in model.ordered_blocks:
        block.register_forward_hook(lambda block, *_: seen.append(block))
    model(torch.zeros(1, 3, 64, 64))
    assert seen == model.ordered_blocks


@torch.no_grad()
def test_vit_declares_map_sizes():
    model = vit(out_indices=(0, 3))
    for size in ((64, 64), (80, 49), (16, 47)):
        maps = model(torch.zeros(1, 3, *size))
        assert [tuple(out.shape[2:]) for out in maps] == model.map_sizes(*size)


def test_vit_declares_layers():
    model = vit(use_ape=True, num_registers=2, final_norm=True)  # 4 blocks
    layers = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    first = ('cls_token', 'reg_token', 'pos_embed', 'patch_embed.proj.weight')
    assert [layers[name] for name in first] == [0] * 4
    assert layers['blocks.0.attn.rope.freqs'] == layers['blocks.0.gamma_1'] == 1
    assert layers['blocks.3.mlp.fc2.bias'] == 4 and layers['norm.weight'] == 5
    assert sorted(set(layers.values())) == list(range(6))


def test_vit_declares_tables():
    model = vit(use_ape=True, img_size=(64, 96))
    assert model.position_tables() == {'pos_embed': (4, 6)}
    assert model.pos_embed.shape == (1, 24, 32) and vit().position_tables() == {}


def test_vit_declares_windows():
    assert vit(**WINDOWS).has_windows and not vit().has_windows


@pytest.mark.parametrize('size', [(64, 64), (66, 97), (3, 5)])
def test_swin_declares_map_sizes(size: tuple[int, int]):
    model = swin(out_indices=(0, 2)).eval()
    with torch.no_grad():
        outs = model(torch.zeros(1, 3, *size))
    assert [tuple(out.shape[2:]) for out in outs] == model.map_sizes(*size)


def test_swin_declares_layers():
    model = swin(attention=dict(type='TableBias'))  # 5 blocks
    layers = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert layers['patch_embed.proj.weight'] == 0
    assert layers['layers.0.blocks.1.attn.rope.freqs'] == 2
    assert layers['layers.1.blocks.0.norm1.weight'] == 3
    assert layers['layers.2.blocks.0.mlp.fc1.bias'] == 5
    assert layers['layers.0.downsample.reduction.weight'] == 2
    assert layers['norm0.weight'] == layers['norm2.bias'] == 6
    assert sorted(set(layers.values())) == list(range(7))


def test_swin_declares_tables():
    model = swin(attention=dict(type='TableBias'), pretrain_window_size=(3, 5))
    tables, state = model.position_tables(), model.state_dict()
    assert list(tables) == [name for name in state if name.endswith('bias_table')]
    assert all(
        size == (5, 9) and len(state[name]) == 45 for name, size in tables.items()
    )
    assert swin().position_tables() == {}


@pytest.mark.parametrize('build', [vit, swin])
def test_init_weights_prints_no_list_of_tensors(
    build: Callable[[], Backbone], capfd: pytest.CaptureFixture
):
    build().init_weights()
    assert ''.join(capfd.readouterr()) == ''
