"""Losses of DEIMv2 and ECDet.

Letters: B images, Q queries, K classes, R + 1 bins, L layers, M pairs, T boxes of all images.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmdet.utils import reduce_mean
from torch import Tensor

from ...utils.validation import checked_settings
from .masks import mask_losses
from .matching import POINT_RATIO, Matcher, box_overlaps
from .predictions import (
    Losses,
    Pairs,
    Prediction,
    Targets,
    encode_distances,
    nearest_bins,
    tensor_like,
)

WEIGHTS = dict(mal=1.0, bbox=5.0, giou=2.0, fgl=0.15, ddf=1.5, mask=5.0, dice=5.0)
LEAST = 1e-3  # of a number that is a mean over the processes, and may be 0
TEMPERATURE = 5.0  # of the distributions that layers learn from the last one


class Denoised(NamedTuple):
    """Predictions of the denoising queries.

    Attributes:
        layers, pre: as in ``Outputs``.
        pairs: the queries that shall find their box again.
        num_groups: of queries.
    """

    layers: list[Prediction]
    pre: Prediction
    pairs: Pairs
    num_groups: int


class Outputs(NamedTuple):
    """Predictions of a model in training.

    Attributes:
        layers: of the decoder, the last one last.
        pre: of the first layer, without distributions.
        encoder: the selected tokens.
        bins: [R + 1], of the distributions.
        denoised: None without denoising.
    """

    layers: list[Prediction]
    pre: Prediction
    encoder: Prediction
    bins: Tensor
    denoised: Denoised | None = None


class LossPairs(NamedTuple):
    """Pairs that a loss is summed over, and numbers as a mean over the processes.

    Attributes:
        pairs: M.
        number: of boxes that sums are divided by, 1 at least.
        matched, others: queries with and without an annotation.
    """

    pairs: Pairs
    number: Tensor
    matched: Tensor
    others: Tensor


class Criterion:
    """All losses of all layers.

    ========  ====================================================================================
    mal       matchability-aware loss of classes: the target of a pair is IoU ** gamma, and all
              other classes and queries are weighted by p ** gamma, or by 0 in ignored
              objects of the class, unless a query is in a pair
    bbox      L1 distance of boxes
    giou      1 - GIoU of boxes
    fgl       fine-grained localisation: cross entropy of the two bins next to the distance of each
              side, weighted by IoU
    ddf       decoupled distillation: divergence from the distributions of the last layer
    mask      cross entropy of masks, at points (models with masks)
    dice      dice loss of masks, at points
    ========  ====================================================================================

    Classes and masks are learned from the pairs of each layer, boxes and distributions from the
    union of the pairs of all layers. Sums are divided by the number of these boxes, averaged over
    processes. Huang et al., "DEIM: DETR with Improved Matching for Fast Convergence" (CVPR 2025);
    fgl and ddf are of D-FINE, see ``distance_bins``, mask and dice of Mask2Former's kind.
    Checked against transformers' ``Deimv2Loss``, loss by loss and with gradients, in
    tests/models/deim/test_criterion.py. (Its caller pairs the layers' boxes with the distributions
    of the next ones and leaves out ``fgl`` of the last layer; the source and this class do not.)

    Args:
        matcher: of queries and annotations.
        weights: of the losses; what is left out is as in ``WEIGHTS``.
        mal_gamma: gamma.
        reg_scale: of the distributions, see ``distance_bins``.
        masks_in_boxes: see ``MaskHead``.
    """

    default_weights = WEIGHTS

    def __init__(
        self,
        matcher: Matcher,
        weights: dict,
        mal_gamma: float,
        reg_scale: float,
        *,
        masks_in_boxes: bool = False,
    ) -> None:
        self.matcher = matcher
        known = self.default_weights
        self.weights = known | checked_settings('loss_weights', weights, list(known))
        self.gamma = mal_gamma
        self.reg_scale = reg_scale
        self.masks_in_boxes = masks_in_boxes

    def __call__(
        self,
        outputs: Outputs,
        targets: Targets,
        epoch: int = 0,
    ) -> Losses:
        """Losses by name, weighted, float32.

        ``loss_*`` are of the last layer, ``d0.loss_*`` and so on of the earlier ones, ``pre.`` and
        ``enc.`` of ``Outputs.pre`` and ``Outputs.encoder``, ``dn_`` of denoising queries.
        """
        layers = outputs.layers
        bins = outputs.bins
        sets = [*layers, outputs.pre, outputs.encoder]
        each, union = self.matcher(sets, targets, epoch)
        boxes, number, noisy = count_pairs(outputs, each[0], union, len(targets.labels))
        losses: Losses = {}
        last = len(layers) - 1
        names = {last: '', last + 1: 'pre.', last + 2: 'enc.'}
        for index, (prediction, pairs) in enumerate(zip(sets, each, strict=True)):
            teacher = layers[last] if index < last else None
            classes = boxes._replace(pairs=pairs, number=number)
            found = self.losses(
                prediction, targets, classes, boxes, bins, teacher, boxes
            )
            name = names.get(index, f'd{index}.')
            for key, loss in found.items():
                losses[f'{name}loss_{key}'] = loss
        if outputs.denoised is None or noisy is None:
            return losses
        layers, pre, *_ = outputs.denoised
        last = len(layers) - 1
        for index, prediction in enumerate([*layers, pre]):
            teacher = layers[last] if index < last else None
            found = self.losses(prediction, targets, noisy, noisy, bins, teacher, boxes)
            name = f'dn_d{index}.' if index <= last else 'dn_pre.'
            for key, loss in found.items():
                losses[f'{name}loss_{key}'] = loss
        return losses

    def losses(
        self,
        prediction: Prediction,
        targets: Targets,
        classes: LossPairs,
        boxes: LossPairs,
        bins: Tensor,
        teacher: Prediction | None,
        balance: LossPairs,
    ) -> Losses:
        """Losses of one set of predictions.

        Args:
            prediction, targets: of the batch.
            classes, boxes: pairs for the two kinds of loss.
            bins: of the distributions.
            teacher: predictions of the last layer for an earlier one to learn from.
            balance: weighs queries with and without an annotation, see ``distill``.
        """
        prediction = prediction.float()
        mal = self.class_loss(prediction, targets, classes.pairs)
        found = dict(mal=mal / classes.number)
        if prediction.masks is not None:
            sums = mask_losses(
                prediction.masks,
                targets,
                classes.pairs,
                POINT_RATIO,
                in_boxes=self.masks_in_boxes,
            )
            for name, loss in sums.items():
                found[name] = loss / classes.number
        pairs = boxes.pairs
        predicted = prediction.boxes.flatten(0, 1)[pairs.queries]  # [M, 4]
        target = targets.boxes[pairs.targets]
        iou = self.overlap(predicted.detach(), target)
        sums = self.box_losses(predicted, target)
        for name, loss in sums.items():
            found[name] = loss / boxes.number
        if prediction.corners is not None:
            sides = self.side_loss(prediction, target, pairs, iou, bins)
            found['fgl'] = sides / boxes.number
            if teacher is not None:
                found['ddf'] = distill(prediction.corners, teacher, boxes, iou, balance)
        for name, loss in found.items():
            found[name] = self.weights[name] * loss
        return found

    def overlap(self, boxes: Tensor, targets: Tensor) -> Tensor:
        """IoU [M] of boxes and annotations [M, 4]."""
        return box_overlaps(boxes, targets, 'iou', aligned=True)

    def box_losses(self, boxes: Tensor, targets: Tensor) -> Losses:
        """Sums of the losses of boxes [M, 4], not weighted."""
        giou = box_overlaps(boxes, targets, 'giou', aligned=True)
        distance = F.l1_loss(boxes, targets, reduction='sum')
        return dict(bbox=distance, giou=(1 - giou).sum())

    def encode(self, reference: Tensor, boxes: Tensor) -> Tensor:
        """The distances [M, 4] of boxes from reference boxes that distributions are about."""
        return encode_distances(reference, boxes, self.reg_scale)

    def class_loss(
        self,
        prediction: Prediction,
        targets: Targets,
        pairs: Pairs,
    ) -> Tensor:
        """The sum of the matchability-aware loss."""
        logits = prediction.logits.flatten(0, 1)  # [B Q, K]
        boxes = prediction.boxes.detach().flatten(0, 1)[pairs.queries]
        iou = self.overlap(boxes, targets.boxes[pairs.targets])
        place = pairs.queries, targets.labels[pairs.targets]
        target = torch.zeros_like(logits).index_put(place, iou**self.gamma)
        weight = logits.detach().sigmoid() ** self.gamma
        ignored = targets.are_ignored(prediction.boxes.detach(), logits.shape[1])
        ignored = ignored.index_fill(0, pairs.queries, False)  # an object has one class
        weight = weight * ~ignored
        weight = weight.index_put(place, torch.ones_like(iou))
        return F.binary_cross_entropy_with_logits(
            logits, target, weight, reduction='sum'
        )

    def side_loss(
        self,
        prediction: Prediction,
        target: Tensor,
        pairs: Pairs,
        iou: Tensor,
        bins: Tensor,
    ) -> Tensor:
        """The sum of the fine-grained localisation loss."""
        assert prediction.corners is not None and prediction.reference is not None
        corners = prediction.corners.flatten(0, 1)[pairs.queries]
        corners = corners.unflatten(-1, (-1, len(bins)))
        reference = prediction.reference.flatten(0, 1)[pairs.queries]
        distances = self.encode(reference, target)
        index, right = nearest_bins(distances, bins)  # [M, 4]
        index = torch.stack([index, index + 1], -1)
        weight = torch.stack([1 - right, right], -1) * iou[:, None, None]
        return -(corners.log_softmax(-1).gather(-1, index) * weight).sum()


def distill(
    corners: Tensor,
    teacher: Prediction,
    boxes: LossPairs,
    iou: Tensor,
    balance: LossPairs,
) -> Tensor:
    """Divergence of distributions [B, Q, 4 (R + 1)], or 7, from a teacher's.

    It is weighted by the IoU of queries with an annotation, and by the teacher's class score of the
    others. The means over the two are weighted by the square roots of their numbers in ``balance``:
    the encoder's queries are counted also where denoising queries learn, as in the source.
    """
    assert teacher.corners is not None
    queries = boxes.pairs.queries
    sides = teacher.boxes.shape[-1]
    weight = teacher.logits.detach().float().sigmoid().amax(-1).flatten()  # [B Q]
    weight = weight.index_put((queries,), iou)
    matched = torch.zeros_like(weight).index_fill(0, queries, 1.0)
    student, target = (
        (x.flatten(0, 1).unflatten(-1, (sides, -1)) / TEMPERATURE).log_softmax(-1)
        for x in (corners, teacher.corners.detach().float())
    )
    divergence = F.kl_div(student, target, reduction='none', log_target=True)
    divergence = divergence.sum((1, 2))  # [B Q]
    divergence = weight * TEMPERATURE**2 * divergence
    num_matched = sides * boxes.matched.clamp(min=LEAST)
    mean_matched = (divergence * matched).sum() / num_matched
    num_others = sides * boxes.others.clamp(min=LEAST)
    mean_others = (divergence * (1 - matched)).sum() / num_others
    roots = balance.matched.sqrt(), balance.others.sqrt()
    return (mean_matched * roots[0] + mean_others * roots[1]) / sum(roots)


def count_pairs(
    outputs: Outputs,
    layer: Pairs,
    union: Pairs,
    number: int,
) -> tuple[LossPairs, Tensor, LossPairs | None]:
    """The union of the pairs of all layers, a layer's number, and the denoising queries' pairs.

    All numbers are means over the processes, of one exchange between them; ``layer`` are the pairs
    of one layer, ``union`` those of any; ``number`` counts annotations, which count where a layer
    has fewer queries.
    """
    logits = outputs.pre.logits
    denoised = outputs.denoised
    others = logits[..., 0].numel() - len(union)
    numbers = [number, max(number, len(layer)), len(union), others]
    if denoised is not None:
        pairs = denoised.pairs
        queries = denoised.pre.logits[..., 0]
        numbers += [len(pairs), queries.numel() - len(pairs)]
    means = reduce_mean(tensor_like(numbers, logits.float()))
    num_boxes, of_layer, matched, unmatched, *noisy = means.unbind()
    of_layer = of_layer.clamp(min=1)
    boxes = LossPairs(union, matched.clamp(min=1), matched, unmatched)
    if denoised is None:
        return boxes, of_layer, None
    groups = max(denoised.num_groups, 1)
    noisy_boxes = num_boxes.clamp(min=1) * groups
    return boxes, of_layer, LossPairs(denoised.pairs, noisy_boxes, *noisy)
