"""Attention in windows whose prefix tokens attend globally.

Letters: see ``attention``; here n tokens of a window and P prefix tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rope.rotate import rotate_packed
from ..utils.sizes import Size
from .attention import Attention, attend, softmax_scale
from .windows import WindowPlan


class GlobalPrefixAttention(Attention):
    """Attention of a block in windows whose prefix tokens attend globally.

    A token of the grid attends to those of its window and to the prefix, a prefix token to all:
    global attention with a mask, with the positions of the whole grid, and without padding. Checked
    in tests/backbones/test_prefix_windows.py against just that, token by token.

    Args:
        others: see ``AttentionLayers``.
    """

    def attend_tokens(
        self, x: Tensor, qkv: Tensor, grid: Size, plan: WindowPlan | None, mask: Tensor | None
    ) -> Tensor:
        """See ``Attention.attend_tokens``.

        The windows of ``plan`` have ``num_shared`` prefix tokens and mask their padding.
        """
        if plan is None:
            return super().attend_tokens(x, qkv, grid, plan, mask)
        rotary = None if self.rope is None else self.rope(x, grid)
        qkv = rotate_packed(qkv, rotary, self.num_prefix_tokens)
        scale = softmax_scale(qkv, rotary)
        prefix, tokens = qkv[:, : self.num_prefix_tokens], qkv[:, self.num_prefix_tokens :]
        queries, others = plan.partition(tokens[:, :, 0]), plan.partition(tokens[:, :, 1:])
        shared = prefix[:, :, 1:].repeat(plan.num_windows, 1, 1, 1, 1)  # [W, P, 2, h, D]
        keys_values = torch.cat([shared, others], 1)  # [W, P + n, 2, h, D]
        windows = attend_packed(queries, keys_values, scale, plan)  # [W, n, C]
        prefix = attend_packed(prefix[:, :, 0], qkv[:, :, 1:], scale, None)
        return torch.cat([prefix, plan.unpartition(windows)], 1)  # [B, N, C]


def attend_packed(
    queries: Tensor, keys_values: Tensor, scale: float, plan: WindowPlan | None
) -> Tensor:
    """``attend`` from queries [B, m, h, D] to keys and values [B, n, 2, h, D], to [B, m, C]."""
    q, k, v = (x.transpose(1, 2) for x in (queries, *keys_values.unbind(2)))
    return attend(q, k, v, None, scale, plan)
