"""DINO as published, on either family of mmdet."""

import torch
from mmdet.models.detectors import DINO
from mmdet.models.layers import MLP
from mmengine.registry import MODELS
from torch import Tensor


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
        self, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """mmdet's candidates for the queries; tokens are repeated until there is one for each."""
        candidates = super().gen_encoder_output_proposals(memory, memory_mask, spatial_shapes)
        tokens = memory.shape[1]
        if tokens >= self.num_queries:
            return candidates
        repeated = torch.arange(self.num_queries, device=memory.device) % tokens
        features, boxes = (x[:, repeated] for x in candidates)
        return features, boxes


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
            raise ValueError(f'embed_dims of DINO must be a multiple of 4, got {embed_dims}')
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
        pairs = x.unflatten(-1, (4, channels // 2, 2))[..., ::step, :]  # [B, N, 4, C / 4, 2]
        return super().forward(pairs.flatten(-3))
