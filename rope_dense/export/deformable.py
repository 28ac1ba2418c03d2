"""Deformable attention and the pixel decoder of mmdet, with sizes of maps as integers.

mmcv and mmdet hold the sizes of the maps in a tensor and read them to split tokens, which no tracer
can follow. Here ``spatial_shapes`` is a list of (H, W), symbolic while tracing.

Letters: B images, C channels, L maps of H x W places, N tokens of all maps, Q queries, h heads,
P points of a head on a map, D channels of a head.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmcv.ops import MultiScaleDeformableAttention
from mmdet.models.layers import MSDeformAttnPixelDecoder
from mmdet.models.layers.positional_encoding import SinePositionalEncoding
from torch import Tensor, nn

from ..models.maps import cell_centres, size_of
from ..operators.deformable_attention import sample_maps
from ..utils.sizes import Size
from .client import sizes_like


class MMCVDeformableAttention(nn.Module):
    """mmcv's ``MultiScaleDeformableAttention`` in evaluation mode, its layers and its arguments.

    Zhu et al., "Deformable DETR" (ICLR 2021). Checked against mmcv's own in test_export.py.
    """

    def __init__(self, attention: MultiScaleDeformableAttention) -> None:
        super().__init__()
        if not attention.batch_first:
            raise ValueError('MultiScaleDeformableAttention must have batch_first=True')
        self.num_heads = attention.num_heads
        self.num_levels = attention.num_levels
        self.num_points = attention.num_points
        self.value_proj = attention.value_proj
        self.output_proj = attention.output_proj
        self.sampling_offsets = attention.sampling_offsets
        self.attention_weights = attention.attention_weights

    def forward(
        self,
        query: Tensor,
        value: Tensor | None = None,
        identity: Tensor | None = None,
        query_pos: Tensor | None = None,
        *,
        reference_points: Tensor,
        spatial_shapes: Sequence[Size],
        key_padding_mask: Tensor | None = None,
        **others: object,
    ) -> Tensor:
        """[B, Q, C] to the same.

        Args:
            value: [B, N, C], by default the query.
            identity: what is added, by default the query.
            query_pos: added to the query before anything else.
            reference_points: (x, y) [B, Q, L, 2] or (x, y, w, h) [B, Q, L, 4], from 0 to 1.
            spatial_shapes: of the maps.
            key_padding_mask: true where a token is padding, [1 or B, N]; its value is then 0.
            others: arguments that mmdet's layers pass to all attention.
        """
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        shape = (self.num_heads, self.num_levels, self.num_points, 2)
        # [B, Q, h, L, P, 2]
        offsets = self.sampling_offsets(query).unflatten(-1, shape)
        weights = self.attention_weights(query)
        weights = weights.unflatten(-1, (self.num_heads, -1)).softmax(-1)
        centres = reference_points[:, :, None, :, None]  # [B, Q, 1, L, 1, 2 or 4]
        if reference_points.shape[-1] == 2:
            sizes = torch.stack([sizes_like(offsets, size) for size in spatial_shapes])
            places = centres + offsets / sizes[:, None]
        else:
            sides = centres[..., 2:]
            places = centres[..., :2] + offsets / self.num_points * sides * 0.5
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0)
        value = value.unflatten(-1, (self.num_heads, -1))  # [B, N, h, D]
        value = value.permute(0, 2, 3, 1).flatten(0, 1)  # [B h, D, N]
        maps = split_maps(value, spatial_shapes)
        points = (2 * places - 1).flatten(3, 4)
        out = sample_maps(maps, points, [self.num_points] * self.num_levels, weights)
        return self.output_proj(out) + identity


def split_maps(tokens: Tensor, sizes: Sequence[Size]) -> list[Tensor]:
    """Tokens [B, C, N] of all maps as maps [B, C, H, W]."""
    lengths = [height * width for height, width in sizes]
    parts = zip(tokens.split(lengths, -1), sizes, strict=True)
    return [part.unflatten(2, size) for part, size in parts]


def position_encoding(
    encoding: SinePositionalEncoding,
    x: Tensor,
    level: Tensor,
    padding: Tensor | None = None,
) -> Tensor:
    """Position embedding [B, H W, C] of a map [B, C, H, W], plus ``level`` [C].

    ``level`` is the embedding of the map's level in the pyramid, ``padding`` [H, W] is true where
    the map has padding.
    """
    if padding is None:
        padding = x.new_zeros(x.shape[2:], dtype=torch.bool)
    encoded = encoding(padding.expand(x.shape[0], -1, -1))  # [B, C, H, W]
    return flatten_map(encoded + level[:, None, None])


def flatten_map(x: Tensor) -> Tensor:
    """A map [B, C, H, W] to tokens [B, H W, C]."""
    return x.flatten(2).transpose(1, 2)


def reference_points(
    sizes: Sequence[Size], like: Tensor, ratios: Tensor | None = None
) -> Tensor:
    """[B, N, L, 2]: the centre of each token, the same in all maps; ``like`` gives B.

    ``ratios`` [L, 2], (x, y), are the shares of the maps without padding.
    """
    if ratios is None:
        ratios = torch.ones(len(sizes), 2, device=like.device)
    centres = []
    for size, ratio in zip(sizes, ratios, strict=True):
        centres.append(cell_centres(size, like.device) / ratio)
    points = torch.cat(centres)[None, :, None] * ratios
    return points.expand(like.shape[0], -1, -1, -1)


class PixelDecoder(nn.Module):
    """mmdet's ``MSDeformAttnPixelDecoder`` (Mask2Former), its layers and its outputs."""

    def __init__(self, decoder: MSDeformAttnPixelDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Maps of a backbone, finest first, to mask features and maps, coarsest first."""
        decoder = self.decoder
        encoded = list(maps)[::-1][: decoder.num_encoder_levels]
        sizes = [size_of(x) for x in encoded]
        tokens = []
        positions = []
        levels = decoder.level_encoding.weight
        parts = zip(encoded, decoder.input_convs, levels, strict=True)
        for x, project, level in parts:
            tokens.append(flatten_map(project(x)))
            encoding = position_encoding(decoder.postional_encoding, x, level)
            positions.append(encoding)
        memory = decoder.encoder(
            query=torch.cat(tokens, 1),
            query_pos=torch.cat(positions, 1),
            key_padding_mask=None,
            spatial_shapes=sizes,
            reference_points=reference_points(sizes, tokens[0]),
            level_start_index=None,
            valid_ratios=None,
        )
        outs = split_maps(memory.transpose(1, 2), sizes)
        for index in reversed(range(len(maps) - len(encoded))):
            lateral = decoder.lateral_convs[index](maps[index])
            size = lateral.shape[2:]
            above = F.interpolate(outs[-1], size, mode='bilinear', align_corners=False)
            outs.append(decoder.output_convs[index](lateral + above))
        return decoder.mask_feature(outs[-1]), outs[: decoder.num_outs]
