"""Boxes as distributions over the distances of their four sides from a reference box.

A box is (cx, cy, w, h), relative to the image. A side is at half the size of the reference box plus
a distance d in units of 1 / ``reg_scale`` of that size; d is the mean of the R + 1 values of
``distance_bins`` under a distribution. Distances come in the order left, top, right, bottom.

Peng et al., "D-FINE: Redefine Regression Task in DETRs as Fine-grained Distribution Refinement"
(ICLR 2025). Checked against transformers' DEIMv2 in tests/models/deim/test_boxes.py.
"""

from __future__ import annotations

import torch
from torch import Tensor


def distance_bins(reg_max: int, reg_scale: float, up: float) -> Tensor:
    """The R + 1 distances that a distribution is over, float32.

    They are +-(step ** n - 1) for n = 0 .. R / 2 - 1, where the last is ``up * reg_scale``, and
    twice that at both ends: fine near 0 and coarse far from it.

    Args:
        reg_max: R, even.
        reg_scale: distances per size of the reference box.
        up: the last but one distance, relative to ``reg_scale``.
    """
    bound = up * reg_scale
    steps = torch.arange(reg_max // 2, dtype=torch.float64)
    right = (bound + 1) ** (steps * 2 / (reg_max - 2)) - 1
    right = torch.cat([right, right.new_tensor([2 * bound])])
    return torch.cat([-right.flip(0)[:-1], right]).float()


def distributions(corners: Tensor) -> Tensor:
    """The probabilities [..., 4, R + 1] of logits [..., 4 (R + 1)]."""
    return corners.unflatten(-1, (4, -1)).softmax(-1)


def mean_distances(shares: Tensor, bins: Tensor) -> Tensor:
    """The distances [..., 4] of probabilities [..., 4, R + 1]."""
    return (shares * bins).sum(-1)  # no product of matrices, which autocast would round


def decode_distances(reference: Tensor, distances: Tensor, reg_scale: float) -> Tensor:
    """The boxes [..., 4] whose sides are at ``distances`` [..., 4] from reference boxes."""
    centre, size = reference.chunk(2, -1)
    near, far = distances.chunk(2, -1)
    step = size / reg_scale
    return torch.cat([centre + (far - near) * step / 2, size + (far + near) * step], -1)


def encode_distances(reference: Tensor, box: Tensor, reg_scale: float) -> Tensor:
    """The distances [..., 4] of boxes from reference boxes."""
    (centre, size), (box_centre, box_size) = reference.chunk(2, -1), box.chunk(2, -1)
    step = size / reg_scale + 1e-16
    near = (centre - (box_centre - box_size / 2)) / step
    far = (box_centre + box_size / 2 - centre) / step
    return torch.cat([near, far], -1) - reg_scale / 2


def nearest_bins(distances: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
    """The index of the bin before each distance, and the weight of the bin after it.

    The two bins, so weighted, have the distance as their mean. A distance outside the bins is at
    the first or last one.
    """
    index = torch.bucketize(distances, bins, right=True) - 1
    index = index.clamp(0, len(bins) - 2)
    left, right = bins[index], bins[index + 1]
    return index, ((distances - left) / (right - left)).clamp(0, 1)
