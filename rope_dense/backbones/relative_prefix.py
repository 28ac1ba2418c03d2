"""Attention without an absolute origin: scores with prefix tokens are not rotated.

Letters: see ``attention``.
"""

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor

from ..rope import rotate
from ..utils.sizes import Size
from .attention import Attention, rotary_in_windows, softmax_attention, softmax_scale
from .windows import WindowPlan


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
        self, x: Tensor, qkv: Tensor, grid: Size, plan: WindowPlan | None, mask: Tensor | None
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
        masks = [None, None] if mask is None else [mask[:, :, :number], mask[:, :, number:]]
        prefix = softmax_attention(q[:, :, :number], k, v, None, scale, plan, masks[0])
        q = torch.cat([rotated_q, q], -1)[:, :, number:]  # [B or w, h, n, 2 D]
        keys = [F.pad(k[:, :, :number], (channels, 0)), F.pad(rotated_k, (0, channels))]
        k = torch.cat([keys[0], keys[1][:, :, number:]], 2)  # [B or w, h, m, 2 D]
        # Values of 2 D, too: fused attention on a CPU takes one number of channels.
        out = softmax_attention(q, k, F.pad(v, (0, channels)), None, scale, plan, masks[1])
        out = out.unflatten(-1, (heads, -1))[..., :channels].flatten(2)  # [B or w, n, C]
        out = torch.cat([prefix, out], 1)  # [B or w, m, C]
        return out if plan is None else plan.unpartition(out)  # [B, N, C]
