"""Decoder layers that refine the classes and boxes of queries.

Letters: B images, Q queries, C channels, K classes, L layers, R + 1 bins, h heads.
"""

from collections.abc import Sequence
from typing import get_args

import torch
from mmdet.models.layers import inverse_sigmoid
from torch import Tensor, nn

from ...utils.validation import check_choice, checked_indexes
from ..maps import Maps
from .layers import (
    FFN,
    DeformableAttention,
    FeedForward,
    Gateway,
    Norm,
    SelfAttention,
    class_layer,
    mlp,
    token_norm,
)
from .predictions import (
    Prediction,
    decode_distances,
    distance_bins,
    distributions,
    mean_distances,
)

MAX_FLOAT16 = 65504
# Probabilities of each side that the quality of a box is estimated from.
QUALITY_TOP = 4
QUALITY_CHANNELS = 64


class DEIMDecoder(nn.Module):
    """Decoder of D-FINE with the layers of DEIMv2 or ECDet.

    The first layer makes a box of each query, which later distances count from. Each layer adds to
    the logits of the distributions of its four sides, and makes class logits, corrected by the
    quality of the box as estimated from the shape of these distributions. Huang et al., "Real-Time
    Object Detection Meets DINOv3", 2025. Checked against transformers' ``Deimv2Decoder`` in
    tests/models/deim/test_detector.py, with SiLU in its MLPs and with the query positions of its
    first layer in all layers, as in the source.

    Args:
        embed_dims: C.
        num_classes: K.
        num_layers: L.
        feedforward_channels: of the MLP, as published: both halves of SwiGLU together.
        num_heads: h.
        num_points: of the deformable attention, in each map, large to small.
        eval_idx: the layer whose predictions count in evaluation; later ones do not run then.
        norm: 'rms' (DEIMv2) or 'layer' (ECDet).
        ffn: 'swiglu' (DEIMv2) or 'mlp' (ECDet).
        reg_max: R.
        reg_scale: distances per size of a reference box, see ``distance_bins``.
        up: bound of the distances, see ``distance_bins``.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    bins: Tensor
    num_values = 4  # of a box, each with a distribution
    attention = DeformableAttention

    def __init__(
        self,
        embed_dims: int,
        num_classes: int,
        num_layers: int,
        feedforward_channels: int,
        num_heads: int = 8,
        num_points: Sequence[int] = (3, 6, 3),
        eval_idx: int = -1,
        norm: Norm = 'rms',
        ffn: FFN = 'swiglu',
        reg_max: int = 32,
        reg_scale: float = 4.0,
        up: float = 0.5,
    ) -> None:
        super().__init__()
        check_choice('norm', norm, get_args(Norm))
        check_choice('ffn', ffn, get_args(FFN))
        (self.eval_idx,) = checked_indexes('eval_idx', [eval_idx], num_layers)
        self.num_heads = num_heads
        self.reg_scale = reg_scale
        self.layers = nn.ModuleList(
            DecoderLayer(
                self.attention,
                embed_dims,
                num_heads,
                feedforward_channels,
                num_points,
                norm,
                ffn,
            )
            for _ in range(num_layers)
        )
        self.query_pos = mlp(self.num_values, embed_dims, embed_dims, 3)
        for module in self.query_pos:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        self.pre_bbox = mlp(embed_dims, embed_dims, self.num_values, 3, zero=True)
        layers = range(num_layers)
        self.cls_branches = nn.ModuleList(
            class_layer(embed_dims, num_classes) for _ in layers
        )
        self.reg_branches = nn.ModuleList(
            mlp(embed_dims, embed_dims, self.num_values * (reg_max + 1), 3, zero=True)
            for _ in layers
        )
        self.quality = nn.ModuleList(
            mlp(self.num_values * (QUALITY_TOP + 1), QUALITY_CHANNELS, 1, 2, zero=True)
            for _ in layers
        )
        bins = distance_bins(reg_max, reg_scale, up)
        self.register_buffer('bins', bins, persistent=False)

    def forward(
        self,
        queries: Tensor,
        boxes: Tensor,
        maps: Maps,
        mask: Tensor | None = None,
    ) -> tuple[list[Prediction], Prediction | None]:
        """Predictions of all layers in training, else of layer ``eval_idx`` alone.

        Args:
            queries: [B, Q, C].
            boxes: [B, Q, 4] before the sigmoid.
            maps: [B, C, H, W], large to small.
            mask: [Q, Q], true where a query (row) attends to another (column).

        Returns:
            These, and in training the classes and boxes of the first layer without distributions.
        """
        boxes = self.start(boxes)
        heads = self.num_heads
        values = [x.unflatten(1, (heads, -1)).flatten(0, 1).float() for x in maps]
        numbers = to_weight_dtype(self.query_pos, self.entries(boxes))
        positions = self.query_pos(numbers).clamp(-10, 10)
        number = len(self.layers) if self.training else self.eval_idx + 1
        predictions: list[Prediction] = []
        pre = None
        reference = boxes
        corners = None
        before = None
        for index in range(number):
            frames = self.frames(boxes, maps)
            queries = self.layers[index](queries, positions, frames, values, mask)
            if index == 0:
                start = self.correct(boxes, self.pre_bbox(queries))
                reference = start.detach()
                if self.training:
                    logits = self.cls_branches[0](queries)
                    pre = Prediction(logits, start, queries=queries)
            features = queries if before is None else queries + before
            change = self.reg_branches[index](features).float()
            corners = change if corners is None else corners + change
            shares = distributions(corners, len(self.bins))
            distances = mean_distances(shares, self.bins)
            refined = self.decode(reference, distances)
            if self.training or index == self.eval_idx:
                logits = self.cls_branches[index](queries)
                logits = logits + self.estimate(index, shares)
                found = Prediction(logits, refined, corners, reference, queries)
                predictions.append(found)
            boxes = refined.detach()
            before = queries.detach()
        return predictions, pre

    def start(self, boxes: Tensor) -> Tensor:
        """Boxes of queries, which come before the sigmoid, as in ``Prediction``."""
        return boxes.float().sigmoid()

    def entries(self, boxes: Tensor) -> Tensor:
        """The numbers of boxes that positions of queries are made of."""
        return boxes

    def frames(self, boxes: Tensor, maps: Maps) -> Tensor:
        """Boxes as the deformable attention to maps takes them."""
        return boxes

    def correct(self, boxes: Tensor, change: Tensor) -> Tensor:
        """Boxes after the first layer, without distributions."""
        return (change + inverse_sigmoid(boxes)).sigmoid()

    def decode(self, reference: Tensor, distances: Tensor) -> Tensor:
        """Boxes at the means of distributions from the reference boxes."""
        return decode_distances(reference, distances, self.reg_scale)

    def drop_unused(self) -> None:
        """Leave out what does not run in evaluation."""
        for layers in (self.layers, self.cls_branches, self.reg_branches, self.quality):
            del layers[self.eval_idx + 1 :]
        for index in range(self.eval_idx):
            self.cls_branches[index] = self.quality[index] = nn.Identity()

    def estimate(self, layer: int, shares: Tensor) -> Tensor:
        """Quality [B, Q, 1] of boxes from their distributions [B, Q, 4 or 7, R + 1].

        It is added to their class logits.
        """
        top = shares.topk(QUALITY_TOP, -1).values
        # [B, Q, 4, QUALITY_TOP + 1]
        shape = torch.cat([top, top.mean(-1, keepdim=True)], -1)
        quality = self.quality[layer]
        return quality(to_weight_dtype(quality, shape.flatten(2)))


def to_weight_dtype(part: nn.Module, x: Tensor) -> Tensor:
    """``x`` in the type of the weights of a part, which take no other one."""
    return x.to(next(part.parameters()).dtype)


class DecoderLayer(nn.Module):
    """Attention among queries, deformable attention to maps, and an MLP."""

    def __init__(
        self,
        attention: type[DeformableAttention],
        channels: int,
        num_heads: int,
        hidden: int,
        num_points: Sequence[int],
        norm: Norm,
        ffn: FFN,
    ) -> None:
        super().__init__()
        self.self_attn = SelfAttention(channels, num_heads)
        self.norm1 = token_norm(norm, channels)
        self.cross_attn = attention(channels, num_heads, num_points)
        self.gateway = Gateway(channels, norm)
        self.ffn = FeedForward(ffn, channels, hidden)
        self.norm2 = token_norm(norm, channels)

    def forward(
        self,
        queries: Tensor,
        positions: Tensor,
        boxes: Tensor,
        values: Sequence[Tensor],
        mask: Tensor | None,
    ) -> Tensor:
        """Queries [B, Q, C] to queries; see ``SelfAttention`` and ``DeformableAttention``."""
        x = self.norm1(queries + self.self_attn(queries, positions, mask))
        x = self.gateway(x, self.cross_attn(x + positions, boxes, values))
        return self.norm2((x + self.ffn(x)).clamp(-MAX_FLOAT16, MAX_FLOAT16))
