"""DINO as published, on either family of mmdet: the detector, and its head."""

from typing import Any

import torch
from mmdet.models.dense_heads import DINOHead
from mmdet.models.detectors import DINO
from mmdet.models.layers import MLP, inverse_sigmoid
from mmdet.structures import SampleList
from mmdet.structures.bbox import get_box_tensor
from mmdet.utils import InstanceList
from mmengine.registry import MODELS
from mmengine.structures import InstanceData
from torch import Tensor, stack


@MODELS.register_module()
class PublishedDINO(DINO):
    """mmdet's DINO with the published decoder, where a box enters as 2 x ``embed_dims`` sines.

    mmdet 3.3.0 encodes each coordinate of a reference box in 128 channels whatever ``embed_dims``
    is, its successor onedl-mmdetection 3.5.1 in ``embed_dims`` channels with a ``ref_point_head``
    of twice the published input. This class gives one model, and one checkpoint layout, on both:
    ``decoder.ref_point_head`` has 2 x ``embed_dims`` inputs (512 for 256, as in the DINO paper's
    code and in detrex). Images may have fewer tokens than there are queries, at which mmdet stops.
    Takes the arguments of mmdet's DINO.
    """

    def _init_layers(self) -> None:
        super()._init_layers()
        self.decoder.ref_point_head = ReferencePointHead(self.embed_dims)

    def gen_encoder_output_proposals(
        self,
        memory: Tensor,
        memory_mask: Tensor | None,
        spatial_shapes: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """mmdet's candidates for the queries; tokens are repeated until there is one for each."""
        candidates = super().gen_encoder_output_proposals(
            memory, memory_mask, spatial_shapes
        )
        tokens = memory.shape[1]
        if tokens >= self.num_queries:
            return candidates
        repeated = torch.arange(self.num_queries, device=memory.device) % tokens
        features, boxes = candidates
        return features[:, repeated], boxes[:, repeated]


class ReferencePointHead(MLP):
    """Two-layer MLP from the sine encoding of reference boxes to query positions.

    Takes the encoding [B, N, 4 F] of (y, x, w, h), F channels a coordinate, to [B, N, C]. The
    published F is C / 2. A wider encoding with F = s C / 2 contains the published one: sine-cosine
    pair m has the frequency temperature ** (-2 m / F), so pair s m equals the published pair m.
    Only those pairs are used. Checked against mmdet's ``coordinate_to_encoding`` with C / 2
    channels in tests/models/test_dino.py.

    Raises:
        ValueError: F is no multiple of C / 2, or C no multiple of 4 (whole pairs).
    """

    def __init__(self, embed_dims: int) -> None:
        if embed_dims % 4:
            raise ValueError(
                f'embed_dims of DINO must be a multiple of 4, got {embed_dims}'
            )
        super().__init__(2 * embed_dims, embed_dims, embed_dims, num_layers=2)
        self.channels_per_coordinate = embed_dims // 2

    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[-1] // 4
        step, rest = divmod(int(channels), self.channels_per_coordinate)
        if rest or not step:
            raise ValueError(
                f'reference boxes come with {channels} sine channels a coordinate, which do not '
                f'contain the {self.channels_per_coordinate} of embed_dims='
                f'{2 * self.channels_per_coordinate}: half of embed_dims must divide {channels}'
            )
        pairs = x.unflatten(-1, (4, channels // 2, 2))
        pairs = pairs[..., ::step, :]  # [B, N, 4, C / 4, 2]
        return super().forward(pairs.flatten(-3))


# Of detrex's inverse_sigmoid, and of mmdet's decoder and denoising queries.
REFERENCE_EPS = 1e-3


@MODELS.register_module()
class PublishedDINOHead(DINOHead):
    """mmdet's DINOHead with the two details of detrex's that a config cannot set.

    - The inverse sigmoid of reference boxes is clamped at 1e-3, as in the decoder; mmdet's head
      clamps at 1e-5, so that a box on the border of the image starts from +-11.5 in the head and
      from +-6.9 in the decoder.
    - Denoising losses are divided by the number of boxes, averaged over the processes and at least
      1, times the denoising groups of *this* process. mmdet averages the product of both. The
      results are equal on one process, or where all processes have the same number of groups.

    Takes the arguments of mmdet's DINOHead, and `skip_ignored`: a query whose centre is in an
    ignored object is no background of its class, as it is of any in the source.
    `sync_cls_avg_factor=True` makes the class losses take the average over processes too, as
    detrex does. Source: detrex,
    projects/dino/modeling/dino.py and dn_criterion.py, detrex/utils/misc.py. Checked against losses
    written out from the formulas in tests/models/test_dino_head.py.
    """

    def __init__(self, *args: Any, skip_ignored: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.skip_ignored = skip_ignored

    def forward(
        self, hidden_states: Tensor, references: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Logits [L, B, N, classes] and boxes [L, B, N, 4] (cx, cy, w, h in 0..1) of each layer.

        Args:
            hidden_states: [L, B, N, C], the queries after each of L decoder layers.
            references: L + 1 boxes [B, N, 4]; entry i is the input of layer i.
        """
        logits = []
        boxes = []
        for layer, queries in enumerate(hidden_states):
            start = inverse_sigmoid(references[layer], eps=REFERENCE_EPS)
            logits.append(self.cls_branches[layer](queries))
            boxes.append((self.reg_branches[layer](queries) + start).sigmoid())
        return stack(logits), stack(boxes)

    def loss(self, batch_data_samples: SampleList, **outputs: Any) -> dict:
        """mmdet's losses; the targets find ignored objects in the data samples."""
        for sample in batch_data_samples:
            if self.skip_ignored and 'ignored_instances' in sample:
                found = sample.ignored_instances
                about = get_box_tensor(found.bboxes), found.labels
                sample.set_metainfo(dict(ignored=about))
        return super().loss(batch_data_samples=batch_data_samples, **outputs)

    def _get_targets_single(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor,
        gt_instances: InstanceData,
        img_meta: dict,
    ) -> tuple:
        """mmdet's targets, with a weight of each class; ignored objects of it make it 0."""
        labels, weights, *others = super()._get_targets_single(
            cls_score, bbox_pred, gt_instances, img_meta
        )
        if not self.skip_ignored:
            return labels, weights, *others
        negatives = others[-1]
        size = bbox_pred.new_tensor(img_meta['img_shape'][1::-1])  # width, height
        centres = bbox_pred[negatives, None, :2] * size
        weights = self.without_ignored(weights, negatives, centres, img_meta)
        return labels, weights, *others

    def _get_dn_targets_single(
        self, gt_instances: InstanceData, img_meta: dict, dn_meta: dict[str, int]
    ) -> tuple:
        """mmdet's targets; a class that is ignored in the whole image has no negative queries.

        Their places are not known here: inside a smaller ignored object they are background.
        """
        labels, weights, *others = super()._get_dn_targets_single(
            gt_instances, img_meta, dn_meta
        )
        if not self.skip_ignored:
            return labels, weights, *others
        height, width = img_meta['img_shape'][:2]
        corners = weights.new_tensor([[1, 1], [width - 1, height - 1]])
        weights = self.without_ignored(weights, others[-1], corners, img_meta)
        return labels, weights, *others

    def without_ignored(
        self, weights: Tensor, negatives: Tensor, points: Tensor, img_meta: dict
    ) -> Tensor:
        """A weight [N, classes] for each weight [N]: 0 for the classes of ignored objects.

        Args:
            negatives: [M], the queries that are background.
            points: [M, P, 2] or [P, 2], x and y in pixels, which the ignored object has to hold.
        """
        weights = weights[:, None].repeat(1, self.cls_out_channels)
        for box, label in zip(*img_meta.get('ignored', ((), ())), strict=True):
            is_inside = (points >= box[:2]) & (points <= box[2:])
            is_ignored = is_inside.flatten(-2).all(-1).expand(len(negatives))
            weights[negatives[is_ignored], label] = 0
        return weights

    def loss_by_feat(self, *given: Any) -> dict[str, Tensor]:
        """mmdet's losses, of the four outputs in float32.

        They are computed so under autocast, too: mmcv's focal loss has no bfloat16.
        """
        outputs = [output.float() for output in given[:4]]
        return super().loss_by_feat(*outputs, *given[4:])

    def loss_dn(
        self, *given: Any, dn_meta: dict[str, int], **truth: Any
    ) -> tuple[list[Tensor], ...]:
        """Class, L1 and GIoU loss of the denoising queries after each layer."""
        groups = dn_meta['num_denoising_groups']
        kinds = []
        for losses in super().loss_dn(*given, dn_meta=dn_meta, **truth):
            kinds.append([loss / groups for loss in losses])
        return tuple(kinds)

    def get_dn_targets(
        self,
        batch_gt_instances: InstanceList,
        batch_img_metas: list[dict],
        dn_meta: dict[str, int],
    ) -> tuple:
        """mmdet's targets, with the boxes of this process counted once, not once for each group.

        mmdet averages this count, the fifth item, over the processes, and divides by it.
        """
        targets = super().get_dn_targets(batch_gt_instances, batch_img_metas, dn_meta)
        *others, positives, negatives = targets
        return *others, positives // dn_meta['num_denoising_groups'], negatives
