"""Multi-head self-attention of each token to its neighbourhood, dilated or not.

Letters: B images, H x W token grid, H' x W' padded, N' = H' W' tokens, h heads, D channels of a
head, C = h D, K x K tokens of a neighbourhood, t tiles, n queries and m keys of a tile.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..rope import Rotary
from ..rope.rotate import log_once, rotate_packed
from ..utils.sizes import Size
from ..utils.tracing import is_tracing
from ..utils.validation import refuse
from .attention import AttentionLayers, softmax_scale
from .layers import may_differ, resize_grid
from .neighbours import NeighbourPlan
from .position_bias import bias_table, offset_grid

Backend = Literal['auto', 'torch', 'natten']
MISSING = 'NATTEN is not installed (pip install natten)'


class NeighbourAttention(AttentionLayers):
    """Attention of each token of a grid to K x K tokens around it; see ``neighbour_plan``.

    Queries and keys are rotated before, by positions of the whole grid, so any rotary embedding
    works with any implementation: tiles through PyTorch's scaled_dot_product_attention, or
    NATTEN's fused kernel ``na2d``. Checked in test_neighbours.py against attention token by
    token in float64, with gradients, and against NATTEN.

    Args:
        backend: 'torch', 'natten', or 'auto' for NATTEN on a CUDA device where it can be used.
        others: see ``AttentionLayers``; without prefix tokens.

    Raises:
        ValueError: ``backend='natten'`` where NATTEN is not installed.
    """

    def __init__(self, *args: Any, backend: Backend = 'auto', **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.backend = backend
        if backend == 'natten' and find_spec('natten') is None:
            refuse('backend', backend, f"'auto' or 'torch': {MISSING}")

    def forward(self, x: Tensor, grid: Size, plan: NeighbourPlan, mask: None = None) -> Tensor:
        """Attend within neighbourhoods.

        Args:
            x: [B, H W, C].
            grid: (H, W).
            plan: of the neighbourhoods.
            mask: None.

        Returns:
            [B, H W, C].

        Raises:
            ValueError: a mask.
        """
        if mask is not None:
            raise ValueError('mask must be None: a neighbourhood is fixed by its plan')
        rotary = self.padded_rotary(x, plan)
        qkv = self.project(plan.pad(x))  # [B, N', 3, h, D]
        scale = softmax_scale(qkv, rotary)
        qkv = rotate_packed(qkv, rotary).unflatten(1, plan.padded)
        attend = attend_fused if self.is_fused(qkv) else self.attend_tiles
        return self.proj(self.norm(attend(qkv, plan, scale)))

    def padded_rotary(self, x: Tensor, plan: NeighbourPlan) -> Rotary | None:
        """The angles of the tokens of the padded grid, to the embedding a window of that size."""
        if self.rope is None:
            return None
        padded = plan.padded if may_differ(plan.padded, plan.grid) else None
        rotary = self.rope(x, plan.grid, padded)
        if rotary.angles.ndim == 3:
            return rotary
        angles = plan.pad(rotary.angles)  # of each image
        return Rotary(angles, rotary.pair_layout, rotary.attention_scale)

    def is_fused(self, qkv: Tensor) -> bool:
        """Return True if NATTEN computes attention."""
        if self.backend != 'auto':
            return self.backend == 'natten'
        if is_tracing() or not qkv.is_cuda:
            return False
        reason = why_not_natten(qkv)
        if reason is not None:
            log_once(f'neighbourhood attention without NATTEN: {reason}')
        return reason is None

    def attend_tiles(self, qkv: Tensor, plan: NeighbourPlan, scale: float) -> Tensor:
        """Rotated queries, keys and values [B, H', W', 3, h, D] to [B, H W, C]."""
        batch, heads = qkv.shape[0], qkv.shape[4]
        (q,) = plan.split_queries(qkv[:, :, :, :1])  # [t, B h, n, D]
        k, v = plan.split_keys(qkv[:, :, :, 1:])  # [t, B h, m, D] each
        mask = self.mask(plan, batch, q.dtype)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return plan.merge_tiles(out, batch, heads)

    def mask(self, plan: NeighbourPlan, batch: int, dtype: torch.dtype) -> Tensor:
        """[t, B h or 1, n, m]: bool, which keys are neighbours, or values added to the scores."""
        if is_tracing():  # one head in all would be a case of its own
            return plan.mask.expand(-1, batch * self.num_heads, -1, -1)
        return plan.mask


class TableBiasNeighbourAttention(NeighbourAttention):
    """Neighbourhood attention with a learned value for each head and offset of a neighbour.

    The table is in the form of ``TableBiasAttention``: row-major over offsets query - key, in steps
    of the dilation. NATTEN's fused kernels know no bias, so tiles are used.

    Args:
        bias_kernel: K that the table is made for, of rows and columns; for others it is resized
            (bicubic), as SHI-Labs did for their 11 x 11 models.
        others: see ``NeighbourAttention``.

    Raises:
        ValueError: ``backend='natten'``.
    """

    def __init__(self, *args: Any, bias_kernel: Size, **kwargs: Any) -> None:
        if kwargs.get('backend') == 'natten':
            refuse(
                'backend',
                'natten',
                "'auto' or 'torch' with use_rpb=True (NATTEN's fused kernels have no bias, and "
                'from version 0.20 on none has)',
            )
        super().__init__(*args, **kwargs)
        self.bias_kernel = bias_kernel
        self.relative_position_bias_table = bias_table(bias_kernel, self.num_heads)

    def is_fused(self, qkv: Tensor) -> bool:
        return False

    def mask(self, plan: NeighbourPlan, batch: int, dtype: torch.dtype) -> Tensor:
        old, new = offset_grid(self.bias_kernel), offset_grid(plan.kernel_size)
        table = resize_grid(self.relative_position_bias_table[None], old, new)[0]
        bias = plan.bias(table.T.unflatten(1, new).to(dtype))  # [t, h, n, m]
        return bias.repeat(1, batch, 1, 1)


def attend_fused(qkv: Tensor, plan: NeighbourPlan, scale: float) -> Tensor:
    """``NeighbourAttention.attend_tiles`` by NATTEN: one kernel, without copies of keys."""
    from natten import na2d

    q, k, v = qkv.unbind(3)  # [B, H', W', h, D] each
    out = na2d(q, k, v, kernel_size=plan.kernel_size, dilation=plan.dilation, scale=scale)
    height, width = plan.grid
    return out[:, :height, :width].flatten(3).flatten(1, 2)  # [B, H W, C]


def why_not_natten(qkv: Tensor) -> str | None:
    """Return why NATTEN's fused kernels cannot take a projection [..., D]; None if they can."""
    if not qkv.is_cuda:
        return 'the tensors are not on a CUDA device'
    if find_spec('natten') is None:
        return MISSING
    import natten

    if not natten.HAS_LIBNATTEN:
        return 'NATTEN was installed without its CUDA library'
    if qkv.dtype == torch.float64:
        return 'its kernels take float16, bfloat16 and float32'
    if qkv.shape[-1] % 8:
        return f'its kernels take heads of a multiple of 8 channels, these have {qkv.shape[-1]}'
    return None
