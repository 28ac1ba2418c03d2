"""Attention with a position bias, or with a position embedding of its values.

Letters: see ``attention``; H x W and n = H W also of a window.

Attention without an absolute origin: scores with prefix tokens are not rotated.

Letters: see ``attention``.
"""

from typing import Any, get_args

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..rope import rotate
from ..utils.memo import memo
from ..utils.sizes import Size
from ..utils.validation import check_choice, checked_size
from .attention import (
    Attention,
    Place,
    rotary_in_windows,
    softmax_attention,
    softmax_scale,
)
from .layers import PositionConv, TableResize, may_differ, pad_grid, resize_grid
from .windows import WindowPlan


@MODELS.register_module('TableBias')
class TableBiasAttention(Attention):
    """Attention with Swin's relative position bias: a learned value for each head and offset.

    The table covers the grid of the pre-training, and is resized to other grids and windows.

    Args:
        resize: 'bicubic' for fine-tuning, as Swin's code does, where every entry of a larger table
            starts from a trained one; or 'zeros' for no bias between tokens that are further apart
            than in the table, and for smaller windows its middle: the paper's test of other windows
            (Heo et al., section 3.3), which the evaluation of its classifiers takes.

    Raises:
        ValueError: another ``resize``.
    """

    def __init__(
        self, *args: Any, place: Place, resize: TableResize = 'bicubic', **kwargs: Any
    ) -> None:
        check_choice('attention: resize', resize, get_args(TableResize))
        super().__init__(*args, **kwargs)
        self.bias_window, self.resize = place.grid, resize
        self.relative_position_bias_table = bias_table(place.grid, self.num_heads)

    def bias(self, q: Tensor, size: Size) -> Tensor:
        resized = resize_grid if self.resize == 'bicubic' else pad_grid
        table = self.relative_position_bias_table[None]
        table = resized(table, offset_counts(self.bias_window), offset_counts(size))[0]
        return pair_bias(table, size)  # [h, n, n]


@MODELS.register_module('DecomposedBias')
class DecomposedBiasAttention(Attention):
    """Attention with ViTDet's relative position bias.

    The bias is the product of a query with a table entry for the row offset, plus its product with
    one for the column offset.

    Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection" (ECCV 2022). The
    tables start at zero, and are resized (linear) to other grids.

    Args:
        img_size: image size, an int or (height, width), of the tables of global blocks; the tables
            of blocks with windows cover the grid of the pre-training.
        others: see ``Attention``; ``rope`` is None.

    Raises:
        ValueError: a size below one patch, or a rotary embedding.
    """

    def __init__(
        self, *args: Any, place: Place, img_size: int | Size = 1024, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.rope is not None:
            raise ValueError(
                'attention DecomposedBias is the baseline without rotary embedding: set rope=None'
            )
        height, width = checked_size('attention: img_size', img_size, place.patch_size)
        of_image = height // place.patch_size, width // place.patch_size
        bias_grid = place.grid if place.in_windows else of_image
        head_dim = self.proj.in_features // self.num_heads
        self.rel_pos_h, self.rel_pos_w = (
            nn.Parameter(torch.zeros(2 * side - 1, head_dim)) for side in bias_grid
        )

    def bias(self, q: Tensor, size: Size) -> Tensor:
        rows_table = gather_by_offset(self.rel_pos_h, size[0])  # [H, H, D]
        columns_table = gather_by_offset(self.rel_pos_w, size[1])  # [W, W, D]
        q = q.unflatten(2, size)  # [B, h, H, W, D]
        rows = torch.einsum('bnhwd,hkd->bnhwk', q, rows_table)
        columns = torch.einsum('bnhwd,wkd->bnhwk', q, columns_table)
        return (rows[..., :, None] + columns[..., None, :]).flatten(4, 5).flatten(2, 3)


@MODELS.register_module('LocalPosition')
class LocalPositionAttention(Attention):
    """Attention with ResFormer's local position embedding.

    A depth-wise convolution of the values, as a map of each head, is added to the output of
    attention; prefix tokens have none.

    Tian et al., "ResFormer: Scaling ViTs with Multi-Resolution Training" (CVPR 2023).
    All heads share the filters, which start at zero.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local = PositionConv(self.proj.in_features // self.num_heads)
        for parameter in self.local.parameters():
            nn.init.zeros_(parameter)

    def attend_tokens(
        self,
        x: Tensor,
        qkv: Tensor,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """See ``Attention.attend_tokens``."""
        before = qkv.shape[1] - grid[0] * grid[1]
        values = qkv[:, before:, 2].permute(0, 2, 3, 1)  # [B, h, D, H W]
        # [B h, D, H W]
        local = self.local(values.flatten(0, 1).unflatten(2, grid)).flatten(2)
        local = local.unflatten(0, (-1, self.num_heads)).permute(0, 3, 1, 2).flatten(2)
        return super().attend_tokens(x, qkv, grid, plan, mask) + F.pad(
            local, (0, 0, before, 0)
        )


def offset_counts(size: Size) -> Size:
    """Return the numbers of row and column offsets between tokens of a grid or window."""
    return 2 * size[0] - 1, 2 * size[1] - 1


def bias_table(size: Size, num_heads: int) -> nn.Parameter:
    """Make a learned value for each offset in a grid or window of ``size``: [offsets, h]."""
    rows, columns = offset_counts(size)
    return nn.Parameter(0.02 * torch.randn(rows * columns, num_heads))


def pair_bias(table: Tensor, size: Size) -> Tensor:
    """The values of each query and key in a grid or window of ``size``: [h, n, n].

    Args:
        table: [offsets, h], row-major over offsets query - key: -(H - 1) .. H - 1 rows,
            -(W - 1) .. W - 1 columns.
    """
    rows, columns = (offset_index(side, device=table.device) for side in size)
    table = table.unflatten(0, offset_counts(size))  # [2 H - 1, 2 W - 1, h]
    # The indexes broadcast: nothing of the size of all pairs is made of them.
    values = table[rows[:, None, :, None], columns[None, :, None]]  # [H, W, H, W, h]
    return values.flatten(2, 3).flatten(0, 1).permute(2, 0, 1)


def gather_by_offset(table: Tensor, size: int) -> Tensor:
    """Gather a table of offsets for queries i and keys k: the entries of i - k, [size, size, D]."""
    if may_differ(len(table), 2 * size - 1):
        table = F.interpolate(table.T[None], size=2 * size - 1, mode='linear')[0].T
    return table[offset_index(size, device=table.device)]


@memo
def offset_index(side: int, *, device: torch.device) -> Tensor:
    """The entry i - k + side - 1 of a table of offsets, for queries i and keys k: [side, side]."""
    index = torch.arange(side, device=device)
    return index[:, None] - index + side - 1


@MODELS.register_module('RelativePrefix')
class RelativePrefixAttention(Attention):
    """Attention with rotated scores between tokens of the grid, and unrotated ones with the prefix.

    In plain attention a query of the grid is rotated, and the key of a prefix token is not: their
    score (R_p q) . k depends on the absolute position p. Here it is q . k, so that no score depends
    on the origin of the positions. For training from scratch: weights have the names and shapes of
    plain attention, which published weights were trained with. Checked in
    tests/backbones/test_relative_prefix.py against scores in float64, token by token, and by moving
    the origin and the content of images.
    """

    def attend_tokens(
        self,
        x: Tensor,
        qkv: Tensor,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """See ``Attention.attend_tokens``.

        Channels of a head, for queries of the grid in one call of attention with values of 2 D:

            queries of the grid   [R q, q]
            keys of the grid      [R k, 0]
            keys of the prefix    [0, k]

        Queries of the prefix attend in a call of their own, with D channels.
        """
        number = self.num_prefix_tokens
        if self.rope is None or not number:
            return super().attend_tokens(x, qkv, grid, plan, mask)
        size = plan.window_size if plan is not None and plan.contiguous else None
        rotary = self.rope(x, grid, size)
        if plan is not None:
            qkv = plan.partition(qkv, self.padding(x, plan))  # [w, m, 3, h, D]
            if rotary.angles.ndim == 4 or not plan.contiguous:
                rotary = rotary_in_windows(rotary, plan)
        q, k, v = rotate(qkv, None)  # [B or w, h, m, D]
        rotated_q, rotated_k, _ = rotate(qkv, rotary, number)
        scale, (heads, _, channels) = softmax_scale(q, rotary), q.shape[1:]
        masks = (
            [None, None] if mask is None else [mask[:, :, :number], mask[:, :, number:]]
        )
        prefix = softmax_attention(q[:, :, :number], k, v, None, scale, plan, masks[0])
        q = torch.cat([rotated_q, q], -1)[:, :, number:]  # [B or w, h, n, 2 D]
        keys = [F.pad(k[:, :, :number], (channels, 0)), F.pad(rotated_k, (0, channels))]
        k = torch.cat([keys[0], keys[1][:, :, number:]], 2)  # [B or w, h, m, 2 D]
        # Values of 2 D, too: fused attention on a CPU takes one number of channels.
        out = softmax_attention(
            q, k, F.pad(v, (0, channels)), None, scale, plan, masks[1]
        )
        # [B or w, n, C]
        out = out.unflatten(-1, (heads, -1))[..., :channels].flatten(2)
        out = torch.cat([prefix, out], 1)  # [B or w, m, C]
        return out if plan is None else plan.unpartition(out)  # [B, N, C]
