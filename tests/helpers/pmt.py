"""Small PMTs with random weights, of its source and ours, that the tests share.

``ROPE_DENSE_PMT`` names a checkout of tue-mps/pmt (checked at 54d73c9), whose image/models is
executed.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from helpers.eomt import ARCH, CLASSES, QUERIES, randomise
from helpers.timm_import import import_timm
from rope_dense.backbones import RoPEViT
from rope_dense.models.eomt.pmt import PMT

VARIABLE = 'ROPE_DENSE_PMT'
LATERALS, BLOCKS = (0, 1, 2, 3), 2
SIDE = 64


def build(**settings: Any) -> tuple[RoPEViT, PMT]:
    """A backbone, of DINOv3's kind by default, and a PMT with two blocks."""
    backbone = RoPEViT(**(dict(arch=ARCH, out_indices=LATERALS) | settings))
    patch_size, number = backbone.arch.patch_size, len(backbone.out_indices)
    blocks = dict(num_heads=2)
    pmt = PMT(
        32, CLASSES, QUERIES, BLOCKS, patch_size, num_laterals=number, blocks=blocks
    )
    pmt.join(backbone)
    return backbone, pmt


@cache
def source() -> ModuleType:
    """Its image/models/pmt.py; skips without a checkout."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f'{VARIABLE} names no checkout of tue-mps/pmt')
    folder = Path(os.environ[VARIABLE], 'image', 'models')
    assert folder.is_dir(), folder
    import_timm()
    pytest.importorskip('transformers.pytorch_utils')
    package = ModuleType('models')
    package.__path__ = [str(folder)]
    with patch.dict(sys.modules, models=package):  # as its files import each other
        return importlib.import_module('models.pmt')


class Encoder(nn.Module):
    """transformers' DINOv3 as the source's ``ViT`` prepares it."""

    is_dinov3 = True

    def __init__(self, frozen: bool = True) -> None:
        super().__init__()
        dinov3: Any = pytest.importorskip('transformers.models.dinov3_vit')
        config = dinov3.DINOv3ViTConfig(
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=128,
            num_register_tokens=4,
            image_size=SIDE,
            pos_embed_rescale=None,
        )
        model = dinov3.DINOv3ViTModel(config)
        self.hub_weights = model.state_dict  # under the names of the hub
        backbone: Any = nn.Module()
        backbone.patch_embed, backbone.norm = model.embeddings, model.norm
        backbone.rope_embeddings, backbone.blocks = (
            model.rope_embeddings,
            model.model.layer,
        )
        backbone.patch_embed.patch_size = (16, 16)
        backbone.patch_embed.grid_size = (SIDE // 16, SIDE // 16)
        backbone.embed_dim, backbone.num_prefix_tokens = 32, 5
        self.backbone, self.is_frozen = backbone, frozen
        self.register_buffer('pixel_mean', torch.zeros(1, 3, 1, 1))
        self.register_buffer('pixel_std', torch.ones(1, 3, 1, 1))


def theirs(frozen: bool = True) -> nn.Module:
    """The source's model of the sizes of ``build``, for images of 64 x 64 pixels."""
    model = source().PMT(
        Encoder(frozen),
        CLASSES,
        QUERIES,
        BLOCKS,
        interaction_indices=list(LATERALS),
        hidden_dim=32,
    )
    # On a CPU: the sums over processes need a GPU.
    model.bn = nn.ModuleList(nn.BatchNorm1d(32) for _ in LATERALS)
    for norm in model.bn:
        norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2.0)
    randomise(model)
    nn.init.zeros_(model.decoder.upscale[-1].norm.bias)  # masks of both signs
    return model


def published(model: nn.Module) -> dict[str, Tensor]:
    """What the source writes: Lightning's names, without the encoder's backbone."""
    state = {f'network.{key}': x for key, x in model.state_dict().items()}
    return {
        k: x for k, x in state.items() if not k.startswith('network.encoder.backbone.')
    }
