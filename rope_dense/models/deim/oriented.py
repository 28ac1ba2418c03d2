"""DEIM with an angle: the parts of the real-time detector that know that boxes are rotated.

A box is seven real numbers (``oriented_boxes``), and each of them has a distribution that the
layers refine, as the four sides have in the horizontal model: the angle is in four of them, as
(cos 2a, sin 2a) with a weight that is 0 for squares, and as (cos 4a, sin 4a). What follows:

- deformable attention samples around the box: offsets are stretched by its matrix, so points follow
  its direction; for a box along the axes they are where the horizontal model has them
- losses are KLD (weight 2) in place of GIoU, and L1 (weight 5) of the entries of the matrix; the
  matching has both as costs, with the weights of O2-RTDETR (Ding et al., TGRS 2026), which has the
  distance of vertices in place of L1 because its angle has a border
- classes learn the rotated IoU (mmcv's ``box_iou_rotated``), and the late matching uses it
- denoising queries have noise in all numbers, the angle among them

Annotations may have any convention of angles; predictions are in le90. Encoder, backbone, necks and
layers are shared with the horizontal model.

Letters: B images, Q queries, h heads, P points, M pairs or detections, D denoising queries, N
tokens, T boxes of all images.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.ops import box_iou_rotated
from mmdet.structures import SampleList
from mmengine.registry import MODELS
from mmengine.structures import InstanceData
from torch import Tensor

from ...utils.memo import memo
from ...utils.sizes import ImageSize, Size
from ..maps import Maps, cell_centres, size_of
from .criterion import WEIGHTS, Criterion
from .decoder import DEIMDecoder
from .head import DEIMHead, Parts
from .layers import DeformableAttention, mlp
from .matching import Matcher
from .oriented_boxes import (
    NUMBERS,
    SPLIT,
    change_between,
    divergence,
    entries,
    from_rotated,
    matrices,
    move_boxes,
    saturate,
    to_rotated,
)
from .predictions import Losses, Targets, gather_boxes, take, tensor_like
from .queries import ANCHOR_SIZE, ContrastiveDenoising, QuerySelection

# About half of a side of movement.
NOISE = (1 / 3, 1 / 3, 1 / 2, 1 / 2, 1 / 2, 1 / 4, 1 / 4)
# Sides of boxes whose overlap is computed: small numbers lose digits there.
IOU_SCALE = 1024.0


class OrientedSelection(QuerySelection):
    """Tokens with the highest score of any class, and an oriented box for each."""

    def __init__(
        self,
        channels: int,
        num_classes: int,
        num_queries: int,
    ) -> None:
        super().__init__(channels, num_classes, num_queries)
        self.reg = mlp(channels, channels, NUMBERS, 3, zero=True)

    def anchors(
        self, sizes: tuple[Size, ...], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Square boxes [N, 7] centred on tokens, all valid."""
        anchors = oriented_anchors(sizes, device=device)
        return anchors, torch.ones_like(anchors[:, :1])

    def boxes_at(self, anchors: Tensor, change: Tensor) -> Tensor:
        """Boxes of tokens."""
        return move_boxes(anchors, change.float())


@memo
def oriented_anchors(sizes: tuple[Size, ...], *, device: torch.device) -> Tensor:
    """Square boxes [N, 7] for maps of these sizes, as large as the horizontal model's."""
    anchors = []
    for level, size in enumerate(sizes):
        centres = cell_centres(size, device)
        centres = centres / per_side(sizes[0], centres)
        side = torch.full_like(centres[:, :1], math.log(ANCHOR_SIZE * 2**level))
        nothing = torch.zeros_like(centres)  # no stretch, no turn
        anchors.append(torch.cat([centres, side, nothing, nothing], 1))
    return torch.cat(anchors)


def per_side(size: ImageSize, like: Tensor) -> Tensor:
    """The unit of boxes, the mean of both sides, relative to the width and to the height: [2]."""
    height, width = size
    sides = tensor_like([width, height], like)
    return sides.mean() / sides


class OrientedAttention(DeformableAttention):
    """Weighted sum of the values at points around a box, which follow its direction.

    An offset is stretched by the matrix of the box, so its length is relative to the side that it
    is along. For a box along the axes, points are as in ``DeformableAttention``. Checked point
    by point in tests/models/deim/test_oriented.py.
    """

    def points(self, offsets: Tensor, boxes: Tensor) -> Tensor:
        """Points [B, Q, h, P, 2] on a grid from -1 to 1; ``boxes`` are frames [B, Q, 6]."""
        centre, along_x, along_y = boxes[:, :, None, None].chunk(3, -1)
        x, y = (offsets * self.point_scale).chunk(2, -1)
        return centre + x * along_x + y * along_y


class OrientedDecoder(DEIMDecoder):
    """``DEIMDecoder`` for oriented boxes, with a distribution for each of their numbers.

    Distances are changes of the reference box (see ``move_boxes``) in units of 1 / ``reg_scale``.
    """

    num_values = NUMBERS
    attention = OrientedAttention

    def start(self, boxes: Tensor) -> Tensor:
        """Boxes of queries in float32."""
        return boxes.float()

    def entries(self, boxes: Tensor) -> Tensor:
        """Their centres and matrices in units of the image."""
        return entries(boxes)

    def frames(self, boxes: Tensor, maps: Maps) -> Tensor:
        """Centres and the columns of the matrices, [B, Q, 6], on a grid from -1 to 1."""
        centre, shape, _ = boxes.split(SPLIT, -1)
        scale = 2 * per_side(size_of(maps[0]), boxes)
        first, second, mixed = matrices(shape).chunk(3, -1)
        along_x = torch.cat([first, mixed], -1) * scale
        along_y = torch.cat([mixed, second], -1) * scale
        return torch.cat([centre * scale - 1, along_x, along_y], -1)

    def correct(self, boxes: Tensor, change: Tensor) -> Tensor:
        """Boxes after the first layer, without distributions."""
        return move_boxes(boxes, change.float())

    def decode(self, reference: Tensor, distances: Tensor) -> Tensor:
        """Boxes at the means of distributions from the reference boxes."""
        return move_boxes(reference, distances / self.reg_scale)


class OrientedDenoising(ContrastiveDenoising):
    """Groups of queries with the annotations of an image, twice each, with noise in all numbers.

    The noise of a negative copy is one to two times the largest noise of the first one.
    """

    def noisy_boxes(self, boxes: Tensor, negative: Tensor) -> Tensor:
        """Change boxes [B, D, 7]; ``negative`` [D, 1] is 1 for the larger noise."""
        sign = torch.randint_like(boxes, 0, 2) * 2 - 1
        share = torch.rand_like(boxes) + negative
        change = sign * share * tensor_like(NOISE, boxes) * self.box_noise
        return move_boxes(boxes, change)


class OrientedMatcher(Matcher):
    """Matches each annotation of an image with one query, at the least sum of costs.

    Args:
        class_cost: weight of the focal loss of the class.
        bbox_cost: weight of the L1 distance of centres and matrices.
        kld_cost: weight of the Kullback-Leibler divergence.
        late_epoch, iou_power, repeats: see ``Matcher``; the IoU is rotated.
    """

    def __init__(
        self,
        class_cost: float = 2.0,
        bbox_cost: float = 5.0,
        kld_cost: float = 2.0,
        late_epoch: int | None = None,
        iou_power: float = 4.0,
        repeats: int = 1,
    ) -> None:
        super().__init__(
            class_cost, bbox_cost, 0.0, late_epoch, iou_power, repeats=repeats
        )
        self.kld_cost = kld_cost

    def box_costs(self, boxes: Tensor, targets: Tensor) -> Tensor:
        """Costs [P, t] of boxes [P, 7] and [t, 7]."""
        distance = torch.cdist(entries(boxes), entries(targets), p=1)
        kld = saturate(divergence(boxes[:, None], targets))
        return self.bbox_cost * distance + self.kld_cost * kld

    def overlap(self, boxes: Tensor, targets: Tensor) -> Tensor:
        """IoU [P, t] of boxes [P, 7] and [t, 7]."""
        return rotated_iou(boxes, targets)


class OrientedCriterion(Criterion):
    """All losses of all layers, for oriented boxes; ``kld`` in place of ``giou``."""

    default_weights = {
        'mal': WEIGHTS['mal'],
        'bbox': WEIGHTS['bbox'],
        'fgl': WEIGHTS['fgl'],
        'ddf': WEIGHTS['ddf'],
        'kld': 2.0,
    }

    def overlap(self, boxes: Tensor, targets: Tensor) -> Tensor:
        """IoU [M] of boxes and annotations [M, 7]."""
        return rotated_iou(boxes, targets, aligned=True)

    def box_losses(self, boxes: Tensor, targets: Tensor) -> Losses:
        """Sums of the losses of boxes [M, 7], not weighted."""
        distance = F.l1_loss(entries(boxes), entries(targets), reduction='sum')
        return dict(bbox=distance, kld=saturate(divergence(boxes, targets)).sum())

    def encode(self, reference: Tensor, boxes: Tensor) -> Tensor:
        """The distances [M, 7] of boxes from reference boxes that distributions are about."""
        return change_between(reference, boxes) * self.reg_scale


def rotated_iou(
    boxes: Tensor,
    targets: Tensor,
    *,
    aligned: bool = False,
) -> Tensor:
    """IoU of boxes [P, 7] and [t, 7]: [P, t], or [P] if aligned; no derivative."""
    pair = []
    for some in (boxes, targets):
        centre, sides, angle = to_rotated(some.float()).split([2, 2, 1], -1)
        pair.append(torch.cat([centre * IOU_SCALE, sides * IOU_SCALE, angle], -1))
    if not (len(boxes) and len(targets)):
        return boxes.new_zeros(len(boxes) if aligned else (len(boxes), len(targets)))
    return box_iou_rotated(*pair, aligned=aligned)


@MODELS.register_module()
class OrientedDEIMHead(DEIMHead):
    """``DEIMHead`` for oriented boxes: annotations and predictions are mmrotate's.

    It takes the arguments of ``DEIMHead``, without ``masks``; ``matching`` has ``kld_cost`` and
    ``loss_weights`` has ``kld`` in place of GIoU's. Boxes of predictions are in le90.

    Raises:
        ValueError: ``masks`` are asked for.
    """

    parts = Parts(
        OrientedSelection,
        OrientedDecoder,
        OrientedDenoising,
        OrientedMatcher,
        OrientedCriterion,
    )
    box_convention = 'le90'  # of the predictions, see ``fixed_convention``

    def __init__(self, *args: Any, masks: None = None, **kwargs: Any) -> None:
        if masks is not None:
            raise ValueError(
                'masks: an oriented detector has boxes alone; remove the setting'
            )
        super().__init__(*args, **kwargs)

    def gather(self, batch_data_samples: SampleList, size: ImageSize) -> Targets:
        """The annotations of images of ``size``; ValueError for boxes without an angle."""
        labels, boxes, counts, names = gather_boxes(batch_data_samples)
        for name, some in zip(names, boxes, strict=True):
            if some.shape[-1] != 5:
                raise ValueError(
                    f'{name} has boxes without an angle: an oriented detector needs (cx, cy, w, h, '
                    "angle), made by dict(type='ConvertBoxType', box_type_mapping=dict(gt_bboxes="
                    "'rbox')) in the pipeline"
                )
        together = from_pixels(torch.cat(boxes).float(), size)
        return Targets(labels, together, counts, images=names)

    def predict_tensors(self, maps: Maps, size: ImageSize) -> tuple[Tensor, ...]:
        """As of ``DEIMHead``, with boxes [B, M, 5], (cx, cy, w, h, angle) in pixels, le90."""
        prediction = self(maps)
        scores, labels, query = self.best(prediction)
        boxes = to_rotated(take(prediction.boxes, query))
        centre, sides, angle = boxes.split([2, 2, 1], -1)
        unit = (size[0] + size[1]) / 2
        return scores, labels, torch.cat([centre * unit, sides * unit, angle], -1)

    def overlap(self, boxes: Tensor, iou: float) -> Tensor:
        """True [B, M, M] where boxes [B, M, 7] overlap by about ``iou``, as Gaussians.

        Of a box and its copy that is moved along a side the overlap is ``iou`` where their
        divergence is the limit; of other pairs about so. A rotated IoU would not be traced.
        """
        moved = (1 - iou) / (1 + iou)  # in sides of the box
        return divergence(boxes[:, :, None], boxes[:, None]) < 2 * moved**2

    def predict(
        self,
        maps: Maps,
        batch_data_samples: SampleList,
        size: ImageSize,
        rescale: bool = True,
    ) -> list[InstanceData]:
        """As of ``DEIMHead``, with mmrotate's boxes."""
        # This package works without mmrotate.
        from mmrotate.structures.bbox import RotatedBoxes

        self.warn_of_few_tokens(maps)
        results = []
        outputs = zip(*self.predict_tensors(maps, size), strict=True)
        pairs = zip(batch_data_samples, outputs, strict=True)
        for sample, (scores, labels, tensor) in pairs:
            kept = self.kept(scores)
            boxes = RotatedBoxes(tensor[kept])
            if rescale:
                x, y = sample.scale_factor
                boxes.rescale_((1 / x, 1 / y))
            boxes.regularize_boxes(self.box_convention)
            found = InstanceData(scores=scores[kept], labels=labels[kept], bboxes=boxes)
            results.append(found)
        return results


def from_pixels(boxes: Tensor, size: ImageSize) -> Tensor:
    """mmrotate's boxes [T, 5] in images of ``size`` (height, width) to ours, both float32."""
    centre, sides, angle = boxes.split([2, 2, 1], -1)
    unit = (size[0] + size[1]) / 2
    return from_rotated(torch.cat([centre / unit, sides / unit, angle], -1))
