"""Queries from the most promising tokens of the encoder.

Letters: B images, C channels, K classes, H x W map, N tokens of all maps, Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...utils.memo import is_tracing, memo
from ...utils.sizes import Size
from .layers import class_layer, mlp

ANCHOR_SIZE = 0.05  # of the largest map, relative to the image; twice that of each further one
ANCHOR_BORDER = 0.01  # an anchor with a value nearer to 0 or 1 makes no query


class Selection(NamedTuple):
    """Q tokens of each image.

    Attributes:
        queries: [B, Q, C].
        boxes: [B, Q, 4], before the sigmoid.
        logits: [B, Q, K].
    """

    queries: Tensor
    boxes: Tensor
    logits: Tensor


class QuerySelection(nn.Module):
    """The tokens with the highest score of any class, and a box for each.

    A token has an anchor at its place, for maps of any size. There are fewer queries where there
    are fewer tokens. Checked against transformers' DEIMv2 in tests/models/deim/test_detector.py,
    without the linear layer and norm of tokens (``enc_output``) that the source does not have.

    Args:
        channels: C.
        num_classes: K.
        num_queries: Q.
    """

    def __init__(self, channels: int, num_classes: int, num_queries: int) -> None:
        super().__init__()
        self.num_queries = num_queries
        self.cls = class_layer(channels, num_classes)
        self.reg = mlp(channels, channels, 4, 3, zero=True)

    def forward(self, maps: Sequence[Tensor]) -> Selection:
        """Maps [B, C, H, W], large to small, to queries."""
        anchors, valid = anchors_of(tuple(size_of(x) for x in maps), device=maps[0].device)
        tokens = torch.cat([x.flatten(2) for x in maps], 2).transpose(1, 2)  # [B, N, C]
        tokens = tokens * valid.to(tokens.dtype)
        logits = self.cls(tokens)
        number = tokens.shape[1]
        number = self.num_queries if is_tracing() else min(self.num_queries, number)
        index = logits.amax(-1).topk(number).indices  # [B, Q]
        queries = take(tokens, index)
        return Selection(queries, self.reg(queries) + anchors[index], take(logits, index))


def take(x: Tensor, index: Tensor) -> Tensor:
    """Rows [B, Q, C] of [B, N, C] by their index [B, Q] in each image."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def size_of(x: Tensor) -> Size:
    """(H, W) of maps or images [B, C, H, W]."""
    height, width = x.shape[2:]
    return height, width


@memo
def anchors_of(sizes: tuple[Size, ...], *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Boxes [N, 4] before the sigmoid for maps of these sizes, and which are valid [N, 1].

    A box is square for a square image, centred on its token. Those that are not valid are infinite.
    """
    anchors = torch.cat([grid_anchors(size, i, device) for i, size in enumerate(sizes)])
    inside = (anchors > ANCHOR_BORDER) & (anchors < 1 - ANCHOR_BORDER)
    valid = inside.all(-1, keepdim=True)
    return torch.log(anchors / (1 - anchors)).masked_fill(~valid, torch.inf), valid


def grid_anchors(size: Size, level: int, device: torch.device) -> Tensor:
    """Boxes [H W, 4], relative to the image, one at the centre of each token."""
    y, x = ((torch.arange(side, device=device).float() + 0.5) / side for side in size)
    columns, rows = torch.broadcast_tensors(x[None, :], y[:, None])
    side = torch.full_like(columns, ANCHOR_SIZE * 2**level)
    return torch.stack([columns, rows, side, side], -1).flatten(0, 1)
