"""Attention from a fine grid to windows of a coarse one, and averages of a fine grid.

Letters: B images, h x w the coarse grid, H x W the fine one, K keys of a window along an axis, D
channels of a head of the queries, E of the values. G x M groups of positions with the same window,
r x s positions of a group.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..utils.memo import is_tracing
from ..utils.sizes import Size, smaller

HEADS = 4
WINDOW = 9  # keys of a window along an axis
MAX_BYTES = 64 * 2**20  # of the windows that are in memory at once


def window_attention(
    queries: Tensor,
    values: Tensor,
    step: int,
) -> Tensor:
    """Values of a coarse grid at the positions of a fine one.

    Keys are averages of the queries over the coarse positions. Windows of keys and values are
    gathered for some rows at a time, ``MAX_BYTES`` of them, if no gradient is needed; otherwise,
    and while tracing, for all rows.

    Args:
        queries: [B, 4 D, H, W].
        values: [B, 4, E, h, w].
        step: consecutive positions, along each axis, that have the same window: H / h where H is
            the same multiple of h as W of w; otherwise 1.

    Returns:
        [B, 4, E, H, W].
    """
    height, width = values.shape[3:]
    keys = average(queries, (height, width))
    keys = keys.unflatten(1, (HEADS, -1))  # [B, 4, D, h, w]
    q = queries.unflatten(1, (HEADS, -1)).to(values.dtype)  # [B, 4, D, H, W]
    rows = window_index(height, q.shape[3], step, q.device)  # [G, K]
    columns = window_index(width, q.shape[4], step, q.device)  # [M, K]
    q = q.unflatten(4, (columns.shape[0], step)).unflatten(3, (rows.shape[0], step))
    kv = torch.cat([keys.to(values.dtype), values], 2)  # [B, 4, D + E, h, w]
    needs_gradient = torch.is_grad_enabled() and (q.requires_grad or kv.requires_grad)
    if needs_gradient or is_tracing():
        return attend(q, kv, rows, columns)
    out = values.new_empty(*values.shape[:3], *queries.shape[2:])
    row_bytes = kv[..., 0, 0].nbytes * columns.numel() * rows.shape[1]
    count = max(1, MAX_BYTES // row_bytes)  # rows of groups at a time
    for first in range(0, rows.shape[0], count):
        chosen = slice(first, first + count)
        fine = slice(first * step, (first + count) * step)
        out[:, :, :, fine] = attend(q[:, :, :, chosen], kv, rows[chosen], columns)
    return out


def attend(
    q: Tensor,
    kv: Tensor,
    rows: Tensor,
    columns: Tensor,
) -> Tensor:
    """Attention of groups of positions to their windows.

    Args:
        q: [B, 4, D, G, r, M, s].
        kv: [B, 4, D + E, h, w], keys before values.
        rows, columns: [G, K] and [M, K] positions of the coarse grid.

    Returns:
        [B, 4, E, G r, M s].
    """
    dims = q.shape[2]
    kv = kv.index_select(3, rows.flatten()).index_select(4, columns.flatten())
    # [B, 4, D + E, G, K, M, K]
    kv = kv.unflatten(4, columns.shape).unflatten(3, rows.shape)
    kv = kv.permute(0, 3, 5, 1, 4, 6, 2).flatten(4, 5)  # [B, G, M, 4, K K, D + E]
    sides = q.shape[4], q.shape[6]
    q = q.permute(0, 3, 5, 1, 4, 6, 2).flatten(4, 5)  # [B, G, M, 4, r s, D]
    keys = kv[..., :dims]
    values = kv[..., dims:]
    scores = (q * dims**-0.5) @ keys.transpose(-1, -2)  # [B, G, M, 4, r s, K K]
    out = scores.softmax(-1) @ values  # [B, G, M, 4, r s, E]
    out = out.unflatten(4, sides).permute(0, 3, 6, 1, 4, 2, 5)  # [B, 4, E, G, r, M, s]
    return out.flatten(5, 6).flatten(3, 4)


def window_index(
    coarse: int,
    fine: int,
    step: int,
    device: torch.device,
) -> Tensor:
    """Coarse positions along an axis that each ``step``-th fine position attends to: [G, K].

    The coarse axis counts as enlarged to the fine one, nearest neighbour: position i has the value
    of floor((i + 1/2) coarse / fine). With d = floor(fine / coarse), the window of i is the 9
    positions ..., i - d, i, i + d, ... around it, moved inside at the borders: neighbourhood
    attention with dilation d. If fine = r coarse, these are the values of 9 consecutive coarse
    positions around floor(i / r). K is 9, or ``coarse`` if that is smaller.

    Args:
        coarse, fine: positions of the axes.
        step: 1, or r of fine = r coarse.
        device: of the result.
    """
    window = smaller(WINDOW, coarse)
    dilation = fine // coarse
    groups = fine if step == 1 else coarse
    position = torch.arange(groups, device=device) * step
    place = position // dilation  # in the positions that are equal modulo d
    residue = position - place * dilation  # not %, of which ONNX has none by a size
    members = (fine - residue + dilation - 1) // dilation
    start = torch.minimum((place - window // 2).clamp(min=0), members - window)
    offsets = torch.arange(window, device=device)
    enlarged = residue[:, None] + dilation * (start[:, None] + offsets)  # [G, K]
    return (2 * enlarged + 1) * coarse // (2 * fine)


def average(x: Tensor, size: Size) -> Tensor:
    """``F.adaptive_avg_pool2d`` of [B, C, H, W] to ``size``, also at dynamic sizes."""
    if not is_exporting():
        return F.adaptive_avg_pool2d(x, size)
    rows = averaging_matrix(x.shape[2], size[0], x)
    columns = averaging_matrix(x.shape[3], size[1], x)
    return rows @ x @ columns.T


def averaging_matrix(
    length: int,
    parts: int,
    like: Tensor,
) -> Tensor:
    """Averages of ``length`` numbers over ``parts`` intervals, as a matrix [parts, length].

    Interval i is from floor(i length / parts) to ceil((i + 1) length / parts), which is excluded.
    """
    index = torch.arange(parts, device=like.device)
    start = index * length // parts
    end = ((index + 1) * length + parts - 1) // parts
    position = torch.arange(length, device=like.device)
    inside = (position >= start[:, None]) & (position < end[:, None])
    return inside.to(like.dtype) / (end - start)[:, None].to(like.dtype)


def is_exporting() -> bool:
    """Return whether sizes are symbols that no branch may depend on."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()
