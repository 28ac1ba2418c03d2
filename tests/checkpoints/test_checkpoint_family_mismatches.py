"""Weights of one family in the backbone of another: what the error says, and that it is one."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers.published import (
    hf_dinov3,
    hf_sam3,
    meta_dinov3,
    timm_eva02,
    timm_pe,
)
from helpers.small_checkpoints import Weights, refusal, saved
from rope_dense.backbones import RoPEViT

TINY = dict(embed_dims=64, depth=2, num_heads=1)


def like(name: str, **settings: object) -> dict:
    """The arch called ``name`` in two blocks of 64 channels."""
    return dict(arch=dict(RoPEViT.ARCHS[name], **TINY, **settings))


def full(name: str) -> dict:
    """The arch called ``name`` with two blocks."""
    return dict(arch=dict(RoPEViT.ARCHS[name], depth=2))


DINOV3 = like('dinov3_small')
EVA02 = like('eva02_base', mlp_ratio=2.5)
PE = like('pe_core_base', img_size=64, rope=RoPEViT.ARCHS['pe_core_base']['rope'])


def dinov3(**settings: bool) -> Weights:
    return meta_dinov3(64, 2, hidden=256, **settings)


def eva02(**settings: object) -> Weights:
    return timm_eva02(64, 2, hidden=160, **settings)


def without_storage(make: Callable[..., Weights], *sizes: int, **settings: object) -> Weights:
    """Keys and shapes of a large file."""
    with torch.device('meta'):
        return make(*sizes, **settings)


def changed_periods() -> Weights:
    return {**dinov3(qkv_bias=False), 'rope_embed.periods': 10000.0 ** (torch.arange(16) / 16)}


def without(weights: Weights, part: str) -> Weights:
    return {key: x for key, x in weights.items() if part not in key}


WRONG: dict[str, tuple[Weights, type, dict, list[str]]] = {
    # weights, backbone and its options, what the message says
    'DINOv3 for naver': (
        meta_dinov3(384, 12, hidden=1536, qkv_bias=False),
        RoPEViT,
        dict(arch='small'),
        ['left over: reg_token', "this looks like RoPEViT with arch='dinov3_small'"],
    ),
    'LingBot-Vision for naver': (
        meta_dinov3(384, 12, hidden=1536),
        RoPEViT,
        dict(arch='small'),
        ["this looks like RoPEViT with arch='lingbot_small'"],
    ),
    'SAM3 for PE': (
        without_storage(hf_sam3, 1024, 32, hidden=4736, side=24),
        RoPEViT,
        dict(arch='pe_core_large'),
        ["this looks like RoPEViT with arch='sam3'"],
    ),
    'HF DINOv3 of another size': (
        without_storage(hf_dinov3, 384, 12, hidden=1536, qkv_bias=False),
        RoPEViT,
        dict(arch='dinov3_base'),
        ["this looks like RoPEViT with arch='dinov3_small'"],
    ),
    'DINOv3 with biases': (dinov3(), RoPEViT, DINOV3, ['does not fit RoPEViT']),
    'DINOv3 of another theta': (
        changed_periods(),
        RoPEViT,
        DINOV3,
        ['left over: rope.periods'],
    ),
    'DINOv3 for other frequencies': (
        dinov3(qkv_bias=False),
        RoPEViT,
        dict(DINOV3, rope=dict(type='AxialRoPE', theta=100.0)),
        ['left over: rope.periods'],
    ),
    'other registers': (
        dinov3(qkv_bias=False),
        RoPEViT,
        dict(DINOV3, num_registers=1),
        ['reg_token [1, 4, 64] instead of [1, 1, 64]'],
    ),
    'EVA-02 without its norm': (
        without(eva02(), 'mlp.norm'),
        RoPEViT,
        EVA02,
        ['missing: blocks.*.mlp.norm.weight (2 times)'],
    ),
    'EVA-02 with half of qkv': (
        without(eva02(), 'k_proj'),
        RoPEViT,
        EVA02,
        ['blocks.0.attn.qkv.weight is made of 3 tensors', 'q_proj.weight, blocks.0.attn.v_proj'],
    ),
    'PE of another image size': (
        timm_pe(768, 2, side=14, core=True),
        RoPEViT,
        full('pe_spatial_base'),
        ['its positions run over 14 x 14 patches'],
    ),
    'EVA-02 of its authors': (
        {'blocks.0.attn.q_proj.weight': torch.ones(2, 2), 'blocks.0.mlp.w1.weight': torch.ones(2)},
        RoPEViT,
        EVA02,
        ['is made of 3 tensors'],
    ),
    'PE of its authors': (
        {'visual.transformer.resblocks.0.attn.in_proj_weight': torch.ones(6, 2)},
        RoPEViT,
        PE,
        ['layout of its keys is not known'],
    ),
    'a convolutional DINOv3': (
        {'stages.0.0.dwconv.weight': torch.ones(2, 1, 7, 7)},
        RoPEViT,
        DINOV3,
        ['layout of its keys is not known', 'Meta DINOv3'],
    ),
    'DINOv3 with a prefix': (
        {f'student.{key}': x for key, x in hf_dinov3(64, 2, hidden=256).items()},
        RoPEViT,
        DINOV3,
        ["Perhaps prefix='student.'"],
    ),
}


@pytest.mark.parametrize('weights, backbone, options, says', WRONG.values(), ids=WRONG)
def test_weights_of_another_family(
    weights: Weights, backbone: type, options: dict, says: list[str], tmp_path: Path
):
    path = saved({'model': weights}, tmp_path)
    text = re.sub(' +', ' ', refusal(backbone, path, **options))
    assert text.startswith(path)
    assert all(part in text for part in says), text
