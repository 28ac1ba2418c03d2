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
    naver_swin,
    naver_vit,
    timm_eva02,
    timm_pe,
)
from helpers.small_checkpoints import Weights, refusal, saved
from rope_dense.backbones import RoPESwin, RoPEViT

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
        ['left over: reg_token', "nearest: arch='dinov3_small'\n", 'num_registers 4 0'],
    ),
    'LingBot-Vision for naver': (
        meta_dinov3(384, 12, hidden=1536),
        RoPEViT,
        dict(arch='small'),
        ["nearest: arch='lingbot_small'\n", 'num_registers 4 0'],
    ),
    'SAM3 for PE': (
        without_storage(hf_sam3, 1024, 32, hidden=4736, side=24),
        RoPEViT,
        dict(arch='pe_core_large'),
        ["nearest: arch='sam3'\n", 'depth (of arch) 32 24'],
    ),
    'DINOv3 for EVA-02': (
        without_storage(hf_dinov3, 384, 12, hidden=1536, swiglu=True, qkv_bias=False),
        RoPEViT,
        dict(arch='eva02_small'),
        ["nearest: arch='dinov3_small_plus'\n", 'num_registers 4 0'],
    ),
    'HF DINOv3 of another size': (
        without_storage(hf_dinov3, 384, 12, hidden=1536, qkv_bias=False),
        RoPEViT,
        dict(arch='dinov3_base'),
        ["nearest: arch='dinov3_small'\n", 'embed_dims (of arch) 384 768'],
    ),
    'DINOv3 with biases': (dinov3(), RoPEViT, DINOV3, ["qkv_bias 'qv' False", 'q_bias (2 times)']),
    'DINOv3 without biases': (
        dinov3(qkv_bias=False),
        RoPEViT,
        dict(DINOV3, qkv_bias='qv'),
        ["qkv_bias False 'qv'", 'missing: blocks.*.attn.qkv.q_bias (2 times)'],
    ),
    'DINOv3 with SwiGLU': (
        meta_dinov3(384, 12, hidden=1536, swiglu=True, qkv_bias=False),
        RoPEViT,
        dict(arch='dinov3_small'),
        ["nearest: arch='dinov3_small_plus'\n", "mlp (of arch) 'swiglu' 'gelu'"],
    ),
    'DINOv3 of another theta': (
        changed_periods(),
        RoPEViT,
        DINOV3,
        ['left over: rope.periods', "series='periods', theta=1e+04"],
    ),
    'DINOv3 for other frequencies': (
        dinov3(qkv_bias=False),
        RoPEViT,
        dict(DINOV3, rope=dict(type='AxialRoPE', theta=100.0)),
        ['left over: rope.periods', "series='periods'"],
    ),
    'other registers': (
        dinov3(qkv_bias=False),
        RoPEViT,
        dict(DINOV3, num_registers=1),
        ['reg_token [1, 4, 64] instead of [1, 1, 64]', 'num_registers 4 1'],
    ),
    'naver for DINOv3': (
        naver_vit(768, 2, mixed=True, ape=False),
        RoPEViT,
        full('dinov3_base'),
        ['missing: reg_token', "rope type='MixedRoPE' type='AxialRoPE'", 'num_registers 0 4'],
    ),
    'EVA-02 of another patch size': (
        eva02(),
        RoPEViT,
        dict(EVA02, patch_size=16),
        ['patch_size 14 16', '[64, 3, 14, 14] instead of [64, 3, 16, 16]'],
    ),
    'EVA-02 of another size': (
        without_storage(timm_eva02, 384, 12, hidden=1024, packed=True),
        RoPEViT,
        dict(arch='eva02_tiny'),
        ["nearest: arch='eva02_small'\n", 'embed_dims (of arch) 384 192'],
    ),
    'EVA-02 for EVA-02-CLIP': (
        eva02(),
        RoPEViT,
        like('eva02_clip_base', mlp_ratio=2.5, attn_norm=True) | dict(patch_size=14),
        ['missing: blocks.*.attn.norm.weight (2 times)', 'attn_norm (of arch) False True'],
    ),
    'EVA-02 without its norm': (
        without(eva02(), 'mlp.norm'),
        RoPEViT,
        EVA02,
        ["mlp (of arch) 'swiglu' 'swiglu_norm'", 'missing: blocks.*.mlp.norm.weight (2 times)'],
    ),
    'EVA-02 without a class token': (
        without(eva02(), 'cls_token'),
        RoPEViT,
        EVA02,
        ['missing: cls_token', 'pos_embed'],
    ),
    'EVA-02 with half of qkv': (
        without(eva02(), 'k_proj'),
        RoPEViT,
        EVA02,
        ['blocks.0.attn.qkv.weight is made of 3 tensors', 'q_proj.weight, blocks.0.attn.v_proj'],
    ),
    'PE for naver': (
        without_storage(timm_pe, 768, 12, side=14, core=True),
        RoPEViT,
        dict(arch='base'),
        ['left over: ', 'norm_pre.weight', "nearest: arch='pe_core_base'\n", 'use_ape True False'],
    ),
    'PE of another image size': (
        timm_pe(768, 2, side=14, core=True),
        RoPEViT,
        full('pe_spatial_base'),
        ['its positions run over 14 x 14 patches, those of the model over 32 x 32'],
    ),
    'naver for PE': (
        naver_vit(64, 2, mixed=False, ape=True),
        RoPEViT,
        PE,
        ['missing: norm_pre.weight, norm_pre.bias', 'patch_embed.proj.bias'],
    ),
    'DINOv3 for Swin': (dinov3(), RoPESwin, dict(), ["is a ViT: it needs type='RoPEViT'"]),
    'Swin for DINOv3': (
        naver_swin(32, (2, 2), (1, 2), 'mixed'),
        RoPEViT,
        DINOV3,
        ["is a Swin: it needs type='RoPESwin'"],
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
        ['layout of its keys is not known', 'timm Perception Encoder'],
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


def test_tokens_dropped_on_purpose_are_no_reason(tmp_path: Path):
    windows = dict(with_cls_token=False, num_registers=0, window_block_indexes=(0,))
    text = refusal(RoPEViT, saved(dinov3(), tmp_path), **DINOV3, **windows)
    assert re.sub(' +', ' ', text).endswith("\n option checkpoint model\n qkv_bias 'qv' False")
    assert 'left over: blocks.*.attn.qkv.q_bias' in text


@pytest.mark.parametrize('weights, backbone, options, says', WRONG.values(), ids=WRONG)
def test_weights_of_another_family(
    weights: Weights, backbone: type, options: dict, says: list[str], tmp_path: Path
):
    path = saved({'model': weights}, tmp_path)
    text = re.sub(' +', ' ', refusal(backbone, path, **options))
    assert text.startswith(path)
    assert all(part in text for part in says), text
