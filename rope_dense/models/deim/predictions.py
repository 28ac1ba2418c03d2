"""Annotations of a batch, predictions of the decoder, and boxes as distributions.

Letters: B images, Q queries, C channels, K classes, T boxes of all images, R + 1 bins, M pairs,
H x W image, h x w mask, P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mmdet.structures import SampleList
from mmdet.structures.bbox import bbox_xyxy_to_cxcywh, get_box_tensor
from torch import Tensor

from ...utils.sizes import ImageSize

Losses = dict[str, Tensor]  # by name


class Targets(NamedTuple):
    """Annotations of all images, one image after the other.

    Attributes:
        labels: [T].
        boxes: [T, 4], (cx, cy, w, h) relative to the padded batch; [T, 7] where they are oriented.
        counts: how many belong to each image.
        masks: [T, H, W], 0 or 1, relative to the padded batch as the boxes; None without any.
        images: their files, for messages.
        ignored: [I, 6], ignored objects: index of the image, class, and left, top, right, bottom of
            the upright box around it, relative as the boxes; None for none.
    """

    labels: Tensor
    boxes: Tensor
    counts: list[int]
    masks: Tensor | None = None
    images: Sequence[str] = ()
    ignored: Tensor | None = None

    def are_ignored(self, boxes: Tensor, num_classes: int) -> Tensor:
        """[B Q, K], true where the centre of a box [B, Q, 4 or 7] is in an ignored object of K."""
        number, queries = boxes.shape[:2]
        hits = torch.zeros(number * num_classes, queries, device=boxes.device)
        if self.ignored is not None:
            image, label = self.ignored[:, :2].long().unbind(1)
            near = self.ignored[:, 2:4]
            far = self.ignored[:, 4:]
            centres = boxes[image, :, :2]  # [I, Q, 2]
            inside = (centres >= near[:, None]) & (centres <= far[:, None])
            place = image * num_classes + label
            hits = hits.index_add(0, place, inside.all(-1).float())
        hits = hits.view(number, num_classes, queries)
        return hits.transpose(1, 2).flatten(0, 1) > 0

    @property
    def per_image(self) -> list[tuple[Tensor, Tensor]]:
        """Labels and boxes of each image."""
        labels = self.labels.split(self.counts)
        boxes = self.boxes.split(self.counts)
        return list(zip(labels, boxes, strict=True))

    def sample_masks(self, index: Tensor, points: Tensor) -> Tensor:
        """Masks of annotations [M] at points [M, P, 2], (x, y) from 0 to 1: [M, P].

        The nearest pixels; masks are neither copied nor made float32 as a whole.
        """
        assert self.masks is not None
        height, width = self.masks.shape[1:]
        x = (points[..., 0] * width).long().clamp(max=width - 1)
        y = (points[..., 1] * height).long().clamp(max=height - 1)
        return self.masks[index[:, None], y, x].float()


@dataclass(frozen=True)
class Pairs:
    """Queries and the annotations that they are matched with.

    Attributes:
        queries: [M], among the queries of all images: image * Q + query.
        targets: [M], among the annotations of all images.
        counts: how many belong to each image, in order.
    """

    queries: Tensor
    targets: Tensor
    counts: list[int]

    def __len__(self) -> int:
        """M."""
        return self.queries.shape[0]


def gather_targets(
    samples: SampleList,
    size: ImageSize,
    *,
    with_masks: bool = False,
) -> Targets:
    """Targets from mmdet's samples, with boxes in pixels of images of ``size``."""
    labels, boxes_of_images, counts, images = gather_boxes(samples)
    boxes = torch.cat(boxes_of_images).float()
    height, width = size
    factor = tensor_like([width, height, width, height], boxes)
    masks = None
    if with_masks:
        parts = [sample.gt_instances.masks.to_ndarray() for sample in samples]
        together = np.concatenate(parts)
        masks = torch.from_numpy(together.astype(np.uint8, copy=False))
        masks = masks.to(boxes.device, non_blocking=True)
    return Targets(labels, bbox_xyxy_to_cxcywh(boxes / factor), counts, masks, images)


def gather_boxes(
    samples: SampleList,
) -> tuple[Tensor, list[Tensor], list[int], list[str]]:
    """Labels of mmdet's samples together, and of each image boxes, their number, and its name."""
    labels = []
    boxes = []
    counts = []
    images = []
    for index, sample in enumerate(samples):
        instances = sample.gt_instances
        labels.append(instances.labels)
        boxes.append(get_box_tensor(instances.bboxes))
        counts.append(len(instances))
        images.append(sample.get('img_path') or f'image {index} of a batch')
    return torch.cat(labels).long(), boxes, counts, images


def gather_ignored(samples: SampleList, size: ImageSize) -> Tensor | None:
    """The ignored objects of ``Targets``, from mmdet's samples of images of ``size``."""
    found = []
    for index, sample in enumerate(samples):
        if 'ignored_instances' in sample and len(sample.ignored_instances):
            boxes = get_box_tensor(sample.ignored_instances.bboxes).float()
            labels = sample.ignored_instances.labels[:, None].to(boxes)
            image = torch.full_like(labels, index)
            found.append(torch.cat([image, labels, boxes], 1))
    if not found:
        return None
    places, boxes = torch.cat(found).tensor_split([2], 1)
    if boxes.shape[1] == 5:  # x, y, w, h, angle
        sides = boxes[:, 2:4]
        angle = boxes[:, 4:]
        cos = angle.cos().abs()
        sin = angle.sin().abs()
        half = (sides * cos + sides.flip(1) * sin) / 2
        boxes = torch.cat([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    height, width = size
    return torch.cat([places, boxes / tensor_like([width, height] * 2, boxes)], 1)


def tensor_like(numbers: Sequence[float], like: Tensor) -> Tensor:
    """Numbers as a tensor of the type of ``like``, on its device: a copy would wait for a GPU."""
    return torch.cat([like.new_full((1,), number) for number in numbers])


def in_pixels(corners: Tensor, size: ImageSize) -> Tensor:
    """Corners [..., 4] (left, top, right, bottom) from 0 to 1, at most, in pixels of ``size``."""
    height, width = size
    x = corners[..., 0::2].clamp(0, 1) * width
    y = corners[..., 1::2].clamp(0, 1) * height
    return torch.stack([x, y], -1).flatten(-2)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Rows [B, Q, C] of [B, N, C] by their index [B, Q] in each image."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


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
        parts = self.kernels.split(list(sizes), dim)
        return [Masks(self.features, part) for part in parts]

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
        features = F.grid_sample(self.features, grid, align_corners=False)
        return self.kernels @ features[:, :, 0]


class Prediction(NamedTuple):
    """Classes and boxes of all queries.

    Attributes:
        logits: [B, Q, K].
        boxes: [B, Q, 4], (cx, cy, w, h) relative to the image, float32; [B, Q, 7] where they are
            oriented, see ``oriented_boxes``.
        corners: [B, Q, 4 (R + 1)], or 7, logits of the distributions of the sides, float32; None
            for boxes that come without one.
        reference: as ``boxes``, those that distances count from.
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
        parts = []
        for x in self:
            parts.append([None] * len(sizes) if x is None else x.split(list(sizes), 1))
        return list(map(Prediction._make, zip(*parts, strict=True)))


def distance_bins(
    reg_max: int,
    reg_scale: float,
    up: float,
) -> Tensor:
    """The R + 1 distances that the distribution of a side is over, float32.

    A side of a box is at half the size of its reference box plus a distance in units of
    1 / ``reg_scale`` of that size. The distance is the mean of these values under a distribution.
    Distances come in the order left, top, right, bottom. Peng et al., "D-FINE: Redefine Regression
    Task in DETRs as Fine-grained Distribution Refinement" (ICLR 2025). Checked against
    transformers' DEIMv2 in tests/models/deim/test_boxes.py.

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


def distributions(corners: Tensor, num_bins: int) -> Tensor:
    """The probabilities [..., 4, R + 1] of logits [..., 4 (R + 1)]; ``num_bins`` is R + 1."""
    return corners.unflatten(-1, (-1, num_bins)).softmax(-1)


def mean_distances(shares: Tensor, bins: Tensor) -> Tensor:
    """The distances [..., 4] of probabilities [..., 4, R + 1]."""
    return (shares * bins).sum(-1)  # no product of matrices, which autocast would round


def decode_distances(
    reference: Tensor,
    distances: Tensor,
    reg_scale: float,
) -> Tensor:
    """The boxes [..., 4] whose sides are at ``distances`` [..., 4] from reference boxes."""
    centre, size = reference.chunk(2, -1)
    near, far = distances.chunk(2, -1)
    step = size / reg_scale
    return torch.cat([centre + (far - near) * step / 2, size + (far + near) * step], -1)


def encode_distances(
    reference: Tensor,
    box: Tensor,
    reg_scale: float,
) -> Tensor:
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
    left = bins[index]
    right = bins[index + 1]
    return index, ((distances - left) / (right - left)).clamp(0, 1)
