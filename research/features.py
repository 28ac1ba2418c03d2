"""The input of a classifier from a backbone.

Letters: B batch, H x W token grid, N tokens (prefix and grid), C channels.
"""

from typing import Literal

from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.base import Backbone


def features_of(backbone: Backbone, image: Tensor) -> Tensor:
    """The normalised output of the last block of a backbone, for images [B, C, height, width].

    It is tokens [B, N, C] of a ViT, prefix tokens first, or a map [B, C, H, W] of another backbone.
    """
    if isinstance(backbone, RoPEViT):
        return backbone.forward_tokens(image)[0][-1]
    return backbone(image)[-1]


def pooled(backbone: Backbone, features: Tensor) -> Tensor:
    """The features of ``features_of`` to the input of a linear classifier, [B, C]."""
    if not isinstance(backbone, RoPEViT):
        return features.mean((2, 3))
    if pooling_of(backbone) == 'token':
        return features[:, 0]
    return features[:, backbone.num_prefix_tokens :].mean(1)


def pooling_of(backbone: Backbone) -> Literal['token', 'avg']:
    """The input of a linear classifier: class token, or mean of the features."""
    return (
        'token'
        if isinstance(backbone, RoPEViT) and backbone.cls_token is not None
        else 'avg'
    )


def check_features(backbone: Backbone) -> None:
    """Raise ValueError unless ``features_of`` are normalised and of the last block."""
    if not isinstance(backbone, RoPEViT):
        return
    if backbone.norm is None or backbone.out_indices[-1] != len(backbone.blocks) - 1:
        raise ValueError(
            'backbone: a classifier needs final_norm=True and the last block among out_indices'
        )


def map_norm(backbone: Backbone) -> nn.Module | None:
    """The norm of the last map of a backbone with stages; None for others."""
    return getattr(backbone, f'norm{backbone.out_indices[-1]}', None)
