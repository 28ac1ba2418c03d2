"""Queries: from the most promising tokens of the encoder, and in training from annotations.

Letters: B images, C channels, K classes, H x W map, N tokens of all maps, Q queries of tokens,
M most boxes of an image, G groups, D = 2 M G denoising queries, T boxes of all images.
"""

from typing import NamedTuple

import torch
from mmdet.models.layers import inverse_sigmoid
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy, bbox_xyxy_to_cxcywh
from torch import Tensor, nn

from ...utils.memo import memo
from ...utils.sizes import Size, smaller
from ..maps import Maps, cell_centres, size_of
from .layers import class_layer, mlp
from .predictions import Pairs, Targets, take

# Of the largest map, relative to the image; doubled on each further map.
ANCHOR_SIZE = 0.05
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

    def __init__(
        self,
        channels: int,
        num_classes: int,
        num_queries: int,
    ) -> None:
        super().__init__()
        self.num_queries = num_queries
        self.cls = class_layer(channels, num_classes)
        self.reg = mlp(channels, channels, 4, 3, zero=True)

    def forward(self, maps: Maps) -> Selection:
        """Maps [B, C, H, W], large to small, to queries."""
        anchors, valid = self.anchors(tuple(size_of(x) for x in maps), maps[0].device)
        tokens = torch.cat([x.flatten(2) for x in maps], 2).transpose(1, 2)  # [B, N, C]
        tokens = tokens * valid.to(tokens.dtype)
        logits = self.cls(tokens)
        number = smaller(self.num_queries, tokens.shape[1])
        index = logits.amax(-1).topk(number).indices  # [B, Q]
        queries = take(tokens, index)
        boxes = self.boxes_at(anchors[index], self.reg(queries))
        return Selection(queries, boxes, take(logits, index))

    def anchors(
        self, sizes: tuple[Size, ...], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """See ``anchors_of``."""
        return anchors_of(sizes, device=device)

    def boxes_at(self, anchors: Tensor, change: Tensor) -> Tensor:
        """Boxes of tokens, before the sigmoid, from their anchors and what the tokens say."""
        return change + anchors


@memo
def anchors_of(
    sizes: tuple[Size, ...], *, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Boxes [N, 4] before the sigmoid for maps of these sizes, and which are valid [N, 1].

    A box is square for a square image, centred on its token. Those that are not valid are infinite.
    """
    anchors = torch.cat([grid_anchors(size, i, device) for i, size in enumerate(sizes)])
    inside = (anchors > ANCHOR_BORDER) & (anchors < 1 - ANCHOR_BORDER)
    valid = inside.all(-1, keepdim=True)
    return torch.log(anchors / (1 - anchors)).masked_fill(~valid, torch.inf), valid


def grid_anchors(
    size: Size,
    level: int,
    device: torch.device,
) -> Tensor:
    """Boxes [H W, 4], relative to the image, one at the centre of each token."""
    centres = cell_centres(size, device)
    return torch.cat([centres, torch.full_like(centres, ANCHOR_SIZE * 2**level)], -1)


class DenoisingQueries(NamedTuple):
    """Queries in front of the others.

    Attributes:
        queries: [B, D, C].
        boxes: [B, D, 4], before the sigmoid.
        mask: [D + Q, D + Q], true where a query (row) attends to another (column); None for D = 0.
        pairs: the queries that shall find their box again.
        num_groups: G, 0 if there are no boxes.
    """

    queries: Tensor
    boxes: Tensor
    mask: Tensor | None
    pairs: Pairs
    num_groups: int

    @property
    def number(self) -> int:
        """D."""
        return self.queries.shape[1]


class ContrastiveDenoising(nn.Module):
    """Groups of queries with the annotations of an image, twice each, with noise.

    The corners of a box move by up to half of its size, the corners of its second, negative copy by
    half to once its size. A group attends to itself and to the queries of the encoder, which do not
    attend to it. mmdet's ``CdnQueryGenerator`` differs in its padding and in the range of boxes.
    Zhang et al., "DINO: DETR with Improved DeNoising Anchor Boxes" (ICLR 2023). Checked against
    transformers' ``get_contrastive_denoising_training_group`` with the same random numbers in
    tests/models/deim/test_denoising.py.

    Args:
        channels: C.
        num_classes: K.
        num_queries: at most D / 2, if there is more than one group: G is the whole number of M in
            it, and 1 at least.
        label_noise: share of the labels that are drawn anew, times two.
        box_noise: factor of the noise of boxes.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        num_queries: int = 100,
        label_noise: float = 0.5,
        box_noise: float = 1.0,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.num_queries = num_queries
        self.label_noise = label_noise
        self.box_noise = box_noise
        self.labels = nn.Embedding(num_classes + 1, channels, padding_idx=num_classes)

    def forward(self, targets: Targets, num_others: int) -> DenoisingQueries:
        """Queries for the annotations; ``num_others`` is Q."""
        device = targets.labels.device
        most = max(targets.counts)
        groups = max(self.num_queries // most, 1) if most else 0
        labels, boxes = self.pad(targets, most)
        labels = labels.repeat(1, 2 * groups)
        boxes = boxes.repeat(1, 2 * groups, 1)
        copies = torch.arange(2, device=device)
        negative = copies.repeat_interleave(most).repeat(groups)  # [D]
        return DenoisingQueries(
            self.labels(self.noisy_labels(labels)),
            self.noisy_boxes(boxes, negative[:, None]),
            group_mask(most, groups, num_others, device) if groups else None,
            positive_pairs(targets.counts, groups, device),
            groups,
        )

    def pad(self, targets: Targets, most: int) -> tuple[Tensor, Tensor]:
        """Labels [B, M], with K where there is no box, and boxes [B, M, 4]."""
        batch = len(targets.counts)
        labels = targets.labels.new_full((batch, most), self.num_classes)
        boxes = targets.boxes.new_zeros(batch, most, targets.boxes.shape[1])
        for index, (some_labels, some_boxes) in enumerate(targets.per_image):
            labels[index, : len(some_labels)] = some_labels
            boxes[index, : len(some_boxes)] = some_boxes
        return labels, boxes

    def noisy_labels(self, labels: Tensor) -> Tensor:
        """Draw some labels [B, D] anew, but no labels of padding."""
        drawn = torch.rand(labels.shape, device=labels.device) < self.label_noise / 2
        others = torch.randint_like(labels, 0, self.num_classes)
        return torch.where(drawn & (labels < self.num_classes), others, labels)

    def noisy_boxes(self, boxes: Tensor, negative: Tensor) -> Tensor:
        """Move the corners of boxes [B, D, 4]; the result is before the sigmoid.

        ``negative`` [D, 1] is 1 for more than half of the size.
        """
        sign = torch.randint_like(boxes, 0, 2) * 2 - 1
        share = torch.rand_like(boxes) + negative
        reach = boxes[..., 2:].repeat(1, 1, 2) / 2 * self.box_noise
        corners = (bbox_cxcywh_to_xyxy(boxes) + sign * share * reach).clamp(0, 1)
        noisy = bbox_xyxy_to_cxcywh(corners).abs()  # corners may have crossed
        return inverse_sigmoid(noisy)


def group_mask(
    most: int,
    groups: int,
    num_others: int,
    device: torch.device,
) -> Tensor:
    """[D + Q, D + Q]: a query sees its group and the queries of the encoder."""
    group = torch.arange(groups, device=device).repeat_interleave(2 * most)
    group = torch.cat([group, group.new_full((num_others,), -1)])
    return (group[:, None] == group) | (group == -1)


def positive_pairs(
    counts: list[int],
    groups: int,
    device: torch.device,
) -> Pairs:
    """The queries without a negative copy's noise, and their boxes."""
    most = max(counts)
    queries = []
    targets = []
    start = 0
    for image, number in enumerate(counts):
        box = torch.arange(number)
        first = image * 2 * most * groups + 2 * most * torch.arange(groups)
        queries.append((first[:, None] + box).flatten())
        targets.append((start + box).repeat(groups))
        start += number
    together = torch.stack([torch.cat(queries), torch.cat(targets)])
    query, target = together.to(device, non_blocking=True)
    return Pairs(query, target, [number * groups for number in counts])
