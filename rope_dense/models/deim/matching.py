"""One-to-one matching of queries and annotations in all layers, and the union of these matches.

Letters: B images, Q queries, K classes, S sets of predictions (layers), T boxes of all images, t
boxes of an image.
"""

from collections.abc import Sequence

import numpy as np
import torch
from mmdet.models.task_modules.assigners import CrossEntropyLossCost, DiceCost
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy
from mmengine.structures import InstanceData
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ...utils.validation import checked_integer
from .predictions import Pairs, Prediction, Targets

FOCAL_ALPHA, FOCAL_GAMMA, FOCAL_EPS = 0.25, 2.0, 1e-8
# Places of a mask for each point that its cost and its losses are taken at.
POINT_RATIO = 16
OVERLAP_EPS = 1e-6
NOT_A_NUMBER = 1.0  # cost of a pair without one


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
        mask_cost, dice_cost: weights of the cross entropy and the dice loss of masks at points that
            all queries share, of models with masks; not of the late cost.
        repeats: queries that each annotation of an image is matched with, of half of the queries at
            most. Wang et al., "Towards Data-Efficient Detection Transformers" (ECCV 2022).
    """

    def __init__(
        self,
        class_cost: float = 2.0,
        bbox_cost: float = 5.0,
        giou_cost: float = 2.0,
        late_epoch: int | None = None,
        iou_power: float = 4.0,
        mask_cost: float = 0.0,
        dice_cost: float = 0.0,
        repeats: int = 1,
    ) -> None:
        self.class_cost = class_cost
        self.bbox_cost = bbox_cost
        self.giou_cost = giou_cost
        self.late_epoch = late_epoch
        self.iou_power = iou_power
        self.mask_cost = CrossEntropyLossCost(weight=mask_cost)
        self.dice_cost = DiceCost(pred_act=True, eps=1.0, weight=dice_cost)
        self.repeats = checked_integer('matching.repeats', repeats, 1)

    @torch.no_grad()
    def __call__(
        self,
        predictions: Sequence[Prediction],
        targets: Targets,
        epoch: int = 0,
    ) -> tuple[list[Pairs], Pairs]:
        """The pairs of S sets of predictions, and their union; ValueError for a box not finite."""
        # [S, B, Q, K], and [S, B, Q, 4]
        logits = torch.stack([x.logits.detach().float() for x in predictions])
        boxes = torch.stack([x.boxes.detach().float() for x in predictions])
        is_late = self.late_epoch is not None and epoch >= self.late_epoch
        cost_of = self.late_costs if is_late else self.costs
        costs = []  # [S Q, t] each
        for image, target in enumerate(targets.per_image):
            given = logits[:, image].flatten(0, 1), boxes[:, image].flatten(0, 1)
            costs.append(cost_of(*given, *target))
        if not is_late and targets.masks is not None:
            of_masks = self.mask_costs(predictions, targets)
            for cost, part in zip(costs, of_masks, strict=True):
                cost += part
        flat = torch.cat([cost.flatten() for cost in costs]).cpu().numpy()  # one wait
        ends = np.cumsum([cost.numel() for cost in costs])[:-1]
        sets, _, rows, _ = logits.shape
        matches = []
        for some, number in zip(np.split(flat, ends), targets.counts, strict=True):
            values = some.reshape(sets, rows, number)
            if not np.isfinite(values).any((0, 1)).all():  # an annotation fits no query
                check_boxes(targets)
            finite = np.nan_to_num(values, nan=NOT_A_NUMBER)
            matches.append(list(map(self.assign, finite)))
        layers: list[Sequence[tuple]] = list(zip(*matches, strict=True))
        layers.append([unite(layers_of_image, rows) for layers_of_image in matches])
        starts = np.cumsum([0, *targets.counts])
        pairs = [gather_pairs(layer, rows, starts) for layer in layers]
        *each, union = to_device(pairs, logits.device)
        return each, union

    def assign(self, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Queries and annotations of the least sum of costs [Q, t]."""
        queries, number = costs.shape
        number = max(1, number)
        repeats = max(1, min(self.repeats, queries // (2 * number)))
        matched, copies = linear_sum_assignment(np.tile(costs, repeats))
        return matched, copies % number

    def costs(
        self,
        logits: Tensor,
        boxes: Tensor,
        labels: Tensor,
        targets: Tensor,
    ) -> Tensor:
        """Costs [P, t] of predictions [P, K] and [P, 4] for the annotations of an image."""
        p = logits.sigmoid()[:, labels]
        negative = (1 - FOCAL_ALPHA) * p**FOCAL_GAMMA * -(1 - p + FOCAL_EPS).log()
        positive = FOCAL_ALPHA * (1 - p) ** FOCAL_GAMMA * -(p + FOCAL_EPS).log()
        return self.class_cost * (positive - negative) + self.box_costs(boxes, targets)

    def box_costs(self, boxes: Tensor, targets: Tensor) -> Tensor:
        """Costs [P, t] of boxes [P, 4] and [t, 4]."""
        distance = torch.cdist(boxes, targets, p=1)
        giou = box_overlaps(boxes, targets, 'giou')
        return self.bbox_cost * distance - self.giou_cost * giou

    def overlap(self, boxes: Tensor, targets: Tensor) -> Tensor:
        """IoU [P, t] of boxes [P, 4] and [t, 4]."""
        return box_overlaps(boxes, targets, 'iou')

    def mask_costs(
        self, predictions: Sequence[Prediction], targets: Targets
    ) -> list[Tensor]:
        """Costs [S Q, t] of the masks of each image, 0 for predictions without masks."""
        sizes = [x.masks.features.shape[2:] for x in predictions if x.masks is not None]
        batch, queries = predictions[0].logits.shape[:2]
        if not sizes or not (self.mask_cost.weight or self.dice_cost.weight):
            nothing = torch.zeros((), device=targets.labels.device)
            return [nothing] * len(targets.counts)
        height, width = sizes[0]
        number = height * width // POINT_RATIO
        points = torch.rand(number, 2, device=targets.boxes.device)
        index = torch.arange(len(targets.labels), device=points.device)
        labels = targets.sample_masks(index, points.expand(len(index), -1, -1))
        costs: list[list[Tensor]] = [[] for _ in range(batch)]
        for prediction in predictions:
            values = None
            if prediction.masks is not None:
                values = prediction.masks.float().at(points)
            for image, truth in enumerate(labels.split(targets.counts)):
                if values is None:
                    costs[image].append(labels.new_zeros(queries, len(truth)))
                    continue
                both = InstanceData(masks=values[image]), InstanceData(masks=truth)
                costs[image].append(self.mask_cost(*both) + self.dice_cost(*both))
        return [torch.cat(layers) for layers in costs]

    def late_costs(
        self,
        logits: Tensor,
        boxes: Tensor,
        labels: Tensor,
        targets: Tensor,
    ) -> Tensor:
        """As ``costs``, from ``late_epoch`` on.

        Where no box overlaps an annotation, as at random weights, all its costs are zero, and its
        query depends on the order of the annotations; so in the source, too.
        """
        scores = logits.sigmoid()[:, labels]
        return -scores * self.overlap(boxes, targets) ** self.iou_power


def check_boxes(targets: Targets) -> None:
    """Raise ValueError unless all boxes are finite."""
    for name, (_, boxes) in zip(targets.images, targets.per_image, strict=False):
        if not boxes.isfinite().all():
            raise ValueError(
                f'{name} has an annotation whose box is infinite or not a number'
            )


def box_overlaps(
    boxes: Tensor,
    targets: Tensor,
    mode: str,
    *,
    aligned: bool = False,
) -> Tensor:
    """IoU or GIoU of boxes [P, 4] and [t, 4], (cx, cy, w, h): [P, t], or [P] if aligned.

    As mmdet's ``bbox_overlaps``, whose constant a GPU would wait for. Checked against it in
    tests/models/deim/test_matching.py.
    """
    first = bbox_cxcywh_to_xyxy(boxes)
    second = bbox_cxcywh_to_xyxy(targets)
    if not aligned:
        first = first[:, None]
    sizes = [(x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]) for x in (first, second)]
    near = first[..., :2]
    far = first[..., 2:]
    other_near = second[..., :2]
    other_far = second[..., 2:]
    overlap = box_area(far.minimum(other_far) - near.maximum(other_near))
    union = (sizes[0] + sizes[1] - overlap).clamp(min=OVERLAP_EPS)
    iou = overlap / union
    if mode == 'iou':
        return iou
    outer = far.maximum(other_far) - near.minimum(other_near)
    around = box_area(outer).clamp(min=OVERLAP_EPS)
    return iou - (around - union) / around


def box_area(sides: Tensor) -> Tensor:
    """Width times height of [..., 2], 0 where one is negative."""
    width, height = sides.clamp(min=0).unbind(-1)
    return width * height


def unite(matches: Sequence[tuple[np.ndarray, np.ndarray]], num_queries: int) -> tuple:
    """All queries of an image that any layer matches, each with the annotation of most layers.

    The first annotation counts among several of as many layers.
    """
    together = np.concatenate([targets for _, targets in matches])
    if not len(together):
        return matches[0]
    number = int(together.max()) + 1
    votes = np.zeros((num_queries, number), dtype=np.int64)
    for queries, targets in matches:
        votes[queries, targets] += 1
    (queries,) = np.nonzero(votes.any(1))
    return queries, votes[queries].argmax(1)


def gather_pairs(
    images: Sequence[tuple],
    num_queries: int,
    starts: np.ndarray,
) -> tuple[np.ndarray, list[int]]:
    """The pairs of all images, [2, M]: indexes as in ``Pairs``, and how many an image has."""
    indexes = []
    counts = []
    for image, (queries, targets) in enumerate(images):
        pairs = [queries + image * num_queries, targets + starts[image]]
        indexes.append(np.stack(pairs))
        counts.append(len(queries))
    return np.concatenate(indexes, axis=1), counts


def to_device(
    joined: Sequence[tuple[np.ndarray, list[int]]], device: torch.device
) -> list[Pairs]:
    """Pairs on a device, with one copy."""
    indexes, counts = zip(*joined, strict=True)
    together = torch.from_numpy(np.concatenate(indexes, axis=1).astype(np.int64))
    together = together.to(device, non_blocking=True)
    parts = together.split([index.shape[1] for index in indexes], 1)
    with_counts = zip(parts, counts, strict=True)
    return [Pairs(part[0], part[1], numbers) for part, numbers in with_counts]
