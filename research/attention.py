"""Attention distance and entropy of the blocks of a model."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rope_dense.backbones.base import Backbone

from .probe import CHUNK, AttentionProbe


@dataclass(frozen=True)
class BlockStatistics:
    """Means over the images, heads and queries of one block, prefix tokens among the queries.

    Heo et al., "Rotary Position Embedding for Vision Transformer", figures 2 and 3.

    Attributes:
        block: its index in ``ordered_blocks``.
        stride: pixels from one of its tokens to the next.
        distance: sum over the keys of probability times distance to the query (Euclidean), in
            tokens of its map; pairs with a prefix token or with padding have the distance 0.
        entropy: -sum over the keys of p log p, in nats.
    """

    block: int
    stride: int
    distance: float
    entropy: float

    @property
    def distance_px(self) -> float:
        """The distance in pixels."""
        return self.stride * self.distance


@torch.no_grad()
def attention_statistics(
    backbone: Backbone, images: Iterable[Tensor], chunk: int = CHUNK
) -> list[BlockStatistics]:
    """Attention distance and entropy of each block.

    It observes the arguments of ``scaled_dot_product_attention``: rotated, with bias, masks,
    windows and neighbourhoods. Checked in test_analysis_attention.py against attention token by
    token in float64.

    Args:
        backbone: in evaluation mode.
        images: [B, 3, height, width] each, normalised, all of one size.
        chunk: probabilities in memory at a time; one query of each group at least.

    Raises:
        ValueError: a block without a softmax, or whose attention is computed by NATTEN; no image.
    """
    blocks = backbone.ordered_blocks
    probe = AttentionProbe(len(blocks), chunk)
    hooks = []
    for index, block in enumerate(blocks):
        hooks.append(block.attn.register_forward_pre_hook(partial(probe.enter, index)))
        hooks.append(block.attn.register_forward_hook(probe.leave))
    try:
        with probe:
            for image in images:
                backbone(image)
    finally:
        for hook in hooks:
            hook.remove()
    if not probe.weights.all():
        raise ValueError('images: there is none')
    means = (probe.sums / probe.weights[:, None]).tolist()
    strides = backbone.block_strides
    return [
        BlockStatistics(index, stride, *values)
        for index, (stride, values) in enumerate(zip(strides, means, strict=True))
    ]
