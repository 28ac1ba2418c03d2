"""One-to-one matching of queries and annotations in all layers, and the union of these matches.

Letters: B images, Q queries, K classes, S sets of predictions (layers), T boxes of all images, t
boxes of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy, bbox_overlaps
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ...utils.validation import check_integer, check_number
from .decoder import Prediction
from .targets import Targets

FOCAL_ALPHA, FOCAL_GAMMA, FOCAL_EPS = 0.25, 2.0, 1e-8
NOT_A_NUMBER = 1.0  # cost of a pair without one


@dataclass(frozen=True)
class Pairs:
    """Queries and the annotations that they are matched with.

    Attributes:
        queries: [M], among those of all images: image * Q + query.
        targets: [M], among those of all images.
    """

    queries: Tensor
    targets: Tensor

    def __len__(self) -> int:
        """M."""
        return self.queries.shape[0]


class Matcher:
    """Matches each annotation of an image with one query, at the least sum of costs.

    The cost is a focal loss of the class (alpha 0.25, gamma 2), the L1 distance of boxes and minus
    their GIoU, weighted. From ``late_epoch`` on it is -p * IoU ** ``iou_power`` with the
    probability p of the class (Huang et al., "Real-Time Object Detection Meets DINOv3", 2025). All
    layers are matched with one copy to the host. mmdet's ``HungarianAssigner`` with
    ``FocalLossCost``, ``BBoxL1Cost`` and ``IoUCost`` matches a layer and an image at a time.
    Checked against it, transformers' ``RTDetrHungarianMatcher`` and plain loops in
    tests/models/deim/test_matching.py.

    Args:
        class_cost, bbox_cost, giou_cost: weights.
        late_epoch: counted from 0; None for never.
        iou_power: of the late cost.
    """

    def __init__(
        self,
        class_cost: float = 2.0,
        bbox_cost: float = 5.0,
        giou_cost: float = 2.0,
        late_epoch: int | None = None,
        iou_power: float = 4.0,
    ) -> None:
        self.class_cost = check_number('matching: class_cost', class_cost, 0)
        self.bbox_cost = check_number('matching: bbox_cost', bbox_cost, 0)
        self.giou_cost = check_number('matching: giou_cost', giou_cost, 0)
        if late_epoch is not None:
            check_integer('matching: late_epoch', late_epoch, 0)
        self.late_epoch = late_epoch
        self.iou_power = check_number('matching: iou_power', iou_power, 0)

    @torch.no_grad()
    def __call__(
        self, predictions: Sequence[Prediction], targets: Targets, epoch: int = 0
    ) -> tuple[list[Pairs], Pairs]:
        """The pairs of each of S sets of predictions, and their union; see ``unite``."""
        logits = torch.stack([x.logits.detach().float() for x in predictions])  # [S, B, Q, K]
        boxes = torch.stack([x.boxes.detach().float() for x in predictions])
        is_late = self.late_epoch is not None and epoch >= self.late_epoch
        costs = [
            (self.late_costs if is_late else self.costs)(
                logits[:, image].flatten(0, 1), boxes[:, image].flatten(0, 1), *target
            )
            for image, target in enumerate(targets.per_image)
        ]  # [S Q, t] each
        flat = torch.cat([cost.flatten() for cost in costs]).nan_to_num(NOT_A_NUMBER).cpu().numpy()
        ends = np.cumsum([cost.numel() for cost in costs])[:-1]
        sets, _, rows, _ = logits.shape
        matches = [
            [linear_sum_assignment(layer) for layer in part.reshape(sets, rows, number)]
            for part, number in zip(np.split(flat, ends), targets.counts, strict=True)
        ]
        layers = [[image[index] for image in matches] for index in range(sets)]
        layers.append([unite(image, rows) for image in matches])
        starts = np.cumsum([0, *targets.counts])
        pairs = [join(layer, rows, starts) for layer in layers]
        *each, union = to_device(pairs, logits.device)
        return each, union

    def costs(self, logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
        """Costs [P, t] of predictions [P, K] and [P, 4] for the annotations of an image."""
        p = logits.sigmoid()[:, labels]
        negative = (1 - FOCAL_ALPHA) * p**FOCAL_GAMMA * -(1 - p + FOCAL_EPS).log()
        positive = FOCAL_ALPHA * (1 - p) ** FOCAL_GAMMA * -(p + FOCAL_EPS).log()
        giou = overlaps(boxes, targets, 'giou')
        return (
            self.class_cost * (positive - negative)
            + self.bbox_cost * torch.cdist(boxes, targets, p=1)
            - self.giou_cost * giou
        )

    def late_costs(self, logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
        """As ``costs``, from ``late_epoch`` on."""
        return -logits.sigmoid()[:, labels] * overlaps(boxes, targets, 'iou') ** self.iou_power


def overlaps(boxes: Tensor, targets: Tensor, mode: str, *, aligned: bool = False) -> Tensor:
    """IoU or GIoU of boxes [P, 4] and [t, 4], (cx, cy, w, h): [P, t], or [P] if aligned."""
    corners = bbox_cxcywh_to_xyxy(boxes), bbox_cxcywh_to_xyxy(targets)
    return bbox_overlaps(*corners, mode=mode, is_aligned=aligned)


def unite(matches: Sequence[tuple[np.ndarray, np.ndarray]], num_queries: int) -> tuple:
    """All queries of an image that any layer matches, each with the annotation of most layers.

    The first annotation counts among several of as many layers.
    """
    number = max((int(targets.max()) + 1 for _, targets in matches if len(targets)), default=0)
    if not number:
        return matches[0]
    votes = np.zeros((num_queries, number), dtype=np.int64)
    for queries, targets in matches:
        votes[queries, targets] += 1
    (queries,) = np.nonzero(votes.any(1))
    return queries, votes[queries].argmax(1)


def join(images: Sequence[tuple], num_queries: int, starts: np.ndarray) -> np.ndarray:
    """The pairs of all images, [2, M]: indexes as in ``Pairs``."""
    return np.concatenate(
        [
            np.stack([queries + image * num_queries, targets + starts[image]])
            for image, (queries, targets) in enumerate(images)
        ],
        axis=1,
    )


def to_device(pairs: Sequence[np.ndarray], device: torch.device) -> list[Pairs]:
    """Pairs on a device, with one copy."""
    together = torch.from_numpy(np.concatenate(pairs, axis=1).astype(np.int64)).to(device)
    return [Pairs(*part) for part in together.split([part.shape[1] for part in pairs], 1)]
