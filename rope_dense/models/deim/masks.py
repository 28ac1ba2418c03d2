"""Masks of instances, as products of queries and a map.

Letters: B images, Q queries, C channels, h x w mask, H x W image, P points, M pairs, T boxes of all
images.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmdet.models.losses.dice_loss import dice_loss
from mmdet.models.utils import get_uncertain_point_coords_with_randomness
from torch import Tensor, nn

from ..maps import cell_centres, size_of
from .layers import resize_map
from .predictions import Losses, Masks, Pairs, Targets, tensor_like

OVERSAMPLE, IMPORTANT = 3, 0.75  # of the points of a loss: are drawn, and chosen
EDGE = 10.0  # how much logits fall in a place of a mask beyond a box
LEAST_SIDE = 1.5
CHUNK = 2**25  # values of the masks that are resized at a time


class MaskHead(nn.Module):
    """Mask logits of the queries of each layer: ECSeg's head, at a quarter of any image.

    The largest map of the encoder is resized to stride 4. A block is added for each layer; a mask
    is the product of its query and the map after the block of its layer. Liu et al.,
    "EdgeCrafter: Compact ViTs for Edge Dense Prediction via Task-Specialized Distillation", 2026.
    Checked against its source in tests/models/deim/test_edgecrafter.py.

    Args:
        channels: C.
        num_layers: of the decoder.
        eval_blocks: blocks that the map passes in evaluation. None: all up to the layer
            that counts, as in training. The source's evaluation, and so the results of its weights,
            have 1.
        in_boxes: masks are learned at points in the boxes of their annotations alone, and end at
            the boxes of their queries. They begin at 0, so that their losses move nothing else at
            first. False: as in the source.
    """

    def __init__(
        self,
        channels: int,
        num_layers: int,
        eval_blocks: int | None = None,
        in_boxes: bool = False,
    ) -> None:
        super().__init__()
        self.eval_blocks = eval_blocks
        self.in_boxes = in_boxes
        self.blocks = nn.ModuleList(DepthwiseBlock(channels) for _ in range(num_layers))
        self.project = nn.Conv2d(channels, channels, 1)
        self.query_norm = nn.LayerNorm(channels)
        self.query_mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
        )
        self.query_project = nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.zeros(1))
        if in_boxes:
            nn.init.zeros_(self.query_project.weight)
            nn.init.zeros_(self.query_project.bias)

    def forward(self, x: Tensor, queries: Sequence[Tensor]) -> list[Masks]:
        """Masks of the queries [B, Q, C] of each layer, with the largest map [B, C, H, W]."""
        masks = []
        x = enlarge(x)
        for block, some in zip(self.blocks, queries, strict=True):
            x = block(x)
            masks.append(self.masks(x, some))
        return masks

    def evaluate(
        self,
        x: Tensor,
        queries: Tensor,
        layer: int,
    ) -> Masks:
        """Masks of the queries [B, Q, C] of one layer."""
        x = enlarge(x)
        for block in self.blocks[: self.eval_blocks or layer + 1]:
            x = block(x)
        return self.masks(x, queries)

    def drop_unused(self, layer: int) -> None:
        """Leave out the blocks that do not run in evaluation."""
        del self.blocks[self.eval_blocks or layer + 1 :]

    def masks(self, x: Tensor, queries: Tensor) -> Masks:
        """Of a map at stride 4."""
        features = self.project(x)
        kernels = self.query_project(queries + self.query_mlp(self.query_norm(queries)))
        bias = self.bias.to(kernels.dtype).expand(*kernels.shape[:2], 1)
        ones = torch.ones_like(features[:, :1])
        return Masks(torch.cat([features, ones], 1), torch.cat([kernels, bias], -1))


class DepthwiseBlock(nn.Module):
    """A depth-wise and a point-wise convolution with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.linear = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """A map [B, C, h, w] to a map."""
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + F.gelu(self.linear(y)).permute(0, 3, 1, 2)


def enlarge(x: Tensor) -> Tensor:
    """A map of stride 8 at stride 4."""
    height, width = x.shape[2:]
    return resize_map(x, [2 * height, 2 * width])


def mask_losses(
    masks: Masks,
    targets: Targets,
    pairs: Pairs,
    ratio: int,
    *,
    in_boxes: bool = False,
) -> Losses:
    """Sums of the cross entropy and of the dice loss of masks, at points where they are unsure.

    Args:
        masks, targets: of the batch.
        pairs: of queries and annotations.
        ratio: places of a mask for each point.
        in_boxes: at any points in the boxes of the annotations.
    """
    logits = masks.of_pairs(pairs)[:, None]  # [M, 1, h, w]
    if not len(pairs):
        return dict(mask=logits.sum(), dice=logits.sum())
    height, width = logits.shape[2:]
    number = max(height, height * width // ratio)
    with torch.no_grad():
        if in_boxes:
            points = points_in(targets.boxes[pairs.targets], number)
        else:
            points = get_uncertain_point_coords_with_randomness(
                logits, None, number, OVERSAMPLE, IMPORTANT
            )
        labels = targets.sample_masks(pairs.targets, points)
    grid = (2 * points - 1)[:, :, None]
    values = F.grid_sample(logits, grid, align_corners=False)[:, 0, :, 0]  # [M, P]
    entropy = F.binary_cross_entropy_with_logits(values, labels, reduction='none')
    shares = values.sigmoid()
    dice = dice_loss(shares, labels, eps=1.0, reduction='sum', naive_dice=True)
    return dict(mask=entropy.mean(1).sum(), dice=dice)


def points_in(boxes: Tensor, number: int) -> Tensor:
    """Random points [M, P, 2], (x, y) from 0 to 1, in boxes [M, 4]."""
    shares = torch.rand(len(boxes), number, 2, device=boxes.device) - 0.5
    centre, sides = boxes[:, None].chunk(2, -1)
    return (centre + shares * sides).clamp(0, 1)


def end_at_boxes(logits: Tensor, boxes: Tensor) -> Tensor:
    """Mask logits [B, M, h, w] that are at most 0 at the sides of boxes [B, M, 4], less outside.

    They fall in proportion to the distance, so a resized mask ends at the side, too. Sides count as
    ``LEAST_SIDE`` places at least, so that a place is in each box.
    """
    size = size_of(logits)
    scale = tensor_like([size[1], size[0]], boxes)
    places = cell_centres(size, logits.device) * scale  # [h w, 2]
    centre, sides = (boxes[:, :, None] * scale.repeat(2)).chunk(2, -1)
    inside = sides.clamp(min=LEAST_SIDE) / 2 - (places - centre).abs()  # [B, M, h w, 2]
    return logits.minimum(EDGE * inside.amin(-1).unflatten(2, size))


def in_image(
    logits: Tensor,
    size: Sequence[int],
    inside: Sequence[int],
    out: Sequence[int],
) -> Tensor:
    """Masks ``[M, *out]``, true where logits [M, h, w] are positive in the original image.

    Sizes are (height, width): ``size`` of the padded image, ``inside`` of the image at its top
    left, ``out`` of the original image.
    """
    logits = logits[:, None]
    if tuple(inside) != tuple(size):
        logits = resize_map(logits, size)[..., : inside[0], : inside[1]]
    step = max(1, CHUNK // (out[0] * out[1]))
    return torch.cat([resize_map(some, out)[:, 0] > 0 for some in logits.split(step)])
