"""DINO detectors, and EoMT for instances and segments.

Letters: B images, H x W pixels, C channels, K classes, N tokens of all maps, L maps, Q queries,
M detections of an image.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmdet.models.detectors import DINO
from torch import Tensor

from ..models.deim.predictions import in_pixels
from ..models.deim.queries import ANCHOR_BORDER, grid_anchors
from ..models.eomt.detector import EoMTDetector
from ..models.maps import size_of
from ..utils.sizes import ImageSize, Size, larger
from .client import Frame
from .deformable import flatten_map, position_encoding, reference_points
from .graphs import Graph, Outputs, check_methods, crop_maps


class DetectorGraph(Graph):
    """mmdet's ``DINO`` and ours: uint8 images to scores [B, M], boxes [B, M, 4] and labels [B, M].

    Boxes are (left, top, right, bottom) in pixels of the input. Padding is masked as by mmdet, the
    same for all images of a batch, which have one size. Detections come by falling score, at most
    ``test_cfg.max_per_img``, and are not thresholded. Where there are fewer tokens than queries,
    tokens are repeated, as in ``PublishedDINO``.
    """

    task = 'detection'
    outputs = ('scores', 'boxes', 'labels')
    num_classes: int

    def __init__(self, model: DINO, dtype: torch.dtype) -> None:
        methods = ('pre_transformer', 'pre_decoder', 'forward_decoder', 'predict')
        check_methods(model, DINO, *methods)
        super().__init__(model, dtype)
        head = model.bbox_head
        if not head.loss_cls.use_sigmoid:
            raise ValueError(
                'bbox_head must have sigmoid scores (loss_cls.use_sigmoid=True)'
            )
        self.num_classes = head.num_classes
        self.num_detections = head.test_cfg.get('max_per_img', model.num_queries)
        self.cast_backbone()
        self.generic = size_with_tokens(self, model.num_queries)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        logits, boxes = self.decode(*self.encode(x, frame.size))  # [B, Q, K], [B, Q, 4]
        scores, index = logits.sigmoid().flatten(1).topk(self.num_detections)  # [B, M]
        query = (index // self.num_classes)[..., None].expand(-1, -1, 4)
        centre, sides = boxes.gather(1, query).chunk(2, -1)
        corners = torch.cat([centre - sides / 2, centre + sides / 2], -1)
        return scores, in_pixels(corners, frame.input), index % self.num_classes

    def encode(self, image: Tensor, size: ImageSize) -> tuple[Tensor, Maps]:
        """The tokens [B, N, C] of the encoder, and their maps."""
        model = self.model
        sizes = []
        tokens = []
        encodings = []
        paddings = []
        shares = []
        maps = model.extract_feat(image)
        for x, level in zip(maps, model.level_embed, strict=True):
            padding = padding_of(size_of(x), size, size_of(image))
            encoding = position_encoding(model.positional_encoding, x, level, padding)
            sizes.append(size_of(x))
            tokens.append(flatten_map(x))
            encodings.append(encoding)
            paddings.append(padding.flatten())
            valid = (~padding).float()
            shares.append(torch.stack([valid[0].mean(), valid[:, 0].mean()]))  # x, y
        about = Maps(sizes, torch.cat(paddings)[None], torch.stack(shares))
        memory = torch.cat(tokens, 1)
        positions = torch.cat(encodings, 1)
        points = reference_points(about.sizes, memory, about.ratios)
        for layer in model.encoder.layers:
            memory = layer(
                query=memory,
                query_pos=positions,
                key_padding_mask=self.mask(about),
                spatial_shapes=about.sizes,
                reference_points=points,
            )
        return memory, about

    def mask(self, maps: Maps) -> Tensor | None:
        """True for tokens of padding [1, N]; None where no image is padded."""
        return maps.padding if self.divisor > 1 else None

    def decode(self, memory: Tensor, maps: Maps) -> tuple[Tensor, Tensor]:
        """Logits [B, Q, K] and boxes [B, Q, 4] (cx, cy, w, h from 0 to 1) after the last layer."""
        model = self.model
        batch = memory.shape[0]
        states, references = model.decoder(
            query=model.query_embedding.weight.expand(batch, -1, -1),
            value=memory,
            key_padding_mask=self.mask(maps),
            self_attn_mask=None,
            reference_points=self.select(memory, maps),
            spatial_shapes=maps.sizes,
            level_start_index=None,
            valid_ratios=maps.ratios.expand(batch, -1, -1),
            reg_branches=model.bbox_head.reg_branches,
        )
        logits, boxes = model.bbox_head(states, list(references))
        return logits[-1], boxes[-1]

    def select(self, memory: Tensor, maps: Maps) -> Tensor:
        """Boxes [B, Q, 4] of the tokens with the highest class score; queries start from them."""
        model = self.model
        last = model.decoder.num_layers
        anchors, valid = maps.anchors()
        tokens = memory.masked_fill(~valid, 0)
        tokens = model.memory_trans_norm(model.memory_trans_fc(tokens))
        scores = model.bbox_head.cls_branches[last](tokens).amax(-1)  # [B, N]
        boxes = model.bbox_head.reg_branches[last](tokens) + anchors
        number = memory.shape[1]
        repeated = torch.arange(larger(number, model.num_queries), device=scores.device)
        # ONNX takes no symbol here.
        repeated = repeated % (repeated.new_ones(()) * number)
        best = scores[:, repeated].topk(model.num_queries, 1).indices
        chosen = repeated[best]
        return boxes.gather(1, chosen[..., None].expand(-1, -1, 4)).sigmoid()


class Maps(NamedTuple):
    """The maps of padded images, all of one size.

    Attributes:
        sizes: of each.
        padding: [1, N], true where a token is padding.
        ratios: [L, 2], the shares (x, y) of each map that are not padding.
    """

    sizes: list[Size]
    padding: Tensor
    ratios: Tensor

    def anchors(self) -> tuple[Tensor, Tensor]:
        """Boxes [N, 4] before the sigmoid, and which are valid [N, 1], as ``anchors_of``.

        They are relative to the image without padding.
        """
        levels = []
        pairs = zip(self.sizes, self.ratios, strict=True)
        for level, (size, ratio) in enumerate(pairs):
            centre, sides = grid_anchors(size, level, ratio.device).split(2, -1)
            levels.append(torch.cat([centre / ratio, sides], -1))
        anchors = torch.cat(levels)
        inside = (anchors > ANCHOR_BORDER) & (anchors < 1 - ANCHOR_BORDER)
        valid = inside.all(-1, keepdim=True) & ~self.padding.T
        return torch.log(anchors / (1 - anchors)).masked_fill(~valid, torch.inf), valid


def padding_of(size: Size, image: ImageSize, padded: ImageSize) -> Tensor:
    """[H, W]: whether a place of a map is padding, as the pixel at its top left is."""
    rows = torch.arange(size[0]) * padded[0] >= image[0] * size[0]
    columns = torch.arange(size[1]) * padded[1] >= image[1] * size[1]
    return rows[:, None] | columns


def size_with_tokens(graph: Graph, number: int) -> ImageSize:
    """The smallest generic image with 2 x 2 places of the coarsest map, (height, width).

    It also has ``number`` tokens in all maps.
    """
    side = 2 * max(graph.generic)
    maps = graph.model.extract_feat(torch.zeros(1, graph.channels, side, side))
    strides = [-(-side // min(x.shape[2:])) for x in maps]
    enough = 2 * max(strides)
    while sum((enough // stride) ** 2 for stride in strides) < number:
        enough += max(strides)
    height, width = graph.generic
    return max(height, enough), max(width, enough)


class EoMTDetectorGraph(Graph):
    """``EoMTDetector``: uint8 images to probabilities of classes and masks.

    Classes are [B, Q, K + 1], the last for no object; masks are [B, Q, H, W] on the pixels of the
    input. Users form instances or segments from them.
    """

    task = 'masks'
    outputs = ('classes', 'masks')

    def __init__(self, model: EoMTDetector, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        self.num_classes = model.num_classes
        self.model.backbone.to(dtype)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        (classes,), (masks,) = self.model.panoptic_head(self.model.extract_feat(x))
        size = size_of(x)
        masks = F.interpolate(masks, size, mode='bilinear', align_corners=False)
        masks = crop_maps(masks, frame.size) if self.divisor > 1 else masks
        return classes.softmax(-1), frame.maps(masks).sigmoid()


GRAPHS = {DINO: DetectorGraph, EoMTDetector: EoMTDetectorGraph}
