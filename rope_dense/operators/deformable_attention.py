"""The sampling of multi-scale deformable attention (Zhu et al., "Deformable DETR", ICLR 2021).

Letters: B images, C channels, h heads, D = C / h, Q queries, H x W map, L maps, N cells of all
maps, P points of a head (in all maps in ``sample_maps``, in each map elsewhere).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .bags import at_least_float32


def sample_maps(
    maps: Sequence[Tensor],
    points: Tensor,
    num_points: Sequence[int],
    weights: Tensor,
) -> Tensor:
    """The weighted sums [B, Q, C] of the values at points in the maps, bilinear.

    Outside a map its values are 0.

    Args:
        maps: [B h, D, H, W] each.
        points: [B, Q, h, P, 2], (x, y) from -1 to 1, those in the first map first.
        num_points: in each map.
        weights: [B, Q, h, P].
    """
    heads = weights.shape[2]
    points = points.transpose(1, 2).flatten(0, 1)  # [B h, Q, P, 2]
    pairs = zip(maps, points.split(list(num_points), 2), strict=True)
    # [B h, D, Q, points of the map] each
    samples = [F.grid_sample(x, places, align_corners=False) for x, places in pairs]
    weights = weights.transpose(1, 2).flatten(0, 1)[:, None]  # [B h, 1, Q, P]
    out = (torch.cat(samples, -1) * weights).sum(-1)  # [B h, D, Q]
    return out.unflatten(0, (-1, heads)).flatten(1, 2).transpose(1, 2)


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """The operator of mmcv, [B, Q, C]; on a CPU mmcv calls a function of its own instead.

    Args:
        value: [B, N, h, D].
        value_spatial_shapes: [L, 2], (H, W) of each map.
        value_level_start_index: not used, the maps follow each other.
        sampling_locations: [B, Q, h, L, P, 2], (x, y) from 0 to 1.
        attention_weights: [B, Q, h, L, P].
        im2col_step: not used, images at once.
    """
    dtype = value.dtype
    places = at_least_float32(sampling_locations)
    weights = at_least_float32(attention_weights)
    sizes = value_spatial_shapes.tolist()
    tokens = at_least_float32(value).permute(0, 2, 3, 1).flatten(0, 1)  # [B h, D, N]
    parts = tokens.split([height * width for height, width in sizes], -1)
    maps = [part.unflatten(2, size) for part, size in zip(parts, sizes, strict=True)]
    num_points = [places.shape[4]] * len(sizes)
    points = (2 * places - 1).flatten(3, 4)
    return sample_maps(maps, points, num_points, weights.flatten(3)).to(dtype)


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    """Write the gradients to ``grad_value``, ``grad_sampling_loc`` and ``grad_attn_weight``."""
    inputs = value, sampling_locations, attention_weights
    with torch.enable_grad():
        value, locations, weights = (x.detach().requires_grad_() for x in inputs)
        out = ms_deform_attn_forward(
            value,
            value_spatial_shapes,
            value_level_start_index,
            locations,
            weights,
            im2col_step,
        )
        grads = torch.autograd.grad(out, (value, locations, weights), grad_output)
    outs = grad_value, grad_sampling_loc, grad_attn_weight
    for target, grad in zip(outs, grads, strict=True):
        target.copy_(grad)
