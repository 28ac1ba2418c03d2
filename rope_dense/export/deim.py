"""DEIM, without what only training needs.

Letters: B images, H x W pixels, M detections of an image, h x w mask.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.deim.detector import DEIM
from ..models.deim.oriented import OrientedDEIMHead
from ..models.deim.oriented_boxes import corners_of
from ..models.maps import size_of
from .anchors import clip_boxes
from .client import Frame
from .detector import size_with_tokens
from .graphs import Graph, InFloat32, Outputs, crop_maps


class DEIMGraph(Graph):
    """``DEIM``: uint8 images to scores [B, M], boxes [B, M, 4] and labels [B, M].

    They are as in ``DetectorGraph``. A model with masks also has their logits [B, M, h, w], at a
    quarter of the padded image, or on the pixels of an input that is resized inside; an instance is
    where they are positive. An oriented model has boxes [B, M, 5], (cx, cy, w, h, angle) in pixels
    and radians, clockwise, le90, and their corners [B, M, 4, 2], (x, y) around each box. Layers
    after ``eval_idx``, what earlier layers predict for the losses, and denoising are left out.
    Batch norms become part of their convolutions, and the two convolutions of a RepVGG block one.
    """

    task = 'detection'
    num_classes: int
    float32_parts = (
        *Graph.float32_parts[:2],
        'query selection',
        'positions of queries',
        'places and sums of deformable attention',
        'norms of the decoder',
        'distributions and boxes',
        'scores',
    )

    def __init__(self, model: DEIM, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        head = self.model.bbox_head
        self.is_oriented = isinstance(head, OrientedDEIMHead)
        self.outputs = ('scores', 'boxes', 'labels')
        if self.is_oriented:
            self.outputs += ('corners',)
        elif head.mask_head is not None:
            self.outputs += ('masks',)
        self.num_classes = head.num_classes
        self.generic = size_with_tokens(self, head.num_queries)
        self.model.deploy()
        if dtype != torch.float32:
            self.model.backbone.to(dtype)
            if self.model.with_neck:
                self.model.neck.to(dtype)
            self.model.encoder.to(dtype)
            cast_head(head, dtype)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        maps = self.model.extract_feat(x.to(self.dtype))
        found = self.model.bbox_head.predict_tensors(maps, size_of(x))
        scores, labels, boxes, *masks = found
        if self.is_oriented:
            return scores, boxes, labels, corners_of(boxes)
        results = [scores, frame.points(clip_boxes(boxes, *frame.size)), labels]
        for some in masks:
            some = some.float()
            if self.resize is not None:
                some = self.first(some)
                # In one step, as the model, where it is known that nothing was padded.
                if self.resize.keep_ratio or size_of(x) != frame.size:
                    some = F.interpolate(some, size_of(x), mode='bilinear')
                    some = crop_maps(some, frame.size)
                some = frame.maps(some)
            results.append(some)
        return tuple(results)

    def details(self) -> dict:
        """The convention of angles of oriented boxes; the divisor of the sides of masks."""
        if self.is_oriented:
            return dict(angle_version=self.model.bbox_head.box_convention)
        small_masks = 'masks' in self.outputs and self.resize is None
        return dict(padded_to=self.divisor) if small_masks else {}


def cast_head(head: Any, dtype: torch.dtype) -> None:
    """Put the decoder layers and masks of a ``DEIMHead`` in ``dtype``."""
    decoder = head.decoder
    for layer in decoder.layers:
        cross = layer.cross_attn
        gateway = layer.gateway
        for part in (layer.self_attn, layer.ffn, gateway.gate, cross.attention_weights):
            part.to(dtype)
        layer.norm1 = InFloat32(layer.norm1, dtype)
        layer.norm2 = InFloat32(layer.norm2, dtype)
        gateway.norm = InFloat32(gateway.norm, dtype)
        cross.sampling_offsets = InFloat32(cross.sampling_offsets)
    if head.mask_head is not None:
        head.mask_head.to(dtype)
    head.selection.cls = InFloat32(head.selection.cls)
    head.selection.reg = InFloat32(head.selection.reg)
    decoder.query_pos = InFloat32(decoder.query_pos, dtype)
    decoder.pre_bbox = InFloat32(decoder.pre_bbox)
    decoder.reg_branches = nn.ModuleList(map(InFloat32, decoder.reg_branches))
    decoder.cls_branches = nn.ModuleList(map(InFloat32, decoder.cls_branches))


GRAPHS = {DEIM: DEIMGraph}
