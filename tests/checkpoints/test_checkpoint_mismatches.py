"""Weights that do not fit the backbone: the error names the keys and, if it can, the option."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.published import naver_swin, naver_vit
from helpers.small_checkpoints import (
    AXIAL,
    AXIAL_SWIN,
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
    return {**others, **{key: value for key, value in changes.items() if value is not None}}


def without(weights: Weights, part: str) -> Weights:
    return {key: value for key, value in weights.items() if part not in key}


RESNET = {
    'conv1.weight': torch.ones(64, 3, 7, 7),
    'layer1.0.conv1.weight': torch.ones(64, 64, 1, 1),
}
MMDET_SWIN = {'stages.0.blocks.0.attn.w_msa.qkv.weight': torch.ones(96, 32)}
WRONG: dict[str, tuple[Weights, type, dict, list[str]]] = {
    # weights, backbone and its options, what the message says
    'ResNet': (RESNET, RoPEViT, VIT, ['layout of its keys is not known', 'conv1.weight']),
    'mmdet Swin': (MMDET_SWIN, RoPESwin, SWIN, ['layout of its keys is not known', 'naver Swin']),
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
    'another depth': (
        naver_vit(64, 4, mixed=True, ape=False),
        RoPEViT,
        VIT,
        ['left over: blocks.3.norm1.weight,'],
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
    'learned axial in some blocks': (
        without(RoPEViT(**VIT, rope=dict(AXIAL, learned=True)).state_dict(), 'blocks.1.attn.rope'),
        RoPEViT,
        dict(VIT, rope=dict(AXIAL, learned=True)),
        ['missing: blocks.1.attn.rope.freqs'],
    ),
    'frequencies of all blocks in no blocks': (
        changed(without(vit(), 'freqs'), rope__freqs=torch.ones(2, 3, 32)),
        RoPEViT,
        VIT,
        ['rope.freqs is [2, 3, 32], not [2, blocks, heads, pairs]'],
    ),
    'frequencies of a block twice': (
        changed(
            without(vit(), 'freqs'),
            rope__freqs=torch.ones(2, 3, 1, 32),
            blocks__2__attn__rope__freqs=torch.ones(2, 1, 32),
        ),
        RoPEViT,
        VIT,
        ['blocks.2.attn.rope.freqs more than once: blocks.2.attn.rope.freqs, rope.freqs'],
    ),
    'other heads': (
        vit(),
        RoPEViT,
        dict(arch=dict(embed_dims=64, depth=3, num_heads=2)),
        ['blocks.*.attn.rope.freqs [2, 1, 32] instead of [2, 2, 16] (3 times)'],
    ),
    'APE for none': (vit(ape=True), RoPEViT, VIT, ['left over: pos_embed']),
    'none for APE': (
        vit(),
        RoPEViT,
        dict(VIT, use_ape=True),
        ['missing: pos_embed'],
    ),
    'no LayerScale': (
        without(vit(), 'gamma'),
        RoPEViT,
        VIT,
        ['missing: blocks.*.gamma_1 (3 times)'],
    ),
    'LayerScale for none': (
        vit(),
        RoPEViT,
        dict(VIT, layer_scale_init_value=None),
        ['left over: blocks.*.gamma_1 (3 times)'],
    ),
    'no class token': (
        without(vit(), 'cls'),
        RoPEViT,
        VIT,
        ['missing: cls_token'],
    ),
    'no final norm': (
        without(vit(), 'norm.'),
        RoPEViT,
        dict(VIT, final_norm=True),
        ['missing: norm.weight, norm.bias'],
    ),
    'no qkv bias': (without(vit(), 'qkv.bias'), RoPEViT, VIT, ['does not fit RoPEViT']),
    'another patch size': (vit(), RoPEViT, dict(VIT, patch_size=14), ['does not fit RoPEViT']),
    'other channels': (vit(), RoPEViT, dict(VIT, in_channels=1), ['does not fit RoPEViT']),
    'another MLP': (vit(), RoPEViT, dict(VIT, mlp_ratio=2.0), ['does not fit RoPEViT']),
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
    'a key misspelt': (
        changed(vit(), cls_token=None, cls_tokens=torch.ones(1, 1, 64), freqs_t_z=torch.ones(196)),
        RoPEViT,
        VIT,
        ['missing: cls_token\n left over: cls_tokens, freqs_t_z'],
    ),
    'no patches': (changed(vit(), patch_embed__proj__weight=None), RoPEViT, VIT, ['patch_embed']),
    'integers': (
        changed(vit(), blocks__0__norm1__bias=torch.ones(64, dtype=torch.int8)),
        RoPEViT,
        VIT,
        ['blocks.0.norm1.bias [64] torch.int8 instead of [64]'],
    ),
    'place for a class token': (
        changed(vit(ape=True), pos_embed=torch.ones(1, 197, 64)),
        RoPEViT,
        dict(VIT, use_ape=True),
        ['pos_embed [1, 197, 64] instead of [1, 196, 64]'],
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
        ['freqs is [2, 3, 40]: no heads of 64 channels'],
    ),
    'Swin for ViT': (swin('mixed'), RoPEViT, VIT, ['does not fit RoPEViT']),
    'ViT for Swin': (vit(), RoPESwin, SWIN, ['does not fit RoPESwin']),
    'Swin, mixed for axial': (
        swin('mixed'),
        RoPESwin,
        AXIAL_SWIN,
        ['left over: layers.*.blocks.*.attn.rope.freqs (6 times)'],
    ),
    'Swin, axial for mixed': (
        swin('axial'),
        RoPESwin,
        SWIN,
        ['axial, not mixed: layers.*.blocks.*.attn.rope.freqs (6 times)'],
    ),
    'Swin, another theta': (
        swin('axial', theta=10.0),
        RoPESwin,
        AXIAL_SWIN,
        ['left over: layers.*.blocks.*.attn.rope.freqs (6'],
    ),
    'Swin, one block without frequencies': (
        changed(swin('mixed'), layers__1__blocks__3__attn__rope_freqs=None),
        RoPESwin,
        SWIN,
        ['(naver Swin) does not fit', 'missing: layers.1.blocks.3.attn.rope.freqs'],
    ),
    'Swin, one block with others': (
        changed(swin('mixed'), layers__1__blocks__3__attn__rope_freqs=torch.ones(2, 1, 16)),
        RoPESwin,
        SWIN,
        ['layers.1.blocks.3.attn.rope.freqs [2, 1, 16] instead of [2, 2, 16]'],
    ),
    'bias for none': (swin('rpb'), RoPESwin, AXIAL_SWIN, ['does not fit RoPESwin']),
    'none for bias': (
        swin('mixed'),
        RoPESwin,
        dict(SWIN, use_rpb=True),
        ['missing: layers.*.blocks.*.attn.relative_position_bias_table (6'],
    ),
    'bias of no square window': (
        without(swin('rpb'), 'index')
        | {'layers.0.blocks.0.attn.relative_position_bias_table': torch.ones(50, 1)},
        RoPESwin,
        RPB_SWIN,
        ['blocks.0.attn.relative_position_bias_table [50, 1] instead of [49, 1]'],
    ),
    'patches without norm': (
        without(swin('mixed'), 'patch_embed.norm'),
        RoPESwin,
        SWIN,
        ['does not fit RoPESwin'],
    ),
    'the other output': (
        changed(swin('mixed'), norm0__weight=torch.ones(32), norm0__bias=torch.ones(32)),
        RoPESwin,
        dict(SWIN, out_indices=(1,)),
        ['missing: norm1.weight, norm1.bias'],
    ),
    'other outputs': (
        changed(swin('mixed'), norm0__weight=torch.ones(32), norm0__bias=torch.ones(32)),
        RoPESwin,
        SWIN,
        ['missing: norm1.weight, norm1.bias'],
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
