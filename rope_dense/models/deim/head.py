"""The head of DEIM: queries, decoder, losses, results.

Letters: B images, C channels, K classes, Q queries, M detections of an image.
"""

import logging
from functools import cache
from typing import NamedTuple

import torch
from mmdet.structures import SampleList
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy
from mmengine.logging import MessageHub
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from mmengine.structures import InstanceData
from torch import Tensor

from ...utils.sizes import ImageSize, smaller
from ..maps import Maps
from .criterion import Criterion, Denoised, Outputs
from .decoder import DEIMDecoder
from .masks import MaskHead, end_at_boxes, in_image
from .matching import Matcher
from .predictions import (
    Losses,
    Prediction,
    Targets,
    gather_ignored,
    gather_targets,
    in_pixels,
    tensor_like,
)
from .queries import ContrastiveDenoising, QuerySelection, take


class Parts(NamedTuple):
    """Classes of what a head consists of."""

    selection: type[QuerySelection] = QuerySelection
    decoder: type[DEIMDecoder] = DEIMDecoder
    denoising: type[ContrastiveDenoising] = ContrastiveDenoising
    matcher: type[Matcher] = Matcher
    criterion: type[Criterion] = Criterion


@MODELS.register_module()
class DEIMHead(BaseModule):
    """Query selection, decoder, and the losses of DEIMv2 and ECDet.

    Args:
        num_classes: K.
        embed_dims: C of the encoder.
        num_queries: Q, of the encoder's tokens.
        decoder: see ``DEIMDecoder``.
        denoising: see ``ContrastiveDenoising``; None to train without it.
        matching: see ``Matcher``. The epoch comes from mmengine's message hub, where
            ``ResumableTrainLoop``, or ``RuntimeInfoHook`` in runs by epochs, sets it, in a resumed
            run too.
        loss_weights, mal_gamma: see ``Criterion``.
        masks: see ``MaskHead``, without its channels and layers; None for boxes alone.
        skip_ignored: queries in ignored objects are no background, see ``Targets``; in the source
            they are.
        train_cfg: not used.
        test_cfg: ``max_per_img``, M; 300 without it. ``nms_iou``: see ``repeated``; short runs have
            not learned to suppress duplicates. None or without it: as in the source.
        init_cfg: mmengine initialisation.
    """

    parts = Parts()

    def __init__(
        self,
        num_classes: int,
        embed_dims: int,
        decoder: dict,
        num_queries: int = 300,
        denoising: dict | None = dict(num_queries=100, label_noise=0.5, box_noise=1.0),  # noqa: B006
        matching: dict = {},  # noqa: B006
        loss_weights: dict = {},  # noqa: B006
        mal_gamma: float = 1.5,
        masks: dict | None = None,
        skip_ignored: bool = False,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.num_classes = num_classes
        self.num_queries = num_queries
        self.train_cfg = train_cfg
        self.test_cfg = test_cfg
        self.skip_ignored = skip_ignored
        self.max_per_img = (test_cfg or {}).get('max_per_img', 300)
        self.nms_iou: float | None = (test_cfg or {}).get('nms_iou')
        self.selection = self.parts.selection(embed_dims, num_classes, num_queries)
        self.decoder = self.parts.decoder(embed_dims, num_classes, **decoder)
        self.denoising: ContrastiveDenoising | None = None
        if denoising is not None:
            self.denoising = self.parts.denoising(embed_dims, num_classes, **denoising)
        self.mask_head: MaskHead | None = None
        if masks is not None:
            self.mask_head = MaskHead(embed_dims, len(self.decoder.layers), **masks)
        matcher = self.parts.matcher(**matching)
        scale = self.decoder.reg_scale
        self.criterion = self.parts.criterion(
            matcher,
            loss_weights,
            mal_gamma,
            scale,
            masks_in_boxes=self.mask_head is not None and self.mask_head.in_boxes,
        )

    def forward(self, maps: Maps) -> Prediction:
        """The prediction of layer ``eval_idx`` for maps [B, C, H, W], in evaluation mode."""
        selection = self.selection(maps)
        (prediction,), _ = self.decoder(selection.queries, selection.boxes, maps)
        if self.mask_head is None:
            return prediction
        assert prediction.queries is not None
        last = self.decoder.eval_idx
        masks = self.mask_head.evaluate(maps[0], prediction.queries, last)
        return prediction._replace(masks=masks)

    def forward_training(self, maps: Maps, targets: Targets) -> Outputs:
        """Predictions of all layers, with denoising queries in front of the others."""
        selection = self.selection(maps)
        encoder = Prediction(selection.logits, self.decoder.start(selection.boxes))
        queries = selection.queries.detach()
        boxes = selection.boxes.detach()
        bins = self.decoder.bins
        if self.denoising is None:
            *layers, pre = self.decode_all(queries, boxes, maps)
            return Outputs(layers, pre, encoder, bins)
        noisy = self.denoising(targets, queries.shape[1])
        queries = torch.cat([noisy.queries.to(queries.dtype), queries], 1)
        boxes = torch.cat([noisy.boxes, boxes], 1)
        predictions = self.decode_all(queries, boxes, maps, noisy.mask)
        sizes = [noisy.number, selection.queries.shape[1]]
        parts = [part.split(sizes) for part in predictions]
        (*denoising, denoising_pre), (*layers, pre) = zip(*parts, strict=True)
        second = Denoised(denoising, denoising_pre, noisy.pairs, noisy.num_groups)
        return Outputs(layers, pre, encoder, bins, second)

    def decode_all(
        self,
        queries: Tensor,
        boxes: Tensor,
        maps: Maps,
        mask: Tensor | None = None,
    ) -> list[Prediction]:
        """Predictions of all layers of the decoder, and last its boxes without distributions.

        The masks of the last layer count for those, too, as in the source.
        """
        layers, pre = self.decoder(queries, boxes, maps, mask)
        assert pre is not None, 'losses need a model in training mode'
        predictions = [*layers, pre]
        if self.mask_head is None:
            return predictions
        of_layers = [x.queries for x in layers if x.queries is not None]
        masks = self.mask_head(maps[0], of_layers)
        masks.append(masks[-1])
        pairs = zip(predictions, masks, strict=True)
        return [prediction._replace(masks=some) for prediction, some in pairs]

    def drop_unused(self) -> None:
        """Leave out what does not run in evaluation."""
        self.denoising = None
        self.decoder.drop_unused()
        if self.mask_head is not None:
            self.mask_head.drop_unused(self.decoder.eval_idx)

    def loss(
        self,
        maps: Maps,
        batch_data_samples: SampleList,
        size: ImageSize,
    ) -> Losses:
        """Losses for images of ``size`` (height, width), see ``Criterion``."""
        targets = self.gather(batch_data_samples, size)
        if self.skip_ignored:
            targets = targets._replace(ignored=gather_ignored(batch_data_samples, size))
        epoch = MessageHub.get_current_instance().get_info('epoch', 0)
        outputs = self.forward_training(maps, targets)
        with torch.autocast(maps[0].device.type, enabled=False):
            return self.criterion(outputs, targets, epoch)

    def gather(self, batch_data_samples: SampleList, size: ImageSize) -> Targets:
        """The annotations of a batch."""
        with_masks = self.mask_head is not None
        return gather_targets(batch_data_samples, size, with_masks=with_masks)

    def predict_tensors(self, maps: Maps, size: ImageSize) -> tuple[Tensor, ...]:
        """The M best classes of queries, by falling score.

        Traces with any batch and sizes.

        Args:
            maps: of the encoder.
            size: (height, width) of the images.

        Returns:
            Scores [B, M], labels [B, M] and boxes [B, M, 4], (left, top, right, bottom) in pixels
            of the images and within them. With masks also their logits [B, M, h, w], of the padded
            images. Scores of duplicates, with ``nms_iou``, are 0.
        """
        prediction = self(maps)
        scores, labels, query = self.best(prediction)
        found = take(prediction.boxes, query)
        boxes = in_pixels(bbox_cxcywh_to_xyxy(found), size)
        if self.mask_head is None or prediction.masks is None:
            return scores, labels, boxes
        masks = prediction.masks.logits(query)
        if self.mask_head.in_boxes:
            masks = end_at_boxes(masks, found)
        return scores, labels, boxes, masks

    def best(self, prediction: Prediction) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, labels and queries [B, M] of the highest logits; duplicates have score 0."""
        scores = prediction.logits.float().sigmoid().flatten(1)
        scores, index = scores.topk(smaller(self.max_per_img, scores.shape[1]))
        labels = index % self.num_classes
        query = index // self.num_classes
        if self.nms_iou is None:
            return scores, labels, query
        overlap = self.overlap(take(prediction.boxes, query), self.nms_iou)
        scores = scores.masked_fill(is_duplicate(overlap, labels), 0)
        scores, order = scores.topk(scores.shape[1])
        return scores, labels.gather(1, order), query.gather(1, order)

    def overlap(self, boxes: Tensor, iou: float) -> Tensor:
        """True [B, M, M] where boxes [B, M, 4] overlap by above ``iou``."""
        return overlap_above(bbox_cxcywh_to_xyxy(boxes), iou)

    def warn_of_few_tokens(self, maps: Maps) -> None:
        """Log once where images have fewer tokens than there shall be queries."""
        tokens = sum(x.shape[2] * x.shape[3] for x in maps)
        if tokens < self.num_queries:
            log_once(
                f'{self.num_queries} queries, but an image of this size has {tokens} tokens, '
                'which are all used; a larger --size has more'
            )

    def kept(self, scores: Tensor) -> Tensor | slice:
        """Which results of scores [M] are no duplicates."""
        return slice(None) if self.nms_iou is None else scores > 0

    def predict(
        self,
        maps: Maps,
        batch_data_samples: SampleList,
        size: ImageSize,
        rescale: bool = True,
    ) -> list[InstanceData]:
        """Detections of each image, in pixels of the original image or (``rescale=False``) of ours.

        Args:
            maps: of the encoder.
            batch_data_samples: with ``scale_factor`` and ``ori_shape``, or ``img_shape``.
            size: (height, width) of the padded batch.
            rescale: as above.
        """
        self.warn_of_few_tokens(maps)
        results = []
        outputs = zip(*self.predict_tensors(maps, size), strict=True)
        pairs = zip(batch_data_samples, outputs, strict=True)
        for sample, (scores, labels, boxes, *masks) in pairs:
            meta = sample.metainfo
            if rescale:
                boxes = boxes / tensor_like(meta['scale_factor'], boxes).repeat(2)
            height, width = meta['ori_shape' if rescale else 'img_shape'][:2]
            boxes = boxes.minimum(tensor_like([width, height, width, height], boxes))
            kept = self.kept(scores)
            found = InstanceData(
                scores=scores[kept], labels=labels[kept], bboxes=boxes[kept]
            )
            for logits in masks:
                inside = meta.get('img_shape', size)[:2]
                out = (height, width)
                found.masks = in_image(logits[kept].float(), size, inside, out)
            results.append(found)
        return results


@cache
def log_once(message: str) -> None:
    """Log a warning the first time that it is given."""
    logging.getLogger(__name__).warning(message)


def is_duplicate(overlap: Tensor, labels: Tensor) -> Tensor:
    """True [B, M] for boxes that overlap, by ``overlap`` [B, M, M], an earlier one of their class.

    Fast NMS, of Bolya et al., "YOLACT: Real-time Instance Segmentation" (ICCV 2019): that one may
    be repeated itself, so there is no loop, and it is traced for any batch and M.
    """
    alike = overlap & (labels[:, :, None] == labels[:, None])
    # Not triu, which programs that run exported files may lack.
    place = torch.arange(labels.shape[1], device=labels.device)
    return (alike & (place[:, None] < place)).any(1)


def overlap_above(corners: Tensor, iou: float) -> Tensor:
    """True [B, M, M] where boxes [B, M, 4] (left, top, right, bottom) overlap by above ``iou``.

    Checked against mmdet's IoU, box by box, in tests/models/deim/test_detector.py.
    """
    near = torch.maximum(corners[:, :, None, :2], corners[:, None, :, :2])
    far = torch.minimum(corners[:, :, None, 2:], corners[:, None, :, 2:])
    shared = (far - near).clamp(min=0).prod(-1)
    area = (corners[..., 2:] - corners[..., :2]).clamp(min=0).prod(-1)
    union = area[:, :, None] + area[:, None] - shared
    return shared > iou * union
