"""Weights that do not fit the backbone: the error names the keys and, if it can, the option."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.published import (
    hf_dinov3,
    meta_dinov3,
    naver_swin,
    naver_vit,
    timm_eva02,
    timm_pe,
)
from helpers.small_checkpoints import (
    AXIAL,
    RPB_SWIN,
    SWIN,
    VIT,
    Weights,
    refusal,
    saved,
    swin,
    vit,
)
from rope_dense.backbones import RoPESwin, RoPEViT


def changed(weights: Weights, **changes: Tensor | None) -> Weights:
    """With other values (None: without) for keys whose dots are written as two underscores."""
    changes = {key.replace('__', '.'): value for key, value in changes.items()}
    others = {key: value for key, value in weights.items() if key not in changes}
    return {
        **others,
        **{key: value for key, value in changes.items() if value is not None},
    }


def without(weights: Weights, part: str) -> Weights:
    return {key: value for key, value in weights.items() if part not in key}


TINY = dict(embed_dims=64, depth=2, num_heads=1)
DINOV3 = dict(arch=dict(RoPEViT.ARCHS['dinov3_small'], **TINY))
EVA02 = dict(arch=dict(RoPEViT.ARCHS['eva02_base'], **TINY, mlp_ratio=2.5))


def dinov3() -> Weights:
    return meta_dinov3(64, 2, hidden=256, qkv_bias=False)


RESNET = {
    'conv1.weight': torch.ones(64, 3, 7, 7),
    'layer1.0.conv1.weight': torch.ones(64, 64, 1, 1),
}
MMDET_SWIN = {'stages.0.blocks.0.attn.w_msa.qkv.weight': torch.ones(96, 32)}
WRONG: dict[str, tuple[Weights, type, dict, list[str]]] = {
    # weights, backbone and its options, what the message says
    'ResNet': (
        RESNET,
        RoPEViT,
        VIT,
        ['layout of its keys is not known', 'conv1.weight'],
    ),
    'mmdet Swin': (
        MMDET_SWIN,
        RoPESwin,
        SWIN,
        ['layout of its keys is not known', 'naver Swin'],
    ),
    'not a number': (
        changed(vit(), cls_token=torch.full((1, 1, 64), torch.nan)),
        RoPEViT,
        VIT,
        ['not finite (NaN or infinite): cls_token'],
    ),
    'another size': (
        naver_vit(384, 12, mixed=True, ape=False, device='meta'),
        RoPEViT,
        VIT,
        [
            "this looks like RoPEViT with arch='small'",
            'blocks.*.attn.qkv.weight [1152, 384] instead of [192, 64] (3 times)',
        ],
    ),
    'another Swin': (
        naver_swin(96, (2, 2, 18, 2), (3, 6, 12, 24), 'mixed', device='meta'),
        RoPESwin,
        dict(arch='tiny'),
        [
            "this looks like RoPESwin with arch='small'",
            'left over: ',
            'layers.*.blocks.*.attn.rope.freqs (12 times)',
        ],
    ),
    'mixed for axial': (
        vit(),
        RoPEViT,
        dict(VIT, rope=AXIAL),
        ['left over: blocks.*.attn.rope.freqs (3 times)'],
    ),
    'axial for mixed': (
        vit(mixed=False),
        RoPEViT,
        VIT,
        ['missing: blocks.*.attn.rope.freqs (3'],
    ),
    'mixed for learned axial': (
        vit(),
        RoPEViT,
        dict(VIT, rope=dict(AXIAL, learned=True)),
        ['blocks.*.attn.rope.freqs [2, 1, 32] instead of [2, 1, 16] (3 times)'],
    ),
    'frequencies of all blocks in no blocks': (
        changed(without(vit(), 'freqs'), rope__freqs=torch.ones(2, 3, 32)),
        RoPEViT,
        VIT,
        ['blocks.*.attn.rope.freqs [2, 32] instead of [2, 1, 32] (3 times)'],
    ),
    'frequencies of a block twice': (
        changed(
            without(vit(), 'freqs'),
            rope__freqs=torch.ones(2, 3, 1, 32),
            blocks__2__attn__rope__freqs=torch.ones(2, 1, 32),
        ),
        RoPEViT,
        VIT,
        [
            'blocks.2.attn.rope.freqs more than once: blocks.2.attn.rope.freqs, rope.freqs'
        ],
    ),
    'none for APE': (
        vit(),
        RoPEViT,
        dict(VIT, use_ape=True),
        ['missing: pos_embed'],
    ),
    'no final norm': (
        without(vit(), 'norm.'),
        RoPEViT,
        dict(VIT, final_norm=True),
        ['missing: norm.weight, norm.bias'],
    ),
    'a key missing': (
        changed(vit(), blocks__1__gamma_2=None),
        RoPEViT,
        VIT,
        ['does not fit RoPEViT:\n missing: blocks.1.gamma_2'],
    ),
    'a key too many': (
        changed(vit(), reg_token=torch.ones(1, 4, 64)),
        RoPEViT,
        VIT,
        ['does not fit RoPEViT:\n left over: reg_token'],
    ),
    'integers': (
        changed(vit(), blocks__0__norm1__bias=torch.ones(64, dtype=torch.int8)),
        RoPEViT,
        VIT,
        ['blocks.0.norm1.bias [64] torch.int8 instead of [64]'],
    ),
    'no grid of patches': (
        changed(vit(ape=True), pos_embed=torch.ones(1, 140, 64)),
        RoPEViT,
        dict(VIT, use_ape=True),
        ['pos_embed [1, 140, 64] instead of [1, 196, 64]'],
    ),
    'odd frequencies': (
        changed(vit(), freqs=torch.ones(2, 3, 40)),
        RoPEViT,
        VIT,
        ['freqs does not have the shape of this layout'],
    ),
    'Swin for ViT': (swin('mixed'), RoPEViT, VIT, ['does not fit RoPEViT']),
    'Swin, axial for mixed': (
        swin('axial'),
        RoPESwin,
        SWIN,
        ['axial, not mixed: layers.*.blocks.*.attn.rope.freqs (6 times)'],
    ),
    'Swin, one block with others': (
        changed(
            swin('mixed'), layers__1__blocks__3__attn__rope_freqs=torch.ones(2, 1, 16)
        ),
        RoPESwin,
        SWIN,
        ['layers.1.blocks.3.attn.rope.freqs [2, 1, 16] instead of [2, 2, 16]'],
    ),
    'bias of no square window': (
        without(swin('rpb'), 'index')
        | {'layers.0.blocks.0.attn.relative_position_bias_table': torch.ones(50, 1)},
        RoPESwin,
        RPB_SWIN,
        ['blocks.0.attn.relative_position_bias_table [50, 1] instead of [49, 1]'],
    ),
    'the other output': (
        changed(
            swin('mixed'), norm0__weight=torch.ones(32), norm0__bias=torch.ones(32)
        ),
        RoPESwin,
        dict(SWIN, out_indices=(1,)),
        ['missing: norm1.weight, norm1.bias'],
    ),
    'DINOv3 for naver': (
        meta_dinov3(384, 12, hidden=1536, qkv_bias=False),
        RoPEViT,
        dict(arch='small'),
        ['left over: reg_token', "this looks like RoPEViT with arch='dinov3_small'"],
    ),
    'DINOv3 of another theta': (
        {**dinov3(), 'rope_embed.periods': 10000.0 ** (torch.arange(16) / 16)},
        RoPEViT,
        DINOV3,
        ['left over: rope.periods'],
    ),
    'DINOv3 for other frequencies': (
        dinov3(),
        RoPEViT,
        dict(DINOV3, rope=AXIAL),
        ['left over: rope.periods'],
    ),
    'DINOv3 with a prefix': (
        {f'encoder.{key}': x for key, x in hf_dinov3(64, 2, hidden=256).items()},
        RoPEViT,
        DINOV3,
        ["Perhaps prefix='encoder.'"],
    ),
    'EVA-02 with half of qkv': (
        without(timm_eva02(64, 2, hidden=160), 'k_proj'),
        RoPEViT,
        EVA02,
        ['blocks.*.attn.qkv.weight [128, 64] instead of [192, 64] (2 times)'],
    ),
    'PE of another image size': (
        timm_pe(768, 2, side=14, core=True),
        RoPEViT,
        dict(arch=dict(RoPEViT.ARCHS['pe_spatial_base'], depth=2)),
        ['its positions run over 14 x 14 patches'],
    ),
}


@pytest.mark.parametrize('weights, backbone, options, says', WRONG.values(), ids=WRONG)
def test_weights_that_do_not_fit(
    weights: Weights, backbone: type, options: dict, says: list[str], tmp_path: Path
):
    path = saved({'model': weights}, tmp_path)
    text = re.sub(' +', ' ', refusal(backbone, path, **options))
    assert text.startswith(path)
    assert all(part in text for part in says), text
