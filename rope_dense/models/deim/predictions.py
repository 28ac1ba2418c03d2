"""The predictions of the decoder.

Letters: B images, Q queries, C channels, K classes, R + 1 bins, h x w mask, P points, M pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .selection import take
from .targets import Pairs


class Masks(NamedTuple):
    """Mask logits of all queries as products, which are made for some queries or points alone.

    Attributes:
        features: [B, C + 1, h, w]; the last channel is 1.
        kernels: [B, Q, C + 1]; the last channel is a bias.
    """

    features: Tensor
    kernels: Tensor

    def float(self) -> Masks:
        """These in float32."""
        return Masks(self.features.float(), self.kernels.float())

    def split(self, sizes: Sequence[int], dim: int = 1) -> list[Masks]:
        """Those of the first queries, and of those after them."""
        return [Masks(self.features, part) for part in self.kernels.split(list(sizes), dim)]

    def logits(self, index: Tensor) -> Tensor:
        """[B, M, h, w] of the queries [B, M] of each image."""
        products = take(self.kernels, index) @ self.features.flatten(2)
        return products.unflatten(2, self.features.shape[2:])

    def of_pairs(self, pairs: Pairs) -> Tensor:
        """[M, h, w] of matched queries."""
        kernels = self.kernels.flatten(0, 1)[pairs.queries].split(pairs.counts)
        features = self.features.flatten(2)
        products = [some @ x for some, x in zip(kernels, features, strict=True)]
        return torch.cat(products).unflatten(1, self.features.shape[2:])

    def at(self, points: Tensor) -> Tensor:
        """[B, Q, P] of all queries at points [P, 2], (x, y) from 0 to 1."""
        grid = (2 * points - 1).expand(len(self.features), 1, -1, -1)
        return self.kernels @ F.grid_sample(self.features, grid, align_corners=False)[:, :, 0]


class Prediction(NamedTuple):
    """Classes and boxes of all queries.

    Attributes:
        logits: [B, Q, K].
        boxes: [B, Q, 4], (cx, cy, w, h) relative to the image, float32.
        corners: [B, Q, 4 (R + 1)], logits of the distributions of the sides, float32; None for
            boxes that come without one.
        reference: [B, Q, 4], the boxes that distances count from.
        queries: [B, Q, C], what the prediction is made of.
        masks: None in models without them.
    """

    logits: Tensor
    boxes: Tensor
    corners: Tensor | None = None
    reference: Tensor | None = None
    queries: Tensor | None = None
    masks: Masks | None = None

    def float(self) -> Prediction:
        """These in float32."""
        return Prediction(*(None if x is None else x.float() for x in self))  # type: ignore[arg-type]

    def split(self, sizes: Sequence[int]) -> list[Prediction]:
        """These of the first queries, and of those after them."""
        parts = ([None] * len(sizes) if x is None else x.split(list(sizes), 1) for x in self)
        return [Prediction(*part) for part in zip(*parts, strict=True)]
