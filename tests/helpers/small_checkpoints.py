"""Small backbones, weights for them, loading and refusals, for the tests of checkpoints."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from helpers.published import naver_swin, naver_vit
from rope_dense.checkpoints import CheckpointError

Weights = dict[str, Tensor]
Model = TypeVar('Model', bound=nn.Module)

AXIAL = dict(type='AxialRoPE', theta=100.0)
VIT = dict(arch=dict(embed_dims=64, depth=3, num_heads=1))
SWIN = dict(
    arch=dict(embed_dims=32, depths=(2, 4), num_heads=(1, 2)),
    out_indices=(0, 1),
    window_size=4,
    pretrain_window_size=4,
)
AXIAL_SWIN = dict(SWIN, rope=dict(type='AxialRoPE', theta=50.0))
RPB_SWIN = dict(SWIN, rope=None, attention=dict(type='TableBias'))


def vit(**layout: Any) -> Weights:
    return naver_vit(64, 3, **{'mixed': True, 'ape': False, **layout})


def swin(variant: str, **options: Any) -> Weights:
    return naver_swin(32, (2, 4), (1, 2), variant, **{'window_size': 4, **options})


def earlier(weights: Weights) -> Weights:
    """As earlier versions named the same weights: the frequencies of all blocks, or of those of a
    stage, in one tensor, and other names of the biases of queries and values."""
    old: Weights = {}
    freqs: defaultdict[str, Weights] = defaultdict(dict)
    for key, tensor in weights.items():
        if match := re.fullmatch(
            r'(layers\.\d+\.)?blocks\.(\d+)\.attn\.rope\.freqs', key
        ):
            freqs[f'{match[1] or ""}rope.freqs'][match[2]] = tensor
        else:
            old[re.sub(r'attn\.qkv\.([qv]_bias)', r'attn.\1', key)] = tensor
    return {
        **old,
        **{
            key: torch.stack([of[str(i)] for i in range(len(of))], 1)
            for key, of in freqs.items()
        },
    }


def saved(contents: object, folder: Path) -> str:
    torch.save(contents, folder / 'weights.pth')
    return str(folder / 'weights.pth')


def build(
    backbone: type[Model], checkpoint: str, prefix: str | None = None, **options: object
) -> Model:
    init_cfg = dict(type='Pretrained', checkpoint=checkpoint)
    if prefix is not None:
        init_cfg['prefix'] = prefix
    return backbone(init_cfg=init_cfg, **options)


def load(
    backbone: type[Model], checkpoint: str, prefix: str | None = None, **options: object
) -> Model:
    model = build(backbone, checkpoint, prefix, **options)
    model.init_weights()
    return model


def refusal(
    backbone: type[nn.Module],
    checkpoint: str,
    prefix: str | None = None,
    **options: object,
) -> str:
    """The message of the error; the model stays as it was, and does not count as initialised."""
    model = build(backbone, checkpoint, prefix, **options)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        model.init_weights()
    assert all(
        torch.equal(value, before[key]) for key, value in model.state_dict().items()
    )
    assert not model.is_init
    return str(caught.value)


def randomize(model: nn.Module) -> None:
    """Weights with which every part matters: LayerScale near 1, norms and biases not trivial."""
    for name, parameter in model.named_parameters():
        if name.endswith('freqs'):
            continue
        std = 0.05 if parameter.dim() > 1 else 0.2
        nn.init.normal_(parameter, std=std)
        if 'gamma' in name or ('norm' in name and name.endswith('weight')):
            parameter.data += 1
